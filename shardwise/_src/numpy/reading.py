"""Arrays from what NumPy reads, and from functions of places: frombuffer, fromfile and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.creation import asarray, dtype_of, shape_of
from shardwise._src.ops import create
from shardwise._src.types.annotations import (
    Array,
    DTypeLike,
    ShapeLike,
)


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    """A vector of the numbers that a buffer of bytes holds."""
    return _numpys("frombuffer", np.frombuffer, buffer, dtype, count=count, offset=offset)


def fromfile(
    file: Any, dtype: DTypeLike = float, count: int = -1, sep: str = "", offset: int = 0
) -> Array:
    """A vector of the numbers that a file holds, in bytes or, with `sep`, in text.

    The file is read when this is called: of a traced function, once.
    """
    return _numpys("fromfile", np.fromfile, file, dtype, count=count, sep=sep, offset=offset)


def fromiter(iter: Iterable[Any], dtype: DTypeLike, count: int = -1) -> Array:
    """A vector of the numbers that an iterable gives, which is used up when this is called."""
    return _numpys("fromiter", np.fromiter, iter, dtype, count=count)


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """A vector of the numbers in a text, with `sep` between them."""
    return _numpys("fromstring", np.fromstring, string, dtype, count=count, sep=sep)


def _numpys(name: str, read: Callable[..., Any], source: Any, dtype: Any, **how: Any) -> Any:
    """What one of NumPy's functions reads, which may be in 64 bits, as an array."""
    return asarray(read(source, dtype=np.dtype(dtype), **how), dtype_of(dtype, name))


@hides_frames
def fromfunction(
    function: Callable[..., Any], shape: ShapeLike, *, dtype: DTypeLike = float, **kwargs: Any
) -> Array:
    """`function(i, j, …)` of the indices along each dimension, as arrays of `shape`."""
    sizes, wanted = shape_of(shape), dtype_of(dtype, "fromfunction")
    return function(*[_iota(wanted, sizes, d) for d in range(len(sizes))], **kwargs)


@fused(arrays=0)
def _iota(dtype: Any, shape: tuple, dimension: int) -> Any:
    return create.iota(dtype=dtype, shape=shape, dimension=dimension)
