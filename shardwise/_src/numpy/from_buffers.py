"""Arrays from NumPy's readers, and from functions of indices: frombuffer, fromfile and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.creation import asarray, dtype_of, shape_of
from shardwise._src.ops import create
from shardwise._src.types.annotations import Array, DTypeLike, ShapeLike


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    """A vector of the numbers in a buffer of bytes."""
    return _numpys("frombuffer", np.frombuffer, buffer, dtype, count=count, offset=offset)


def fromfile(
    file: Any, dtype: DTypeLike = float, count: int = -1, sep: str = "", offset: int = 0
) -> Array:
    """A vector of the numbers in a file, binary or, with `sep`, as text.

    The file is read when this is called: in a traced function, once.
    """
    return _numpys("fromfile", np.fromfile, file, dtype, count=count, sep=sep, offset=offset)


def fromiter(iter: Iterable[Any], dtype: DTypeLike, count: int = -1) -> Array:
    """A vector of the numbers from an iterable, which is consumed when this is called."""
    return _numpys("fromiter", np.fromiter, iter, dtype, count=count)


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """A vector of the numbers in a string, separated by `sep`."""
    return _numpys("fromstring", np.fromstring, string, dtype, count=count, sep=sep)


def _numpys(name: str, read: Callable[..., Any], source: Any, dtype: Any, **how: Any) -> Any:
    """The result of one of NumPy's readers, which may be 64-bit, as an array."""
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
