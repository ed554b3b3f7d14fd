"""Shards of CPU buffers as NumPy arrays, without a copy.

jaxlib's own ways to one shard of a buffer (`_arrays`, `disassemble…`) import jax where it is
installed, and try to, at some cost, where it is not. This way does neither: DLPack exports the
first shard of a buffer, and reordering the devices of a buffer, which moves no data, makes any
shard the first. It takes about 5 µs per shard.

The views keep the memory alive: a program to which the buffer is donated takes a copy then.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, cast

import numpy as np
from jaxlib import _jax
from jaxlib import xla_client as xc
from numpy.typing import NDArray

_ALIAS = _jax.HostBufferSemantics.ZERO_COPY


def shard_view(
    raw: Any, devices: tuple[Any, ...], position: int, dtype: np.dtype[Any],
    memory_kind: str | None = None,
) -> NDArray[Any]:
    """What `devices[position]` holds, read-only. Waits until it is computed.

    devices: all devices of the buffer, in its order; all of them of this process.
    dtype:   of whole bytes.
    memory_kind: of the buffer; None for the default one.
    """
    if position:
        order = _rotated(devices, position, memory_kind)
        raw = _jax.reorder_shards(raw, order, _jax.ArrayCopySemantics.REUSE_INPUT)
    capsule = export(raw)
    if dtype.isbuiltin == 1:
        return np.from_dlpack(_Exporter(capsule))
    _declare_unsigned(capsule, dtype.itemsize)
    return np.from_dlpack(_Exporter(capsule)).view(dtype)


def export(raw: Any, stream: Any = None) -> Any:
    """A DLPack capsule of the first shard, once it is computed."""
    # The capsule must not hold on to `raw` itself: XLA aborts when that is deleted or donated.
    raw = raw._rewrap_with_aval_and_sharding(raw.aval, raw._sharding)
    raw.block_until_ready()
    return _jax.buffer_to_dlpack_managed_tensor(raw, stream=stream)


def from_view(aval: Any, placement: Any, view: NDArray[Any], device: Any) -> Any:
    """A single-device raw buffer on the memory of a view, which nobody may write to any more."""
    return _jax.batched_device_put(
        aval, placement, [view], [device], True, False,
        host_buffer_semantics=_ALIAS, enable_x64=True,
    )


@functools.lru_cache(4096)
def _rotated(devices: tuple[Any, ...], position: int, memory_kind: str | None) -> Any:
    order = _jax.DeviceList(devices[position:] + devices[:position])
    return _jax.GSPMDSharding(order, xc.HloSharding.replicate(), memory_kind=memory_kind)


class _Exporter:
    """A DLPack capsule in the form that NumPy imports."""

    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU


class _Tensor(ctypes.Structure):
    """`DLTensor` of the DLPack standard, the first field of `DLManagedTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


_UNSIGNED = 1  # kDLUInt
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _declare_unsigned(capsule: Any, itemsize: int) -> None:
    """NumPy knows no bfloat16 or float8: the elements are handed over as unsigned integers."""
    tensor = _Tensor.from_address(cast(int, _pointer_of(capsule, b"dltensor")))
    tensor.code, tensor.bits = _UNSIGNED, 8 * itemsize
