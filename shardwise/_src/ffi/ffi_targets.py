"""Registration of foreign functions with XLA: their names, types and batch partitioning."""

from __future__ import annotations

from typing import Any, NoReturn, NotRequired, TypedDict

from shardwise._src.runtime.compiler import ffi


class TypeRegistration(TypedDict):
    """The type of a function's state: capsules of its `XLA_FFI_TypeId` and its
    `XLA_FFI_TypeInfo`."""

    type_id: Any
    type_info: NotRequired[Any]


def register_ffi_target(
    name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any
) -> None:
    """Registers a foreign function under a name, by which programs call it.

    Args:
      name: the name, which is taken for the lifetime of the process.
      fn: a capsule with the function (`pycapsule`), or a dictionary of them by stage:
        "instantiate", "prepare", "initialize", "execute".
      platform: "cpu", "cuda" or "rocm".
      api_version: 1 for a handler of XLA's typed interface; 0 for the older interface.
      kwargs: further arguments of jaxlib's `register_custom_call_target`: `traits`.

    Raises:
      TypeError: if `fn` is neither.
      ValueError: if another function has the name.
    """
    where = f"register_ffi_target of {name!r}"
    stages = fn.values() if isinstance(fn, dict) else (fn,)
    if not stages or any(type(x).__name__ != "PyCapsule" for x in stages):
        raise TypeError(
            f"{where}: fn must be a capsule, or a dictionary of capsules by stage; got {fn!r}. "
            "Make one from a ctypes function with `shardwise.ffi.pycapsule`."
        )
    try:
        ffi.register_target(name, fn, platform, api_version, kwargs)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def register_ffi_type(
    name: str, type_registration: TypeRegistration, platform: str = "cpu"
) -> None:
    """Registers with XLA the type of the state that a foreign function keeps between its stages.

    Args:
      name: of the type.
      type_registration: {"type_id": capsule, "type_info": capsule}.
      platform: "cpu", "cuda" or "rocm".
    """
    try:
        ffi.register_type(name, type_registration, platform)
    except ValueError as error:
        raise ValueError(f"register_ffi_type of {name!r}: {error}") from None


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> NoReturn:
    """Not supported, from older releases of jaxlib: register the complete type instead."""
    raise ValueError(
        f"register_ffi_type_id of {name!r}: since 0.8.1, jaxlib registers a type only together "
        "with its `TypeInfo`. Use `shardwise.ffi.register_ffi_type(name, "
        "{'type_id': …, 'type_info': …})`."
    )


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Declares that a foreign function may be called with any shard of a batch.

    Dimensions that `vmap` has added to all operands and results then stay sharded over devices,
    each of which calls the function with its own shard; so do the `num_batch_dims` of `ffi_call`.
    Without this, operands are gathered, and each device does all the work.
    """
    ffi.register_batch_partitionable(name)


def pycapsule(funcptr: Any) -> Any:
    """A capsule for a function of a library loaded with ctypes.

    library = ctypes.CDLL("./kernels.so")
    register_ffi_target("scale", pycapsule(library.Scale))
    """
    return ffi.capsule(funcptr)


def include_dir() -> str:
    """The folder of the headers that jaxlib ships, for the compiler of foreign functions:
    `#include "xla/ffi/api/ffi.h"`."""
    return str(ffi.headers())
