"""Platforms: a record for each kind of hardware, with all that differs between them.

    platform_of(device).shares_memory      # a fact, where a decision depends on the hardware
    add(Platform(name="xpu", make_client=…))

Code reads the fields of a record and never compares names of platforms. `CPU`, `CUDA`, `ROCM` and
`TPU` are known; others are added by `add`, by `pjrt_plugin`, or by a package with an entry
point of the group `shardwise.platforms`, which names a record or a function that returns one. Entry
points are read when a platform is asked for that is not known otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.base.caches import cached
from shardwise._src.base.config import num_cpu_devices
from shardwise._src.base.interrupts import import_module
from shardwise._src.base.lazy import public
from shardwise._src.runtime import cuda, plugins, processes, shutdown

ENTRY_POINTS = "shardwise.platforms"


@public("shardwise.extend.backend")
@dataclass(frozen=True, kw_only=True, eq=False)
class Platform:
    """A kind of hardware.

    Attributes:
      name: as flags, exports and lowering rules give it: "cuda".
      device_name: what the `platform` of its devices says, "gpu" for CUDA; by default the name.
      aliases: other names by which users may ask for it.
      make_client: returns a new PJRT client. None: programs can only be exported for it.
      is_available: whether there are devices, found out without starting anything. The available
        platform of the highest priority is the default.
      priority: CPU has 0, CUDA 100. A negative one is never the default.
      is_plugin: whether its client is that of a PJRT plugin (`plugins`).
      xla_name: the name by which XLA registers its custom calls: "CUDA"; by default the name in
        capitals.
      dlpack_type: the type of its devices in DLPack; None if it has none.
      callbacks: whose of jaxlib's handlers call host functions: "cpu" or "gpu"; "" for none.
      shares_memory: whether memory of its devices is the host's, so that arrays can be views of
        NumPy arrays, and NumPy arrays views of them.
      is_xla_cpu: whether XLA's CPU backend compiles for it and runs its programs: with LAPACK
        kernels, the errors that lowering works around, and threads of this process.
      is_ordered_by_id: whether devices with consecutive ids are neighbors in the network.
      typical_machine: the machine whose rates estimates use for an unknown kind of device.
    """

    name: str
    device_name: str = ""
    aliases: tuple[str, ...] = ()
    make_client: Callable[[], Any] | None = None
    is_available: Callable[[], bool] = lambda: True
    priority: int = -1
    is_plugin: bool = False
    xla_name: str = ""
    dlpack_type: int | None = None
    callbacks: str = ""
    shares_memory: bool = False
    is_xla_cpu: bool = False
    is_ordered_by_id: bool = False
    typical_machine: str = "h100"

    def __post_init__(self) -> None:
        object.__setattr__(self, "device_name", self.device_name or self.name)
        object.__setattr__(self, "xla_name", self.xla_name or self.name.upper())

    def __repr__(self) -> str:
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Its names, the most specific first."""
        return tuple(dict.fromkeys((self.name, self.device_name, *self.aliases)))


def _make_cpu() -> _jax.Client:
    count = num_cpu_devices.value
    made = xc.make_cpu_client(
        asynchronous=True, num_devices=count if count > 0 else None, **processes.cpu_options()
    )
    processes.cpu_started()
    return made


CPU = Platform(
    name="cpu",
    make_client=_make_cpu,
    priority=0,
    xla_name="Host",
    dlpack_type=1,
    callbacks="cpu",
    shares_memory=True,
    is_xla_cpu=True,
    typical_machine="cpu",
)
CUDA = Platform(
    name="cuda",
    device_name="gpu",
    make_client=cuda.make_client,
    is_available=cuda.available,
    priority=100,
    is_plugin=True,
    dlpack_type=2,
    callbacks="gpu",
    is_ordered_by_id=True,
)
ROCM = Platform(
    name="rocm", device_name="gpu", dlpack_type=10, callbacks="gpu", is_ordered_by_id=True
)
TPU = Platform(name="tpu")

_by_name: dict[str, Platform] = {}
_by_client: dict[int, Platform] = {}  # by identity; clients are never dropped


def add(platform: Platform) -> None:
    """Adds a platform. Its own name must be new; of other names, the first platform keeps them.

    Raises:
      ValueError: if another platform has its name.
    """
    taken = _by_name.get(platform.name)
    if taken is not None and taken is not platform:
        raise ValueError(
            f"a platform named {platform.name!r} already exists. Choose another name: devices and "
            "compiled programs may refer to the first one."
        )
    for name in platform.names:
        _by_name.setdefault(name, platform)
    named.cache_clear()


def known() -> list[Platform]:
    """All platforms, in the order in which they were added."""
    return [*dict.fromkeys(_by_name.values())]


def find(name: str) -> Platform | None:
    """The platform with a name or alias; None if it is unknown."""
    if name not in _by_name:
        for platform in _installed(name):
            add(platform)
    return _by_name.get(name)


def _installed(name: str) -> Iterator[Platform]:
    """The platform of this name that an installed package declares."""
    for entry in import_module("importlib.metadata").entry_points(group=ENTRY_POINTS, name=name):
        found = entry.load()
        platform = found if isinstance(found, Platform) else found()
        if not isinstance(platform, Platform):
            raise TypeError(
                f"the entry point {entry.value!r} of the group {ENTRY_POINTS!r} must be a "
                f"Platform, or a function that returns one; got {type(platform).__name__}."
            )
        yield platform


def startable(name: str) -> Any:
    """The platform with a name or alias, whose client can be made.

    Raises:
      RuntimeError: if it is unknown.
    """
    found = find(name)
    if found is None or found.make_client is None:
        can_start = [p.name for p in known() if p.make_client is not None]
        raise RuntimeError(f"unknown platform {name!r}; known platforms: {', '.join(can_start)}.")
    return found


def default() -> Platform:
    """The available platform of the highest priority."""
    can_start = [p for p in known() if p.make_client is not None and p.priority >= 0]
    best_first = sorted(can_start, key=lambda p: -p.priority)
    return next(p for p in best_first if p is CPU or p.is_available())


def started(platform: Platform, client: Any) -> None:
    """Records whose a client is."""
    _by_client[id(client)] = platform
    if platform.is_xla_cpu:
        shutdown.waits_for(client)


def platform_of(device: Any) -> Platform:
    """The platform of a device, also of one that is only described."""
    found = _by_client.get(id(getattr(device, "client", None)))
    return named(getattr(device, "platform", "unknown")) if found is None else found


@cached(64)
def named(name: str) -> Platform:
    """The platform with a name or alias; for an unknown name, a record of that name alone."""
    return find(name) or Platform(name=name)


def pjrt_plugin(
    name: str, library_path: str, options: Mapping[str, Any] | None = None, **facts: Any
) -> Platform:
    """The platform of a PJRT plugin, the shared library of a vendor.

    Args:
      name: of the platform; must be new.
      library_path: of the shared library, which is loaded when the first device is used.
      options: for the plugin, by name.
      facts: other fields of `Platform`.
    """
    return Platform(
        name=name,
        make_client=functools.partial(plugins.make_client, name, library_path, options or {}),
        is_plugin=True,
        **facts,
    )


for _platform in (CPU, CUDA, ROCM, TPU):
    add(_platform)
