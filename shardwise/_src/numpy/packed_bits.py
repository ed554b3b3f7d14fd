"""Bits as elements: packbits, unpackbits.

For example:

    packbits([1, 0, 1])                  # [160]: eight to a byte, the first one highest
    unpackbits(packbits(x), count=n)     # the original
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.shapes import no_lists, ravel
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reduce_sum, reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.shape import canonical_axis, pad, slice_in_dim
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_bool, is_integer
from shardwise._src.values.binary import truth
from shardwise._src.values.convert import as_integer, cast

UINT8 = np.dtype(np.uint8)


def _places(x: Any, bitorder: str, powers: bool = False) -> Any:
    """The positions of eight bits, or 2 to their power, along the last dimension of `x`.

    Built from an iota of eight: XLA's loops over longer iotas, or over an argument, are slower.
    """
    t = type_of(x)
    row = iota(dtype=UINT8, shape=(8,), dimension=0)
    row = ew.sub(UINT8.type(7), row) if bitorder == "big" else row
    row = ew.shift_left(UINT8.type(1), row) if powers else row
    return broadcast_in_dim(row, shape=t.shape, dims=(t.ndim - 1,))


@fused(arrays=1)
def _pack(x: Any, axis: int, bitorder: str) -> Any:
    x = move_axis(cast(truth(x), UINT8), axis, type_of(x).ndim - 1)
    *rest, n = type_of(x).shape
    if n % 8:
        config = (*[(0, 0, 0)] * len(rest), (0, -n % 8, 0))
        x = pad(x, UINT8.type(0), padding_config=config)
    x = reshape(x, shape=(*rest, -(-n // 8), 8))
    bits = ew.shift_left(x, _places(x, bitorder))
    return move_axis(reduce_sum(bits, axes=(len(rest) + 1,)), len(rest), axis)


@fused(arrays=1)
def _unpack(x: Any, axis: int, count: int | None, bitorder: str) -> Any:
    x = move_axis(x, axis, type_of(x).ndim - 1)
    *rest, n = type_of(x).shape
    x = broadcast_in_dim(x, shape=(*rest, n, 8), dims=tuple(range(len(rest) + 1)))
    bits = ew.ne(ew.bitwise_and(x, _places(x, bitorder, powers=True)), UINT8.type(0))
    bits = cast(reshape(bits, shape=(*rest, 8 * n)), UINT8)
    wanted = 8 * n if count is None else count if count >= 0 else max(8 * n + count, 0)
    if wanted > 8 * n:
        config = (*[(0, 0, 0)] * len(rest), (0, wanted - 8 * n, 0))
        bits = pad(bits, UINT8.type(0), padding_config=config)
    return move_axis(slice_in_dim(bits, 0, wanted, len(rest)), len(rest), axis)


def _check(name: str, a: Any, bitorder: str) -> None:
    no_lists(name, a)
    if bitorder not in ("big", "little"):
        raise ValueError(f"{name}: bitorder must be 'big' or 'little'; got {bitorder!r}.")


@eager_jit
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Packs eight elements along `axis` into the bits of a uint8: 1 where an element is nonzero.

    Args:
      a: integers or booleans; padded with zeros along `axis` to a multiple of eight.
      axis: by default, the array is flattened first.
      bitorder: whether the first of eight is the highest ("big") or lowest bit ("little").
    """
    _check("packbits", a, bitorder)
    t = type_of(a)
    if not (is_integer(t.dtype) or is_bool(t.dtype)):
        raise TypeError(f"packbits takes integers or booleans; got {t.str_short(True)}.")
    if axis is None:
        return _pack(ravel(a), 0, bitorder)
    return _pack(a, canonical_axis(axis, t.ndim), bitorder)


@eager_jit
def unpackbits(
    a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """Unpacks each uint8 into eight elements, 0 or 1, along `axis`; see `packbits`.

    count: how many elements to return, padded with zeros; if negative, counts from the end.
    """
    _check("unpackbits", a, bitorder)
    t = type_of(a)
    if t.dtype != UINT8:
        raise TypeError(f"unpackbits takes uint8; got {t.str_short(True)}.")
    size = None if count is None else as_integer(count, "unpackbits: count")
    if axis is None:
        return _unpack(ravel(a), 0, size, bitorder)
    return _unpack(a, canonical_axis(axis, t.ndim), size, bitorder)
