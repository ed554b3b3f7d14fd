"""Platforms: a record for each kind of hardware, with all that differs between them.

    platform_of(device).shares_memory      # a fact, where a decision depends on the hardware
    add(Platform(name="xpu", make_client=…))

Code reads the fields of a record and never compares names of platforms. `CPU`, `CUDA` and `TPU` can
be started, `ROCM` is known to exports. Others are added by `add`, or by a package with an
entry point of the group `shardwise.platforms`, which refers to a record or to a function that
returns one. Entry points are read when a platform without a client is requested.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.base.caches import cached, clear_registered
from shardwise._src.base.config import num_cpu_devices
from shardwise._src.base.interrupts import import_module
from shardwise._src.base.lazy import public
from shardwise._src.runtime import cuda, plugins, processes, rocm, shutdown, tpu
from shardwise._src.runtime.dtype_gaps import CUDA_GAPS, TPU_GAPS, Gap

ENTRY_POINTS = "shardwise.platforms"


_HANDLERS = ("cpu", "gpu")  # of host callbacks in jaxlib
_LIBRARIES = ("lapack", "cusolver", "libtpu", "xla")  # of matrix functions


@public("shardwise.extend.backend")
@dataclass(frozen=True, kw_only=True, eq=False)
class Platform:
    """A kind of hardware.

    Attributes:
      name: as flags, exports and lowering rules give it: "cuda".
      device_name: the string `device.platform` of its devices: "gpu" for CUDA. "": the name.
      aliases: other names by which users may ask for it.
      make_client: returns a new PJRT client. None: programs can only be exported for it.
      is_available: whether devices are present, checked without starting anything. The available
        platform with the highest priority is the default, unless the option `platforms` names one.
      priority: CPU has 0, CUDA 100, TPU 200. One with a negative priority is never the default.
      c_api: returns the API of its PJRT plugin, once a client was made; None if it is not a plugin.
      compiler_version: returns the package and version of its compiler, if that is not jaxlib's.
      xla_name: the name by which XLA registers its custom calls. "": the name in capitals.
      dlpack_type: the type of its devices in DLPack; None if it has none.
      callbacks: jaxlib's handler of host callbacks: "cpu" or "gpu"; "" if it has none.
      shares_memory: whether memory of its devices is the host's, so that arrays can be views of
        NumPy arrays, and NumPy arrays views of them.
      is_xla_cpu: whether XLA's CPU backend compiles for it and runs its programs: with LAPACK
        kernels, the errors that lowering works around, and threads of this process.
      loses_nan_in_extremes: whether collectives lose NaN in `max` and `min`, so that lowering has
        them compare integers.
      reduces_by_any_function: whether collectives reduce with any function, and not only with sums,
        products, `max` and `min`, and `and` and `or` of booleans.
      has_cudnn: whether its compiler calls cuDNN.
      is_ordered_by_id: whether devices with consecutive ids are neighbors in the network.
      is_torus: whether the network is a torus, in which devices have coordinates.
      memory_kinds: of its devices, the default one first, if devices that are only described do
        not list them.
      kinds_outside_programs: memory kinds that arguments and results of its programs cannot have.
      gaps: ops and dtypes that its compiler lacks: see `runtime.dtype_gaps`.
      rows_of_bytes: whether loops read and write only rows that are a number of bytes.
      orders_padded_windows: whether its compiler scatters to the first of equal elements in a
        window with padding.
      dims_without_windows: the fewest of an array whose windows it scatters to.
      typical_machine: the machine whose rates estimates use for an unknown kind of device.
      linalg: the libraries for functions of matrices, by preference: "lapack", "cusolver", "libtpu"
        and "xla": XLA's own expansions, and programs, which need no library.
      triton_library: if its compiler takes kernels in Triton's dialect, the library of their
        functions: "libdevice" or "ocml".
      has_mosaic: whether its compiler takes kernels in Mosaic's dialect.
    """

    name: str
    device_name: str = ""
    aliases: tuple[str, ...] = ()
    make_client: Callable[[], Any] | None = None
    is_available: Callable[[], bool] = lambda: True
    priority: int = -1
    c_api: Callable[[], Any] | None = None
    compiler_version: Callable[[], str | None] | None = None
    xla_name: str = ""
    dlpack_type: int | None = None
    callbacks: str = ""
    shares_memory: bool = False
    is_xla_cpu: bool = False
    loses_nan_in_extremes: bool = False
    reduces_by_any_function: bool = False
    has_cudnn: bool = False
    is_ordered_by_id: bool = False
    is_torus: bool = False
    memory_kinds: tuple[str, ...] = ()
    kinds_outside_programs: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    rows_of_bytes: bool = False
    orders_padded_windows: bool = False
    dims_without_windows: int = 0
    typical_machine: str = "h100"
    linalg: tuple[str, ...] = ("xla",)
    triton_library: str = ""
    has_mosaic: bool = False

    def __post_init__(self) -> None:
        fields: dict[str, Any] = {f: getattr(self, f) for f in self.__dataclass_fields__}
        name, make = fields["name"], fields["make_client"]
        kinds, outside = fields["memory_kinds"], fields["kinds_outside_programs"]
        plain = isinstance(name, str) and name and not {*", \n"} & {*name}
        for field, ok, expected in (
            ("name", plain, "a string without commas and spaces"),
            ("aliases", isinstance(fields["aliases"], tuple), "a tuple of names"),
            ("make_client", make is None or callable(make), "a function that returns a client"),
            ("is_available", callable(fields["is_available"]), "a function that returns a bool"),
            ("priority", isinstance(fields["priority"], int), "an integer"),
            ("memory_kinds", _each(kinds, str), "a tuple of names of memory kinds"),
            ("kinds_outside_programs", _each(outside, str), "a tuple of names of memory kinds"),
            ("gaps", _each(fields["gaps"], Gap), "a tuple of `Gap`s (`runtime.dtype_gaps`)"),
            ("linalg", _are(self.linalg, _LIBRARIES), f"a tuple of some of {_LIBRARIES}"),
            ("callbacks", self.callbacks in ("", *_HANDLERS), f"one of {_HANDLERS} or ''"),
        ):
            if not ok:
                raise TypeError(f"Platform: {field} must be {expected}; got {fields[field]!r}.")
        object.__setattr__(self, "device_name", self.device_name or self.name)
        object.__setattr__(self, "xla_name", self.xla_name or self.name.upper())

    def __repr__(self) -> str:
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Its names, the most specific first."""
        return tuple(dict.fromkeys((self.name, self.device_name, *self.aliases)))


def _each(values: Any, kind: type) -> bool:
    return values.__class__ is tuple and all(isinstance(v, kind) for v in values)


def _are(names: tuple[str, ...], known: tuple[str, ...]) -> bool:
    return names.__class__ is tuple and all(name in known for name in names)


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
    loses_nan_in_extremes=True,
    typical_machine="cpu",
    linalg=("lapack", "xla"),
)
CUDA = Platform(
    name="cuda",
    device_name="gpu",
    make_client=cuda.make_client,
    is_available=cuda.available,
    priority=100,
    c_api=functools.partial(plugins.c_api, "cuda"),
    compiler_version=cuda.compiler_version,
    dlpack_type=2,
    callbacks="gpu",
    has_cudnn=True,
    loses_nan_in_extremes=True,
    is_ordered_by_id=True,
    memory_kinds=("device", "pinned_host", "unpinned_host"),
    gaps=CUDA_GAPS,
    rows_of_bytes=True,
    linalg=("cusolver", "xla"),
    triton_library="libdevice",
)
ROCM = Platform(
    name="rocm",
    device_name="gpu",
    compiler_version=rocm.compiler_version,
    dlpack_type=10,
    callbacks="gpu",
    loses_nan_in_extremes=True,
    is_ordered_by_id=True,
    memory_kinds=("device", "pinned_host", "unpinned_host"),
    triton_library="ocml",
)
TPU = Platform(
    name="tpu",
    is_torus=True,
    make_client=tpu.make_client,
    is_available=tpu.available,
    priority=200,
    c_api=functools.partial(plugins.c_api, "tpu"),
    compiler_version=tpu.compiler_version,
    reduces_by_any_function=True,
    kinds_outside_programs=("unpinned_host",),
    gaps=TPU_GAPS,
    orders_padded_windows=True,
    dims_without_windows=2,
    typical_machine="tpu-v5e",
    linalg=("libtpu", "xla"),
    has_mosaic=True,
)

_lock = threading.RLock()
_by_name: dict[str, Platform] = {}
_by_client: dict[int, Platform] = {}  # by identity; clients are never dropped


def add(platform: Platform) -> None:
    """Adds a platform. It replaces one of its name that has no client, such as "rocm". If another
    platform has one of its other names, that platform keeps it.

    Raises:
      ValueError: if another platform that has a client has its name.
    """
    with _lock:
        taken = _by_name.get(platform.name)
        if taken is not None and taken.name != platform.name:
            raise ValueError(
                f"{platform.name!r} is another name of the platform {taken.name!r}. Choose a "
                "different name."
            )
        if taken is not None and taken.make_client is not None:
            raise ValueError(
                f"a platform named {platform.name!r} already exists. Choose another name: devices "
                "and compiled programs may refer to the first one."
            )
        _by_name[platform.name] = platform
        for name in platform.names:
            _by_name.setdefault(name, platform)
        named.cache_clear()
        if _by_client:
            clear_registered()  # traces of `platform_dependent` lack its function


def known() -> list[Platform]:
    """All platforms, in the order in which they were added."""
    return [*dict.fromkeys(_by_name.values())]


def find(name: str) -> Platform | None:
    """The platform with a name or alias; None if it is unknown."""
    return _by_name.get(name)


def _add_installed(name: str) -> None:
    """Adds the platform of this name that an installed package declares, if any."""
    for entry in import_module("importlib.metadata").entry_points(group=ENTRY_POINTS, name=name):
        what = f"the entry point {entry.value!r} of the group {ENTRY_POINTS!r}"
        try:
            found = entry.load()
            platform = found() if callable(found) else found
        except Exception as error:
            raise RuntimeError(f"platform {name!r}: {what} failed: {error}") from error
        if not isinstance(platform, Platform) or platform.name != name:
            raise TypeError(
                f"{what} must be a Platform named {name!r}, or a function that returns one; got "
                f"{platform!r} of type {type(platform).__name__}."
            )
        add(platform)


def startable(name: str) -> Platform:
    """The platform with a name or alias, whose client can be made.

    Raises:
      RuntimeError: if it is unknown, or known without a client.
    """
    with _lock:
        found = find(name)
        if found is None or found.make_client is None:
            _add_installed(name)
            found = find(name)
    if found is not None and found.make_client is not None:
        return found
    can_start = ", ".join([p.name for p in known() if p.make_client is not None])
    if found is None:
        raise RuntimeError(f"unknown platform {name!r}; known platforms: {can_start}.")
    raise RuntimeError(
        f"no client for the platform {name!r} is installed; platforms with one: {can_start}. Add "
        "it with `shardwise.extend.backend.register_platform`."
    )


def available() -> list[Platform]:
    """The platforms whose client can be made, and whose devices are present."""
    return [p for p in known() if p.make_client is not None and p.is_available()]


def default() -> Platform:
    """The available platform of the highest priority."""
    return max([p for p in available() if p.priority >= 0], key=lambda p: p.priority)


def started(platform: Platform, client: Any) -> None:
    """Records the platform of a client."""
    _by_client[id(client)] = platform
    if platform.is_xla_cpu:
        shutdown.waits_for(client)


def described(platform: Platform, client: Any) -> None:
    """Records the platform of a client that can only compile."""
    _by_client[id(client)] = platform


def platform_of(device: Any) -> Platform:
    """The platform of a device, also of one that is only described."""
    found = _by_client.get(id(getattr(device, "client", None)))
    return named(getattr(device, "platform", "unknown")) if found is None else found


def name_of(device: Any) -> str:
    """The name by which users find the platform of a device: `device.platform`, unless that is
    the name of another one."""
    platform = platform_of(device)
    return device.platform if find(device.platform) is platform else platform.name


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
      facts: other fields of `Platform`; not `make_client` and `c_api`, which it makes.
    """
    return Platform(
        name=name,
        make_client=functools.partial(plugins.make_client, name, library_path, dict(options or {})),
        c_api=functools.partial(plugins.c_api, name),
        **facts,
    )


for _platform in (CPU, CUDA, ROCM, TPU):
    add(_platform)
