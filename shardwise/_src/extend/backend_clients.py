"""Backend clients for JAX extensions: `shardwise.extend.backend`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from shardwise._src.base.caches import register
from shardwise._src.debug.clear_caches import clear_caches
from shardwise._src.messages.formatting import brief
from shardwise._src.runtime import backend
from shardwise._src.runtime.compiler import modules
from shardwise._src.runtime.platforms import Platform, add
from shardwise._src.transfers.transfer import default_place
from shardwise._src.types.devices import Device


def get_backend(platform: Any = None) -> backend.Client:
    """The runtime client of a platform (started if necessary); of the first platform for None.

    platform: a name, such as "cpu"; or a client, which is returned unchanged.
    """
    return backend.client(platform) if platform is None or isinstance(platform, str) else platform


def backends() -> dict[str, Any]:
    """The started clients by platform name; includes the first platform's client."""
    backend.client()
    return backend.clients()


def get_default_device() -> Device:
    """The device of arrays without an explicit placement."""
    return default_place().devices[0]


def backend_xla_version(platform: str | None = None) -> int | None:
    """The XLA version reported by a platform's plugin; None if it reports none, as on CPU."""
    return getattr(get_backend(platform), "xla_version", None)


def clear_in_memory_compilation_cache() -> None:
    """Clears the caches of traced and compiled programs, as `shardwise.clear_caches` does."""
    clear_caches()


def register_backend_cache(cache: Any, for_what: str) -> None:
    """Makes `shardwise.clear_caches` call `cache.cache_clear()` from now on.

    for_what: a human-readable description of the cache.
    """
    if not callable(getattr(cache, "cache_clear", None)):
        raise TypeError(
            f"register_backend_cache takes a cache with a method cache_clear; got {cache!r} of "
            f"type {type(cache).__name__}, for {for_what}."
        )
    info: Any = getattr(cache, "cache_info", None)

    def entries() -> int:
        return 0 if info is None else info().currsize

    register(type(cache).__module__, for_what, entries, cache.cache_clear)


def get_compile_options(
    num_replicas: int,
    num_partitions: int,
    device_assignment: Any = None,
    env_options_overrides: dict[str, Any] | None = None,
    fdo_profile: bytes | None = None,
    detailed_logging: bool = True,
    backend: Any = None,
) -> modules.CompileOptions:
    """The runtime's compile options for a program on some devices, as this library compiles it.

    Args:
      num_replicas: must be 1: programs are partitioned over devices, not replicated.
      num_partitions: the number of devices.
      device_assignment: the device ids, in order; by default 0, 1, 2, …
      env_options_overrides: XLA options by name.
      fdo_profile: a profile for XLA's feedback-directed optimization.
      detailed_logging: whether XLA may log in more detail.
      backend: a platform name or a client.

    Raises:
      ValueError: if `num_replicas` is not 1, or a device id does not exist.
    """
    if num_replicas != 1:
        raise ValueError(
            f"get_compile_options: num_replicas must be 1; got {num_replicas}. A program is "
            "partitioned over its devices: pass their number as num_partitions."
        )
    known = {d.id: d for d in get_backend(backend).devices()}
    ids = range(num_partitions) if device_assignment is None else _flat(device_assignment)
    missing = [i for i in ids if i not in known]
    if missing or len(ids) != num_partitions:
        raise ValueError(
            f"get_compile_options: {num_partitions} devices are requested, as {list(ids)}; "
            f"available devices are {sorted(known)}."
        )
    devices = tuple([known[i] for i in ids])
    options = modules.compile_options(devices, overrides=env_options_overrides)
    options.executable_build_options.debug_options.xla_detailed_logging = detailed_logging
    return _with_profile(options, fdo_profile)


def create_compile_options(
    computation: Any,
    tuple_args: bool,
    allow_prop_to_inputs: Sequence[bool],
    allow_prop_to_outputs: Sequence[bool],
    backend: Any,
    np_dev: Any,
    compiler_options: dict[str, Any],
) -> modules.CompileOptions:
    """The runtime's compile options for a module on some devices, as this library compiles modules.

    Args:
      computation, backend: unused; JAX only logs them.
      tuple_args: whether the module takes a single tuple.
      allow_prop_to_inputs, allow_prop_to_outputs: for each input or output, whether the partitioner
        chooses its sharding.
      np_dev: an array of the devices.
      compiler_options: XLA options by name; also `fdo_profile`, the bytes of a profile.
    """
    flags = dict(compiler_options)
    profile = flags.pop("fdo_profile", None)
    options = modules.compile_options(
        tuple(np.asarray(np_dev, object).flat),
        free_parameters=allow_prop_to_inputs,
        free_outputs=allow_prop_to_outputs,
        overrides=flags,
    )
    options.parameter_is_tupled_arguments = tuple_args
    return _with_profile(options, profile)


def _with_profile(options: modules.CompileOptions, profile: bytes | None) -> modules.CompileOptions:
    if profile is not None:
        options.executable_build_options.fdo_profile = profile
    return options


def _flat(numbers: Any) -> Sequence[int]:
    return [i for n in numbers for i in (n if isinstance(n, Sequence) else [n])]


def clear_backends(_crash: bool = False) -> NoReturn:
    """Not supported: devices stay started for the lifetime of the process."""
    raise NotImplementedError(
        "clear_backends: devices stay initialized until the process ends, since arrays, meshes and "
        "compiled programs use them. Use `shardwise.clear_caches()` to clear cached programs, "
        "and a separate process for other devices."
    )


def register_platform(platform: Platform) -> None:
    """Adds a platform: afterwards `shardwise.devices(platform.name)` has its devices.

    Programs for its devices are lowered, compiled and run as for others. `pjrt_plugin` makes the
    record for a vendor's plugin. A package can declare a platform by an entry point of the group
    `shardwise.platforms`, with the platform's name, that refers to a `Platform` or to a function
    that returns one.

    The default platform is chosen when the first device is used; add others before that.

    Raises:
      TypeError: if it is not a `Platform`; ValueError: if another platform has its name.
    """
    if not isinstance(platform, Platform):
        raise TypeError(
            f"register_platform takes a Platform; got {brief(platform)} of type "
            f"{type(platform).__name__}."
        )
    add(platform)


def register_backend_factory(
    name: str,
    factory: Callable[[], Any],
    *,
    priority: int = 0,
    fail_quietly: bool = True,
    experimental: bool = False,
    make_topology: Any = None,
    c_api: Any = None,
) -> None:
    """Adds a platform that is only described by the function that makes its client.

    Args:
      name: of the platform; must be new.
      factory: returns its PJRT client.
      priority: the platform with the highest priority is the default; CPU has 0. If its client
        cannot be made then, the first use of a device raises.
      fail_quietly, experimental, make_topology: accepted and ignored.
      c_api: the API of its PJRT plugin, if it is one.

    Raises:
      ValueError: if another platform has its name.
    """
    api = None if c_api is None else lambda: c_api
    register_platform(Platform(name=name, make_client=factory, priority=priority, c_api=api))
