"""Samples of ops that compute on windows of an array: convolutions, folds."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from shardwise._src.ops.convolution import ConvDimensionNumbers
from shardwise._src.ops.pooling import Window
from shardwise.testing import Sample
from tests.values.structure_numpy import pad

RNG = np.random.default_rng(8)


def holed(x: np.ndarray, padding: Any, holes: Any, fill: Any) -> np.ndarray:
    """With interior padding, and edge padding, which trims if it is negative."""
    return pad(x, fill, [(*row, h - 1) for row, h in zip(padding, holes, strict=True)])


def windows(x: np.ndarray, sizes: Any, strides: Any, holes: Any) -> Any:
    """For each position of a window, its index and its elements."""
    reach = [(n - 1) * h + 1 for n, h in zip(sizes, holes, strict=True)]
    counts = [max((n - r) // s + 1, 0) for n, r, s in zip(x.shape, reach, strides, strict=True)]
    for at in itertools.product(*map(range, counts)):
        yield (
            at,
            x[
                tuple(
                    slice(i * s, i * s + r, h)
                    for i, s, r, h in zip(at, strides, reach, holes, strict=True)
                )
            ],
        )


def convolution(
    x: np.ndarray,
    y: np.ndarray,
    *,
    dimension_numbers: Any,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    **_: Any,
) -> np.ndarray:
    """With a loop over positions and groups."""
    left, right, to = dimension_numbers
    x, y = x.transpose(left), y.transpose(right)
    pairs, ones = ((0, 0), (0, 0)), (1, 1)
    x = holed(x, (*pairs, *padding), (*ones, *lhs_dilation), 0)
    groups = max(feature_group_count, batch_group_count)
    parts = np.split(x, groups, axis=0 if batch_group_count > 1 else 1)
    kernels = np.split(y, groups, axis=0)
    counts = [
        max((n - (k - 1) * h - 1) // s + 1, 0)
        for n, k, h, s in zip(x.shape[2:], y.shape[2:], rhs_dilation, window_strides, strict=True)
    ]
    shape = (len(parts[0]), len(y), *counts)
    out = np.zeros(shape, np.result_type(x.dtype, y.dtype))
    for i, (part, kernel) in enumerate(zip(parts, kernels, strict=True)):
        sizes = (*part.shape[:2], *kernel.shape[2:])
        for at, window in windows(part, sizes, (*ones, *window_strides), (*ones, *rhs_dilation)):
            axes = [*range(1, x.ndim)]
            n = len(kernel)
            out[(slice(None), slice(i * n, i * n + n), *at[2:])] = np.tensordot(
                window, kernel, (axes, axes)
            )
    return out.transpose(np.argsort(to))


def _conv(
    x: Any,
    y: Any,
    numbers: str = "NCH OIH NCH",
    strides: Any = None,
    padding: Any = None,
    holes: Any = None,
    kernel_holes: Any = None,
    groups: int = 1,
    parts: int = 1,
    preferred: Any = None,
    **more: Any,
) -> Sample:
    left, right, to = numbers.split()
    space = [c for c in right if c not in "OI"]
    n = len(space)
    spec = ConvDimensionNumbers(
        *[
            tuple(text.index(c) for c in (*pair, *space))
            for text, pair in ((left, "NC"), (right, "OI"), (to, "NC"))
        ]
    )
    params = {
        "dimension_numbers": spec,
        "window_strides": strides or (1,) * n,
        "padding": padding or ((0, 0),) * n,
        "lhs_dilation": holes or (1,) * n,
        "rhs_dilation": kernel_holes or (1,) * n,
        "feature_group_count": groups,
        "batch_group_count": parts,
        "precision": None,
        "preferred_element_type": preferred,
    }
    return Sample((x, y), params, lambda x, y: convolution(x, y, **params), tolerance=1e-4, **more)


def _normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


INTS = RNG.integers(-5, 5, (2, 2, 4)).astype(np.int32)


def fold(x: np.ndarray, window: Window, fun: Any, identity: Any) -> np.ndarray:
    """`fun` of the elements of each window."""
    x = holed(x, window.padding, window.base_dilation, identity)
    rows = dict(windows(x, window.sizes, window.strides, window.window_dilation))
    shape = np.max([*rows], axis=0).astype(int) + 1
    return np.array([fun(v) for v in rows.values()], x.dtype).reshape(shape)


def gathered(t: np.ndarray, x: np.ndarray, *, largest: bool, window: Window) -> np.ndarray:
    """For each window, `t` at the position where `x` is largest, or smallest."""
    places = np.arange(x.size).reshape(x.shape)
    flat = fold(places, window, lambda v: _choice(v[v >= 0], x.ravel(), largest), -1)
    return np.where(flat < 0, 0, t.ravel()[flat]).astype(t.dtype)


def scattered(t: np.ndarray, x: np.ndarray, *, largest: bool, window: Window) -> np.ndarray:
    places = gathered(np.arange(x.size) + 1, x, largest=largest, window=window).ravel()
    out = np.zeros(x.size + 1, t.dtype)
    np.add.at(out, places, t.ravel())
    return out[1:].reshape(x.shape)


def _choice(places: np.ndarray, values: np.ndarray, largest: bool) -> int:
    return int(places[(np.argmax if largest else np.argmin)(values[places])]) if places.size else -1


def _window(
    sizes: Any, strides: Any = None, padding: Any = None, holes: Any = None, between: Any = None
) -> Window:
    ones = (1,) * len(sizes)
    pads = padding or ((0, 0),) * len(sizes)
    return Window(sizes, strides or ones, pads, holes or ones, between or ones)


POOLS = {
    (3, 5): _window((2, 2), (1, 2), ((0, 1), (1, 0))),
    (4, 6): _window((1, 3)),
    (2, 4, 3): _window((1, 2, 2), (1, 3, 1), ((0, 0), (1, 1), (-1, 0)), (1, 2, 1), (1, 1, 1)),
    (5,): _window((3,), (2,), ((1, 1),), (1,), (2,)),
    (): _window(()),
    (6,): _window((1,), (2,), ((-1, 0),)),
}


def _distinct(shape: Any) -> np.ndarray:
    return RNG.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)


def _folds(fun: Any, identity: float) -> list[Sample]:
    found = [
        Sample(
            (_distinct(shape),),
            {"window": window},
            functools.partial(fold, window=window, fun=fun, identity=identity),
            placed=i < 3,
            heavy=i > 0,
        )
        for i, (shape, window) in enumerate(POOLS.items())
    ]
    empty = {"window": _window((2, 1))}
    return [
        *found,
        Sample(
            (np.zeros((1, 2), np.float32),),
            empty,
            np.zeros((0, 2)),
            order=0,
            placed=False,
            why="no windows",
        ),
    ]


def _pairs(reference: Any, scatters: bool) -> list[Sample]:
    found = []
    for i, (shape, window) in enumerate([*POOLS.items()][:4]):  # the others select nothing
        x = _distinct(shape)
        t = _normal(*(window.counts(shape) if scatters else shape))
        params = {"largest": i % 2 == 0, "window": window}
        found.append(
            Sample(
                (t, x), params, functools.partial(reference, **params), placed=i < 2, heavy=i > 0
            )
        )
    return found


SAMPLES: dict[str, list[Sample]] = {
    "reduce_window_sum": [
        *_folds(np.sum, 0),
        Sample(
            (INTS[..., :3].repeat(2, 1),),
            {"window": POOLS[2, 4, 3]},
            functools.partial(fold, window=POOLS[2, 4, 3], fun=np.sum, identity=0),
            placed=False,
        ),
    ],
    "reduce_window_max": _folds(np.max, -np.inf),
    "reduce_window_min": _folds(np.min, np.inf),
    "select_and_gather_add": _pairs(gathered, False),
    "select_and_scatter_add": _pairs(scattered, True),
    "conv_general_dilated": [
        _conv(_normal(2, 2, 5), _normal(2, 2, 3)),
        _conv(
            _normal(2, 5, 5, 2),
            _normal(3, 2, 2, 4),
            "NHWC HWIO NHWC",
            (2, 1),
            ((1, 1), (-1, 2)),
            kernel_holes=(1, 2),
            heavy=True,
        ),
        _conv(_normal(2, 4, 5), _normal(4, 2, 3), strides=(2,), padding=((2, 0),), groups=2),
        _conv(_normal(4, 2, 5), _normal(4, 2, 3), padding=((1, 1),), holes=(2,), parts=2),
        _conv(
            _normal(4, 5, 2),
            _normal(3, 4, 2),
            "CHN HIO CNH",
            holes=(3,),
            padding=((0, -2),),
            placed=False,
        ),
        _conv(_normal(3, 4), _normal(4, 2), "NC IO CN", placed=False),
        _conv(
            _normal(2, 3, 3, 3, 2),
            _normal(2, 3, 2, 2, 2),
            "NCHWD OIWHD NCDHW",
            placed=False,
            heavy=True,
        ),
        _conv(INTS, INTS[:, :, :2], order=0, placed=False, why="integers"),
        _conv(
            (INTS + 1j * INTS[::-1]).astype(np.complex64),
            INTS[:, :, :2].astype(np.complex64),
            placed=False,
        ),
        _conv(
            INTS.astype(np.float16),
            INTS[:, :, :2].astype(np.float16),
            padding=((2, 2),),
            preferred=np.dtype(np.float32),
            placed=False,
        ),
        _conv(_normal(2, 0, 5), _normal(2, 0, 3), order=0, placed=False, why="no features"),
        _conv(_normal(2, 2, 2), _normal(2, 2, 3), order=0, placed=False, why="no elements"),
    ],
}
