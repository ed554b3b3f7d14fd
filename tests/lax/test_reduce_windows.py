"""`reduce_window` against jax's, its derivatives and maps, and its errors."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise._src.lowering import instructions
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

X = np.random.default_rng(0).permutation(56).reshape(7, 8).astype(np.float32)
FOLDS = {
    "sum": (0.0, lambda lib: lib.lax.add),
    "max": (-np.inf, lambda lib: lib.lax.max),
    "min": (np.inf, lambda lib: lib.lax.min),
    "product": (1.0, lambda lib: lib.lax.mul),
    "sum from 2": (2.0, lambda lib: lib.lax.add),
    "operator": (0.0, lambda lib: operator.add),
    "both": (0.0, lambda lib: lambda a, b: a + b + a * b),
}
WINDOWS = [
    ((2, 2), None, "VALID", None, None),
    ((3, 2), (2, 1), "SAME", None, None),
    ((2, 3), (1, 2), ((1, 0), (2, 1)), None, (2, 1)),
    ((2, 2), None, ((1, 1), (0, 2)), (2, 1), None),
    ((1, 8), None, ((0, 0), (7, 0)), None, None),
]


@pytest.mark.parametrize("window", everyday(WINDOWS, 1))
@pytest.mark.parametrize("name", FOLDS)
def test_like_jax(name, window):
    init, of = FOLDS[name]
    x = 1 + X / 56 if name in ("product", "both") else X

    def run(lib):
        f = lambda x: lib.lax.reduce_window(x, init, of(lib), *window)  # noqa: E731
        return lib.jit(lambda x: (f(x), lib.vmap(f, 2)(lib.numpy.stack([x, -x], 2))))(x)

    close(sw.tree.map(np.asarray, run(sw)), run(jax))
    f = lambda x: lax.reduce_window(x, init, of(sw), *window)  # noqa: E731
    out, pull = sw.vjp(f, x)
    _, moved = sw.jvp(f, (x,), (np.cos(x),))
    ct = np.sin(np.where(np.isinf(out), 0, out))  # inf, where a window has padding only
    (back,) = pull(ct)
    np.testing.assert_allclose(np.vdot(moved, ct), np.vdot(back, np.cos(x)), rtol=1e-3)
    if window[3:] == (None, None) and name != "both":  # jax has no others
        g = lambda x: jax.lax.reduce_window(x, init, of(jax), *window)  # noqa: E731
        np.testing.assert_allclose(moved, jax.jvp(g, (x,), (np.cos(x),))[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["sum", "max", "product"])
@pytest.mark.parametrize("window", everyday(WINDOWS, 1))
def test_split_as_on_one_device(name, window):
    init, of = FOLDS[name]
    x = 1 + X / 56

    def run(x):
        out, pull = sw.vjp(lambda x: lax.reduce_window(x, init, of(sw), *window), x)
        return (out, *pull(sw.numpy.cos(out)))

    wanted = sw.jit(run)(x)
    mesh = Mesh(np.array(sw.devices()[:4]), ("x",))
    for spec, to in ((P("x"), P(None, "x")), (P(None, "x"), P()), (P(), P("x"))):
        places = NamedSharding(mesh, spec), NamedSharding(mesh, to)
        found = sw.jit(run, out_shardings=places[1])(sw.device_put(x, places[0]))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size, stride", [(2, 2), (4, 4), (3, 3), (2, 1)])
def test_windows_of_one_operand_with_different_starts(size, stride):
    """Each in its part of a device (2, 4), or not."""
    x = np.arange(64, dtype=np.float32).reshape(2, 32) - 20

    def run(x):
        window = (1, size), (1, stride), "SAME" if stride == 1 else "VALID"
        folds = ((-np.inf, lax.max), (np.inf, lax.min), (1.0, lax.mul), (0.0, lax.add))
        return [lax.reduce_window(x, init, fold, *window) for init, fold in folds]

    wanted = sw.jit(run)(x)
    for spec, count in ((P(None, "x"), 8), (P(None, "x"), 2), (P("x"), 2)):
        mesh = Mesh(np.array(sw.devices()[:count]), ("x",))
        found = sw.jit(run)(sw.device_put(x, NamedSharding(mesh, spec)))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


ONES_AND_ZEROS = np.random.default_rng(0).integers(0, 2, (20, 4, 4)).astype(np.float32)


def moved(lib, name, window):
    """The function that returns the weights of the elements of each matrix that a fold selects."""
    init, fold = FOLDS[name]

    def f(x):
        y = lib.lax.reduce_window(x, init, fold(lib), *window)
        return (y * (1 + lib.numpy.arange(y.size).reshape(y.shape))).sum()

    return lib.jit(lib.vmap(lib.grad(f)))


@functools.cache
def moved_in_jax(name, window):
    return np.asarray(moved(jax, name, window)(ONES_AND_ZEROS))


@pytest.mark.parametrize("slices", [128, 0])
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize(
    "size, stride, padding",
    [(2, 1, ((0, 1), (0, 1))), (2, 1, ((1, 0), (0, 1))), (3, 2, ((0, 1), (0, 1)))],
)
def test_of_equal_elements_the_first_is_moved(size, stride, padding, name, slices, monkeypatch):
    monkeypatch.setattr(instructions, "MAX_PRODUCTS", slices)
    window = (size, size), (stride, stride), padding
    wanted = moved_in_jax(name, window)
    run = moved(sw, name, window)
    np.testing.assert_array_equal(run(ONES_AND_ZEROS), wanted)
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))
    split = sw.device_put(ONES_AND_ZEROS, NamedSharding(mesh, P(None, "x", "y")))
    np.testing.assert_array_equal(run(split), wanted)


def test_several_operands_and_maps_of_starts():
    def largest(lib):
        def pick(a, b):
            keep = a[0] >= b[0]
            return tuple(lib.numpy.where(keep, p, q) for p, q in zip(a, b, strict=True))

        places = np.arange(56, dtype=np.int32).reshape(7, 8)
        return lib.lax.reduce_window((X, places), (-np.inf, np.int32(-1)), pick, (2, 2), (2, 2))

    close(sw.tree.map(np.asarray, largest(sw)), largest(jax))

    starts = np.array([0.5, 2], np.float32)
    f = sw.vmap(lambda s: lax.reduce_window(X, s, lax.mul, (2, 1), (1, 1), "SAME"))
    one = [lax.reduce_window(X, s, lax.mul, (2, 1), (1, 1), "SAME") for s in starts]
    np.testing.assert_allclose(f(starts), np.stack(one))


def test_equals_and_nan():
    x = np.array([1, 1, np.nan, np.nan, -np.inf, -np.inf], np.float32)
    f = lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,), (2,))  # noqa: E731
    out, pull = sw.vjp(f, x)
    np.testing.assert_array_equal(out, [1, np.nan, -np.inf])
    assert pull(np.ones(3, np.float32))[0].tolist() == [1, 0, 1, 0, 1, 0]
    moved = sw.jvp(f, (x,), (np.arange(6, dtype=np.float32),))[1]
    assert moved.tolist() == [0, 2, 4]
    pairs = np.array([3, 1, 4, 1, 5, 9], np.float32)
    second = sw.jit(sw.hessian(lambda x: (f(x) ** 3).sum()))(pairs)
    np.testing.assert_allclose(np.diag(second), [18, 0, 24, 0, 0, 54])


@pytest.mark.parametrize(
    "dtype", everyday(["int8", "uint32", "bool", "float16", "bfloat16", "complex64"], 2)
)
def test_dtypes(dtype):
    x = jnp.asarray(X[:4, :4] % 5).astype(dtype)
    for name in ("add", "max"):
        if (dtype, name) in (("complex64", "max"), ("bool", "add")):  # jax has none
            continue
        start = np.zeros((), x.dtype)[()]
        found = lax.reduce_window(np.asarray(x), start, getattr(lax, name), (2, 2), (1, 1), "SAME")
        wanted = jax.lax.reduce_window(x, start, getattr(jax.lax, name), (2, 2), (1, 1), "SAME")
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_shapes_and_shardings_in_types():
    args = (7, 8), (3, 2), (2, 1), ((1, 0), (0, 0)), (1, 2), (2, 1)
    assert lax.reduce_window_shape_tuple(*args) == jax.lax.reduce_window_shape_tuple(*args)
    mesh = Mesh(np.array(sw.devices()[:4]), ("x",), (AxisType.Explicit,))
    with sw.set_mesh(mesh):
        x = sw.device_put(X.T.copy(), P("x"))
        out = lax.reduce_window(x, 0.0, lax.add, (2, 2), (2, 1), "SAME")
        assert sw.typeof(out).str_short(True) == "f32[4@x,7]"
        slope = sw.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2)).sum())(x)
        assert sw.typeof(slope).str_short(True) == "f32[8@x,7]"


test_mistakes = messages(
    """
lax.reduce_window(X, 0.0, lax.add, (2,))
    TypeError: reduce_window: a window has a size, stride and dilation for each of the 2 dimensions
    of the operand; got (2,), (1,) and (1,).
lax.reduce_window(X, 0.0, lax.add, (2,), None, ((0, 0),))
    TypeError: reduce_window: a window has a size, stride, padding and dilations for each of the 2
    dimensions of f32[7,8]; got Window(sizes=(2,), strides=(1,), padding=((0, 0),),
    base_dilation=(1,), window_dilation=(1,)).
lax.reduce_window(X, 0.0, lax.add, (2, 0), None, ((0, 0), (0, 0)))
    TypeError: reduce_window: sizes of a window must be positive; got Window(sizes=(2, 0),
    strides=(1, 1), padding=((0, 0), (0, 0)), base_dilation=(1, 1), window_dilation=(1, 1)).
lax.reduce_window(X, 0.0, lax.add, (2, 2), None, ((-8, 0), (0, 0)))
    ValueError: reduce_window: padding ((-8, 0), (0, 0)) removes more elements than there are in
    f32[7,8].
lax.reduce_window(X, np.int32(0), lax.add, (2, 2))
    TypeError: reduce_window: an init value must have the operand's dtype float32; got i32[].
lax.reduce_window(X, 0.0, lambda a, b: (a, b), (2, 2))
    ValueError: reduce_window: the function must return the pytree structure of its arguments,
    PyTreeDef(*); got PyTreeDef((*, *)).
lax.reduce_window(X, (0.0,), lax.add, (2, 2))
    ValueError: reduce_window: operand and init_value must have the same pytree structure; got
    PyTreeDef(*) and PyTreeDef((*,)).
lax.reduce_window(X, 0.0, lax.add, (2, 2), None, "FULL")
    RuntimeError: padding must be 'VALID', 'SAME' or 'SAME_LOWER', or pairs (low, high); got 'FULL'.
""",
    globals(),
)
