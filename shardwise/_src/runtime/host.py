"""Shards of CPU buffers as NumPy arrays, without a copy; exchange with other libraries by DLPack.

jaxlib's own methods for accessing one shard of a buffer (`_arrays`, `disassemble…`) import jax if
it is installed, and try to, at some cost, if it is not. This module avoids both: DLPack exports the
first shard of a buffer, and reordering the devices of a buffer, which moves no data, makes any
shard the first. It takes about 5 µs per shard.

The views keep the memory alive: a program to which the buffer is donated then makes a copy.

Between libraries on CPU, NumPy makes and reads the capsules: jaxlib imports jax to read one, and
before 0.12 supports only unversioned capsules, which cannot be marked read-only.
"""

from __future__ import annotations

import ctypes
from typing import Any, cast

import ml_dtypes
import numpy as np
from jaxlib import _jax
from jaxlib import xla_client as xc
from numpy.typing import NDArray

from shardwise._src.base.caches import cached
from shardwise._src.runtime import processes

_ALIAS = _jax.HostBufferSemantics.ZERO_COPY
ALIGNMENT = 64  # bytes: a buffer cannot use memory that is less aligned


def shard_view(
    raw: _jax.ArrayImpl,
    devices: tuple[_jax.Device, ...],
    position: int,
    dtype: np.dtype[Any],
    memory_kind: str | None = None,
) -> NDArray[Any]:
    """The shard on `devices[position]`, read-only. Waits until it is computed.

    devices: all devices of the buffer, in its order; `devices[position]` is of this process.
    dtype:   of whole bytes.
    memory_kind: of the buffer; None for the default one.
    """
    if position:
        order = _rotated(devices, position, memory_kind)
        raw = _jax.reorder_shards(raw, order, _jax.ArrayCopySemantics.REUSE_INPUT)
    return _imported(export(raw), dtype)


def view_first(raw: _jax.ArrayImpl) -> NDArray[Any]:
    """The first shard of a computed buffer, of a dtype that NumPy has, read-only."""
    return np.from_dlpack(_Exporter(_exported(raw)))


def export(raw: _jax.ArrayImpl, stream: int | None = None) -> Any:
    """A DLPack capsule of the first shard, once it is computed."""
    processes.wait(raw)
    return _exported(raw, stream)


def _exported(raw: _jax.ArrayImpl, stream: int | None = None) -> Any:
    """A DLPack capsule of the first shard of a computed buffer."""
    # The capsule must not reference `raw` itself: XLA aborts when that is deleted or donated.
    raw = raw._rewrap_with_aval_and_sharding(raw.aval, raw._sharding)
    return _jax.buffer_to_dlpack_managed_tensor(raw, stream=stream)


def from_view(
    aval: Any, placement: _jax.GSPMDSharding, view: NDArray[Any], device: _jax.Device
) -> _jax.ArrayImpl:
    """A single-device raw buffer on the memory of a view, which must not be written to any more."""
    return _jax.batched_device_put(
        aval,
        placement,
        [view],
        [device],
        True,
        False,
        host_buffer_semantics=_ALIAS,
        enable_x64=True,
    )


@cached(4096)
def _rotated(
    devices: tuple[_jax.Device, ...], position: int, memory_kind: str | None
) -> _jax.GSPMDSharding:
    order = _jax.DeviceList(devices[position:] + devices[:position])
    return _jax.GSPMDSharding(order, xc.HloSharding.replicate(), memory_kind=memory_kind)


# ------------------------------------------------------------------------------ DLPack via NumPy


def export_view(view: NDArray[Any], *, version: tuple[int, int], copy: bool | None = None) -> Any:
    """A versioned DLPack capsule of a NumPy array, marked read-only as the array is."""
    code = _CODES.get(view.dtype.name)
    plain = view if code is None else view.view(f"u{view.dtype.itemsize}")
    capsule: Any = plain.__dlpack__(max_version=version, copy=copy)  # pyright: ignore[reportCallIssue] (NumPy 2.1)
    if code is not None:
        _tensor(capsule).code = code
    return capsule


# Whether NumPy exports versioned capsules.
EXPORTS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def foreign_view(x: Any) -> NDArray[Any]:
    """Another library's array on the CPU, as a NumPy array on the same memory."""
    if isinstance(x, np.ndarray):
        return cast("NDArray[Any]", x)
    capsule = capsule_of(x)
    return _imported(capsule, _dtype_in(capsule))


def capsule_of(x: Any, **how: Any) -> Any:
    """The DLPack capsule of another library's array, versioned if the library supports it."""
    try:
        return x.__dlpack__(max_version=(1, 0), **how)
    except TypeError:  # unversioned
        return x.__dlpack__(**how)


class _Exporter:
    """Wraps a DLPack capsule for import by NumPy."""

    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU


def _imported(capsule: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.isbuiltin == 1:
        return np.from_dlpack(_Exporter(capsule))
    # NumPy does not support bfloat16 or float8: pass the elements as unsigned integers.
    _tensor(capsule).code = _UNSIGNED
    return np.from_dlpack(_Exporter(capsule)).view(dtype)


class Tensor(ctypes.Structure):
    """`DLTensor` of the DLPack standard."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_UNSIGNED = 1  # kDLUInt
_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_NAMES = {code: name for name, code in _CODES.items()}
_KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_BEHIND_VERSION = 32  # bytes: version, context, deleter, flags


def address_in(capsule: Any) -> int:
    """The pointer of a capsule."""
    return cast(int, _pointer_of(capsule, _name_of(capsule)))


def _tensor(capsule: Any) -> Tensor:
    """The tensor of a capsule: its first field, or, if versioned, after the version header."""
    offset = _BEHIND_VERSION if _name_of(capsule) == b"dltensor_versioned" else 0
    return Tensor.from_address(address_in(capsule) + offset)


def _dtype_in(capsule: Any) -> np.dtype[Any]:
    tensor = _tensor(capsule)
    name = _NAMES.get(tensor.code)
    if name is None:
        name = "bool" if tensor.code == 6 else f"{_KINDS.get(tensor.code, '')}{tensor.bits}"
    try:
        if tensor.lanes != 1 or tensor.bits % 8:
            raise TypeError
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise BufferError(
            f"DLPack elements with type code {tensor.code}, {tensor.bits} bits and {tensor.lanes} "
            "lanes have no corresponding dtype."
        ) from None


# --------------------------------------------------------------------------------- DLPack of GPUs


def foreign_buffer(
    x: Any, device: _jax.Device
) -> tuple[_jax.ArrayImpl, tuple[int, ...], np.dtype[Any]]:
    """Another library's GPU array as a raw buffer on the same memory; its shape and dtype."""
    stream = device.get_stream_for_external_ready_events()
    capsule = x.__dlpack__(stream=stream)  # unversioned, as jaxlib before 0.12 requires
    tensor, dtype = _tensor(capsule), _dtype_in(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    rows = np.cumprod((1, *shape[:0:-1]))[::-1].tolist()  # strides in row-major order
    strides = tensor.strides[: tensor.ndim] if tensor.strides and shape else rows
    if any(n > 1 and s != r for n, s, r in zip(shape, strides, rows, strict=False)):
        raise BufferError(
            f"an array of shape {shape} and strides {tuple(strides)} is not row-major. Make it "
            "contiguous first."
        )
    return _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream), shape, dtype
