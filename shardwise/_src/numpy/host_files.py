"""Host values: save, savez, load, from_dlpack, print options; mask_indices."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import IO, Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import is_array
from shardwise._src.numpy.creation import asarray, ones
from shardwise._src.numpy.ordering.searching import nonzero
from shardwise._src.types.annotations import Array, ArrayLike, DeviceLike, SupportsDLPack
from shardwise._src.values.convert import as_integer

set_printoptions, get_printoptions = np.set_printoptions, np.get_printoptions
printoptions = np.printoptions
array_repr, array_str, iterable = np.array_repr, np.array_str, np.iterable
ComplexWarning = np.exceptions.ComplexWarning


def save(file: str | PathLike[str] | IO[bytes], arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Writes an array to a .npy file."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(
    file: str | PathLike[str] | IO[bytes], *args: Any, allow_pickle: bool = True, **kwds: Any
) -> None:
    """Writes arrays to an .npz file, under the keyword names or arr_0, arr_1, …

    allow_pickle: as in NumPy; no array here needs it.
    """
    named: dict[str, Any] = {k: np.asarray(v) for k, v in kwds.items()}
    numbers = not any(x.dtype.hasobject for x in (*map(np.asarray, args), *named.values()))
    if not (allow_pickle or numbers):
        raise ValueError("savez: an object array cannot be saved with allow_pickle=False.")
    np.savez(file, *map(np.asarray, args), **named)


def load(file: str | PathLike[str] | IO[bytes], *args: Any, **kwargs: Any) -> Array:
    """The array in a .npy file; for an .npz file, the file, which returns NumPy arrays by name."""
    found = np.load(file, *args, **kwargs)
    return asarray(found) if isinstance(found, np.ndarray) else found


def from_dlpack(
    external_array: SupportsDLPack, device: DeviceLike = None, copy: bool | None = None
) -> Array:
    """An array with the data of another library's array, sharing its memory if possible.

    Sharing requires the same device and, on the CPU, 64-byte alignment, row-major order, and a
    dtype that the flags allow; otherwise, there is one copy. The memory must not be written to
    afterwards.

    Args:
      external_array: an object with `__dlpack__` and `__dlpack_device__`.
      device: a device or sharding to commit the result to; if None, the device of the data.
      copy: True for separate memory; False to raise an error if a copy is needed.

    Raises:
      BufferError: if the data cannot be imported, or needs a copy that `copy` forbids.
      TypeError: if `external_array` has no `__dlpack__`.
    """
    x = external_array
    if is_array(x):
        made = asarray(x, copy=bool(copy))
        return made if device is None else eval_trace().place(made, device)
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(
            "from_dlpack takes an object with `__dlpack__` and `__dlpack_device__`; got one of "
            f"type {type(x).__name__}. Bare capsules, the older protocol, do not specify their "
            "device."
        )
    return eval_trace().from_dlpack(x, device, copy)


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> tuple[Array, ...]:
    """Indices of an n by n matrix where `mask_func(ones, k)` is nonzero, e.g. `triu`."""
    side = as_integer(n, "mask_indices: n")
    return nonzero(mask_func(ones((side, side)), k), size=size)
