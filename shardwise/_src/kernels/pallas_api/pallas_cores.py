"""JAX's functions for kernels on several cores, and for loops over blocks in a kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardwise._src.kernels import core_maps
from shardwise._src.kernels.copying import pipelines
from shardwise._src.kernels.copying.async_copies import semaphore_signal, semaphore_wait
from shardwise._src.kernels.core_maps import CoreMesh
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.pallas_api.interpret_params import simulation_of
from shardwise._src.kernels.pallas_api.pallas import blocks_from
from shardwise._src.kernels.pallas_api.pallas_helpers import empty_like
from shardwise._src.kernels.program_frames import (
    GLOBAL,
    own_memory,
    program_id,
    require_frame,
    when,
)
from shardwise._src.kernels.spaces import as_scratch, run_scoped
from shardwise._src.lax.parallel import axis_index, axis_size
from shardwise._src.refs.refs import Ref
from shardwise._src.refs.run_state import run_state


def create_tensorcore_mesh(
    axis_name: str, devices: Sequence[Any] | None = None, num_cores: int | None = None
) -> CoreMesh:
    """The cores of a device. devices: without effect; num_cores: 1 by default."""
    return CoreMesh(axis_name, num_cores or 1)


def core_map(
    mesh: CoreMesh,
    *,
    compiler_params: CompilerParams | None = None,
    interpret: Any = False,
    debug: bool = False,
    cost_estimate: Any = None,
    name: str | None = None,
    metadata: Any = None,
    scratch_shapes: Any = (),
) -> Callable[[Callable[..., None]], None]:
    """`kernels.core_map` with JAX's names.

    scratch_shapes: memory whose refs the function gets: a list, or a dict for keywords.
    interpret: as of `pallas_call`. debug, metadata: without effect.
    """
    simulation = replace(simulation_of(interpret), seed=None)
    mapped = core_maps.core_map(
        mesh, params=compiler_params, cost=cost_estimate, name=name, simulation=simulation
    )
    is_named = isinstance(scratch_shapes, dict)
    listed, named = ((), scratch_shapes) if is_named else (scratch_shapes, {})
    return lambda f: mapped(lambda: run_scoped(f, *listed, **named))


def kernel(
    body: Callable[..., None] | None = None,
    out_type: Any = (),
    *,
    mesh: CoreMesh,
    scratch_types: Any = (),
    **options: Any,
) -> Callable[..., Any]:
    """A function of arrays that runs a body on each core of a mesh; without a body, a decorator.

    The body gets refs of the arguments, of the results, which are like `out_type`, and of
    `scratch_types`. options: the other arguments of `core_map`.
    """
    mapped = core_map(mesh, scratch_shapes=scratch_types, **options)
    if body is None:
        options |= {"mesh": mesh, "out_type": out_type, "scratch_types": scratch_types}
        return functools.partial(kernel, **options)

    def called(*args: Any) -> Any:
        def run(refs: Any) -> None:
            ins, outs = refs
            listed = outs if isinstance(outs, tuple | list) else (outs,)
            mapped(functools.partial(body, *ins, *listed))

        return run_state(run)((args, empty_like(out_type)))[1]

    return called


def run_on_first_core(core_axis_name: str) -> Callable[[Callable[[], None]], Any]:
    """A decorator that runs a function without arguments, at once, on the first core."""
    return when(axis_index(core_axis_name) == 0)


def core_barrier(sem: Any, *, core_axis_name: str) -> None:
    """Waits until all cores have come here. sem: a `SemaphoreType.REGULAR`, for this alone.

    On CPUs there must be one core, as they run one after another.
    """
    count = axis_size(core_axis_name)
    for core in range(count if count > 1 else 0):
        others = when(axis_index(core_axis_name) != core)
        others(functools.partial(semaphore_signal, sem, core_index=core))
    if count > 1:
        semaphore_wait(sem, count - 1)


def get_global(what: Any) -> Ref:
    """A ref of memory that all programs of a kernel share, and which other memory does not overlap:
    each call returns another one, the same for each program. what: as of `run_scoped`."""
    number = next(require_frame("get_global").numbers)
    return own_memory("get_global", f"{GLOBAL} {number}", as_scratch("get_global", what))


def emit_pipeline(
    body: Callable[..., None],
    *,
    grid: Any,
    in_specs: Any = (),
    out_specs: Any = (),
    tiling: Any = None,
    core_axis: Any = None,
    core_axis_name: Any = None,
    dimension_semantics: Sequence[Any] | None = None,
    trace_scopes: bool = True,
    no_pipelining: bool = False,
    _explicit_indices: bool = False,
) -> Callable[..., None]:
    """`kernels.emit_pipeline` for `BlockSpec`s.

    dimension_semantics, tiling, trace_scopes, no_pipelining: without effect: one core runs the
      loop, with two buffers for each block.
    core_axis, core_axis_name: None.
    _explicit_indices: whether the body takes the indices along the grid, a tuple, first.
    """
    axis = core_axis if core_axis_name is None else core_axis_name
    if axis is not None:
        raise NotImplementedError(
            f"emit_pipeline: core_axis={axis!r}: a device has one core here. Leave it out."
        )
    count = len(grid) if isinstance(grid, tuple | list) else 1

    @functools.wraps(body)
    def indexed(*refs: Any) -> None:
        body(tuple([program_id(i) for i in range(count)]), *refs)

    run = indexed if _explicit_indices else body
    return pipelines.emit_pipeline(
        run, grid=grid, in_specs=blocks_from(in_specs), out_specs=blocks_from(out_specs)
    )
