"""Shardings of a program's arguments and results, and the sharded program as a short text."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import shardwise as sw
from shardwise._src.base.config import poison_padding
from shardwise._src.runtime.backend import JAXLIB
from shardwise.errors import ShardingTypeError
from shardwise.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from tests.values.programs.make import Line, Program

Spec = tuple[Any, ...] | None  # None: unspecified

MESHES = [(2,), (3,), (4,), (6,), (8,), (8,), (2, 2), (2, 3), (3, 2), (4, 2), (4, 2), (2, 4)]

# Speed does not matter here.
QUICKLY: dict[str, Any] = {
    "xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True,
}  # fmt: skip
if JAXLIB < (0, 11):
    QUICKLY["xla_cpu_use_fusion_emitters"] = False


@dataclass(frozen=True)
class Placement:
    """A mesh over the first devices, and a spec for each argument and result.

    put: arguments are placed before the call; otherwise `in_shardings` does it.
    """

    sizes: tuple[int, ...]
    ins: Mapping[str, Spec]
    outs: tuple[Spec, ...] | None = None
    put: bool = False
    explicit: bool = False
    poison: bool = False

    @property
    def mesh(self) -> Mesh:
        devices = np.array(sw.devices()[: int(np.prod(self.sizes))]).reshape(self.sizes)
        kind = AxisType.Explicit if self.explicit else AxisType.Auto
        return Mesh(devices, ("x", "y")[: len(self.sizes)], kind)

    def sharding(self, spec: Spec) -> NamedSharding | None:
        return None if spec is None else NamedSharding(self.mesh, PartitionSpec(*spec))

    def call(self, program: Program) -> tuple[Any, ...]:
        """Results of the program under these shardings."""
        f, options = program.function(), {}
        args = list(program.inputs.values())
        wanted = [self.sharding(self.ins.get(name)) for name in program.inputs]
        with poison_padding(self.poison):
            if self.put:
                args = [a if s is None else sw.device_put(a, s)
                        for a, s in zip(args, wanted, strict=True)]  # fmt: skip
            else:
                options["in_shardings"] = tuple(wanted)
            if self.outs is not None:
                options["out_shardings"] = tuple(self.sharding(spec) for spec in self.outs)
            return sw.jit(f, compiler_options=QUICKLY, **options)(*args)


def alone(program: Program) -> tuple[Any, ...]:
    """Results on one device."""
    return sw.jit(program.function(), compiler_options=QUICKLY)(*program.inputs.values())


def allowed(program: Program, place: Placement) -> Program:
    """The program without lines whose sharding the types leave open, in explicit mode."""
    if not place.explicit:
        return program
    types = [
        sw.ShapeDtypeStruct(v.shape, v.dtype, sharding=place.sharding(place.ins[name]))
        for name, v in program.inputs.items()
    ]
    lines: list[Line] = []
    names = set(program.inputs)
    for line in program.lines:
        tried = replace(program, lines=(*lines, line), outputs=line.targets)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sw.eval_shape(tried.function(), *types)
        except (ShardingTypeError, TypeError, NameError):  # a carry that is also returned sharded
            continue
        lines.append(line)
        names |= set(line.targets)
    outputs = tuple(name for name in program.outputs if name in names)
    return replace(program, lines=tuple(lines), outputs=outputs or tuple(program.inputs)[:1])


def placements(program: Program, seed: int, ranks: tuple[int, ...], count: int) -> list[Placement]:
    """Some shardings for a program with results of these ranks."""
    rng = random.Random(f"places {seed}")
    found = []
    for _ in range(count):
        sizes = rng.choice(MESHES)
        if len({*sizes}) > 1 and 3 in sizes and JAXLIB >= (0, 12):
            sizes = (4, 2)  # docs/values.md: XLA ends the process
        explicit = rng.random() < 0.12
        ins = {
            name: None if not explicit and rng.random() < 0.25 else _spec(rng, sizes, v.ndim)
            for name, v in program.inputs.items()
        }
        outs = None
        if not explicit and rng.random() < 0.6:
            outs = tuple(None if rng.random() < 0.25 else _spec(rng, sizes, rank) for rank in ranks)
        put = explicit or rng.random() < 0.4
        found.append(Placement(sizes, ins, outs, put, explicit, poison=rng.random() < 0.5))
    return found


def _spec(rng: random.Random, sizes: tuple[int, ...], rank: int) -> Spec:
    spec: list[Any] = [None] * rank
    axes = ["x", "y"][: len(sizes)]
    rng.shuffle(axes)
    for axis in axes if rank else ():
        if rng.random() < 0.85:
            i = rng.randrange(rank)
            before = spec[i] or ()
            spec[i] = (*before, axis)
    return tuple(s[0] if s and len(s) == 1 else s for s in spec)


def script(program: Program, placement: Placement | None) -> str:
    """A self-contained program that prints the results on one device and under these shardings."""
    lines = [
        "import os",
        'os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"',
        "import ml_dtypes, numpy as np",
        "import shardwise as sw, shardwise.numpy as jnp",
        "from shardwise import lax, nn",
        "from shardwise.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P",
        "nan, inf = np.nan, np.inf",
        "",
        *(f"{name} = {_array(v)}" for name, v in program.inputs.items()),
        "",
        program.source(),
        f"args = [{', '.join(program.inputs)}]",
        "one = sw.jit(f)(*args)",
    ]
    if placement is not None:
        lines += _placed(program, placement)
    lines += ["for x, y in zip(one, many):", "    print(x, y, sep='\\n')"]
    return "\n".join(lines)


def _placed(program: Program, p: Placement) -> list[str]:
    def shown(spec: Spec) -> str:
        if spec is None:
            return "None"
        return f"NamedSharding(mesh, P({', '.join(map(repr, spec))}))"

    names = ("x", "y")[: len(p.sizes)]
    kind = "Explicit" if p.explicit else "Auto"
    ins = ", ".join(shown(p.ins.get(name)) for name in program.inputs)
    found = [
        f"mesh = Mesh(np.array(sw.devices()[:{int(np.prod(p.sizes))}]).reshape{p.sizes}, "
        f"{names}, AxisType.{kind})",
        f"places = [{ins}]",
    ]
    options = []
    if p.put:
        put = "a if s is None else sw.device_put(a, s) for a, s in zip(args, places)"
        found.append(f"args = [{put}]")
    else:
        options.append(", in_shardings=tuple(places)")
    if p.outs is not None:
        options.append(f", out_shardings=({', '.join(map(shown, p.outs))},)")
    text = f"many = sw.jit(f{''.join(options)})(*args)"
    if p.poison:
        found.insert(0, "from shardwise._src.base.config import poison_padding")
        text = f"with poison_padding(True):\n    {text}"
        if p.put:
            found[-1], text = "with poison_padding(True):", f"    {found[-1]}\n{text}"
    return [*found, text]


def _array(value: np.ndarray) -> str:
    name = value.dtype.name
    kind = f"ml_dtypes.{name}" if name == "bfloat16" else f"'{name}'"
    return f"np.array({value.tolist()}, {kind}).reshape{value.shape}"


def without_results(placement: Placement, kept: list[int]) -> Placement:
    if placement.outs is None:
        return placement
    return replace(placement, outs=tuple(placement.outs[i] for i in kept))
