"""The values of the library's kernels against NumPy, and `check=True`, which is silent: of some cases,
and in sweeps of all."""

from itertools import product

import numpy as np
import pytest

from shardwise import nn
from shardwise import numpy as jnp
from shardwise.kernels import library
from tests.helpers.everyday import Run, everyday
from tests.kernels.library.library_cases import CASES, chosen, norm, normal

BF16 = jnp.bfloat16
SMALL = 1e-2  # of bfloat16 results
SHAPES = {
    "ragged": (11, 37),
    "three dimensions": (2, 3, 20),
    "one element": (1, 1),
    "vector": (9,),
    "no rows": (0, 5),
    "no columns": (5, 0),
}
BLOCKS = {"default": None, "small": (8, 16)}


def close(found, wanted, dtype):
    assert found.shape == wanted.shape
    bound = SMALL if found.dtype == BF16 else 1e-4
    np.testing.assert_allclose(np.asarray(found, "float64"), wanted, rtol=bound, atol=bound)
    assert found.dtype == dtype


def floats(x):
    return np.asarray(x).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "blocks"),
    everyday(
        product(["softmax", "log_softmax"], ["float32", "bfloat16", "int32"], SHAPES, BLOCKS), 4
    ),
)
def test_softmax(name, dtype, shape, blocks):
    x = normal(*SHAPES[shape], dtype=jnp.dtype(dtype))
    found = getattr(library, name)(x, blocks=BLOCKS[blocks], check=Run.sweep)
    exponents = np.exp(floats(x))
    wanted = exponents / exponents.sum(-1, keepdims=True)
    close(
        found,
        wanted if name == "softmax" else np.log(wanted),
        "float32" if dtype == "int32" else jnp.dtype(dtype),
    )


def test_softmax_along_another_axis_with_elements_that_are_minus_infinity():
    x = normal(3, 9, 5)
    x[:, :6, 0] = -np.inf  # the first blocks of a row
    for blocks in (None, (8, 4)):
        found = library.softmax(x, 1, blocks=blocks)
        np.testing.assert_allclose(found, nn.softmax(x, 1), rtol=1e-5, atol=1e-6)
    assert np.isnan(library.softmax(np.full((1, 3), -np.inf, np.float32))).all()


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "vectors"),
    everyday(product(["layer_norm", "rms_norm"], ["float32", "bfloat16"], SHAPES, range(3)), 3),
)
def test_norms(name, dtype, shape, vectors):
    x = normal(*SHAPES[shape], dtype=jnp.dtype(dtype))
    affine = [normal(x.shape[-1]) + i for i in range(vectors)]
    found = getattr(library, name)(x, *affine, eps=1e-3, check=Run.sweep)
    mean = name == "layer_norm"
    wanted = norm(np.float32(x), *affine, eps=1e-3, mean=mean) if x.size else floats(x)
    close(found, wanted, jnp.dtype(dtype))


@pytest.mark.parametrize(
    ("dtype", "shape", "exclusive", "reverse", "blocks"),
    everyday(product(["float32", "bfloat16", "int32", "uint8"], SHAPES, [0, 1], [0, 1], BLOCKS), 4),
)
def test_cumsum(dtype, shape, exclusive, reverse, blocks):
    x = np.abs(normal(*SHAPES[shape])).astype(jnp.dtype(dtype))
    x = x if dtype == "bfloat16" else 3 * x
    options = {"exclusive": bool(exclusive), "reverse": bool(reverse), "blocks": BLOCKS[blocks]}
    found = library.cumsum(x, check=Run.sweep, **options)
    ordered = floats(x)[..., ::-1] if reverse else floats(x)
    wanted = np.cumsum(ordered, -1) - (ordered if exclusive else 0)
    wide = {"uint8": "uint32"}.get(dtype, dtype)
    close(found, wanted[..., ::-1] if reverse else wanted, jnp.dtype(wide))


def test_infinite_elements_do_not_enter_earlier_sums():
    x = np.array([[1, 2, np.inf, 3]], np.float32)
    np.testing.assert_array_equal(library.cumsum(x), [[1, 3, np.inf, np.inf]])
    np.testing.assert_array_equal(library.cumsum(x, exclusive=True), [[0, 1, 3, np.inf]])
    np.testing.assert_array_equal(
        library.cumsum(x.T, 0, blocks=(1, 2))[:, 0], [1, 3, np.inf, np.inf]
    )


SIZES = {"ragged": (33, 50, 41), "one": (1, 1, 1), "whole": (32, 16, 16), "m = 0": (0, 3, 4),
         "n = 0": (3, 0, 4), "k = 0": (3, 4, 0)}  # fmt: skip
DTYPES = {
    "float32": ("float32", "float32", "float32"),
    "bfloat16": ("bfloat16", "bfloat16", "bfloat16"),
    "float16 and bfloat16": ("float16", "bfloat16", "float32"),
    "int32": ("int32", "int32", "int32"),
    "int8": ("int8", "int8", "int32"),
    "float8": ("float8_e4m3fn", "float8_e4m3fn", "float32"),
    "float8 and another": ("float8_e4m3fn", "float8_e5m2", "float32"),
    "int8 and bfloat16": ("int8", "bfloat16", "bfloat16"),
}


@pytest.mark.parametrize(
    ("dtypes", "sizes", "epilogue", "blocks"),
    everyday(product(DTYPES, SIZES, [0, 1], [None, (16, 16, 16)]), 6),
)
def test_matmul(dtypes, sizes, epilogue, blocks):
    (m, n, k), (left, right, usual) = SIZES[sizes], DTYPES[dtypes]
    x, y = normal(m, k, dtype=jnp.dtype(left)), normal(k, n, dtype=jnp.dtype(right))
    wanted = floats(x) @ floats(y)
    if not epilogue:
        close(library.matmul(x, y, blocks=blocks, check=Run.sweep), wanted, jnp.dtype(usual))
        return
    scale, bias, residual = np.abs(normal(m)), normal(n), normal(m, n)
    found = library.matmul(
        x, y, x_scale=scale, y_scale=0.5, bias=bias, activation=jnp.tanh, residual=residual,
        out_dtype="float32", blocks=blocks, check=Run.sweep,
    )  # fmt: skip
    close(found, np.tanh(scale[:, None] * wanted * 0.5 + bias) + residual, "float32")


def test_matmul_of_integers_stays_exact_with_an_integer_bias():
    x = np.full((3, 4), 127, np.int8)
    found = library.matmul(x, x.T, bias=np.array([1, 2, 3]))
    assert found.dtype == "int32" and found[0].tolist() == [64517, 64518, 64519]
    scaled = library.matmul(x, x.T, x_scale=np.array([1, 0.5, 0.25], np.float32))
    assert scaled.dtype == "float32" and scaled[:, 0].tolist() == [64516, 32258, 16129]


@pytest.mark.parametrize(
    ("count", "length", "weights"),
    everyday(product([0, 1, 9, 3000], [0, 1, 10, 700], [None, "float32", "bfloat16", "int32"]), 3),
)
def test_histogram(count, length, weights):
    indices = np.random.default_rng(count).integers(-2, length + 2, count)
    exists = (indices >= 0) & (indices < length)
    values = None if weights is None else np.abs(normal(count, dtype=jnp.dtype(weights)))
    counted = None if weights is None else floats(values)[exists]
    wanted = np.bincount(indices[exists], counted, minlength=length)[:length]
    found = library.histogram(
        indices, length, values, blocks=256, check=Run.sweep and weights != "float32"
    )
    dtype = jnp.dtype(weights or "int32")
    close(found, wanted, dtype) if weights != "bfloat16" else np.testing.assert_allclose(
        floats(found), wanted, rtol=1e-2
    )


@pytest.mark.parametrize(
    ("dtype", "row", "count"),
    everyday(product(["float32", "int32", "bfloat16"], [(), (3,), (2, 70)], [0, 1, 40]), 2),
)
def test_scatter_add(dtype, row, count):
    x, updates = normal(9, *row, dtype=jnp.dtype(dtype)), normal(count, *row)
    indices = np.random.default_rng(count).integers(-2, 11, count)
    exists = (indices >= 0) & (indices < 9)
    wanted = floats(x)
    np.add.at(wanted, indices[exists], floats(updates.astype(x.dtype))[exists])
    found = library.scatter_add(x, indices, updates, blocks=(16, 128), check=Run.sweep)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(
        floats(found), wanted, rtol=1e-4, atol=0.1 if x.dtype == BF16 else 1e-4
    )


@pytest.mark.parametrize("name", chosen(4, of="without"))
def test_cases_pass_checks(name):
    case = CASES[name]
    np.testing.assert_allclose(
        case.kernel(*case.args, check=True), case.wanted(*case.args), rtol=1e-4, atol=1e-5
    )
