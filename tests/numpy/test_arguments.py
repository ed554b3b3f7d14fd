"""Rarely used arguments: each has its documented effect, or is rejected by name."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.types.dtypes import short_name
from shardwise.sharding import AxisType
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH, mesh_of
from tests.helpers.placed import PLACES

RNG = np.random.default_rng(0)
X = np.array([[0, 0, 3, 0], [0, 5, 0, 0], [0, 0, 0, 0]], np.float32)
V = np.array([0, 0, 2, 0, 3, 0], np.int32)


def test_out_is_refused():
    x = snp.ones(3)
    names = ("around", "round", "isneginf", "isposinf", "modf")
    for name, fun in {n: getattr(snp, n) for n in names}.items():
        who = "round" if name == "around" else name
        fails(
            NotImplementedError,
            f"{who}: `out` is not supported, as arrays are immutable. Use the result.",
            fun,
            x,
            out=x,
        )
        fun(x, out=None)
    assert snp.modf(snp.asarray([-1.5]))[0].tolist() == [-0.5]
    assert snp.isneginf(snp.asarray([-np.inf, np.inf, 1])).tolist() == [True, False, False]
    assert snp.isposinf(3).tolist() is False


@pytest.mark.parametrize(
    "name", everyday(["concatenate", "stack", "vstack", "hstack", "dstack"], 2)
)
def test_joined_arrays_are_of_the_dtypes_that_there_are(name):
    xs = [np.ones(3, np.float32), np.zeros(3, np.int32)]
    for dtype, wanted in ((float, "float32"), (int, "int32"), (complex, "complex64")):
        assert getattr(snp, name)(xs, dtype=dtype).dtype == wanted
        with sw.enable_x64(True):
            assert getattr(snp, name)(xs, dtype=dtype).dtype == np.dtype(dtype)
    assert getattr(snp, name)(xs, dtype="bfloat16").dtype == "bfloat16"
    with pytest.warns(UserWarning, match=f"float64 in {name} is not"):
        assert getattr(snp, name)(xs, dtype="float64").dtype == "float32"


def test_wrap_negative_indices():
    x, at = snp.arange(4.0), snp.asarray([-1, 2, 9])
    assert snp.take_along_axis(x, at)[:2].tolist() == [3, 2]
    found = snp.take_along_axis(x, at, wrap_negative_indices=False, fill_value=-5)
    assert found.tolist() == [-5, 2, -5]
    clipped = snp.take_along_axis(x, at, mode="clip", wrap_negative_indices=False)
    assert clipped.tolist() == [0, 2, 3]


@pytest.mark.parametrize("trim", ["fb", "f", "B"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("x", [X, X * 0, X[:, :0], X + 1], ids=["some", "none", "empty", "all"])
def test_trim_zeros(x, trim, axis):
    wanted = np.trim_zeros(x, trim, axis=axis)
    got = snp.trim_zeros(snp.asarray(x), trim, axis=axis)
    assert got.shape == wanted.shape and np.asarray(got).tolist() == wanted.tolist()


def test_trim_zeros_of_vectors():
    assert snp.trim_zeros(snp.asarray(V)).tolist() == [2, 0, 3]
    fails(
        ValueError,
        "trim_zeros: trim must consist of 'f' and 'b'; got 'x'.",
        snp.trim_zeros,
        snp.asarray(V),
        "x",
    )


def test_delete_of_unique_places_that_are_traced():
    def gone(x, at, axis):
        return snp.delete(x, at, axis, assume_unique_indices=True)

    at = np.array([3, -2], np.int32)
    for axis in (0, 1):
        x = np.arange(63.0, dtype=np.float32).reshape(7, 9)
        for place in (PLACES["sharded"], PLACES["one"]):
            got = sw.jit(gone, static_argnums=2)(sw.device_put(x.T if axis else x, place), at, axis)
            assert got.tolist() == np.delete(x.T if axis else x, at, axis).tolist()
    unsigned = snp.asarray([1], snp.uint8)
    assert gone(snp.arange(3), unsigned, None).tolist() == [0, 2]
    assert snp.delete(snp.arange(3), np.array([1, 1])).tolist() == [0, 2]


@pytest.mark.parametrize(
    "method,invert",
    everyday(
        [(m, i) for m in ("auto", "compare_all", "binary_search", "sort") for i in (False, True)], 1
    ),
)
def test_isin(method, invert):
    x = np.array([[np.nan, -0.0, 3, 7], [np.inf, 1, 0.0, -5]], np.float32)
    for tests in (
        np.array([3, -0.0, np.nan, np.inf], np.float32),
        np.array([], np.float32),
        np.arange(-700, 1, dtype=np.int32),
        np.float32(3),
    ):
        got = snp.isin(snp.asarray(x), tests, invert=invert, method=method)
        assert got.tolist() == np.isin(x, tests, invert=invert).tolist()
        placed = sw.device_put(np.resize(x, (7, 3)), PLACES["partly replicated"])
        got = snp.isin(placed, tests, invert=invert, method=method)
        assert got.tolist() == np.isin(np.resize(x, (7, 3)), tests, invert=invert).tolist()
    z = np.array([1 + 2j, 1 - 2j, 3], np.complex64)
    got = snp.isin(snp.asarray(z), z[1:], invert=invert, method=method)
    assert got.tolist() == np.isin(z, z[1:], invert=invert).tolist()


def test_isin_of_many_under_explicit_axes():
    mesh = mesh_of(4, 2, types=AxisType.Explicit)
    with sw.set_mesh(mesh):
        x = sw.device_put(snp.arange(8.0), sw.NamedSharding(mesh, P("x")))
        for method in ("compare_all", "sort"):
            found = snp.isin(x, np.arange(0, 2000, 2.0, np.float32), method=method)
            assert found.tolist() == [True, False] * 4
            assert sw.typeof(found).sharding.spec == P("x")


def test_isin_has_no_other_method():
    fails(
        ValueError,
        "isin: method must be one of ('auto', 'compare_all', 'binary_search', 'sort'); got 'hash'.",
        snp.isin,
        1,
        2,
        method="hash",
    )


def test_reshape_copies_where_asked():
    x = snp.arange(6.0)
    assert snp.reshape(x, (6,), copy=False) is x
    same = snp.reshape(x, (6,), copy=True)
    assert same.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert x.reshape(2, 3, copy=True).tolist() == [[0, 1, 2], [3, 4, 5]]
    text = (
        "reshape: copy=False is not possible, as reshaping f32[6] to (2, 3) creates a separate "
        "array. Leave copy out."
    )
    fails(ValueError, text, snp.reshape, x, (2, 3), copy=False)
    assert sw.jit(lambda x: snp.reshape(x, (3, 2), copy=True))(x).shape == (3, 2)


def test_asarray_copies_where_asked():
    x, host = snp.arange(4.0), np.zeros(1 << 16, np.float32)
    assert snp.asarray(x, copy=False) is x and snp.asarray(x, copy=None) is x
    assert snp.asarray(x, copy=True).unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert snp.asarray(x, snp.float32, copy=False, device=x.device) is not None
    host = host[(-host.ctypes.data % 64) // 4 :][:1024]
    assert snp.asarray(host, copy=False).unsafe_buffer_pointer() == host.ctypes.data
    for value, shown in (
        ([1, 2], "[1, 2] of type list"),
        (3.5, "3.5 of type float"),
        (x[:2], "Array([0., 1.], dtype=float32) of type Array"),
    ):
        text = f"asarray: copy=False is not possible for {shown}, which must be copied."
        fails(ValueError, f"{text} Leave copy out.", snp.asarray, value, snp.int32, copy=False)
    with pytest.raises(ValueError, match="copy=False is not possible for Array"):
        snp.asarray(x, copy=False, device=sw.devices()[1])


def test_meshgrid_has_no_views():
    fails(
        ValueError,
        "meshgrid: copy must be True, as arrays have no views. Leave it out.",
        snp.meshgrid,
        np.arange(2),
        np.arange(3),
        copy=False,
    )


def test_weights_move_no_edges():
    x = np.array([1.0, 2, 4], np.float32)
    wanted = np.histogram_bin_edges(x, 4, weights=x)
    np.testing.assert_allclose(snp.histogram_bin_edges(x, 4, weights=x), wanted)
    fails(
        ValueError,
        "histogram_bin_edges: weights must have the shape of a; got f32[2] for f32[3].",
        snp.histogram_bin_edges,
        x,
        4,
        weights=x[:2],
    )


def test_histogram_is_split_as_asked():
    mesh = mesh_of(4, 2, types=AxisType.Explicit)
    x = RNG.normal(size=64).astype(np.float32)
    with sw.set_mesh(mesh):
        counts, edges = snp.histogram(
            sw.device_put(x, sw.NamedSharding(mesh, P("x"))), 8, out_sharding=P("y")
        )
        assert sw.typeof(counts).sharding.spec == P("y")
    wanted = np.histogram(x, 8)
    assert counts.tolist() == wanted[0].tolist()
    np.testing.assert_allclose(edges, wanted[1], rtol=1e-5, atol=1e-6)


def test_ravel_multi_index_in_a_dtype():
    at = (np.array([1, 0], np.int8), np.array([120, 5], np.int8))
    got = snp.ravel_multi_index(at, (2, 125), dtype=snp.int32)
    assert got.dtype == np.int32 and got.tolist() == [245, 5]


def test_lexsort_takes_a_batch_size():
    keys = RNG.integers(0, 2, (40, 30)).astype(np.int32)
    assert snp.lexsort(keys, batch_size=1).tolist() == np.lexsort(keys).tolist()
    fails(
        ValueError, "lexsort: batch_size must be positive; got 0.", snp.lexsort, keys, batch_size=0
    )


def test_einsum_with_another_product():
    def product(x, y, dimension_numbers, precision, preferred_element_type=None):
        return 2 * sw.lax.dot_general(x, y, dimension_numbers, precision, preferred_element_type)

    x = snp.asarray(X)
    for run in (lambda f: f(x), lambda f: sw.jit(f)(x)):
        got = run(lambda x: snp.einsum("ij,kj->ki", x, x, _dot_general=product))
        assert got.tolist() == (2 * X @ X.T).tolist()
    slope = sw.grad(lambda x: snp.einsum("ij,ij->", x, x, _dot_general=product))(x)
    assert slope.tolist() == (4 * X).tolist()


def test_names_of_arguments():
    x = snp.ones((2, 3))
    assert snp.empty_like(prototype=x).shape == (2, 3)
    assert snp.concat([x, x], axis=1).shape == (2, 6)
    assert snp.concat([x, x], axis=None).shape == (12,)
    assert snp.issubdtype(arg1=snp.float32, arg2=snp.floating)
    assert snp.iinfo(int_type=np.int8).max == 127
    assert snp.gcd(x1=4, x2=6) == 2 and snp.lcm(x1=4, x2=6) == 12
    assert snp.fmax(x1=4, x2=np.nan) == 4 and snp.fmin(x1=4, x2=np.nan) == 4
    assert snp.trunc(x=-1.5) == -1


def test_values_that_are_read(tmp_path):
    numbers = np.array([1.5, 2.5, 3.5])
    numbers.tofile(tmp_path / "bytes")
    (tmp_path / "text").write_text("1, 2, 3")
    got = snp.fromfile(tmp_path / "bytes", offset=8)
    assert got.dtype == np.float32 and got.tolist() == [2.5, 3.5]
    assert snp.fromfile(tmp_path / "text", int, sep=",").tolist() == [1, 2, 3]
    assert snp.fromiter((i * i for i in range(5)), snp.int16, count=3).tolist() == [0, 1, 4]
    got = snp.fromstring("1 2 3", sep=" ")
    assert got.dtype == np.float32 and got.tolist() == [1, 2, 3]
    with sw.enable_x64(True):
        assert snp.fromstring("1", sep=" ").dtype == np.float64


def test_pickles_are_not_written(tmp_path):
    snp.savez(tmp_path / "x.npz", snp.ones(2), allow_pickle=False)
    fails(
        ValueError,
        "savez: an object array cannot be saved with allow_pickle=False.",
        snp.savez,
        tmp_path / "y.npz",
        np.array([{}], object),
        allow_pickle=False,
    )


# -- methods --


def test_view_has_one_class():
    x = snp.ones(2)
    assert x.view(snp.int32, None).tolist() == [0x3F800000] * 2
    fails(
        NotImplementedError,
        "view: arrays have one class, so `type` must be None; got "
        "<class 'numpy.ndarray'>. Leave it out.",
        x.view,
        snp.int32,
        np.ndarray,
    )


@pytest.mark.parametrize(
    "dtype, shape, into, bits",
    [("bool", (3,), "int32", 32), ("complex64", (), "bool", 8), ("float32", (), "int16", 16)],
)
def test_views_of_a_part_of_an_element_name_the_types_given(dtype, shape, into, bits):
    fails(
        ValueError,
        f"view: the last dimension of {short_name(np.dtype(dtype))}"
        f"[{','.join(map(str, shape))}] is not a whole number of elements of {bits} bits, as "
        f"{into} has.",
        snp.ones(shape, dtype).view,
        into,
    )


def test_at_takes_each_argument():
    x = sw.device_put(np.arange(8.0, dtype=np.float32), PLACES["sharded"])
    at = np.array([-1, 2, 11], np.int32)
    how = {"mode": "drop", "unique_indices": True, "wrap_negative_indices": False}
    assert x.at[at].set(-1, **how)[1:4].tolist() == [1, -1, 3]
    assert x.at[at].set(-1, **how)[-1] == 7
    for name, wanted in {
        "add": 4,
        "subtract": 0,
        "multiply": 4,
        "mul": 4,
        "divide": 1,
        "power": 4,
        "min": 2,
        "max": 2,
    }.items():
        changed = getattr(x.at[at], name)(2, **how)
        assert changed[2] == wanted and changed[-1] == 7, name
    assert x.at[at].apply(lambda v: v * 3, mode="clip")[-1] == 21
    kept = x.at[at].get(mode="fill", fill_value=-1, wrap_negative_indices=False, strategy="auto")
    assert kept.tolist() == [-1, 2, -1]
    fails(
        NotImplementedError,
        ".at[...].get: strategy must be 'auto', which chooses by the index; got 'gather'.",
        x.at[at].get,
        strategy="gather",
    )


def test_at_is_split_as_asked():
    mesh = mesh_of(4, 2, types=AxisType.Explicit)
    with sw.set_mesh(mesh):
        x = sw.device_put(snp.zeros((8, 4)), sw.NamedSharding(mesh, P("x")))
        y = x.at[:, 1].set(1.0, out_sharding=P(None, "y"))
        assert sw.typeof(y).sharding.spec == P(None, "y") and y.sum() == 8
    assert MESH.shape == {"x": 4, "y": 2}


def test_histograms_of_integers_under_strict_promotion():
    x, edges = np.arange(6, dtype=np.int32), np.linspace(0, 6, 4, dtype=np.float32)
    with sw.numpy_dtype_promotion("strict"):
        found = snp.histogram(x, edges)[0]
        pair = snp.histogramdd(np.stack([x, x], 1), [edges, edges])[0]
    np.testing.assert_array_equal(found, np.histogram(x, edges)[0])
    np.testing.assert_array_equal(pair, np.diag(np.full(3, 2)))
