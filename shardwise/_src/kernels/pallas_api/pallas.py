"""JAX's names for kernels: `pallas_call`, and the records that it takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise._src.kernels.blocks import Block, Buffered, Element, Squeezed
from shardwise._src.kernels.launch_record import CompilerParams, CostEstimate
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.pallas_api.interpret_params import simulation_of
from shardwise._src.kernels.simulation import Simulation
from shardwise._src.messages.formatting import short_repr
from shardwise._src.runtime.pytree import flatten

squeezed = Squeezed()


@dataclass(frozen=True)
class BlockSpec:
    """A `kernels.Block`, with JAX's names for its fields.

    The index of an `Element` with padding counts from the first element of the padding; that of a
    `kernels.Block` from the first of the array. pipeline_mode: see `Buffered`.
    """

    block_shape: Sequence[Any] | None = None
    index_map: Callable[..., Any] | None = None
    pipeline_mode: Buffered | None = None
    memory_space: Any = None

    def replace(self, **changes: Any) -> BlockSpec:
        """A copy with other values of some fields."""
        return replace(self, **changes)

    @property
    def block(self) -> Block:
        shape = None if self.block_shape is None else tuple(self.block_shape)
        low = [e.padding[0] if isinstance(e, Element) else 0 for e in shape or ()]
        index = self.index_map or (lambda *ids: (0,) * len(low))

        @functools.wraps(index)
        def from_array(*ids: Any) -> Any:
            found = index(*ids)
            found = found if isinstance(found, tuple | list) else (found,)
            return (*[i - n for i, n in zip(found, low, strict=False)], *found[len(low) :])

        index_map = from_array if any(low) else self.index_map
        return Block(shape, index_map, self.memory_space, self.pipeline_mode)


no_block_spec = BlockSpec()


def blocks_from(specs: Any) -> Any:
    """A pytree with a `Block` for each `BlockSpec`."""
    leaves, tree = flatten(specs)
    return tree.unflatten([x.block if isinstance(x, BlockSpec) else x for x in leaves])


@dataclass
class GridSpec:
    """The grid, blocks and scratch memory of a kernel."""

    grid: Any = ()
    in_specs: Any = None
    out_specs: Any = None
    scratch_shapes: Any = ()
    num_scalar_prefetch: int = 0


class PrefetchScalarGridSpec(GridSpec):
    """A `GridSpec` whose first arguments, of integers, are known before blocks are read."""

    def __init__(self, num_scalar_prefetch: int, *fields: Any, **named: Any):
        super().__init__(*fields, **named, num_scalar_prefetch=num_scalar_prefetch)


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = None,
    out_specs: Any = None,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] | None = None,
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: CompilerParams | None = None,
    cost_estimate: CostEstimate | None = None,
    backend: Any = None,
    metadata: Any = None,
) -> Callable[..., Any]:
    """`kernels.call` with JAX's names.

    grid_spec: the grid, blocks, scratch memory and number of prefetched arguments; instead of
      these.
    input_output_aliases: pairs of an argument, counted with those that are prefetched, and a
      result.
    compiler_params: its `dimension_semantics` say which axes of the grid are parallel; the other
      fields are for GPUs and TPUs.
    cost_estimate: what the kernel costs, for reports.
    interpret: True: memory that was not written is NaN, and of integers the least;
      `InterpretParams`: see there. On CPU kernels are compiled like other programs, whatever it is.
    debug, backend, metadata: accepted, and without effect.
    """
    own = GridSpec(() if grid is None else grid, in_specs, out_specs, scratch_shapes or ())
    if grid_spec is not None and own != GridSpec():
        raise ValueError(
            "pallas_call: grid, in_specs, out_specs and scratch_shapes are fields of grid_spec if "
            "that is given."
        )
    spec = grid_spec or own
    if not isinstance(spec.in_specs, tuple | list) and spec.in_specs not in (None, no_block_spec):
        raise ValueError(
            "pallas_call: in_specs is a tuple or list with a BlockSpec for each argument; got "
            f"{short_repr(spec.in_specs)}."
        )
    grid, prefetch = () if spec.grid is None else spec.grid, spec.num_scalar_prefetch
    simulation = simulation_of(interpret)
    params = CompilerParams() if compiler_params is None else compiler_params
    return call(
        kernel,
        tuple(out_shape) if isinstance(out_shape, list) else out_shape,
        grid=grid,
        in_specs=blocks_from(spec.in_specs),
        out_specs=blocks_from(spec.out_specs),
        scratch=spec.scratch_shapes,
        prefetch=prefetch,
        parallel=parallel_axes(grid, params.dimension_semantics, simulation),
        aliases={i - prefetch: j for i, j in (input_output_aliases or {}).items()},
        name=name,
        params=replace(params, dimension_semantics=None),
        cost=cost_estimate,
        simulation=simulation,
    )


def parallel_axes(grid: Any, semantics: Sequence[Any] | None, simulation: Simulation) -> list[int]:
    """The axes of a grid whose programs may run in any order, from their semantics."""
    count = len(grid) if isinstance(grid, tuple | list) else 1
    if semantics is not None and len(semantics) != count:
        raise ValueError(
            f"pallas_call: dimension_semantics has {len(semantics)} entries, "
            f"{short_repr(semantics)}; the grid has {count} axes."
        )
    found = [i for i, s in enumerate(semantics or ()) if "parallel" in str(s).lower()]
    if simulation.is_tpu and found != list(range(len(found))):
        raise ValueError(
            f"pallas_call: TPUs divide the programs along the first axes of a grid among their "
            f"cores, so that parallel axes come first; got {short_repr(semantics)}."
        )
    return found
