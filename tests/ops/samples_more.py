"""More samples of ops that have many forms. Each run checks some of them; a sweep checks all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from shardwise._src.ops.indexing.gather_rules import GatherDimensionNumbers, as_scatter
from shardwise.testing import Sample

EMPTY = "XLA cannot partition or split what is empty"
ALIGNED = "these places happen to fall on the same parts; others would not"
BITS = "XLA's CPU collectives know `and` and `or` of booleans only"

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype(np.float32)
CUBE = RNG.normal(size=(2, 3, 2)).astype(np.float32)
INTS = RNG.integers(-9, 9, (2, 3)).astype(np.int32)
BOOLS = np.array([[True, False, True], [True, True, True]])
ORDER = RNG.permutation(6).reshape(2, 3).astype(np.float32)


def f32(*shape: int) -> np.ndarray:
    return (np.arange(1, int(np.prod(shape)) + 1, dtype=np.float32) / 4).reshape(shape)


def i32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


# -- shapes --


def padded(x: np.ndarray, value: np.ndarray, *, config: tuple) -> np.ndarray:
    """`pad`, element by element."""
    shape = [lo + hi + (n + (n - 1) * k if n else 0)
             for n, (lo, hi, k) in zip(x.shape, config, strict=True)]
    out = np.full(shape, value, x.dtype)
    for index in np.ndindex(*x.shape):
        to = [lo + i * (k + 1) for i, (lo, _, k) in zip(index, config, strict=True)]
        if all(0 <= i < n for i, n in zip(to, shape, strict=True)):
            out[tuple(to)] = x[index]
    return out


def _pad(x: np.ndarray, *config: tuple) -> Sample:
    value = x.dtype.type(7)
    return Sample((x, value), {"padding_config": config}, functools.partial(padded, config=config))


def _reshape(before: tuple, after: tuple) -> Sample:
    return Sample((f32(*before),), {"shape": after}, lambda x: x.reshape(after))


SHAPES = {
    "concatenate": [
        Sample((f32(2, 4), f32(2, 4)), {"dimension": 0}, lambda *xs: np.concatenate(xs, 0)),
        Sample((f32(2, 3), f32(2, 1), f32(2, 0)), {"dimension": 1},
               lambda *xs: np.concatenate(xs, 1), placed=False, why=EMPTY),
        Sample((f32(2, 3), f32(2, 1)), {"dimension": 1}, lambda *xs: np.concatenate(xs, 1)),
        Sample((i32(0, 1),), {"dimension": 0}, lambda x: x),
    ],
    "pad": [
        _pad(f32(3, 4), (1, 2, 0), (0, 0, 0)), _pad(f32(3, 4), (0, 0, 2), (-1, 1, 0)),
        _pad(f32(3, 4), (-1, -1, 1), (2, 0, 3)), _pad(i32(0, 1, 2), (1, -1, 1)),
        _pad(f32(0), (2, 1, 3)), _pad(f32()),
    ],
    "slice": [
        Sample((f32(4, 6),), {"start_indices": (0, 1), "limit_indices": (4, 5)},
               lambda x: x[:, 1:5], unnamed=((0, 1),), why=ALIGNED),
        Sample((f32(5, 4),),
               {"start_indices": (1, 0), "limit_indices": (5, 4), "strides": (3, 2)},
               lambda x: x[1:5:3, ::2], unnamed=((0, 1),), why=ALIGNED),
        Sample((i32(0, 1, 2),), {"start_indices": (2,), "limit_indices": (2,)}, lambda x: x[2:2]),
    ],
    "rev": [
        Sample((f32(2, 4),), {"dimensions": (1,)}, lambda x: x[:, ::-1]),
        Sample((f32(2, 3),), {"dimensions": (0, 1)}, lambda x: x[::-1, ::-1]),
        Sample((i32(0, 1),), {"dimensions": ()}, lambda x: x),
    ],
    "split": [
        Sample((f32(2, 5),), {"sizes": (2, 0, 3), "axis": 1},
               lambda x: [x[:, :2], x[:, 2:2], x[:, 2:]], placed=False, why=EMPTY),
        Sample((f32(2, 5),), {"sizes": (2, 3), "axis": 1}, lambda x: [x[:, :2], x[:, 2:]]),
    ],
    "broadcast_in_dim": [
        Sample((f32(2, 1),), {"shape": (2, 3, 4), "dims": (0, 2)},
               lambda x: np.broadcast_to(x[:, None], (2, 3, 4))),
        Sample((np.float32(2),), {"shape": (4,), "dims": ()}, lambda x: np.full(4, x)),
    ],
    "transpose": [Sample((f32(2, 3, 4),), {"perm": (2, 0, 1)}, lambda x: x.transpose(2, 0, 1))],
    "reshape": [
        _reshape((4, 6), (24,)), _reshape((8,), (2, 4)), _reshape((2, 3, 4), (6, 4)),
        _reshape((4, 1, 2), (4, 2)), _reshape((4, 2), (1, 4, 2)), _reshape((2, 6), (3, 4)),
        _reshape((1,), ()), _reshape((), (1, 1)), _reshape((0, 4), (4, 0)),
        _reshape((2, 2, 3), (4, 3, 1)),
    ],
}


# -- reductions and sorting --


def _real(reference: Callable) -> list[Sample]:
    return [
        Sample((X,), {"axes": (1,)}, lambda x: reference(x, 1)),
        Sample((CUBE,), {"axes": (0, 2)}, lambda x: reference(x, (0, 2))),
        Sample((INTS,), {"axes": (0,)}, lambda x: reference(x, 0).astype(np.int32)),
        Sample((X,), {"axes": ()}, lambda x: x),
    ]


def _bits(reference: np.ufunc) -> list[Sample]:
    parity = reference is np.bitwise_xor
    return [
        Sample((INTS,), {"axes": (1,)}, lambda x: reference.reduce(x, 1)),
        Sample((BOOLS,), {"axes": (0,)}, lambda x: reference.reduce(x, 0), placed=not parity,
               why=BITS),
        Sample((np.arange(6, dtype=np.uint8),), {"axes": (0,)}, reference.reduce, placed=False,
               why=BITS),
    ]


def _places(reference: Callable) -> list[Sample]:
    wide, narrow = np.dtype(np.int32), np.dtype(np.uint8)
    return [
        Sample((X,), {"axes": (1,), "index_dtype": wide}, lambda x: reference(x, 1)),
        Sample((INTS,), {"axes": (0,), "index_dtype": wide}, lambda x: reference(x, 0)),
        Sample((BOOLS,), {"axes": (1,), "index_dtype": narrow}, lambda x: reference(x, 1)),
    ]


def _running(reference: Callable, integers: bool = True) -> list[Sample]:
    def backwards(x: np.ndarray) -> np.ndarray:
        return np.flip(reference(np.flip(x, 1), axis=1), 1)

    found = [
        Sample((X,), {"axis": 0}, lambda x: reference(x, axis=0)),
        Sample((X,), {"axis": 1, "reverse": True}, backwards),
        Sample((X[:0],), {"axis": 0}, lambda x: x),
    ]
    if integers:
        found.append(Sample((INTS,), {"axis": 1}, lambda x: reference(x, axis=1)))
    return found


def _top_k(x: np.ndarray, k: int) -> list[np.ndarray]:
    places = np.argsort(-x, -1)[..., :k]
    return [np.take_along_axis(x, places, -1), places]


def _sorted(x: np.ndarray, y: np.ndarray, axis: int) -> list[np.ndarray]:
    return [np.sort(x, axis), np.take_along_axis(y, np.argsort(x, axis), axis)]


FOLDS = {
    "reduce_sum": [
        Sample((f32(2, 4),), {"axes": (1,)}, lambda x: x.sum(1)),
        Sample((f32(2, 0),), {"axes": (0, 1)}, lambda x: x.sum(), placed=False, why=EMPTY),
    ],
    "reduce_max": _real(np.max), "reduce_min": _real(np.min), "reduce_prod": _real(np.prod),
    "reduce_and": _bits(np.bitwise_and), "reduce_or": _bits(np.bitwise_or),
    "reduce_xor": _bits(np.bitwise_xor), "argmax": _places(np.argmax), "argmin": _places(np.argmin),
    "cumsum": _running(np.cumsum), "cumprod": _running(np.cumprod),
    "cummax": _running(np.maximum.accumulate), "cummin": _running(np.minimum.accumulate),
    "cumlogsumexp": _running(np.logaddexp.accumulate, integers=False),
    "sort": [
        Sample((ORDER,), {"dimension": 1}, lambda x: [np.sort(x, 1)]),
        Sample((ORDER,), {"dimension": 0, "is_stable": False}, lambda x: [np.sort(x, 0)]),
        Sample((ORDER, X), {"dimension": 1}, lambda x, y: _sorted(x, y, 1)),
        Sample((ORDER.astype(np.uint8), X), {"dimension": 0}, lambda x, y: _sorted(x, y, 0)),
    ],
    "top_k": [
        Sample((ORDER,), {"k": 2}, lambda x: _top_k(x, 2)),
        Sample((ORDER[0].astype(np.int32),), {"k": 3}, lambda x: _top_k(x, 3)),
    ],
}


# -- products --

MATMUL = (((1,), (0,)), ((), ()))


def _product(x: np.ndarray, y: np.ndarray, numbers: tuple, text: str, **more: Any) -> Sample:
    params = {"dimension_numbers": numbers}
    return Sample((x, y), params, lambda x, y: np.einsum(text, x, y), **more)


PRODUCTS = {"dot_general": [
    _product(normal(2, 4), normal(4, 2), MATMUL, "ik,kj->ij"),
    _product(normal(2, 2, 3), normal(2, 3, 4), (((2,), (1,)), ((0,), (0,))), "bik,bkj->bij"),
    _product(normal(3, 2, 2, 4), normal(2, 4, 3, 2), (((3, 0), (1, 2)), ((2,), (3,))),
             "libk,jklb->bij"),
    _product(normal(3), normal(2), (((), ()), ((), ())), "i,j->ij"),
    _product(normal(3), normal(3), (((0,), (0,)), ((), ())), "i,i->"),
    _product(normal(2, 3), normal(2, 3), (((), ()), ((1, 0), (1, 0))), "ij,ij->ji"),
    _product(normal(2, 0), normal(0, 2), MATMUL, "ik,kj->ij", placed=False,
             why="XLA fails to partition a product of no elements"),
    _product(RNG.integers(-5, 5, (2, 3)), RNG.integers(-5, 5, (3, 2)), MATMUL, "ik,kj->ij"),
    _product(normal(2, 3) * 1j + 1, normal(3, 2) * 1j - 1, MATMUL, "ik,kj->ij"),
    Sample((normal(2, 3).astype(np.float16), normal(3, 2).astype(np.float16)),
           {"dimension_numbers": MATMUL, "preferred_element_type": np.dtype(np.float32)},
           lambda x, y: x.astype("f") @ y.astype("f"), order=0,
           why="finite differences of a result that is wider than its operands"),
]}


# -- windows, gathers and scatters: jax is the reference --


def jaxs(name: str, **params: Any) -> Callable:
    """The same op of jax, as a reference."""
    fun = getattr(jax.lax, name)
    numbers = params.pop("dimension_numbers", None)
    if numbers is not None:
        kind = "ScatterDimensionNumbers" if name.startswith("scatter") else "GatherDimensionNumbers"
        params["dimension_numbers"] = getattr(jax.lax, kind)(**numbers._asdict())
    return lambda *args: np.asarray(fun(*args, **params))


def beside_jax(name: str, *args: Any, **params: Any) -> Sample:
    return Sample(args, params, jaxs(name, **params))


ROWS = GatherDimensionNumbers((1,), (0,), (0,))
POINTS = GatherDimensionNumbers((), (0, 1), (0, 1))
PAIRED = GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
WINDOWS = GatherDimensionNumbers((0, 2), (), (1,))
GATHERS = [
    (ROWS, (1, 4), i32([0], [2], [2])),
    (POINTS, (1, 1), i32([[0, 3], [2, 1]])),
    (PAIRED, (1, 1), i32([[0], [2]], [[1], [3]], [[2], [2]])),
    (WINDOWS, (3, 2), i32([0], [2])),
]
SCATTERS = [
    (ROWS, i32([0], [2]), (2, 4), "fill"),
    (POINTS, i32([[0, 3], [2, 1]]), (1, 2), "fill"),
    (PAIRED, i32([[0]], [[1]], [[3]]), (3, 1), "fill"),
    (WINDOWS, i32([0], [2]), (3, 2, 2), "clip"),
]


def _gathers() -> list[Sample]:
    found = []
    for k, mode in [(0, "fill"), (1, "clip"), (2, "fill"), (3, "clip"),
                    (1, "promise_in_bounds"), (3, "fill")]:
        numbers, sizes, indices = GATHERS[k]
        params = {"dimension_numbers": numbers, "slice_sizes": sizes, "mode": mode}
        found.append(beside_jax("gather", f32(3, 4), indices, **params))
        if mode != "promise_in_bounds":
            beyond = np.where(indices == 2, 9, indices - 1).astype(np.int32)
            found.append(beside_jax("gather", f32(3, 4), beyond, **params, fill_value=3))
    return found


def _updates(*shape: int) -> np.ndarray:
    return (f32(*shape)[::-1] + np.float32(0.3)).copy()


def scatters(name: str) -> list[Sample]:
    return [
        beside_jax(name, f32(3, 4), indices, _updates(*shape), mode=mode, unique_indices=True,
                   dimension_numbers=as_scatter(numbers))
        for numbers, indices, shape, mode in SCATTERS
    ]


def _updated(x: np.ndarray, update: np.ndarray, i: Any, j: Any) -> np.ndarray:
    out = x.copy()
    out[np.clip(i, 0, 2) :][:1] = update
    return out


WINDOWED = {
    "dynamic_slice": [
        Sample((f32(3, 4), np.int32(1), np.int32(0)), {"slice_sizes": (2, 4)},
               lambda x, *_: x[1:3]),
        Sample((f32(3, 4), np.int32(7), np.int32(-1)), {"slice_sizes": (2, 4)},
               lambda x, *_: x[1:3]),
        Sample((np.float32(3),), {"slice_sizes": ()}, lambda x: x),
    ],
    "dynamic_update_slice": [
        Sample((f32(3, 4), 10 * f32(1, 4), np.int32(1), np.int32(0)), {}, _updated),
        Sample((f32(3, 4), 10 * f32(1, 4), np.int32(5), np.int32(2)), {}, _updated),
    ],
    "gather": _gathers(),
    **{name: scatters(name) for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul",
                                         "scatter_min", "scatter_max")},
}

MORE: dict[str, list[Sample]] = {**SHAPES, **FOLDS, **PRODUCTS, **WINDOWED}
