"""`Interchange`: exporting arrays to other libraries: DLPack, CUDA's interface, a pointer.

All of these share memory, so they are for arrays on one device, as is Python's buffer protocol;
Arrow uses host values.
`transfers.dlpack` is the opposite direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.arrays import arrow
from shardwise._src.arrays.conversions import Concrete
from shardwise._src.arrays.signature import Signature
from shardwise._src.base.caches import cached
from shardwise._src.runtime import buffers, host
from shardwise._src.runtime.platforms import name_of, platform_of
from shardwise._src.types.annotations import DTypeLike
from shardwise._src.types.dtypes import canonicalize_dtype
from shardwise._src.types.extended import ExtendedDType

CPU = (1, 0)  # the DLPack device of the host


class _NoBuffer(BufferError):
    """Its message is built when it is read: NumPy first tries the buffer of each array.

    check: raises the error with the message.
    """

    def __init__(self, check: Callable[[], None]):
        super().__init__()
        self._check = check

    def __str__(self) -> str:
        try:
            self._check()
        except Exception as error:
            return str(error)
        return ""


class Interchange(Concrete):
    """The mixin of `Array` that other libraries call."""

    __slots__ = ()
    _sig: Signature

    def _live(self) -> Any:
        raise NotImplementedError

    def platform(self) -> str:
        """The platform of the devices: "cpu", "gpu"."""
        return name_of(self._sig.devices[0])

    def _is_on_cpu(self) -> bool:
        return platform_of(self._sig.devices[0]).shares_memory

    def unsafe_buffer_pointer(self) -> int:
        """The address of the data of an array on one device. Nothing keeps it valid."""
        self._check_one_device("has no single address")
        raw = self._live()
        if self._is_on_cpu() and not is_subbyte(self):  # jaxlib's own method may import jax
            dtype = self._sig.physical.dtype
            return host.shard_view(raw, self._sig.devices, 0, dtype).__array_interface__["data"][0]
        return raw.unsafe_buffer_pointer()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of an array on one CUDA device. On other devices the attribute is absent."""
        if self._is_on_cpu():
            raise AttributeError(
                f"array of type {self.aval.str_short(True)} is on the CPU, so it has no "
                "`__cuda_array_interface__`."
            )
        self._check_one_device("has no `__cuda_array_interface__`")
        self._check_exportable("`__cuda_array_interface__`")
        return self._live().__cuda_array_interface__

    def __dlpack_device__(self) -> tuple[int, int]:
        self._check_one_device("has no DLPack device")
        device = self._sig.devices[0]
        if self._is_on_cpu():
            return CPU
        kind = platform_of(device).dlpack_type
        if kind is None:
            raise BufferError(f"DLPack has no type for {device}; copy the array to the host first.")
        return kind, device.local_hardware_id

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The array for another library, without a copy unless `copy` or `dl_device` requires one.

        Args:
          stream: the consumer's stream; on a GPU, it waits for the data.
          max_version: the DLPack version that the consumer supports. From (1, 0) on, the capsule
            marks the memory as read-only; earlier versions cannot.
          dl_device: (kind, number) of the target: the array's device, or (1, 0), the host.
          copy: True for a copy owned by the consumer, False for an error if a copy is needed.

        Raises:
          BufferError: for arrays over several devices, keys, sub-byte elements, and if `dl_device`
            or `copy` cannot be satisfied.
        """
        here = self.__dlpack_device__()
        self._check_exportable("DLPack")
        there = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if there not in (here, CPU):
            raise BufferError(
                f"array of type {self.aval.str_short(True)} is on the DLPack device {here}, not "
                f"on {there}. Use `device_put` first, or `numpy.asarray` for the host."
            )
        if there != here and copy is False:
            raise BufferError(
                f"array of type {self.aval.str_short(True)} is on the DLPack device {here}; it "
                "cannot be exported to the host without a copy, as copy=False requires."
            )
        raw = self._live()
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        if there == CPU and (here != CPU or (versioned and host.EXPORTS_VERSIONS)):
            return host.export_view(self._value(), version=(1, 0), copy=copy or None)
        if copy:
            devices = buffers.device_list(self._sig.devices)
            raw = buffers.copy_to_devices(raw, devices, self._sig.placement)
        return host.export(raw, stream)

    def __buffer__(self, flags: int, /) -> memoryview:
        """The elements in row-major order for `memoryview` and readers of bytes, read-only.

        Python calls it from 3.12 on. On CPU nothing is copied, unless the layout is not the
        default one.

        Raises:
          BufferError: for arrays over several devices, keys, and elements for which there is no
            format: bfloat16, float8 and sub-byte dtypes.
        """
        if len(self._sig.devices) > 1 or getattr(self.dtype, "isbuiltin", 0) != 1:
            raise _NoBuffer(self._check_buffer)
        value = self._value()
        if value.flags.c_contiguous:
            return value.data
        return np.ascontiguousarray(value).reshape(self.shape).data

    def __bytes__(self) -> bytes:
        """The bytes of all elements, in row-major order."""
        return self._numbers("bytes").tobytes()

    def _check_buffer(self) -> None:
        self._check_one_device("has no single buffer")
        self._check_exportable("the buffer protocol")
        self._live()
        if self.dtype.isbuiltin != 1:
            raise BufferError(
                f"the buffer protocol has no format for elements of {self.dtype}. Use "
                f"`x.view('uint{8 * self.dtype.itemsize}')` for their bits, or `numpy.asarray(x)`."
            )

    def __arrow_array__(self, type: Any = None) -> Any:
        """The array as a `pyarrow.Array`; dimensions after the first are fixed-size lists.

        Raises:
          TypeError: for keys, dtypes that Arrow does not support, and arrays without dimensions.
        """
        return arrow.array(self._numbers("an Arrow array"), type)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The same for other libraries, as a single-chunk stream: a capsule."""
        return arrow.stream(self._numbers("an Arrow array"), requested_schema)

    def _check_one_device(self, what: str) -> None:
        count = len(self._sig.devices)
        if count > 1:
            raise BufferError(
                f"array of type {self.aval.str_short(True)} is sharded over {count} devices, so it "
                f"{what}. Take one of its `addressable_shards`, or gather it with `device_put`."
            )

    def _check_exportable(self, protocol: str) -> None:
        if isinstance(self.dtype, ExtendedDType):
            raise BufferError(
                f"{protocol} does not support keys; got an array of type "
                f"{self.aval.str_short(True)}. Use shardwise.random.key_data(x) for the underlying "
                "integers."
            )
        if is_subbyte(self):
            raise BufferError(
                f"{protocol} does not support elements of {self.dtype}, of less than a byte. "
                "Convert the array with `astype` first."
            )


def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Whether arrays of a dtype can be exported through DLPack: not keys or sub-byte dtypes.

    Few libraries can read some of the float8 formats.
    """
    found = canonicalize_dtype(dtype, allow_extended_dtype=True)
    return not isinstance(found, ExtendedDType) and not _is_narrow(found)


# Sub-byte dtypes, which are packed on devices, and the dtypes that carry their values.
SUBBYTE = {
    "int2": "int8",
    "int4": "int8",
    "uint2": "uint8",
    "uint4": "uint8",
    "float4_e2m1fn": "float32",
}


def is_subbyte(x: Interchange) -> bool:
    """Whether elements are sub-byte, so that NumPy cannot read them from a device."""
    return _is_narrow(x._sig.physical.dtype)


@cached(64)  # NumPy takes 2 µs to name a dtype
def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.name in SUBBYTE
