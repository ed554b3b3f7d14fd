"""Gathers and scatters: against NumPy loops and jax, derivatives, batching, shardings, modes."""

import jax
import numpy as np
import pytest

from shardwise._src.ops.indexing import gather_rules as win
from shardwise._src.ops.indexing import gather_scatter as ix
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.batch import batch
from shardwise._src.transforms.linearize import linearize
from tests.helpers.eager import pulled_back
from tests.helpers.errors import message, messages
from tests.ops.samples_arrays import POINTS, ROWS


def f32(*shape):
    return (np.arange(1, int(np.prod(shape)) + 1, dtype=np.float32) / 4).reshape(shape)


def i32(*values):
    return np.array(values, np.int32)


def jaxs(name, dimension_numbers, **params):
    """The same op of jax, as a reference."""
    numbers = getattr(jax.lax, type(dimension_numbers).__name__)(**dimension_numbers._asdict())
    fun = getattr(jax.lax, name)
    return lambda *args: np.asarray(fun(*args, dimension_numbers=numbers, **params))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool", "float32", "complex64", "bfloat16"])
def test_gather_fill_value(dtype):
    x = np.ones(3).astype(jax.numpy.dtype(dtype))
    numbers = win.GatherDimensionNumbers((), (0,), (0,))
    params = {"dimension_numbers": numbers, "slice_sizes": (1,), "mode": "fill"}
    indices = i32([0], [3], [-1])
    found = np.asarray(ix.gather(EAGER.array(x), EAGER.array(indices), **params))
    expected = jaxs("gather", **params)(x, indices)
    np.testing.assert_array_equal(found.astype("complex64"), expected.astype("complex64"))
    found = ix.gather(EAGER.array(x), EAGER.array(indices), fill_value=1, **params)
    np.testing.assert_array_equal(np.asarray(found), np.ones(3))


def test_gather_of_nothing():
    numbers = win.GatherDimensionNumbers((1,), (0,), (0,))
    params = {"dimension_numbers": numbers, "slice_sizes": (1, 3)}
    found = ix.gather(EAGER.array(f32(2, 3)), EAGER.array(np.zeros((0, 1), np.int32)), **params)
    assert found.shape == (0, 3)


# -- scatter --

ALL = [ix.scatter, ix.scatter_add, ix.scatter_sub, ix.scatter_mul, ix.scatter_min, ix.scatter_max]


@pytest.mark.parametrize("op", ALL, ids=lambda op: op.name)
def test_scatter_beyond_the_ends(op):
    numbers = win.as_scatter(win.GatherDimensionNumbers((0, 2), (), (1,)))
    params = {"dimension_numbers": numbers, "mode": "clip", "unique_indices": True}
    args = f32(3, 4), i32([-1], [3]), f32(3, 2, 2)[::-1] + np.float32(0.3)
    found = op(*map(EAGER.array, args), **params)
    np.testing.assert_allclose(np.asarray(found), jaxs(op.name, **params)(*args), rtol=1e-6)


@pytest.mark.parametrize("op", ALL, ids=lambda op: op.name)
def test_scatter_where_updates_meet(op):
    """Values, and derivatives against jax where jax has them."""
    x, indices, updates = f32(3), i32([1], [1], [0]), f32(3) + np.float32(0.6)
    numbers = win.ScatterDimensionNumbers((), (0,), (0,))
    params = {"dimension_numbers": numbers, "mode": "fill"}
    reference = jaxs(op.name, **params)
    found = op(*map(EAGER.array, (x, indices, updates)), **params)
    np.testing.assert_allclose(np.asarray(found), reference(x, indices, updates), rtol=1e-6)


def test_scatter_keeps_one_tangent_where_updates_meet():
    numbers = win.ScatterDimensionNumbers((), (0,), (0,))
    params = {"dimension_numbers": numbers, "mode": "fill"}
    indices = EAGER.array(i32([1], [1], [0]))

    def f(x, u):
        return ix.scatter(x, indices, u, **params)

    _, (ct_x, ct_u) = pulled_back(f, [f32(3), f32(3) + 1], np.float32([5, 7, 11]))
    np.testing.assert_array_equal(np.asarray(ct_x), [0, 0, 11])
    np.testing.assert_array_equal(np.asarray(ct_u), [0, 7, 5])


def test_scatter_mul_refuses_the_derivative_where_updates_may_meet():
    params = {"dimension_numbers": win.ScatterDimensionNumbers((), (0,), (0,))}
    args = EAGER.array(f32(3)), EAGER.array(f32(2))

    def product(x, u):
        return [ix.scatter_mul(x, EAGER.array(i32([1], [1])), u, **params)]

    assert message(NotImplementedError, linearize, product, args) == (
        "[scatter_mul] can be differentiated with respect to its updates only if no two of them "
        "update the same element. Pass `unique_indices=True` if that is the case."
    )


# -- batching: every combination of batch dimensions --


def looped(fun, args, dims, size):
    rows = [
        [a if d is None else np.take(a, i, d) for a, d in zip(args, dims, strict=True)]
        for i in range(size)
    ]
    return np.stack([np.asarray(fun(*map(EAGER.array, row))) for row in rows])


COMBINATIONS = [
    (0, None, None),
    (None, 0, None),
    (None, None, 0),
    (1, 0, None),
    (None, 1, 0),
    (0, 0, 0),
]


@pytest.mark.parametrize("dims", COMBINATIONS)
@pytest.mark.parametrize("name", ["gather", "scatter", "scatter_add", "slice", "update"])
def test_batching(name, dims):
    rng = np.random.default_rng(0)

    def make(shape, d, kind):
        full = shape if d is None else shape[:d] + (2,) + shape[d:]
        if kind == "index":
            return rng.integers(-1, 4, full).astype(np.int32)
        return rng.normal(size=full).astype(np.float32)

    gather = win.GatherDimensionNumbers((1,), (0,), (0,))
    params = {"dimension_numbers": win.as_scatter(gather)}
    calls = {
        "gather": (
            lambda x, i: ix.gather(x, i, dimension_numbers=gather, slice_sizes=(1, 2)),
            [((3, 2), ""), ((3, 1), "index")],
        ),
        "scatter": (
            lambda x, i, u: ix.scatter(x, i, u, **params),
            [((4, 2), ""), ((1, 1), "index"), ((1, 2), "")],
        ),
        "scatter_add": (
            lambda x, i, u: ix.scatter_add(x, i, u, **params),
            [((4, 2), ""), ((3, 1), "index"), ((3, 2), "")],
        ),
        "slice": (
            lambda x, i, j: ix.dynamic_slice(x, i, j, slice_sizes=(2, 1)),
            [((3, 2), ""), ((), "index"), ((), "index")],
        ),
        "update": (
            lambda x, u, i: ix.dynamic_update_slice(x, u, i, np.int32(0)),
            [((3, 2), ""), ((2, 1), ""), ((), "index")],
        ),
    }
    fun, kinds = calls[name]
    dims = [d if d is None or len(s) >= d else 0 for d, (s, _) in zip(dims, kinds, strict=False)]
    if all(d is None for d in dims):
        return
    args = [make(s, d, k) for d, (s, k) in zip(dims, kinds, strict=True)]
    outs, out_dims = batch(lambda *xs: [fun(*xs)], [EAGER.array(a) for a in args], dims, 2)
    found = np.moveaxis(np.asarray(outs[0]), out_dims[0], 0)
    np.testing.assert_allclose(found, looped(fun, args, dims, 2), rtol=1e-6)


# -- messages --

OPERAND = EAGER.array(f32(2, 3))
test_errors = messages(
    """
ix.dynamic_slice(x, np.int32(0), slice_sizes=(1, 1))
    ShapeError: [dynamic_slice] takes an integer scalar for each dimension of f32[2,3], all of the
    same dtype; got i32[].
ix.dynamic_slice(x, np.int32(0), np.int32(0), slice_sizes=(3, 1))
    TypeError: [dynamic_slice] slice_sizes must be within the shape of f32[2,3]; got (3, 1).
ix.dynamic_update_slice(x, f32(3, 3), np.int32(0), np.int32(0))
    TypeError: [dynamic_update_slice] the update must have the operand's dtype and rank and fit
    inside; got f32[2,3] and f32[3,3].
ix.gather(x, f32(2, 1), dimension_numbers=ROWS, slice_sizes=(1, 3))
    TypeError: [gather] indices must be integer vectors; got operands f32[2,3] and f32[2,1],
    GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,),
    operand_batching_dims=(), start_indices_batching_dims=()) and slice_sizes (1, 3).
ix.scatter(x, i32([0]), f32(1, 2), dimension_numbers=win.as_scatter(POINTS))
    TypeError: [scatter] scatter_dims_to_operand_dims must have an entry per component of an index
    vector; got f32[2,3], i32[1,1] and f32[1,2] and ScatterDimensionNumbers(update_window_dims=(),
    inserted_window_dims=(0, 1), scatter_dims_to_operand_dims=(0, 1), operand_batching_dims=(),
    scatter_indices_batching_dims=()).
""",
    globals() | {"x": OPERAND, "ROWS": ROWS, "POINTS": POINTS},
)


def test_modes():
    mode = win.GatherScatterMode
    assert mode.from_any("drop") is mode.from_any(None) is mode.FILL_OR_DROP
    assert mode.from_any(mode.CLIP) is mode.from_any("clip") is mode.CLIP
    assert message(ValueError, mode.from_any, "wrap") == (
        "unknown mode 'wrap' for out-of-bounds indices; expected 'fill' (or 'drop'), 'clip' or "
        "'promise_in_bounds'."
    )
