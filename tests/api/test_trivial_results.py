"""Tangents of integers (`float0`) as results of `jit` and `vmap`, as in jax."""

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.errors import message

FLOAT0 = np.zeros(3, sw.float0)
LIBRARIES = (sw, jnp), (jax, jax.numpy)
INTS = np.arange(3)


def slope(lib):
    return lib.grad(lambda i: i * 2.0, allow_int=True)


PROGRAMS = {
    "jit": lambda lib, np_: lib.jit(lambda x: (x, {"z": FLOAT0, "y": [x]}))(1.0),
    "only": lambda lib, np_: lib.jit(lambda x: FLOAT0)(1.0),
    "grad": lambda lib, np_: lib.jit(slope(lib))(3),
    "nested": lambda lib, np_: lib.jit(lambda i: (i + 1, lib.jit(slope(lib))(i)))(3),
    "vmap": lambda lib, np_: lib.vmap(slope(lib))(INTS),
    "jit of vmap": lambda lib, np_: lib.jit(lib.vmap(lambda i: (slope(lib)(i), i)))(INTS),
    "vmap of jit": lambda lib, np_: lib.vmap(lib.jit(lambda i: (slope(lib)(i), i)))(INTS),
    "vmap twice": lambda lib, np_: lib.vmap(lib.vmap(slope(lib)))(np.ones((4, 3), int)),
    "out_axes": lambda lib, np_: lib.vmap(lambda i: (FLOAT0, i + 1), out_axes=(1, 0))(INTS),
    "last": lambda lib, np_: lib.vmap(lambda i: FLOAT0, out_axes=-1)(np.arange(5)),
    "jvp": lambda lib, np_: lib.jit(lambda i: lib.jvp(lambda i: i + 1, (i,), (FLOAT0,)))(INTS),
    "whole": lambda lib, np_: lib.vmap(lambda i: (FLOAT0, i + 1), out_axes=(None, 0))(INTS),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_jax(name):
    got, wanted = (PROGRAMS[name](*lib) for lib in LIBRARIES)
    assert sw.tree.structure(got) == sw.tree.structure(jax.tree.map(lambda x: 0, wanted))
    for x, y in zip(sw.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        assert (x.dtype == sw.float0) == (type(x) is np.ndarray)
        if x.dtype != sw.float0:
            np.testing.assert_array_equal(x, y)


def test_calls_that_are_found_again_and_shardings():
    mesh = sw.make_mesh((4,), ("x",))
    spread = sw.NamedSharding(mesh, sw.P("x"))
    f = sw.jit(lambda x: {"a": FLOAT0, "b": x * 2}, out_shardings={"a": None, "b": spread})
    x = np.arange(8.0, dtype=np.float32)
    for _ in range(3):
        found = f(x)
        assert found["a"].dtype == sw.float0 and found["a"].shape == (3,)
        assert found["b"].sharding == spread
        np.testing.assert_array_equal(found["b"], 2 * x)
    shapes = sw.eval_shape(f, x)
    assert shapes["a"] == sw.ShapeDtypeStruct((3,), sw.float0) and shapes["b"].shape == (8,)
    assert f.lower(x).compile()(x)["a"].shape == (3,)


def test_an_axis_that_there_is_not():
    f = sw.vmap(lambda i: FLOAT0, out_axes=3)
    assert message(ValueError, f, INTS) == (
        "vmap of <lambda>: out_axes is 3 for result, which has 2 dimensions with the mapped one."
    )
