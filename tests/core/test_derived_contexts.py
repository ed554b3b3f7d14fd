"""Results derived from a program belong to the context in which they were derived.

User rules run when a program is differentiated or batched, and may read state that is in scope:
user contexts, flags, meshes. A rule that runs in one context must not be reused for another.
"""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.custom_batching import custom_vmap
from tests.helpers.everyday import everyday

SLOPE = sw.make_user_context(1.0)
X = np.float32(3.0)


@sw.custom_jvp
def forward(x):
    return x * 2


@forward.defjvp
def _(primals, tangents):
    return forward(*primals), tangents[0] * SLOPE.value


@sw.custom_vjp
def reverse(x):
    return x * 2


reverse.defvjp(lambda x: (reverse(x), None), lambda _, ct: (ct * SLOPE.value,))


def plain(f):
    return f


def in_scan(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


def in_cond(f):
    return lambda x: lax.cond(x > 0, f, lambda x: x, x)


def in_loop(f):
    return lambda x: lax.fori_loop(0, 1, lambda i, c: f(c), x)


def in_rows(f):
    return lambda x: sw.vmap(in_scan(f))(x[None])[0]


HOLDERS = [plain, in_scan, in_cond, in_loop, in_rows, sw.jit, sw.checkpoint]


def by_vjp(f):
    return lambda x: sw.vjp(f, x)[1](np.float32(1))[0]


DERIVATIVES = {
    "grad": sw.grad,
    "jit(grad)": lambda f: sw.jit(sw.grad(f)),
    "grad(jit)": lambda f: sw.grad(sw.jit(f)),
    "vmap(grad)": lambda f: lambda x: sw.vmap(sw.grad(f))(np.full(2, x))[0],
    "vjp": by_vjp,
    "jacfwd": sw.jacfwd,
}


CASES = [(f, d) for f in (forward, reverse) for d in DERIVATIVES if (f, d) != (reverse, "jacfwd")]


@pytest.mark.parametrize("holder", everyday(HOLDERS, 2), ids=lambda f: f.__name__)
@pytest.mark.parametrize("f, derivative", CASES, ids=lambda x: x if isinstance(x, str) else x.name)
def test_a_rule_answers_for_its_own_context(f, holder, derivative):
    slope = DERIVATIVES[derivative](holder(f))
    for wanted in (1.0, 5.0, 7.0, 5.0):
        with SLOPE(wanted):
            assert slope(X) == wanted


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda f: f.__name__)
def test_a_rule_for_batches_answers_for_its_own_context(holder):
    @custom_vmap
    def f(x):
        return x * 2

    @f.def_vmap
    def _(size, batched, x):
        return x * SLOPE.value, True

    held = holder(f)
    rows = sw.vmap(sw.jit(held))
    for wanted in (1.0, 5.0, 7.0, 5.0):
        with SLOPE(wanted):
            assert rows(np.ones(2, np.float32)).tolist() == [wanted] * 2


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda f: f.__name__)
def test_the_way_back_may_run_in_another_context(holder):
    """Same as without a holder: `bwd` reads the context in which the cotangent is pulled back."""
    back = sw.vjp(holder(reverse), X)[1]
    for wanted in (5.0, 7.0):
        with SLOPE(wanted):
            assert back(np.float32(1))[0] == wanted


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda f: f.__name__)
def test_a_rule_asks_for_the_precision_of_its_own_context(holder):
    @sw.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return x, t * jnp.dot(jnp.ones(2), jnp.ones(2))

    slope = sw.jit(sw.grad(sw.jit(holder(f))))
    for wanted in ("high", "highest"):
        with sw.default_matmul_precision(wanted):
            assert f"{wanted.upper()}, " in str(slope.trace(X).program)


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda f: f.__name__)
def test_a_rule_asks_for_the_mesh_of_its_own_context(holder):
    @sw.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def _(primals, tangents):
        count = len(sw.sharding.get_abstract_mesh().axis_names)
        return primals[0], tangents[0] * count

    slope = sw.grad(sw.jit(holder(f)))
    for names in (("x",), ("x", "y")):
        mesh = sw.make_mesh((1,) * len(names), names)
        with mesh:
            assert slope(X) == len(names)
