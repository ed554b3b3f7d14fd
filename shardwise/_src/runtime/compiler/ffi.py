"""Foreign functions: XLA's registries of them, and the buffer views passed to Python callbacks.

A name refers to one function for the lifetime of the process. jaxlib queues registrations for a
platform whose client does not exist yet, and passes them to XLA with the client, which does not
start if XLA rejects any. So registrations for the CPU go to XLA immediately, and names that are
taken are rejected here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import jaxlib
from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.base.errors import did_you_mean
from shardwise._src.runtime.compiler import lapack
from shardwise._src.runtime.host import address_in
from shardwise._src.runtime.platforms import Platform, find

Buffer = _jax.ffi.Buffer
ExecutionContext = _jax.ffi.ExecutionContext
ExecutionStage = _jax.ffi.ExecutionStage
_registered: dict[tuple[str, str], Any] = {}  # platform, name → addresses
_batched: set[str] = set()


def _xla_name(platform: str) -> str:
    """The name by which XLA knows a platform; any other name is passed on."""
    found = find(platform.lower())
    return platform if found is None else found.xla_name


def register_target(
    name: str, functions: Any, platform: str, api_version: int, options: dict[str, Any]
) -> None:
    """Registers a function with XLA. Raises ValueError if the name is taken by another one."""
    where = _xla_name(platform)
    if _is_new(where, name, _addresses(functions)):
        with _undone(where, name):
            xc.register_custom_call_target(name, functions, where, api_version, **options)


def register_type(name: str, registration: Any, platform: str) -> None:
    """Registers a state type of functions with XLA."""
    where = _xla_name(platform)
    if _is_new(where, f"type {name}", _addresses(registration)):
        with _undone(where, f"type {name}"):
            xc.register_custom_type(name, registration, where)


@contextmanager
def _undone(where: str, name: str) -> Generator[None]:
    """Removes a name that XLA rejects."""
    if where == "Host":
        xc.register_custom_type_handler(where, _jax.register_custom_type)
        xc.register_custom_call_handler(where, _jax.register_custom_call_target)
    try:
        yield
    except BaseException:
        del _registered[where, name]
        raise


def _is_new(where: str, name: str, addresses: Any) -> bool:
    known = _registered.setdefault((where, name), addresses)
    if known != addresses:
        raise ValueError(
            f"{name!r} is already registered for {where}, as something else. A name cannot be "
            "reassigned while the process runs: choose another name, such as one with a version."
        )
    return known is addresses


def register_batch_partitionable(name: str) -> None:
    """Registers a function with XLA as partitionable along batch dimensions."""
    if name not in _batched:
        _jax.register_custom_call_as_batch_partitionable(name)
        _batched.add(name)


def is_batch_partitionable(name: str) -> bool:
    return name in _batched or (name.startswith(lapack.PREFIX) and name in lapack.register())


def _addresses(functions: Any) -> Any:
    """The addresses in capsules."""
    if isinstance(functions, dict):
        stages = cast("dict[str, Any]", functions)
        return {stage: _addresses(found) for stage, found in stages.items()}
    return address_in(functions)


def capsule(address: Any) -> Any:
    """An unnamed capsule with the address of a ctypes function."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.cast(address, ctypes.c_void_p), None, None)


def headers() -> Path:
    """The folder of the headers that jaxlib ships."""
    return Path(next(iter(jaxlib.__path__))).resolve() / "include"


def unknown_target(name: str, platform: Platform) -> str:
    """The error message for a name that is not registered."""
    where = platform.xla_name
    known = {n for w, n in _registered if w == where} | {*xc.custom_call_targets(where)}
    return (
        f"no foreign function is registered as {name!r} for the platform {platform}."
        f"{did_you_mean(name, sorted(known))} Register it with "
        "`shardwise.ffi.register_ffi_target`, before it is first called."
    )
