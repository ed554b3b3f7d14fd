"""Samples of ops that move, read and write elements: shape, index and scatter ops, creation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from shardwise._src.ops.indexing.gather_rules import GatherDimensionNumbers, ScatterDimensionNumbers
from shardwise.testing import Sample
from tests.values.structure_numpy import pad

RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 6)).astype(np.float32)
Y = RNG.standard_normal((4, 2)).astype(np.float32)
CUBE = RNG.standard_normal((2, 4, 6)).astype(np.float32)
INTS = np.arange(24, dtype=np.int32).reshape(4, 6) - 7
FIVE = RNG.standard_normal((5, 4)).astype(np.float32)
EMPTY = "XLA cannot partition or split what is empty"
ALIGNED = "these places happen to fall on the same parts; others would not"


def _pad(x: np.ndarray, *config: tuple, **more: Any) -> Sample:
    args, params = (x, x.dtype.type(2)), {"padding_config": config}
    return Sample(args, params, lambda x, value: pad(x, value, config), **more)


def _slice(starts: tuple, limits: tuple, strides: Any = None, **more: Any) -> Sample:
    index = tuple(slice(*row) for row in zip(starts, limits, strides or (1, 1), strict=True))
    params = {"start_indices": starts, "limit_indices": limits, "strides": strides}
    return Sample((X,), params, lambda x: x[index], **more)


SHAPES = {
    "concatenate": [
        Sample((X, Y), {"dimension": 1}, lambda x, y: np.concatenate([x, y], 1)),
        Sample((X, X[:2], X[:2]), {"dimension": 0}, lambda *xs: np.concatenate(xs)),
        Sample((X, Y[:, :0]), {"dimension": 1}, lambda *xs: xs[0], placed=False, why=EMPTY),
        Sample((INTS,), {"dimension": 0}, lambda x: x),
    ],
    "slice": [
        _slice((0, 0), (2, 6)),
        _slice((0, 1), (4, 6), (1, 2), placed=False),
        _slice((0, 5), (4, 5), placed=False),
        _slice((1, 2), (3, 4), placed=False),
        _slice((0, 0), (4, 6), placed=False),
        _slice((0, 1), (4, 5), unnamed=((0, 1),), why=ALIGNED),
        Sample(
            (FIVE,),
            {"start_indices": (1, 0), "limit_indices": (5, 4), "strides": (3, 2)},
            lambda x: x[1:5:3, ::2],
            unnamed=((0, 1),),
            why=ALIGNED,
        ),
    ],
    "pad": [
        _pad(X, (0, 0, 0), (1, 2, 0)),
        _pad(X, (1, 0, 1), (-1, 2, 0)),
        _pad(X, (-1, -1, 2), (-2, 0, 1)),
        _pad(INTS, (2, 0, 0), (0, 0, 0)),
        _pad(INTS[0, :3], (1, -1, 1)),
        _pad(X[:0, 0], (2, 1, 3)),
        _pad(np.float32(3)),
    ],
    "rev": [
        Sample((CUBE,), {"dimensions": (0, 2)}, lambda x: x[::-1, :, ::-1]),
        Sample((INTS,), {"dimensions": ()}, lambda x: x, placed=False),
    ],
    "shard_alike": [
        Sample((X, other), {}, lambda x, y: [x, y], placed=False, why="one is placed as the other")
        for other in (X + 1, INTS)
    ],
    "replicated": [Sample((X,), {}, lambda x: x), Sample((INTS,), {}, lambda x: x, placed=False)],
    "optimization_barrier": [
        Sample((X, Y), {}, lambda *xs: list(xs)),
        Sample((INTS,), {}, lambda x: [x], placed=False),
    ],
    "split": [
        Sample((X,), {"sizes": (1, 3, 2), "axis": 1}, lambda x: np.split(x, [1, 4], 1)),
        Sample((CUBE,), {"sizes": (2, 2), "axis": 1}, lambda x: np.split(x, 2, 1), placed=False),
        Sample(
            (X,),
            {"sizes": (2, 0, 4), "axis": 1},
            lambda x: np.split(x, [2, 2], 1),
            placed=False,
            why=EMPTY,
        ),
    ],
    "iota": [
        Sample(
            (),
            {"dtype": np.dtype(np.int32), "shape": (3, 4), "dimension": 1},
            lambda: np.arange(4, dtype=np.int32) + np.zeros((3, 1), np.int32),
        ),
        Sample(
            (),
            {"dtype": np.dtype(np.float32), "shape": (3,), "dimension": 0},
            lambda: np.arange(3, dtype=np.float32),
        ),
    ],
}

BITS = {
    "bitcast_convert_type": [
        Sample(
            (X,),
            {"dtype": np.dtype(np.int32)},
            lambda x: x.view(np.int32),
            order=0,
            why="bits are not differentiable",
        ),
        Sample(
            (X,),
            {"dtype": np.dtype(np.uint8)},
            lambda x: x.view(np.uint8).reshape(4, 6, 4),
            order=0,
            placed=False,
            why="bits are not differentiable",
        ),
        Sample(
            (INTS.view(np.int16).reshape(4, 6, 2),),
            {"dtype": np.dtype(np.int32)},
            lambda x: x.view(np.int32).reshape(4, 6),
        ),
    ],
    "reduce_precision": [
        Sample(
            (X,),
            {"exponent_bits": 8, "mantissa_bits": 7},
            order=0,
            tolerance=1e-6,
            why="rounding is not smooth",
            reference=lambda x: x.astype("bfloat16").astype(np.float32),
        )
    ],
}


# -- dynamic_slice, dynamic_update_slice: starts are moved inside --


def _dynamic_slice(sizes: tuple) -> Any:
    def read(x: np.ndarray, *starts: Any) -> np.ndarray:
        at = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
        return x[tuple(slice(s, s + k) for s, k in zip(at, sizes, strict=True))]

    return read


def _dynamic_update(x: np.ndarray, update: np.ndarray, *starts: Any) -> np.ndarray:
    x = x.copy()
    at = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, x.shape, update.shape, strict=True)]
    x[tuple(slice(s, s + k) for s, k in zip(at, update.shape, strict=True))] = update
    return x


def _i(*values: int) -> tuple:
    return tuple(np.int32(v) for v in values)


DYNAMIC = {
    "dynamic_slice": [
        Sample((X, *_i(1, 2)), {"slice_sizes": (4, 3)}, _dynamic_slice((4, 3))),
        Sample((X, *_i(9, -3)), {"slice_sizes": (2, 6)}, _dynamic_slice((2, 6))),
        Sample((X, *_i(9, -3)), {"slice_sizes": (2, 2)}, _dynamic_slice((2, 2)), placed=False),
        Sample((np.float32(3),), {"slice_sizes": ()}, lambda x: x),
        Sample((INTS[0], *_i(4)), {"slice_sizes": (1,)}, _dynamic_slice((1,)), placed=False),
    ],
    "dynamic_update_slice": [
        Sample((X, Y, *_i(0, 3)), {}, _dynamic_update),
        Sample((X, Y[:3], *_i(7, 5)), {}, _dynamic_update, placed=False),
        Sample((X[:3], X[:1] * 10, *_i(5, 2)), {}, _dynamic_update),
        Sample((INTS[0], INTS[1, :2], *_i(-1)), {}, _dynamic_update, placed=False),
    ],
}


# -- gather and scatter, by a loop over index vectors --


def _windows(shape: tuple, indices: np.ndarray, dims: Any, sizes: tuple, mode: str) -> Any:
    """(batch index, index of each element of the window in the operand, or None outside)."""
    _, _, to, paired, paired_indices = dims
    for batch in np.ndindex(*indices.shape[:-1]):
        start = [0] * len(shape)
        for k, d in enumerate(to):
            start[d] = int(indices[batch][k])
        for d, j in zip(paired, paired_indices, strict=True):
            start[d] = batch[j]
        if mode == "clip":
            start = [min(max(s, 0), n - k) for s, n, k in zip(start, shape, sizes, strict=True)]
        inside = all(0 <= s <= n - k for s, n, k in zip(start, shape, sizes, strict=True))
        yield batch, start if inside else None


def _place(batch: tuple, offset: tuple, dims: Any, rank: int) -> tuple:
    b, w = iter(batch), iter(o for i, o in enumerate(offset) if i not in (*dims[1], *dims[3]))
    return tuple(next(w if i in dims[0] else b) for i in range(rank))


def _gather(
    x: np.ndarray, indices: np.ndarray, dims: Any, sizes: tuple, mode: str, fill: Any = None
) -> np.ndarray:
    gone = {*dims[1], *dims[3]}
    window = iter([n for i, n in enumerate(sizes) if i not in gone])
    batch_sizes = iter(indices.shape[:-1])
    rank = len(dims[0]) + indices.ndim - 1
    shape = [next(window if i in dims[0] else batch_sizes) for i in range(rank)]
    if fill is None:
        fill = np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    out = np.full(shape, fill, x.dtype)
    for batch, start in _windows(x.shape, indices, dims, sizes, mode):
        if start is None:
            continue
        for offset in itertools.product(*map(range, sizes)):
            at = tuple(s + o for s, o in zip(start, offset, strict=True))
            out[_place(batch, offset, dims, rank)] = x[at]
    return out


def _scatter(combine: Any) -> Any:
    def write(
        x: np.ndarray, indices: np.ndarray, updates: np.ndarray, dims: Any, mode: str
    ) -> np.ndarray:
        x = x.copy()
        gone = {*dims[1], *dims[3]}
        window = iter([updates.shape[d] for d in dims[0]])
        sizes = tuple(1 if i in gone else next(window) for i in range(x.ndim))
        for batch, start in _windows(x.shape, indices, dims, sizes, mode):
            if start is None:
                continue
            for offset in itertools.product(*map(range, sizes)):
                at = tuple(s + o for s, o in zip(start, offset, strict=True))
                x[at] = combine(x[at], updates[_place(batch, offset, dims, updates.ndim)])
        return x

    return write


ROWS = GatherDimensionNumbers((1,), (0,), (0,))  # x[i]: full rows
POINTS = GatherDimensionNumbers((), (0, 1), (0, 1))  # x[i, j]
BOXES = GatherDimensionNumbers((1, 2), (), (1,))  # boxes that start in some column
ALONG = GatherDimensionNumbers((), (1,), (1,), (0,), (0,))  # row by row
COLUMN = np.array([[3], [0], [2], [0]], np.int32)
PAIRS = np.array([[0, 1], [3, 5], [2, 9], [-1, 2]], np.int32)
PER_ROW = np.array([[[0], [5]], [[2], [2]], [[1], [4]], [[3], [0]]], np.int32)


def _gather_sample(
    x: np.ndarray,
    indices: np.ndarray,
    dims: Any,
    sizes: tuple,
    mode: str = "fill",
    fill: Any = None,
    **more: Any,
) -> Sample:
    params = {"dimension_numbers": dims, "slice_sizes": sizes, "mode": mode, "fill_value": fill}
    return Sample((x, indices), params, lambda x, i: _gather(x, i, dims, sizes, mode, fill), **more)


def _scatter_sample(
    combine: Any,
    x: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    dims: Any,
    mode: str = "fill",
    unique: bool = True,
    **more: Any,
) -> Sample:
    numbers = ScatterDimensionNumbers(*dims)
    params = {"dimension_numbers": numbers, "mode": mode, "unique_indices": unique}
    return Sample(
        (x, indices, updates),
        params,
        lambda x, i, u: _scatter(combine)(x, i, u, dims, mode),
        **more,
    )


VALUES: dict[str, Any] = {
    "order": 0,
    "batched": False,
    "placed": False,
    "why": "values only: others cover the rules",
}


def _scatters(combine: Any, repeats: bool = True) -> list[Sample]:
    rows, points = X[[1, 0, 2, 3]] + 0.31, np.float32([0.5, -1.1, 2.0, 0.7])
    column, few = np.array([[3], [1], [2], [0]], np.int32), Y + 0.2
    same = np.array([[1], [1], [0], [1]], np.int32)
    samples = [
        _scatter_sample(combine, X, column, rows, ROWS),
        _scatter_sample(combine, X, PAIRS, points, POINTS),
        _scatter_sample(combine, X, np.int32([[0], [3]]), np.stack([Y, Y + 0.7]), BOXES, "clip"),
        _scatter_sample(combine, X, PAIRS, points, POINTS, "clip", **VALUES),
        _scatter_sample(
            combine,
            X,
            PER_ROW[::-1] * [[[1]], [[1]], [[0]], [[1]]]
            + [[[0], [0]], [[0], [0]], [[0], [1]], [[0], [0]]],
            few,
            ALONG,
        ),
        _scatter_sample(combine, INTS, column, INTS + 3, ROWS, **VALUES),
    ]
    if repeats:
        samples.append(
            _scatter_sample(combine, X, same, rows, ROWS, unique=False, heavy=True, placed=False)
        )
    return samples


INDEXED = {
    "gather": [
        _gather_sample(X, COLUMN, ROWS, (1, 6)),
        _gather_sample(X, PAIRS, POINTS, (1, 1), "fill", order=0, why="NaN outside", placed=False),
        _gather_sample(X, PAIRS, POINTS, (1, 1), "clip", placed=False),
        _gather_sample(X, COLUMN, BOXES, (4, 2), "clip", placed=False),
        _gather_sample(X, PER_ROW, ALONG, (1, 1)),
        _gather_sample(X, COLUMN, ROWS, (1, 6), "promise_in_bounds", placed=False),
        _gather_sample(INTS, PAIRS, POINTS, (1, 1), placed=False),
        _gather_sample(X, COLUMN + 1, ROWS, (1, 6), fill=3),
        _gather_sample(X, COLUMN * 2, BOXES, (4, 2), fill=3),
        _gather_sample(X, PER_ROW * 2, ALONG, (1, 1), fill=3),
        _gather_sample(X, PAIRS, POINTS, (1, 1), "clip", fill=3),
    ],
    "scatter": _scatters(lambda old, new: new, repeats=False),
    "scatter_add": _scatters(np.add),
    "scatter_sub": _scatters(np.subtract),
    "scatter_mul": _scatters(np.multiply, repeats=False),
    "scatter_min": _scatters(np.minimum),
    "scatter_max": _scatters(np.maximum),
}

SAMPLES = SHAPES | BITS | DYNAMIC | INDEXED
