"""custom_vmap and sequential_vmap: the rule under every transform, against jax."""

import functools

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise._src.core.checker import check_program
from shardwise.custom_batching import custom_vmap
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.same_as_jax import JAX, OURS

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
Y = np.array([1, 2], np.float32)


def made(lib, calls=None):
    """f(x, y) = sin(x) y. The rule has a factor of 3 that the function does not have."""

    @lib.root.custom_batching.custom_vmap
    def f(x, y):
        return {"s": lib.np.sin(x) * y}

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        if calls is not None:
            calls.append((axis_size, in_batched))
        y = y[:, None] if in_batched[1] else y
        return {"s": lib.np.sin(x) * y * 3.0}, {"s": True}

    return f


def total(lib, f):
    return lambda *a: lib.np.sum(f(*a)["s"])


# Each: (lib, f, in_axes) → a function of a batch of x and y.
NESTINGS = {
    "vmap": lambda lib, f, axes: lib.root.vmap(f, axes),
    "vmap of jit": lambda lib, f, axes: lib.root.vmap(lib.root.jit(f), axes),
    "vmap of jvp": lambda lib, f, axes: lib.root.vmap(lambda *a: lib.root.jvp(f, a, a), axes),
    "jvp of vmap": lambda lib, f, axes: lambda *a: lib.root.jvp(lib.root.vmap(f, axes), a, a),
    "jvp of vmap of jvp": lambda lib, f, axes: (
        lambda *a: lib.root.jvp(lib.root.vmap(lambda *a: lib.root.jvp(f, a, a), axes), a, a)
    ),
    "grad of vmap": lambda lib, f, axes: lib.root.grad(total(lib, lib.root.vmap(f, axes)), (0, 1)),
    "scan of vmap": lambda lib, f, axes: (
        lambda *a: lib.lax.scan(
            lambda c, _: (c + lib.root.vmap(f, axes)(*a)["s"], None),
            lib.np.zeros((2, 3)),
            None,
            length=2,
        )[0]
    ),
}


@pytest.mark.parametrize("axes", [(0, None), (0, 0), (None, 0)], ids=str)
def test_the_rule_is_used_as_in_jax(axes):
    args = [a if d == 0 else a[0] for a, d in zip((X, Y), axes, strict=True)]
    names = list(NESTINGS) if axes == (0, 0) else ["vmap", "jvp of vmap", "vmap of jvp"]
    ours = {n: NESTINGS[n](OURS, made(OURS), axes) for n in names}
    theirs = {n: NESTINGS[n](JAX, made(JAX), axes) for n in names}
    wanted = jax.jit(lambda *a: {n: g(*a) for n, g in theirs.items()})(*args)
    together = sw.jit(lambda *a: {n: g(*a) for n, g in ours.items()})
    close(together(*args), wanted)
    check_program(together.trace(*args).program)
    close(ours["vmap"](*args), wanted["vmap"])


def test_what_the_rule_gets():
    calls = []
    f = made(OURS, calls)
    sw.vmap(f, (0, None))(X, Y[0])
    assert calls == [(2, [True, False])]
    calls.clear()
    sw.vmap(lambda x: sw.jvp(lambda y: f(x, y), (Y[0],), (Y[0],)))(X)
    assert calls == [(2, [True, False])]  # y has a tangent and is not mapped
    assert float(f(0.0, 1.0)["s"]) == 0.0  # without vmap, the function


@pytest.mark.parametrize("axes", [(0, None), (None, 0)], ids=str)
def test_a_value_or_a_tangent_alone_is_mapped(axes):
    """The rule differs from the function, to show where it is used, and with which arguments."""
    seen = []

    def mapped(lib):
        f = lib.root.custom_batching.custom_vmap(lib.np.sin)

        @f.def_vmap
        def rule(size, in_batched, x):
            seen.append((size, in_batched))
            return lib.np.cos(x), in_batched[0]

        return lib.root.vmap(lambda x, t: lib.root.jvp(f, (x,), (t,)), axes)

    args = [X[0] if d == 0 else X[0, 0] for d in axes]
    close(mapped(OURS)(*args), mapped(JAX)(*args))
    assert seen[0] == (3, [False]) and len({str(s) for s in seen}) == 1

    g = custom_vmap(lambda x: swnp.stack([x, -x]))
    g.def_vmap(lambda size, batched, x: (swnp.arange(size)[:, None] * swnp.stack([x, -x]), True))
    row = np.arange(3, dtype=np.float32) * X[0]
    found = sw.vmap(lambda x: sw.jvp(g, (x,), (1.0,)))(X[0])  # a new axis of the rule, too
    close(found[0], np.stack([row, -row], 1))


def test_reverse_mode_of_a_single_example():
    """By then the linear part is batched without the rule, so only values have its factor."""
    slope = sw.vmap(sw.value_and_grad(total(OURS, made(OURS)), (0, 1)))
    value, (by_x, by_y) = slope(X, Y)
    close(value, 3 * (np.sin(X) * Y[:, None]).sum(1), 1e-5)
    close(by_x, np.cos(X) * Y[:, None], 1e-5)
    close(by_y, np.sin(X).sum(1), 1e-5)
    close(sw.jit(slope)(X, Y)[1][0], by_x, 1e-6)


def test_values_from_outside_are_differentiated():
    def f(scale):
        @custom_vmap
        def g(x):
            return swnp.sin(x) * scale

        g.def_vmap(lambda size, batched, x: (swnp.sin(x) * scale, True))
        return swnp.sum(g(X))

    close(sw.grad(f)(2.0), np.sin(X).sum(), 1e-5)


@pytest.mark.parametrize("axes", [(0, None), (0, 0)], ids=str)
def test_sequential_vmap(axes):
    def f(lib, x, y):
        return lib.np.sin(x) * y, lib.np.sum(x)

    def mapped(lib):
        g = lib.root.custom_batching.sequential_vmap(functools.partial(f, lib))
        return lib.root.vmap(g, axes)

    args = [a if d == 0 else a[0] for a, d in zip((X, Y), axes, strict=True)]
    close(mapped(OURS)(*args), mapped(JAX)(*args))
    assert "scan" in str(sw.make_jaxpr(mapped(OURS))(*args))
    twice = [np.stack([a, a]) for a in args]
    text = str(sw.make_jaxpr(sw.vmap(mapped(OURS)))(*twice))
    assert text.count("scan[") == 2  # one element at a time along both axes
    by_x = sw.grad(lambda *a: swnp.sum(mapped(OURS)(*a)[0]))(*args)
    close(by_x, np.cos(X) * (Y[:, None] if axes[1] == 0 else Y[0]), 1e-5)


def test_over_shards():
    mesh = sw.sharding.Mesh(np.array(sw.devices()[:2]), ("x",))
    placed = sw.device_put(X, sw.NamedSharding(mesh, sw.P("x")))
    got = sw.jit(sw.vmap(made(OURS), (0, None)))(placed, Y[0])
    close(got["s"], 3 * np.sin(X), 1e-5)
    assert got["s"].sharding.is_equivalent_to(placed.sharding, 2)


# ------------------------------------------------------------------------------ messages


def test_messages():
    @custom_vmap
    def f(x):
        return x

    assert message(AttributeError, f, 1.0) == (
        "custom_vmap function f has no batching rule: define one with @f.def_vmap."
    )

    def fails(kind, rule, wanted):
        f.def_vmap(rule)
        assert message(kind, sw.vmap(f), X) == wanted

    fails(
        TypeError,
        lambda *a: 1.0,
        "<lambda>, the vmap rule of custom_vmap function f, must "
        "return a pair (result, out_batched); it returned 1.0 of type float.",
    )
    fails(
        ValueError,
        lambda n, b, x: (x, [True]),
        "<lambda>, the vmap rule of custom_vmap "
        "function f, must return out_batched with the result's pytree structure; out is a leaf "
        "in the result and a list of 1 in out_batched.",
    )
    fails(
        ValueError,
        lambda n, b, x: ((x,), (True,)),
        "<lambda>, the vmap rule of custom_vmap "
        "function f, must return a result with the function's own pytree structure; out is a "
        "leaf in that of the function and a tuple of 1 in its own.",
    )
    fails(
        ValueError,
        lambda n, b, x: (x[0], True),
        "<lambda>, the vmap rule of custom_vmap "
        "function f, says that a result of type f32[3] is batched, so its first "
        "dimension must have size 2.",
    )


def test_a_mapped_value_from_outside_is_refused():
    def f(x):
        @custom_vmap
        def g(y):
            return x * y

        g.def_vmap(lambda size, batched, y: (y, True))
        return g(x)

    assert message(TypeError, sw.vmap(f), X) == (
        "custom_vmap function g uses a mapped value from outside, which its rule cannot "
        "see: pass the value to g as an argument."
    )


def test_what_it_gives_are_arrays():
    """Also if the function returns its argument, or a number."""
    f = custom_vmap(lambda x: (x, 2.0, np.ones(2, np.float32)))
    f.def_vmap(lambda size, batched, x: ((x, 2.0, np.ones(2)), (batched[0], False, False)))
    g = sw.custom_batching.sequential_vmap(lambda x: x)
    for x in (1.0, np.float32(1)):
        found = [*f(x), g(x)]
        assert all(isinstance(v, sw.Array) for v in found)
        assert [v.weak_type for v in found] == [type(x) is float, True, False, type(x) is float]
