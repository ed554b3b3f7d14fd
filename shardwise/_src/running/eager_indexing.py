"""`x[idx]` of arrays, without compiling a program for each integer, or each start of a slice.

`values.indexing` defines the meaning of an index. Here its integers become operands: arrays that
are cached per signature (`Signature.ints`). The most common indices take a fast path:

    x[5], x[2:4], x[rows]     recognized directly from `idx`: one fused function for each
    x[mask]                   NumPy, if it can access the array
    x[5, :, rows], …          parsed to a pattern: one program for each
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, row_of
from shardwise._src.arrays.signature import Signature
from shardwise._src.base.caches import cached
from shardwise._src.core.eval_context import EvalTrace
from shardwise._src.core.fused import Fused, fused, record_of
from shardwise._src.core.infer import type_of
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.transfers.transfer import put_host, replicated_like
from shardwise._src.types.array_type import array_type
from shardwise._src.values.index_pattern import ALL, ARRAY, AT, SCALAR, parse
from shardwise._src.values.indexing import READ, read

KEPT_INTEGERS = 4096  # per signature
BOOL, INT32, INT64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)


class Indexing(EvalTrace):
    """The mixin of the eager interpreter that indexes arrays."""

    __slots__ = ()

    @abstractmethod
    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Runs a fused function, as in `Interpreter.call`."""

    def getitem(self, x: Any, idx: Any) -> Any:
        if x.__class__ is not Array or not x._sig.type.shape:
            return self._parsed(x, idx)
        sig, kind = x._sig, idx.__class__
        n = sig.type.shape[0]
        if kind is int:
            start, run = idx if idx >= 0 else idx + n, _ROW
            if not 0 <= start < n:
                return self._parsed(x, idx)
            if sig.stacked == 0:
                return row_of(x, start)
        elif kind is slice and idx.step is None and len(sig.devices) == 1:
            try:
                start, stop, _ = idx.indices(n)
            except TypeError:  # not integers: the error is raised there
                return self._parsed(x, idx)
            size = stop - start
            if size <= 0:
                return self._parsed(x, idx)
            if size == n:
                return x._itself()
            run = _window(size)
        elif kind is Array and idx._sig.type.dtype == INT32:
            return self.call(_ROWS, (x, idx), _NONE)
        else:
            return self._parsed(x, idx)
        place = sig.ints.get(start)
        return self.call(run, (x, _kept(start, sig) if place is None else place), _NONE)

    def index_operands(self, operands: list[Any], near: Any) -> list[Any]:
        sig = near._sig if near.__class__ is Array else self.array(near)._sig
        ints = sig.ints
        for k, v in enumerate(operands):
            if v.__class__ is int:
                operands[k] = ints[v] if v in ints else _kept(v, sig)
        return operands

    def _parsed(self, x: Any, idx: Any) -> Any:
        array = x if x.__class__ is Array else self.array(x)
        sig = array._sig
        if sig.stacked is not None and idx.__class__ is tuple:
            row = _shard_asked(idx, sig.type.shape, sig.stacked)
            if row is not None:
                return row_of(array, row)
        if getattr(idx, "dtype", None) == BOOL and _is_on_host(sig, idx):
            return self.place_like(np.asarray(x)[np.asarray(idx)], array)
        index = parse(idx, sig.type.shape, moving=True, windows=len(sig.devices) == 1)
        if index.pattern == (ALL,) * len(sig.type.shape):
            return array._itself()
        operands = self.index_operands(index.operands, x)
        return self.call(READ, (x, *operands), {"pattern": index.pattern})


def _shard_asked(idx: tuple[Any, ...], shape: tuple[int, ...], dim: int) -> int | None:
    """The number of the shard that an index selects, if all its other entries are full slices."""
    if not dim < len(idx) <= len(shape) or idx[dim].__class__ is not int:
        return None
    rest = idx[:dim] + idx[dim + 1 :]
    if any([i.__class__ is not slice or i != slice(None) for i in rest]):
        return None
    n, i = shape[dim], idx[dim]
    return i % n if -n <= i < n else None


def _is_on_host(sig: Signature, mask: Any) -> bool:
    """Whether NumPy applies a mask: otherwise each count of elements would need a program."""
    return (
        len(sig.devices) == 1
        and platform_of(sig.devices[0]).shares_memory
        and isinstance(sig.type.dtype, np.dtype)
        and mask.ndim > 0
        and mask.shape == sig.type.shape[: mask.ndim]
    )


def _kept(i: int, sig: Signature) -> Array:
    """An integer as an uncommitted scalar on the devices of a signature, cached in its `ints`."""
    if len(sig.ints) >= KEPT_INTEGERS:
        sig.ints.clear()
    dtype = INT32 if -(2**31) <= i < 2**31 else INT64
    placed = put_host(np.asarray(i, dtype), replicated_like(sig), False, array_type((), dtype))
    sig.ints[i] = placed
    return placed


# -- the functions of the fast paths: without static arguments, which would need a lookup --

_NONE: dict[str, Any] = {}


@fused(arrays=2)
def _row(x: Any, i: Any) -> Any:
    return read(x, i, pattern=(AT, *[ALL] * (type_of(x).ndim - 1)))


@fused(arrays=2)
def _rows(x: Any, i: Any) -> Any:
    kind = ARRAY if type_of(i).ndim else SCALAR
    return read(x, i, pattern=(kind, *[ALL] * (type_of(x).ndim - 1)))


_ROW, _ROWS = record_of(_row), record_of(_rows)


@cached(1024)
def _window(size: int) -> Fused:
    """The first `size` rows from `start` on, as a separate fused function."""

    def window(x: Any, start: Any) -> Any:
        return read(x, start, pattern=(("window", size), *[ALL] * (type_of(x).ndim - 1)))

    return record_of(fused(window, arrays=2))
