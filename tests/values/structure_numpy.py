"""Functions of `lax` that NumPy lacks, in NumPy: expected values of `tests.values.structure` and of
samples of ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pad(x: np.ndarray, fill: float, config: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """`lax.pad`, one dimension at a time: interior padding, then padded or trimmed at both ends."""
    for d, (low, high, interior) in enumerate(config):
        x = np.moveaxis(x, d, 0)
        n = x.shape[0]
        spread = np.full((max(n + (n - 1) * interior, 0), *x.shape[1:]), fill, x.dtype)
        spread[:: interior + 1] = x
        more = [np.full((max(k, 0), *x.shape[1:]), fill, x.dtype) for k in (low, high)]
        whole = np.concatenate([more[0], spread, more[1]])
        x = np.moveaxis(whole[max(-low, 0) : len(whole) - max(-high, 0)], 0, d)
    return x


def at(x: np.ndarray, spec: str) -> np.ndarray:
    return x


def _places(starts: Sequence[int], shape: Sequence[int], part: Sequence[int]) -> tuple[slice, ...]:
    """The position of a window: starts below 0 count from the end, then it is clamped."""
    found = []
    for start, n, k in zip(starts, shape, part, strict=True):
        first = int(start) + (n if start < 0 else 0)
        first = min(max(first, 0), n - k)
        found.append(slice(first, first + k))
    return tuple(found)


def dynamic_slice(x: np.ndarray, starts: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    return x[_places(starts, x.shape, sizes)]


def dynamic_update_slice(x: np.ndarray, update: np.ndarray, starts: Sequence[int]) -> np.ndarray:
    x = x.copy()
    x[_places(starts, x.shape, update.shape)] = update
    return x


def repeat_to(x: np.ndarray, counts: np.ndarray, total: int) -> np.ndarray:
    """`numpy.repeat`, truncated to `total` elements or continued with the last one."""
    found = np.repeat(x, counts)[:total]
    return np.concatenate([found, np.full(total - len(found), x[-1], x.dtype)])


def taken(x: np.ndarray, at: np.ndarray, axis: int, mode: str) -> np.ndarray:
    """`numpy.take` along an axis; mode "fill": NaN where an index is outside."""
    n = x.shape[axis]
    if mode != "fill":
        return np.take(x, at, axis, mode=mode)
    whole = np.where(at < 0, at + n, at)
    found = np.take(x, np.clip(whole, 0, n - 1), axis)
    if mode == "fill":
        outside = (whole < 0) | (whole >= n)
        after = x.ndim - 1 - axis
        found = np.where(outside.reshape((*at.shape, *[1] * after)), x.dtype.type(np.nan), found)
    return found


def windows(x: np.ndarray, at: np.ndarray, size: int, mode: str) -> np.ndarray:
    """Windows of rows, at clamped starts, or NaN where they are out of bounds."""
    n = len(x)
    rows = [x[k : k + size] for k in np.clip(at[:, 0], 0, n - size)]
    if mode == "fill":
        rows = [
            r if 0 <= k <= n - size else np.full_like(r, np.nan)
            for k, r in zip(at[:, 0], rows, strict=True)
        ]
    return np.stack(rows)


UFUNCS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def written(x: np.ndarray, at: object, values: np.ndarray, method: str, mode: str) -> np.ndarray:
    """`x.at[at].method(values)`, one position after the other."""
    x = x.copy()
    rows = at if isinstance(at, tuple) else (at,)
    values = np.broadcast_to(values, (len(rows[0]), *x.shape[len(rows) :]))
    for place, value in zip(zip(*rows, strict=True), values, strict=True):
        spot = tuple(int(k) + (n if k < 0 else 0) for k, n in zip(place, x.shape, strict=False))
        inside = all(0 <= k < n for k, n in zip(spot, x.shape, strict=False))
        if mode == "clip":
            spot = tuple(min(max(k, 0), n - 1) for k, n in zip(spot, x.shape, strict=False))
        elif not inside:
            continue
        x[spot] = value if method == "set" else UFUNCS[method](x[spot], value).astype(x.dtype)
    return x


def put_along(x: np.ndarray, at: np.ndarray, value: float, axis: int) -> np.ndarray:
    x = x.copy()
    np.put_along_axis(x, at, value, axis)
    return x


def windows_added(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Windows added at starts; out-of-bounds ones are dropped."""
    x = x.copy()
    for k, row in zip(at[:, 0], values, strict=True):
        if 0 <= k <= len(x) - len(row):
            x[k : k + len(row)] += row
    return x


def slice_transposed(ct: np.ndarray, size: int, start: int, stride: int) -> np.ndarray:
    x = np.zeros(size, ct.dtype)
    x[start : start + len(ct) * stride : stride] = ct
    return x


def pad_transposed(ct: np.ndarray, size: int, low: int, interior: int) -> np.ndarray:
    """The elements of a zero pad of columns that come from the operand."""
    x = np.zeros((len(ct), size), ct.dtype)
    for j in range(size):
        k = low + j * (interior + 1)
        if 0 <= k < ct.shape[1]:
            x[:, j] = ct[:, k]
    return x
