"""`from_dlpack`: imports arrays of other libraries, without a copy if possible.

On the CPU, sharing requires 64-byte alignment, row-major order, and a dtype that the flags allow;
otherwise the data is copied once. The owner must no longer write to shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, wrap
from shardwise._src.arrays.interchange import CPU
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.runtime import backend, buffers, host
from shardwise._src.runtime.platforms import known, platform_of
from shardwise._src.transfers.transfer import copy as copied
from shardwise._src.transfers.transfer import default_single, move, put_host
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import canonicalize
from shardwise._src.types.sharding import SingleDeviceSharding

_MANAGED = {13: 2}  # types of memory that GPUs and the host share → of the GPUs


def from_dlpack(x: Any, target: Any = None, copy: bool | None = None) -> Array:
    """An array with the contents of `x`, an object with `__dlpack__`.

    target: a sharding; None: the data's current location.
    copy:   True for a copy, False for an error if one is needed, None for either.
    """
    kind, number = x.__dlpack_device__()
    if kind == CPU[0]:
        return _from_host(x, target, copy)
    device = _device(_MANAGED.get(kind, kind), number)
    if device is None:
        raise BufferError(
            f"from_dlpack takes arrays on devices of this process; got one on a DLPack device of "
            f"kind {kind}, number {number}. Copy it to the CPU first."
        )
    raw, shape, dtype = host.foreign_buffer(x, device)
    sig = signature(array_type(shape, dtype), SingleDeviceSharding(device), True)
    made = wrap(buffers.rewrap(raw, sig.physical, sig.placement), sig)
    if target is None or target is sig.sharding:
        return copied(made) if copy else made
    _check_copy(copy, f"on {sig.sharding}, not on {target}")
    return move(made, target)


def _device(kind: int | None, number: int) -> Any:
    """The device of this process with a DLPack type and number; None if it has none."""
    for platform in known():
        if platform.dlpack_type == kind and platform.make_client and platform.is_available():
            for device in backend.local_devices(platform.name):
                if device.local_hardware_id == number:
                    return device
    return None


def _from_host(x: Any, target: Any, copy: bool | None) -> Array:
    view = host.foreign_view(x)
    there: Any = target if target is not None else _on_cpu()
    committed = target is not None or there.devices[0] != default_single()
    dtype: Any = canonicalize(view.dtype)
    if len(there.devices) > 1 or not platform_of(there.devices[0]).shares_memory:
        _check_copy(copy, f"on the host, not on {there}")
        return put_host(view, there, committed)
    if dtype != view.dtype:
        _check_copy(copy, f"of dtype {view.dtype}, and 64-bit types are disabled")
        view = view.astype(dtype)
    sig = signature(array_type(view.shape, dtype), there, committed)
    if not view.size:
        return _copied(view, sig)
    misfit = _misfit(view)
    if copy or misfit:
        _check_copy(copy, misfit)
        return _copied(view, sig)
    return wrap(host.from_view(sig.physical, sig.placement, view, sig.devices[0]), sig)


def _on_cpu() -> SingleDeviceSharding:
    """The default device if it is a CPU; otherwise the first CPU device."""
    device = default_single()
    if not platform_of(device).shares_memory:
        device = backend.local_devices("cpu")[0]
    return SingleDeviceSharding(device)


def _copied(view: np.ndarray, sig: Signature) -> Array:
    return wrap(buffers.put(sig.physical, sig.placement, (view,), sig.devices), sig)


def _misfit(view: np.ndarray) -> str:
    """Why a device cannot adopt the memory; "" if it can."""
    if not view.flags.c_contiguous:
        return f"with strides {view.strides}, not in row-major order"
    is_aligned = view.ctypes.data % host.ALIGNMENT == 0
    return "" if is_aligned else f"at an address that is not a multiple of {host.ALIGNMENT} bytes"


def _check_copy(copy: bool | None, why: str) -> None:
    if copy is False:
        raise BufferError(
            f"from_dlpack: the data is {why}; it must be copied, which copy=False forbids."
        )
