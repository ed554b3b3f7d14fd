"""Tangents of integers (`float0`) as arguments and results of `jit` and `vmap`, as in jax."""

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
from tests.helpers.beside_jax import LIBRARIES
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

FLOAT0 = np.zeros(3, sw.float0)
INTS = np.arange(3, dtype=np.int32)


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
    "argument": lambda lib, np_: lib.jit(lambda z: z)(FLOAT0),
    "one of several": lambda lib, np_: lib.jit(lambda x, z: (z, x + 1))(INTS, FLOAT0),
    "in a tree": lambda lib, np_: lib.jit(lambda d: {"b": d["z"], "a": d["x"] * 2})(
        {"x": INTS, "z": FLOAT0}
    ),
    "by name": lambda lib, np_: lib.jit(lambda *, z, x: (z, x))(z=FLOAT0, x=INTS),
    "jit of jit": lambda lib, np_: lib.jit(lambda x: lib.jit(lambda z: (z, x))(FLOAT0))(INTS),
    "through jit of jit": lambda lib, np_: lib.jit(lib.jit(lambda x, z: (z, x)))(INTS, FLOAT0),
    "donated": lambda lib, np_: lib.jit(lambda x, z: x + 1, donate_argnums=1)(INTS, FLOAT0),
    "in_shardings": lambda lib, np_: lib.jit(lambda x, z: x + 1, in_shardings=(None, None))(
        INTS, FLOAT0
    ),
    "lowered": lambda lib, np_: (
        lib.jit(lambda z, x: (z, x)).lower(FLOAT0, INTS).compile()(FLOAT0, INTS)
    ),
    "static beside": lambda lib, np_: lib.jit(lambda n, z, x: (z, x * n), static_argnums=0)(
        2, FLOAT0, INTS
    ),
    "vmapped argument": lambda lib, np_: lib.vmap(lambda x, z: (z, x))(INTS, FLOAT0),
    "nothing else vmapped": lambda lib, np_: lib.vmap(lambda z: z)(FLOAT0),
    "in_axes": lambda lib, np_: lib.vmap(lambda x, z: (z, x), (0, -1))(
        INTS, np.zeros((2, 3), sw.float0)
    ),
    "shared": lambda lib, np_: lib.vmap(lambda x, z: (z, x), (0, None))(INTS, FLOAT0),
    "out_axes of argument": lambda lib, np_: lib.vmap(lambda z: z, out_axes=-1)(
        np.zeros((3, 2), sw.float0)
    ),
    "jit of vmapped": lambda lib, np_: lib.jit(lib.vmap(lambda x, z: (z, x)))(INTS, FLOAT0),
    "vmap of jitted": lambda lib, np_: lib.vmap(lib.jit(lambda x, z: (z, x)))(INTS, FLOAT0),
    "grad of jitted": lambda lib, np_: lib.grad(lib.jit(lambda x, z: x.sum()))(np_.ones(3), FLOAT0),
    "primal": lambda lib, np_: lib.vjp(lambda x, z: (x.sum(), z), np_.ones(3), FLOAT0)[1](
        (np_.float32(1), FLOAT0)
    ),
    "primal of jvp": lambda lib, np_: lib.jvp(lambda z: z, (FLOAT0,), (FLOAT0,)),
    "remat": lambda lib, np_: lib.checkpoint(lambda x, z: (x, z))(INTS, FLOAT0),
    "cotangent": lambda lib, np_: lib.jit(lambda back, ct: back(ct))(
        lib.vjp(lambda i, x: (x * i, i), 3, 2.0)[1], (1.0, np.zeros((), sw.float0))
    ),
    "whole": lambda lib, np_: lib.vmap(lambda i: (FLOAT0, i + 1), out_axes=(None, 0))(INTS),
}


@pytest.mark.parametrize("name", everyday(PROGRAMS, 7))
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
        "vmap of <lambda>: out_axes is 3 for result, which has 2 dimensions including the mapped "
        "one."
    )


def test_calls_with_trivial_arguments_are_found_again():
    traced = []

    @sw.jit
    def f(z, x):
        traced.append(z.shape)
        return z, x + 1

    for shape in ((3,), (3,), (2, 2), (3,)):
        z, x = f(np.zeros(shape, sw.float0), 1)
        assert z.shape == shape and x == 2
    assert traced == [(3,), (2, 2)]


def test_messages_name_the_arguments_beside_trivial_ones():
    f = sw.jit(lambda z, x, y: x + y)
    assert message(TypeError, f, FLOAT0, 1, "a").startswith("jit of <lambda>: y: ")
    g = sw.vmap(lambda z, x: x)
    assert message(ValueError, g, np.zeros(4, sw.float0), INTS) == (
        "vmap of <lambda>: mapped axes must have the same size; axis 0 of z of type float0[4] has "
        "4, axis 0 of x of type i32[3] has 3. Pass arguments that all examples share by position, "
        "with None in in_axes."
    )
