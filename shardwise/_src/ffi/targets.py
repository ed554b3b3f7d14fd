"""What XLA is told of foreign functions: their names, their types, how they may be split."""

from __future__ import annotations

from typing import Any, NoReturn, NotRequired, TypedDict

from shardwise._src.runtime import ffi


class TypeRegistration(TypedDict):
    """A type that functions keep states in: capsules of its `XLA_FFI_TypeId`, and of its
    `XLA_FFI_TypeInfo`."""

    type_id: Any
    type_info: NotRequired[Any]


def register_ffi_target(
    name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any
) -> None:
    """Gives a foreign function a name, under which programs call it.

    Args:
      name: the name, which stands for it as long as the process lives.
      fn: a capsule with the function (`pycapsule`), or a dictionary of them by stage:
        "instantiate", "prepare", "initialize", "execute".
      platform: "cpu", "cuda" or "rocm".
      api_version: 1 for a handler of XLA's typed interface; 0 for a function of the one before.
      kwargs: more that jaxlib's `register_custom_call_target` takes: `traits`.

    Raises:
      TypeError: if `fn` is neither.
      ValueError: if the name is that of another function.
    """
    where = f"register_ffi_target of {name!r}"
    stages = fn.values() if isinstance(fn, dict) else (fn,)
    if not stages or any(type(x).__name__ != "PyCapsule" for x in stages):
        raise TypeError(
            f"{where}: fn is a capsule, or a dictionary of capsules by stage; got {fn!r}. Make one "
            "of a function of ctypes with `shardwise.ffi.pycapsule`."
        )
    try:
        ffi.register_target(name, fn, platform, api_version, kwargs)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def register_ffi_type(
    name: str, type_registration: TypeRegistration, platform: str = "cpu"
) -> None:
    """Tells XLA of a type of states that a foreign function keeps between its stages.

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
    """Of older releases of jaxlib, and refused: a type is registered with what its values need."""
    raise ValueError(
        f"register_ffi_type_id of {name!r}: jaxlib has types with their `TypeInfo` only, since "
        "0.8.1. Use `shardwise.ffi.register_ffi_type(name, {'type_id': …, 'type_info': …})`."
    )


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Says of a foreign function that it may be given any part of a batch.

    Dimensions that `vmap` has added to all operands and results then stay split over devices, each
    of which calls the function with its own part; so do those that `ffi_call` was told of by
    `num_batch_dims`. Without this, operands are gathered, and each device does the whole.
    """
    ffi.register_batch_partitionable(name)


def pycapsule(funcptr: Any) -> Any:
    """A capsule around a function of a library that ctypes has loaded.

        library = ctypes.CDLL("./kernels.so")
        register_ffi_target("scale", pycapsule(library.Scale))
    """
    return ffi.capsule(funcptr)


def include_dir() -> str:
    """The folder of the headers that jaxlib ships, for the compiler of foreign functions:
    `#include "xla/ffi/api/ffi.h"`."""
    return str(ffi.headers())
