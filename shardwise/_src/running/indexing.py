"""`x[idx]` of arrays: no program is compiled for an integer, or for the start of a slice.

`numpy.indexing` says what an index means. Here its integers become operands, arrays that are kept
beside the one that is indexed (`Signature.ints`), and the commonest indices take a short way:

    x[5], x[2:4], x[rows]     a look at `idx` is enough: a fused function for each of the three
    x[mask]                   NumPy, where the array is in its reach
    x[5, :, rows], …          parsed to a pattern: a program for each
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, row_of
from shardwise._src.arrays.signature import Signature
from shardwise._src.core.eval_context import EvalTrace
from shardwise._src.core.fused import Composite, fused, record_of
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.index_pattern import ALL, ARRAY, AT, SCALAR, parse
from shardwise._src.numpy.indexing import READ, read
from shardwise._src.transfers.transfer import put_host, whole_beside
from shardwise._src.types.array_type import array_type

KEPT_INTEGERS = 4096  # at each place
BOOL, INT32, INT64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)


class Indexing(EvalTrace):
    """The part of the eager interpreter that indexes arrays."""

    __slots__ = ()

    @abstractmethod
    def call(self, fused: Composite, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Runs a fused function, as `Interpreter.call`."""

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
            except TypeError:  # no integers: said there
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
            return self.beside(np.asarray(x)[np.asarray(idx)], array)
        index = parse(idx, sig.type.shape, moving=True, windows=len(sig.devices) == 1)
        if index.pattern == (ALL,) * len(sig.type.shape):
            return array._itself()
        operands = self.index_operands(index.operands, x)
        return self.call(READ, (x, *operands), {"pattern": index.pattern})


def _shard_asked(idx: tuple[Any, ...], shape: tuple[int, ...], dim: int) -> int | None:
    """The number of the shard that an index with whole slices asks for, if it does."""
    if not dim < len(idx) <= len(shape) or idx[dim].__class__ is not int:
        return None
    rest = idx[:dim] + idx[dim + 1 :]
    if any([i.__class__ is not slice or i != slice(None) for i in rest]):
        return None
    n, i = shape[dim], idx[dim]
    return i % n if -n <= i < n else None


def _is_on_host(sig: Signature, mask: Any) -> bool:
    """Whether NumPy applies a mask: a program would be compiled for each count of elements."""
    return (
        len(sig.devices) == 1 and sig.devices[0].platform == "cpu"
        and isinstance(sig.type.dtype, np.dtype)
        and mask.ndim > 0 and mask.shape == sig.type.shape[: mask.ndim]
    )


def _kept(i: int, sig: Signature) -> Array:
    """An integer as an uncommitted scalar on the devices of a signature, kept in its `ints`."""
    if len(sig.ints) >= KEPT_INTEGERS:
        sig.ints.clear()
    dtype = INT32 if -(2**31) <= i < 2**31 else INT64
    placed = put_host(np.asarray(i, dtype), whole_beside(sig), False, array_type((), dtype))
    sig.ints[i] = placed
    return placed


# -- what the short ways run: without static arguments, which would have to be looked up --

_NONE: dict[str, Any] = {}


@fused(arrays=2)
def _row(x: Any, i: Any) -> Any:
    return read(x, i, pattern=(AT, *[ALL] * (type_of(x).ndim - 1)))


@fused(arrays=2)
def _rows(x: Any, i: Any) -> Any:
    kind = ARRAY if type_of(i).ndim else SCALAR
    return read(x, i, pattern=(kind, *[ALL] * (type_of(x).ndim - 1)))


_ROW, _ROWS = record_of(_row), record_of(_rows)


@functools.lru_cache(1024)
def _window(size: int) -> Composite:
    """The first `size` rows from `start` on, as a fused function of its own."""

    def window(x: Any, start: Any) -> Any:
        return read(x, start, pattern=(("window", size), *[ALL] * (type_of(x).ndim - 1)))

    return record_of(fused(window, arrays=2))
