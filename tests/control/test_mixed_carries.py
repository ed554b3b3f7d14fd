"""An integer without a sharding alongside a sharded array in the carries of loops and branches."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import AxisType
from tests.helpers.everyday import everyday

X = np.arange(8, dtype=np.float32)
STEPS = 3


def scan(i, x):
    return lax.scan(lambda c, _: ((c[0] + 1, c[1] * 2 + c[0]), None), (i, x), None, STEPS)[0]


def scan_over(i, x):
    (i, x), _ = lax.scan(
        lambda c, k: ((c[0] + k, c[1] * 2 + c[0]), c[0]), (i, x), jnp.ones(STEPS, int)
    )
    return i, x


def while_loop(i, x):
    begin = i
    return lax.while_loop(
        lambda c: c[0] < begin + STEPS, lambda c: (c[0] + 1, c[1] * 2 + c[0]), (i, x)
    )


def while_on_values(i, x):
    """The condition reads both, and sums the sharded one."""
    wanted = float(X.sum()) * 2**STEPS
    return lax.while_loop(
        lambda c: c[1].sum() < wanted, lambda c: (c[0] + 1, c[1] * 2 + c[0]), (i, x)
    )


def fori_loop(i, x):
    return lax.fori_loop(0, STEPS, lambda k, c: (c[0] + 1, c[1] * 2 + c[0]), (i, x))


def fori_to_a_value(i, x):
    return lax.fori_loop(i, i + STEPS, lambda k, c: (c[0] + 1, c[1] * 2 + k), (i, x))


def carry_that_becomes_split(i, x):
    """An input that is unsharded is returned sharded over the mesh."""
    total = lax.fori_loop(0, STEPS, lambda k, c: c + x.sum(), i * 1.0)
    (total, _), _ = lax.scan(lambda c, _: ((c[0] + c[1].sum(), c[1]), None), (total, x), None, 2)
    return total, x


def cond(i, x):
    for _ in range(STEPS):
        i, x = lax.cond(i >= 0, lambda i, x: (i + 1, x * 2 + i), lambda i, x: (i, x), i, x)
    return i, x


def switch(i, x):
    for _ in range(STEPS):
        i, x = lax.switch(1, [lambda i, x: (i, x), lambda i, x: (i + 1, x * 2 + i)], i, x)
    return i, x


FORMS = [
    scan,
    scan_over,
    while_loop,
    while_on_values,
    fori_loop,
    fori_to_a_value,
    carry_that_becomes_split,
    cond,
    switch,
]
INTEGERS = {
    "Python's": lambda mesh: 0,
    "NumPy's": lambda mesh: np.int32(0),
    "uncommitted": lambda mesh: jnp.asarray(0),
    "whole": lambda mesh: sw.device_put(np.int32(0), sw.NamedSharding(mesh, sw.P())),
}


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda k: k.name)
@pytest.mark.parametrize("f", everyday(FORMS, 2))
def test_integers_beside_sharded_arrays(f, kind, jitted):
    mesh = sw.make_mesh((4,), ("a",), axis_types=(kind,))
    split = sw.NamedSharding(mesh, sw.P("a"))
    wanted_i, wanted_x = f(0, jnp.asarray(X))
    for make in INTEGERS.values():
        i, x = (sw.jit(f) if jitted else f)(make(mesh), sw.device_put(X, split))
        assert int(i) == int(wanted_i)
        np.testing.assert_array_equal(x, wanted_x)
        assert x.sharding.is_equivalent_to(split, 1)
        if kind is AxisType.Explicit:
            assert sw.typeof(x).sharding.spec == sw.P("a")


@pytest.mark.parametrize("f", [scan, while_loop, fori_loop, cond])
def test_derivatives_beside_integers(f):
    if f is while_loop:
        derive = lambda g: lambda x: sw.jvp(g, (x,), (x,))[1]  # noqa: E731
    else:
        derive = lambda g: sw.grad(lambda x: g(x).sum())  # noqa: E731
    mesh = sw.make_mesh((4,), ("a",))
    split = sw.device_put(X, sw.NamedSharding(mesh, sw.P("a")))
    for i in (0, np.int32(0), jnp.asarray(0)):
        wanted = derive(lambda x, i=i: f(i, x)[1])(jnp.asarray(X))
        np.testing.assert_array_equal(derive(lambda x, i=i: f(i, x)[1])(split), wanted)


@pytest.mark.parametrize("f", FORMS)
def test_integers_where_a_mesh_is_in_scope(f):
    """The axes of the mesh are Explicit: a value without a sharding is put on it."""
    with sw.set_mesh(sw.make_mesh((4,), ("a",))):
        x = sw.device_put(X, sw.P("a"))
        for i in (0, np.int32(0)):
            found, y = f(i, x)
            assert int(found) == STEPS or f is carry_that_becomes_split
            np.testing.assert_array_equal(y, f(jnp.asarray(0), x)[1])
            assert sw.typeof(y).sharding.spec == sw.P("a")
