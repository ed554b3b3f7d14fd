"""Random nestings of transforms, on arrays on one device and over several: results match jax.

A nesting is a chain of layers around a base function. Every layer transforms a function from arrays
to arrays of the same shape into another such function with one transform or form of control flow.
"""

import functools
import importlib

import jax
import jax.numpy
import numpy as np
import pytest
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.helpers.beside_jax import assert_same
from tests.helpers.everyday import everyday
from tests.helpers.searched import searched

MESH = Mesh(np.array(sw.devices()[:8]), "d")
RNG = np.random.RandomState(0)


class Library:
    """The names of one of the libraries."""

    def __init__(self, root):
        self.root, self.np, self.lax = root, root.numpy, root.lax
        self.policies = root.checkpoint_policies
        remat = importlib.import_module(f"{root.__name__}.ad_checkpoint")
        self.name = remat.checkpoint_name

    def __getattr__(self, name):
        return getattr(self.root, name)


BOTH = Library(sw), Library(jax)


def real(lib, x):
    return lib.np.real(x) if lib.np.iscomplexobj(x) else x


def total(lib, x):
    """A real number to which every element contributes differently."""
    return lib.np.sum(real(lib, x * lib.np.arange(1.0, 1.0 + x.size).reshape(x.shape)) / x.size)


BASES = {
    "sine": lambda lib, x: lib.np.sin(x) * x,
    "power": lambda lib, x: lib.np.tanh(x * 0.7) + 0.3 * x**2,
    "scans": lambda lib, x: lib.np.cumsum((x * x).ravel()).reshape(x.shape) * 0.2,
    "product": lambda lib, x: x * lib.np.prod(lib.np.cos(x) * 0.5 + 0.9),
    "matrix": lambda lib, x: (lib.np.outer(x, lib.np.sin(x)) @ x.ravel()).reshape(x.shape) * 0.3,
    "choice": lambda lib, x: lib.np.where(real(lib, x) > 0.1, x * x, lib.np.sin(x)),
    "sorted": lambda lib, x: lib.np.sort(real(lib, x).ravel()).reshape(x.shape) * x,
    "steps": lambda lib, x: x * lib.np.floor(real(lib, x) * 3).astype("int32") * 0.2 + x**3,
    "linear": lambda lib, x: 2.0 * x,
    "constant": lambda lib, x: x * 0 + 1.5,
    "update": lambda lib, x: x.ravel().at[0].multiply(x.ravel()[-1]).reshape(x.shape),
    "norm": lambda lib, x: x / lib.np.sqrt(1 + lib.np.sum(lib.np.abs(x) ** 2)),
}

LAYERS = {}


def layer(make):
    LAYERS[make.__name__] = make
    return make


@layer
def jit(lib, g):
    return lib.jit(g)


@layer
def vmap(lib, g):
    return lambda x: lib.np.sum(lib.vmap(g, -1, -1)(lib.np.stack([x, 0.5 * x], -1)), -1)


@layer
def vmap_of_a_closure(lib, g):
    return lambda x: lib.vmap(lambda s, y: g(s * y * x), (0, None))(real(lib, x).ravel()[:2], x)[-1]


@layer
def grad(lib, g):
    return lib.grad(lambda x: total(lib, g(x)))


@layer
def grad_of_a_closure(lib, g):
    return lambda x: lib.grad(lambda a, y: total(lib, g(x * y)), argnums=-1)(x, x)


@layer
def value_and_grad(lib, g):
    def f(x):
        both = lib.value_and_grad(lambda x: (total(lib, g(x)), {"aux": g(x) * 2}), has_aux=True)
        (value, aux), gradient = both(x)
        return value * gradient + aux["aux"]

    return f


@layer
def jvp(lib, g):
    return lambda x: sum(lib.jvp(g, (x,), (lib.np.cos(x),)))


@layer
def jacfwd(lib, g):
    def f(x):
        rows = lib.jacfwd(g, holomorphic=lib.np.iscomplexobj(x))(x)
        return lib.np.tensordot(rows, x, x.ndim)

    return f


@layer
def jacrev(lib, g):
    def f(x):
        rows = lib.jacrev(g, holomorphic=lib.np.iscomplexobj(x))(x)
        return lib.np.tensordot(rows, x, x.ndim)

    return f


@layer
def linearize(lib, g):
    def f(x):
        y, along = lib.linearize(g, x)
        return y + lib.np.sum(lib.vmap(along)(lib.np.stack([x, x * x])), 0)

    return f


@layer
def vjp(lib, g):
    def f(x):
        y, back = lib.jit(lambda x: lib.vjp(g, x))(x)
        return back(y * 0.5)[0] + lib.np.sin(x)

    return f


@layer
def linear_transpose(lib, g):
    return lambda x: lib.linear_transpose(lambda z: lib.np.flip(z) * g(x), x)(x)[0]


@layer
def checkpoint(lib, g):
    return lib.checkpoint(lambda x: lib.np.sin(lib.checkpoint(g)(x)))


@layer
def checkpoint_with_names(lib, g):
    policy = lib.policies.save_only_these_names("a")
    return lib.checkpoint(lambda x: lib.name(g(x * 1.1), "a") * x, policy=policy)


@layer
def custom_jvp(lib, g):
    f = lib.custom_jvp(lambda x, y: g(x) * y)

    @f.defjvp
    def rule(primals, tangents):
        (x, y), (t, s) = primals, tangents
        out, moved = lib.jvp(g, (x,), (t,))
        return out * y, moved * y * 2 + s * out

    return lambda x: f(x, lib.np.cos(x))


@layer
def custom_vjp(lib, g):
    f = lib.custom_vjp(lambda x, y: g(x) * y)

    def back(kept, ct):
        x, y = kept
        return lib.vjp(g, x)[1](ct * y)[0] * 2, ct * g(x)

    f.defvjp(lambda x, y: (g(x) * y, (x, y)), back)
    return lambda x: f(x, x)


@layer
def custom_gradient(lib, g):
    def f(x):
        y, back = lib.vjp(g, x)
        return y, lambda ct: (back(ct)[0] * 0.5,)

    return lib.custom_gradient(f)


@layer
def scan(lib, g):
    def f(x):
        def step(c, a):
            c = g(c) * 0.3 + a * x
            return c, lib.np.sin(c)

        carry, ys = lib.lax.scan(step, x, lib.np.array([0.1, 0.2], real(lib, x).dtype))
        return carry + ys[0]

    return f


@layer
def scan_of_checkpoint(lib, g):
    def f(x):
        step = lib.checkpoint(lambda c, a: (g(c) * 0.3 + a, c * 1.0), prevent_cse=False)
        carry, ys = lib.lax.scan(step, x, lib.np.stack([x, x * 0.5]))
        return carry + ys[1]

    return f


@layer
def cond(lib, g):
    return lambda x: lib.lax.cond(total(lib, x) > 0, lambda y: g(y) * x, lambda y: -g(y * y), x)


@layer
def fori_loop(lib, g):
    return lambda x: lib.lax.fori_loop(0, 2, lambda i, c: g(c) * 0.5 + x * i, x)


def nested(lib, base, names):
    chain = functools.partial(BASES[base], lib)
    for name in reversed(names):
        chain = LAYERS[name](lib, chain)
    return chain


def outcome(run):
    """The result of a call, or the type of the error that it raises."""
    try:
        return run(), None
    except TypeError as error:
        return None, error


VALUES = {
    "vector": RNG.standard_normal(3) * 0.6,
    "matrix": RNG.standard_normal((2, 3)) * 0.6,
    "complex": RNG.standard_normal(3) * 0.5 + 0.4j * RNG.standard_normal(3),
    "split": RNG.standard_normal(8) * 0.5,
    "split unevenly": RNG.standard_normal(10) * 0.5,
    "complex, split": RNG.standard_normal(8) * 0.5 + 0.4j * RNG.standard_normal(8),
}


def check(base, names, kind, staged):
    value = VALUES[kind].astype("complex64" if "complex" in kind else "float32")
    given = sw.numpy.asarray(value)
    if "split" in kind:
        given = sw.device_put(value, NamedSharding(MESH, PartitionSpec("d")))
    ours, theirs = (nested(lib, base, names) for lib in BOTH)
    wanted, failed = outcome(lambda: jax.jit(theirs)(value))
    found, refused = outcome(lambda: (sw.jit(ours) if staged else ours)(given))
    if failed is not None:  # forward mode over a reverse-mode rule
        assert "custom_vjp" in str(failed) and "custom_vjp" in str(refused)
        return
    if refused is not None:
        raise refused
    scale = 1 + np.max(np.abs(np.asarray(wanted)))
    if np.isfinite(scale):
        assert_same(found / scale, wanted / scale, 1e-3)


EXAMPLES = [
    ("sine", ["grad", "custom_jvp", "vmap"], "matrix", True),
    ("matrix", ["vmap", "vjp", "scan_of_checkpoint"], "split unevenly", True),
    ("update", ["jacrev", "cond", "custom_jvp"], "complex", True),
    ("choice", ["linear_transpose", "checkpoint", "fori_loop"], "split", True),
    ("norm", ["jacfwd", "custom_vjp"], "vector", False),
    ("scans", ["value_and_grad", "vmap_of_a_closure", "custom_gradient"], "complex, split", True),
]


@pytest.mark.parametrize(("base", "names", "kind", "staged"), everyday(EXAMPLES, 1))
def test_nestings(base, names, kind, staged):
    check(base, names, kind, staged)


@pytest.mark.parametrize("group", everyday(range(4), 1))
def test_nestings_at_random(group):
    searched(
        group,
        8,
        check,
        st.sampled_from(sorted(BASES)),
        st.lists(st.sampled_from(sorted(LAYERS)), min_size=2, max_size=3),
        st.sampled_from(sorted(VALUES)),
        st.booleans(),
    )
