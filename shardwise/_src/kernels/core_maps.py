"""`core_map`: a function on the cores of a device, which reads and writes refs from outside.

    @run_state
    def double(refs):
        x, out = refs

        @core_map(CoreMesh("core", 2))
        def _():
            half = ds(program_id("core") * 8, 8)
            out[half] = 2 * x[half]

It is a launch like that of `kernels.call`, over a grid of cores, whose results begin with the
values of the refs. `shard_map` over a `CoreMesh` is the same.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.context import NamedAxis, current
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.blocks import Block, tile_of
from shardwise._src.kernels.launch_record import INT, CompilerParams, CostEstimate, Launch
from shardwise._src.kernels.launch_staging import reject_captured, staged_index
from shardwise._src.kernels.launches import op_of
from shardwise._src.kernels.program_frames import GLOBAL, Frame, MoreMemory, traced_with_memory
from shardwise._src.kernels.simulation import Simulation, chosen
from shardwise._src.kernels.spaces import ANY, allocated
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.refs.refs import DEFAULT_SPACE, Ref, values_of, write_back
from shardwise._src.transforms.entering import ignoring
from shardwise._src.transforms.stage import stage


class CoreType(enum.Enum):
    """The kinds of cores of TPUs. Kernels run on TC, the tensor cores; SC are the sparse ones."""

    TC = "tc"
    SC_SCALAR_SUBCORE = "sc_scalar_subcore"
    SC_VECTOR_SUBCORE = "sc_vector_subcore"


@dataclass(frozen=True)
class CoreMesh:
    """The cores of a device, as an axis with a name.

    On CPU they run one after another. GPUs and TPUs run as many at once as they have.
    """

    axis_name: str
    num_cores: int = 1
    core_type = CoreType.TC

    @property
    def shape(self) -> dict[str, int]:
        return {self.axis_name: self.num_cores}

    def shard_mapped(self, f: Callable[..., None]) -> Callable[..., None]:
        """`shard_map` over these cores: arguments are refs, of which each core sees all."""

        def mapped(*refs: Any) -> None:
            for ref in refs:
                if not isinstance(ref, Ref):
                    raise TypeError(
                        "shard_map over cores: the arguments are refs, which the function writes "
                        f"its results to; got {short_repr(ref)}."
                    )
            core_map(self)(lambda: f(*refs))

        return mapped


@dataclass(eq=False)
class _Core:
    """The number of the core that runs a function."""

    value: Any


def core_map(
    mesh: CoreMesh,
    *,
    params: CompilerParams | None = None,
    cost: CostEstimate | None = None,
    name: str | None = None,
    simulation: Simulation | None = None,
) -> Callable[[Callable[[], None]], None]:
    """A decorator that runs a function without arguments, at once, on each core of a mesh.

    The function reads and writes refs from outside, which are in `ANY` memory in it. `program_id`
    and `lax.axis_index` of the mesh's axis are the number of the core.

    Args:
      mesh: the cores. params: for the compilers of GPUs and TPUs. cost: for
        reports, as of `kernels.call`.
      name: for messages and reports; by default that of the function.
      simulation: what CPUs do where behavior is not specified, for tests: see `Simulation`.

    Raises:
      TypeError: if the function returns something. ValueError: if it uses arrays from outside.
    """
    if not isinstance(mesh, CoreMesh):
        raise TypeError(f"core_map: expected a CoreMesh; got {short_repr(mesh)}.")

    @hides_frames
    def run(f: Callable[[], None]) -> None:
        title = name or name_of(f)

        def flat(memory: dict[Any, Any], core: Any) -> list[Any]:
            held = {key: Ref(allocated(x), x.space) for key, x in memory.items()}
            axis = NamedAxis(mesh.axis_name, mesh.num_cores, serial=_Core(core))
            sizes, names = [mesh.num_cores], (mesh.axis_name,)
            frame = Frame(title, [core], sizes, names, simulation=chosen(simulation), own=held)
            space = DEFAULT_SPACE.set(ANY)
            try:
                with current().replace(axes=(*current().axes, axis), kernel=frame).entered():
                    result = f()
            finally:
                DEFAULT_SPACE.reset(space)
            if result is not None:
                raise TypeError(
                    f"core_map: {title} returned {short_repr(result)}. It writes its results to "
                    "refs, and returns None."
                )
            return []

        def staged(memory: dict[Any, Any]) -> tuple[Any, Any, list[Ref]]:
            refs: list[Ref] = []
            run = functools.partial(flat, memory)
            return *stage(run, [INT], transform="core_map", name=title, refs=refs), refs

        def grown(memory: dict[Any, Any], more: MoreMemory) -> dict[Any, Any]:
            if mesh.num_cores > 1 and more.key.startswith(GLOBAL):
                raise NotImplementedError(
                    f"core_map: {title} has memory of `get_global`, which several cores cannot "
                    "share yet. Pass it a ref instead."
                ) from None
            return {**memory, more.key: more.memory}

        (body, captured, refs), _ = traced_with_memory(staged, {}, grown)
        reject_captured(title, body, captured)
        values = values_of(refs)
        types = tuple(map(type_of, values))
        rows = zip(refs, types, strict=True)
        tiles = tuple([tile_of(title, "a ref", Block(), t, r._space or ANY) for r, t in rows])
        launch = Launch(
            name=title,
            grid=(mesh.num_cores,),
            names=(mesh.axis_name,),
            parallel=(True,),
            prefetch=0,
            ins=tiles,
            outs=tiles,
            aliases=tuple([(i, i) for i in range(len(refs))]),
            params=params or CompilerParams(),
            cost=cost,
            simulation=chosen(simulation),
        )
        maps = tuple([staged_index(launch, "a ref", Block(), tile) for tile in tiles])
        body = ignoring(body, types, 1)
        found = op_of(launch)(*values, body=body, maps=maps * 2, launch=launch)
        write_back(refs, found)

    return run
