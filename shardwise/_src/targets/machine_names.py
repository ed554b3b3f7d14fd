"""Machines by name: devices for which programs can be compiled, though they are not attached.

    mesh = Mesh(np.array(devices("h100:2x8")).reshape(4, 4), ("data", "model"))

A name is a kind of GPU or TPU, and how many there are: see `devices`.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.pickles import read_by
from shardwise._src.messages.formatting import join, short_repr
from shardwise._src.runtime import cuda, rocm, tpu
from shardwise._src.runtime.backend import JAXLIB_VERSION, Device, RuntimeFailure
from shardwise._src.runtime.compiler.quiet import quiet
from shardwise._src.runtime.platforms import CUDA, ROCM, TPU, Platform, known
from shardwise._src.runtime.target_machines import Target, described
from shardwise._src.targets.gpus import GPUS, Gpu
from shardwise._src.targets.tpus import TPUS, Tpu

_lock = threading.RLock()
_found: dict[tuple[str, Any], Target] = {}
_NAME = re.compile(r"(?P<kind>[^:]+)(?::(?P<shape>\d+(?:x\d+)*))?")
_MAX_HOSTS = 4096


def names() -> list[str]:
    """The kinds of GPUs and TPUs that have descriptions."""
    return [*GPUS, *TPUS]


def available() -> dict[str, str]:
    """The compilers that are installed: package and version, by platform."""
    found = {p.name: p.compiler_version() for p in known() if p.compiler_version is not None}
    return {name: version for name, version in found.items() if version is not None}


class Named(NamedTuple):
    """A machine by its name.

    kind:     of its GPUs or TPUs; node: how many are in a node, or None without nodes.
    make:     returns the topology of its devices, and the package of its compiler.
    is_named: whether users find it by this name.
    """

    name: str
    kind: Gpu | Tpu
    node: int | None
    make: Callable[[], tuple[Any, str]]
    is_named: bool = True

    @property
    def size(self) -> int:
        """The number of devices."""
        count = math.prod(map(int, self.name.partition(":")[2].split("x")))
        return count * getattr(self.kind, "devices", 1)

    def target(self) -> Target:
        """The machine with its devices, made once.

        Raises:
          ImportError: if its compiler is missing, or of another version than jaxlib.
          ValueError: if the compiler rejects the machine.
        """
        with _lock:
            key = self.name, self.kind
            if key not in _found:
                platform = _platform_of(self.kind)
                try:
                    with quiet():
                        topology, compiler = self.make()
                except RuntimeFailure as error:
                    raise ValueError(
                        f"targets: the compiler rejects {self.name!r}: {error}"
                    ) from None
                _found[key] = described(
                    self.name, self.kind, self.is_named, self.node, platform, topology, compiler
                )
            return _found[key]


def devices(name: str) -> list[Device]:
    """The devices of a machine that is not attached, for which programs can be compiled.

    They serve meshes, shardings and `ShapeDtypeStruct`. The same name gives the same devices.

    Args:
      name: a kind, and how many there are. "h100:8" has 8 GPUs in a host, "h100:16x8" has 16 hosts
        with 8 GPUs each, "h100" is one GPU. "tpu-v5p:4x4x4" is a grid of 64 chips, "tpu-v5e:8" is
        the usual grid of 8 chips, "tpu-v6e" is one chip. `names()` lists the kinds.

    Raises:
      TypeError: if `name` is not a string.
      ValueError: for an unknown kind, or a shape that it cannot have.
      ImportError: if its compiler is missing, or of another version than jaxlib.
    """
    return [*named(name).target().devices]


def named(name: str) -> Named:
    """The machine of a name; see `devices`."""
    if not isinstance(name, str):
        raise TypeError(f"targets: a name is a string such as 'h100:8'; got {name!r}.")
    read = _NAME.fullmatch(name.strip().lower())
    if read is None:
        raise ValueError(
            f"targets: cannot read {name!r}. A name is a kind of GPU or TPU and how many there "
            "are: 'h100:8' for 8 GPUs, 'h100:2x8' for 2 hosts with 8 GPUs each, 'tpu-v5p:2x2x2' "
            "for a grid of chips."
        )
    kind, shape = read["kind"], tuple(map(int, (read["shape"] or "1").split("x")))
    if kind in GPUS:
        return _gpus(name, GPUS[kind], shape)
    if kind in TPUS:
        return _tpus(name, TPUS[kind], shape)
    raise ValueError(
        f"targets: unknown machine {kind!r}.{did_you_mean(kind, names(), likeness=0.6)} Known are "
        f"{', '.join(names())}; `shardwise.targets.add` adds a GPU from a description."
    )


def _gpus(name: str, gpu: Gpu, shape: tuple[int, ...]) -> Named:
    if len(shape) > 2 or 0 in shape:
        raise ValueError(
            f"targets: {name!r} must have one number of GPUs, or hosts × GPUs, such as "
            f"'{gpu.name}:8' or '{gpu.name}:2x8'."
        )
    hosts, count = (1, *shape)[-2:]
    if count > gpu.host:
        even = count % gpu.host == 0
        advice = f"'{gpu.name}:{count // gpu.host}x{gpu.host}'" if even and hosts == 1 else "fewer"
        raise ValueError(
            f"targets: {name!r} has {count} GPUs in a host; a host has at most {gpu.host} "
            f"{gpu.name}. Write hosts × GPUs: {advice}."
        )
    if hosts > _MAX_HOSTS:
        raise ValueError(f"targets: {name!r} has {hosts} hosts; at most {_MAX_HOSTS} are possible.")

    def make() -> tuple[Any, str]:
        if gpu.platform is ROCM:
            topology = rocm.topology(gpu.name, gpu.config, 1, hosts, count)
            return topology, str(rocm.compiler_version())
        _check_capability(gpu)
        topology = cuda.topology(gpu.name, gpu.config, 1, hosts, count)
        return topology, str(cuda.compiler_version())

    full = f"{gpu.name}:{count}" if hosts == 1 else f"{gpu.name}:{hosts}x{count}"
    return Named(full, gpu, count, make)


def _check_capability(gpu: Gpu) -> None:
    """Raises ValueError if the installed compiler has no support for an old GPU."""
    oldest = cuda.oldest_capability()
    if gpu.capability < oldest:
        version, least = [".".join(map(str, pair)) for pair in (gpu.capability, oldest)]
        raise ValueError(
            f"targets: {gpu.name} has compute capability {version}; the installed compiler, "
            f"{cuda.compiler_version()}, makes programs for {least} and newer. CUDA 12's has it: "
            f"pip uninstall jax-cuda13-plugin jax-cuda13-pjrt, pip install "
            f"jax-cuda12-plugin=={JAXLIB_VERSION} nvidia-cuda-nvcc-cu12."
        )


def _tpus(name: str, tpus: Tpu, shape: tuple[int, ...]) -> Named:
    grid = tpus.grid(shape)
    if grid is None:
        axes = "×".join("abc"[: tpus.axes])
        example = "x".join(["2"] * tpus.axes)
        raise ValueError(
            f"targets: {tpus.name} cannot have the shape of {name!r}: it has at most {tpus.chips} "
            f"chips in a grid {axes}, whose axes are even or 1, such as '{tpus.name}:{example}'."
        )

    def make() -> tuple[Any, str]:
        return tpu.topology(*tpus.layout(grid)), str(tpu.compiler_version())

    full = f"{tpus.name}:{'x'.join(map(str, grid))}"
    return Named(full, tpus, None, make)


def topology_target(name: str, platform: Platform | None, options: dict[str, Any]) -> Target:
    """The machine of `experimental.topologies.get_topology_desc`, whose names are JAX's.

    platform: that it must have; None for that of the name, or the TPU.
    """
    kind = name.partition(":")[0]
    found = GPUS.get(kind) or TPUS.get(kind)
    if found is not None and not options and platform in (None, _platform_of(found)):
        return named(name).target()
    if platform is CUDA:
        return _described_gpus(name, options).target()
    if platform not in (None, TPU):
        raise NotImplementedError(
            f"get_topology_desc: there is no compiler for {platform} devices that are not "
            "attached; there are those for 'cuda' and 'tpu'. Use get_attached_topology(), or "
            "`num_cpu_devices` for more virtual CPU devices."
        )
    return _described_chips(name, options).target()


def _described_gpus(name: str, options: dict[str, Any]) -> Named:
    gpu = GPUS.get(name)
    config = options.get("target_config", gpu and gpu.config)
    sizes = str(options.get("topology", "1x1x1")).split("x")
    extra = {*options} - {"target_config", "topology"}
    if config is None or len(sizes) != 3 or not all(n.isdigit() for n in sizes) or extra:
        raise ValueError(
            "get_topology_desc: GPUs need target_config, the text of XLA's GpuTargetConfigProto, "
            f"unless they are one of {join(GPUS)}, and topology, such as '1x2x8' for 2 hosts with "
            f"8 GPUs each; got {short_repr(options)}."
        )
    slices, hosts, count = map(int, sizes)
    gpu = Gpu(name or "gpu", config, "h100" if gpu is None else name, count)

    def make() -> tuple[Any, str]:
        topology = cuda.topology(gpu.name, config, slices, hosts, count)
        return topology, str(cuda.compiler_version())

    full = f"{gpu.name}:{'x'.join(sizes)}"
    return Named(full, gpu, count, make, is_named=False)


def _described_chips(name: str, options: dict[str, Any]) -> Named:
    prefix, _, shape = name.partition(":")
    kind = next((t for t in TPUS.values() if t.prefix == prefix), None)
    if kind is None or not re.fullmatch(r"\d+(x\d+)+", shape):
        examples = [f"{tpus.prefix}:{'x'.join('2' * tpus.axes)}" for tpus in TPUS.values()]
        raise ValueError(
            f"get_topology_desc: unknown topology {name!r}; write it as {join(examples, 'or')}."
        )
    grid = tuple(map(int, shape.split("x")))
    settings = {key: [*v] if isinstance(v, tuple) else v for key, v in options.items()}

    def make() -> tuple[Any, str]:
        return tpu.topology(name, kind.layout(grid)[1], **settings), str(tpu.compiler_version())

    full = name + "".join([f" {key}={value}" for key, value in sorted(options.items())])
    return Named(full, kind, None, make, is_named=False)


def _platform_of(kind: Gpu | Tpu) -> Platform:
    return TPU if isinstance(kind, Tpu) else kind.platform


def _device(name: str, number: int) -> Device:
    """The device that a pickle names."""
    return {device.id: device for device in devices(name)}[number]


read_by("described device", _device)
