"""`Launch`: what a launch of a kernel consists of, without its programs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.program_frames import MoreMemory
from shardwise._src.kernels.simulation import PLAIN, Simulation
from shardwise._src.kernels.spaces import Scratch
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type

INT = array_type((), np.dtype("int32"))  # of indices


@dataclass(frozen=True)
class CompilerParams:
    """Parameters for the compilers of GPUs and TPUs. On CPU they have no effect.

    num_warps, num_stages: of GPUs: warps of a program, stages of the pipelines of its loops.
    vmem_limit_bytes: of TPUs: how much VMEM the kernel may use.
    dimension_semantics: for each axis of the grid "parallel" or "arbitrary"; JAX's name for the
      argument `parallel` of `kernels.call`, and used by `pallas_call`.
    has_side_effects: whether the kernel is kept if its results are not used: a boolean, or a
      `SideEffectType` of JAX.
    collective_id: a number for kernels of TPUs that communicate, equal on all devices.
    allow_input_fusion, disable_bounds_checks, skip_device_barrier: of TPUs.
    """

    dimension_semantics: Sequence[Any] | None = None
    vmem_limit_bytes: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    has_side_effects: Any = False
    collective_id: int | None = None
    allow_input_fusion: Any = None
    disable_bounds_checks: bool = False
    skip_device_barrier: bool = False

    def __repr__(self) -> str:
        rows = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        return f"CompilerParams({', '.join(f'{n}={x!r}' for n, x, y in rows if x != y)})"

    def __post_init__(self) -> None:
        for name in ("dimension_semantics", "allow_input_fusion"):
            value = getattr(self, name)
            if isinstance(value, list):  # parameters of ops are hashable
                object.__setattr__(self, name, tuple(value))

    @property
    def has_barrier(self) -> bool:
        """Whether the first scratch memory of the kernel is that of `get_barrier_semaphore`."""
        return self.collective_id is not None

    @property
    def is_retained(self) -> bool:
        """Whether the kernel is kept if its results are not used."""
        kind = getattr(self.has_side_effects, "value", self.has_side_effects)
        return bool(kind) and kind != "pure"


@dataclass(frozen=True)
class CostEstimate:
    """What a kernel costs: operations, transcendental functions, bytes of memory traffic, and of
    those that are sent to other devices."""

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def times(self, count: int) -> CostEstimate:
        return CostEstimate(*[count * getattr(self, f.name) for f in fields(self)])


@dataclass(frozen=True)
class Launch:
    """Everything about a launch but its programs.

    grid:     the sizes; None for those that are operands. names, parallel: of its axes.
    prefetch: how many arrays are known before the blocks are read.
    ins, outs: the blocks. aliases: pairs of an input and the result that uses its memory.
    params:   for the compilers of GPUs and TPUs. cost: as its user states it; None if unknown.
    simulation: what CPUs do where its behavior is not specified.
    labels:   the names of prefetched arrays, inputs, results and scratch, for messages.
    own:      the keys of memory for functions of the library (`own_memory`), which follows scratch
      memory.
    primal:   of a launch that also computes tangents: the body, maps and launch without these.
    is_transposed: whether it is the reverse mode of another launch.
    """

    name: str
    grid: tuple[int | None, ...]
    names: tuple[Any, ...]
    parallel: tuple[bool, ...]
    prefetch: int
    ins: tuple[Tile, ...]
    outs: tuple[Tile, ...]
    scratch: tuple[Scratch, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    params: CompilerParams = CompilerParams()
    cost: CostEstimate | None = None
    simulation: Simulation = PLAIN
    labels: tuple[str, ...] = ()
    is_transposed: bool = False
    own: tuple[Any, ...] = ()
    primal: Any = field(default=None, compare=False, repr=False)

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The blocks of inputs, and of results."""
        return (*self.ins, *self.outs)

    @property
    def ref_names(self) -> tuple[str, ...]:
        """The names of prefetched arrays, inputs, results and scratch, for messages."""
        counts = self.prefetch, len(self.ins), len(self.outs), len(self.scratch)
        if len(self.labels) == sum(counts):
            return self.labels
        kinds = zip(("prefetched", "argument", "result", "scratch"), counts, strict=True)
        return tuple([f"{kind} {i}" for kind, count in kinds for i in range(count)])

    @property
    def dynamic(self) -> int:
        """How many sizes of the grid are operands."""
        return sum(n is None for n in self.grid)

    @property
    def first_block(self) -> int:
        """The number of the body's argument that is the block of the first input."""
        return len(self.grid) + self.dynamic + self.prefetch

    def with_memory(self, more: MoreMemory) -> Launch:
        """With more memory for functions of the library."""
        return replace(
            self,
            own=(*self.own, more.key),
            scratch=(*self.scratch, more.memory),
            labels=(*self.labels, f"the memory of {more.key}"),
        )

    def sizes(self, dynamic: Sequence[Any]) -> list[Any]:
        """The sizes of the grid, of which some are operands."""
        given = iter(dynamic)
        return [next(given) if n is None else n for n in self.grid]

    def parts(self, operands: Sequence[Any]) -> tuple[Any, Any, Any]:
        """The dynamic sizes, the prefetched arrays, the inputs."""
        a, b = self.dynamic, self.dynamic + self.prefetch
        return operands[:a], operands[a:b], operands[b:]


def result_types(
    op: Op, *types: ArrayType, body: Program, launch: Launch, **p: Any
) -> tuple[ArrayType, ...]:
    """The type rule of launches."""
    pairs = zip(launch.outs, body.outvars, strict=False)
    return tuple([tile.type.update(varying=v.aval.varying) for tile, v in pairs])


def no_derivative(title: str, platform: Platform, why: str) -> NotImplementedError:
    return NotImplementedError(
        f"The reverse mode of kernel {title} cannot be compiled for '{platform}' as a kernel: "
        f"{why}. Define the derivative by `custom_vjp` around the function that launches the "
        "kernel; or differentiate it on CPUs, where this is a loop."
    )


@public("shardwise.experimental.pallas.tpu")
class LoweringException(NotImplementedError):
    """A kernel cannot be compiled for TPUs, as they lack something that it uses."""


@contextmanager
def lowering_errors() -> Generator[None]:
    """Errors for what TPUs lack are `LoweringException`s."""
    try:
        yield
    except NotImplementedError as error:
        new = LoweringException(*error.args)
        for note in getattr(error, "__notes__", ()):
            new.add_note(note)
        raise new from error.__cause__


@contextmanager
def derivatives_named(launch: Launch, platform: Platform) -> Generator[None]:
    """Adds to errors of a launch that it is the reverse mode of another one, which users wrote."""
    try:
        yield
    except NotImplementedError as error:
        if not launch.is_transposed:
            raise
        why = str(error).removeprefix(f"kernel {launch.name}: ").partition(". ")[0]
        raise no_derivative(launch.name, platform, why) from error
