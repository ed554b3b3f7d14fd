"""Samples of reductions, running folds, sorting and products of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.testing import Sample

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 4, 6)).astype(np.float32)
SMALL = RNG.permutation(np.linspace(0.4, 1.7, 12)).reshape(2, 6).astype(np.float32)
INTS = RNG.integers(-20, 20, (4, 6)).astype(np.int32)
BOOLS = INTS > -13
BYTES = RNG.permutation(12).reshape(2, 6).astype(np.uint8)
COMPLEX = (SMALL + 1j * SMALL[::-1]).astype(np.complex64)
TIES = np.array([[1, 3, 3, 2], [5, 5, 0, 5]], np.float32)
SPECIAL = np.array([[np.nan, 1, np.inf, -0.0, 0.0, -np.inf], [2, -1, 5, 5, np.nan, 3]], np.float32)


def _fold(fun: Any, x: np.ndarray, *axes: int, **more: Any) -> Sample:
    return Sample((x,), {"axes": axes}, lambda x: fun(x, axis=axes) if axes else x, **more)


def _bits(fun: np.ufunc) -> list[Sample]:
    """A contracted size of 5 is not sharded: XLA's CPU collectives have no bits of integers."""
    few = np.arange(6, dtype=np.uint8).reshape(2, 3)
    return [_fold(fun.reduce, INTS[:, :5], 1), _fold(fun.reduce, few, 0, placed=False)]


def _places(fun: Any) -> list[Sample]:
    def sample(x: np.ndarray, axis: int, dtype: Any = np.int32, placed: bool = False) -> Sample:
        params = {"axes": (axis,), "index_dtype": np.dtype(dtype)}
        return Sample((x,), params, lambda x: fun(x, axis=axis).astype(dtype), placed=placed)

    return [
        sample(X, 1, placed=True),
        sample(INTS, 0, placed=True),
        sample(TIES, 1, np.uint8),
        sample(SPECIAL, 1),
        sample(BOOLS, 1, np.uint8, placed=True),
    ]


REDUCTIONS = {
    "reduce_sum": [
        _fold(np.sum, X, 1),
        _fold(np.sum, X, 0, 2, placed=False),
        _fold(np.sum, X, placed=False),
        _fold(np.sum, COMPLEX, 0, placed=False),
        _fold(np.sum, INTS, 0, placed=False),
        _fold(np.sum, np.zeros((0, 3), np.float32), 0, placed=False),
    ],
    "reduce_prod": [
        _fold(np.prod, SMALL, 1),
        _fold(np.prod, X, 0, 2),
        _fold(np.prod, X),
        _fold(np.prod, np.where(SMALL > 1.5, 0, SMALL), 0, 1, placed=False),
        _fold(np.prod, COMPLEX, 0, placed=False),
        _fold(np.prod, INTS, 1),
    ],
    "reduce_max": [
        _fold(np.max, X, 1),
        _fold(np.max, X, 0, 2),
        _fold(np.max, X),
        _fold(np.max, INTS, 0),
        _fold(np.max, INTS, 0, 1, placed=False),
        _fold(np.max, COMPLEX, 1, placed=False),
        _fold(np.max, BOOLS, 0, placed=False),
    ],
    "reduce_min": [
        _fold(np.min, X, 1),
        _fold(np.min, X, 0, 2),
        _fold(np.min, X),
        _fold(np.min, INTS, 0),
        _fold(np.min, INTS, 0, 1, placed=False),
        _fold(np.min, COMPLEX, 1, placed=False),
    ],
    "reduce_and": [_fold(np.all, BOOLS, 0), *_bits(np.bitwise_and)],
    "reduce_or": [_fold(np.any, BOOLS, 0), *_bits(np.bitwise_or)],
    "reduce_xor": [*_bits(np.bitwise_xor), _fold(np.logical_xor.reduce, BOOLS, 0, placed=False)],
    "argmax": _places(np.argmax),
    "argmin": _places(np.argmin),
}


def _running(fun: Any, x: np.ndarray, axis: int, reverse: bool = False, **more: Any) -> Sample:
    def reference(x: np.ndarray) -> np.ndarray:
        if not reverse:
            return fun(x, axis=axis)
        return np.flip(fun(np.flip(x, axis), axis=axis), axis)

    return Sample((x,), {"axis": axis, "reverse": reverse}, reference, **more)


def _runs(fun: Any, *others: np.ndarray) -> list[Sample]:
    return [
        _running(fun, X[0], 1),
        _running(fun, X[0], 0, True),
        _running(fun, SMALL[:, :1], 1, placed=False),
        _running(fun, X[0, :0, :3], 0),
        *[_running(fun, x, 0, placed=False) for x in others],
    ]


RUNNING = {
    "cumsum": _runs(np.cumsum, COMPLEX, INTS),
    "cumprod": _runs(np.cumprod, COMPLEX, INTS),
    "cummax": _runs(np.maximum.accumulate, INTS),
    "cummin": _runs(np.minimum.accumulate, INTS),
    "cumlogsumexp": _runs(np.logaddexp.accumulate),
}


def _sorted_by(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(x, axis=1, kind="stable")
    return [np.take_along_axis(a, order, 1) for a in (x, y)]


def _top(x: np.ndarray, k: int, **more: Any) -> Sample:
    def reference(x: np.ndarray) -> list[np.ndarray]:
        order = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[..., :k]
        return [np.take_along_axis(x, order, -1), order.astype(np.int32)]

    return Sample((x,), {"k": k}, reference, **more)


SORTING = {
    "sort": [
        Sample((X,), {"dimension": 1}, lambda x: [np.sort(x, axis=1)]),
        Sample((X,), {"dimension": 0, "is_stable": False}, lambda x: [np.sort(x, axis=0)]),
        Sample((X[0], X[1]), {"dimension": 1, "num_keys": 1}, _sorted_by),
        Sample((BYTES, X[1, :2]), {"dimension": 1}, _sorted_by),
        Sample(
            (SPECIAL,),
            {"dimension": 1},
            lambda x: [np.sort(x, axis=1)],
            order=0,
            placed=False,
            why="NaN and infinities",
        ),
        Sample((COMPLEX,), {"dimension": 1}, lambda x: [np.sort(x, axis=1)], placed=False),
        Sample(
            (INTS, INTS * 2),
            {"dimension": 0, "num_keys": 2},
            lambda x, y: [np.sort(x, axis=0), np.sort(y, axis=0)],
            placed=False,
        ),
    ],
    "top_k": [_top(X, 2), _top(INTS, 6, placed=False), _top(INTS[0], 1)],
}


def _dot(spec: str, x: np.ndarray, y: np.ndarray, **more: Any) -> Sample:
    """`bik,bkj->bij`: batch dimensions first in the result, contracted ones as letters."""
    (left, right), out = spec.split("->")[0].split(","), spec.split("->")[1]
    batch = [c for c in out if c in left and c in right]
    contracted = [c for c in left if c in right and c not in out]
    numbers = (
        (tuple(map(left.index, contracted)), tuple(map(right.index, contracted))),
        (tuple(map(left.index, batch)), tuple(map(right.index, batch))),
    )
    placed = more.pop("placed", False)
    params = {"dimension_numbers": numbers, **more}
    return Sample(
        (x, y), params, lambda x, y: np.einsum(spec, x, y), placed=placed, heavy=not placed
    )


A, B = SMALL.reshape(2, 6), SMALL.reshape(6, 2)
FOUR = RNG.standard_normal((3, 2, 2, 4)).astype(np.float32)
BF16 = A.astype("bfloat16")
PRODUCTS = {
    "dot_general": [
        _dot("ik,kj->ij", A, B, placed=True),
        _dot("ki,kj->ij", B, B),
        _dot("bik,bkj->bij", X, X.transpose(0, 2, 1), placed=True),
        _dot("bik,kbj->bij", X, X.transpose(2, 0, 1)),
        _dot("kli,kl->i", X, X[:, :, 0]),
        _dot("ilk,kjl->ij", X, X.transpose(2, 0, 1)),
        _dot("i,j->ij", A[0], B[:, 0], placed=True),
        _dot("ik,kj->ij", COMPLEX, COMPLEX.T, placed=True),
        _dot("ik,kj->ij", INTS, INTS.T, placed=True),
        _dot("libk,jklb->bij", FOUR, FOUR.transpose(1, 3, 0, 2), placed=True),
        _dot("i,i->", A[0], B[:, 0], placed=True),
        _dot("ij,ij->ji", A, A, placed=True),
        _dot("ik,kj->ij", A[:, :0], B[:0]),
        Sample(
            (BF16, BF16.T),
            {
                "dimension_numbers": (((1,), (0,)), ((), ())),
                "preferred_element_type": np.dtype(np.float32),
            },
            lambda x, y: x.astype(np.float32) @ y.astype(np.float32),
            placed=False,
        ),
    ]
}

SAMPLES = REDUCTIONS | RUNNING | SORTING | PRODUCTS
