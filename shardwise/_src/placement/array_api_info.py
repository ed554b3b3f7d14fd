"""The inspection functions of the array API standard, for `shardwise.numpy`."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.placement.device_put import devices
from shardwise._src.transfers.transfer import default_single
from shardwise._src.types.annotations import DeviceLike
from shardwise._src.types.devices import Device
from shardwise._src.types.dtypes import DType, canonicalize, issubdtype
from shardwise._src.values.methods import API_VERSIONS

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


@public("shardwise.numpy")
class NamespaceInfo:
    """The result of `__array_namespace_info__()`: see the array API standard, 2024.12."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """What arrays support: everything, when nothing is traced."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of values without an explicit device."""
        return default_single()

    def devices(self) -> list[Device]:
        """All devices, including those of other processes."""
        return devices()

    def default_dtypes(self, *, device: DeviceLike = None) -> dict[str, DType]:
        """The dtypes of Python numbers: 64-bit under enable_x64, on every device."""
        _check(device)
        kinds = {"real floating": float, "complex floating": complex, "integral": int}
        found = {name: canonicalize(kind) for name, kind in kinds.items()}
        return {**found, "indexing": found["integral"]}

    def dtypes(
        self, *, device: DeviceLike = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes by name, on any device; 64-bit dtypes only under enable_x64.

        kind: one of those of `isdtype`, or a tuple of them; None for all.
        """
        _check(device)
        chosen = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        for name in chosen:
            if name not in _KINDS:
                raise ValueError(f"dtypes: kind must be one of {(*_KINDS,)}; got {name!r}.")
        names = [name for k in chosen for name in _KINDS[k]]
        return {n: np.dtype(n) for n in names if canonicalize(n) == n or issubdtype(n, bool)}


__array_api_version__ = API_VERSIONS[-1]  # lets programs check which functions a module has


def _check(device: Any) -> None:
    if not (device is None or hasattr(device, "platform") or hasattr(device, "device_set")):
        raise TypeError(f"device must be a device, a sharding or None; got {device!r}.")


def __array_namespace_info__() -> NamespaceInfo:
    """Information for users of the array API standard: devices, dtypes, capabilities."""
    return NamespaceInfo()
