"""JAX's names for kernels: `pallas_call`, and the records that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.kernels.blocks import Block, Squeezed
from shardwise._src.kernels.launch_record import CompilerParams, CostEstimate
from shardwise._src.kernels.launching import call
from shardwise._src.messages.formatting import short_repr
from shardwise._src.types.annotations import Array

squeezed = Squeezed()


class BlockSpec(Block):
    """A `kernels.Block`, with JAX's names for its fields.

    pipeline_mode: accepted, and ignored on CPU.
    """

    def __init__(
        self,
        block_shape: Sequence[Any] | None = None,
        index_map: Callable[..., Any] | None = None,
        *,
        memory_space: Any = None,
        pipeline_mode: Any = None,
    ):
        super().__init__(
            None if block_shape is None else tuple(block_shape), index_map, memory_space
        )
        object.__setattr__(self, "pipeline_mode", pipeline_mode)

    block_shape = property(lambda self: self.shape)
    index_map = property(lambda self: self.index)
    memory_space = property(lambda self: self.space)


no_block_spec = Block()


@dataclass
class GridSpec:
    """The grid, blocks and scratch memory of a kernel."""

    grid: Any = ()
    in_specs: Any = None
    out_specs: Any = None
    scratch_shapes: Any = ()

    num_scalar_prefetch = 0


@dataclass
class PrefetchScalarGridSpec:
    """A `GridSpec` whose first arguments, of integers, are known before blocks are read."""

    num_scalar_prefetch: int
    grid: Any = ()
    in_specs: Any = None
    out_specs: Any = None
    scratch_shapes: Any = ()


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | PrefetchScalarGridSpec | None = None,
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
    interpret, debug, metadata: accepted, and without effect: on CPU kernels are compiled like
      other programs.
    """
    if grid_spec is not None:
        if grid not in ((), None) or in_specs is not None or out_specs is not None:
            raise ValueError(
                "pallas_call: grid, in_specs and out_specs are fields of grid_spec if that is "
                "given."
            )
        grid, in_specs, out_specs = grid_spec.grid, grid_spec.in_specs, grid_spec.out_specs
        scratch_shapes = grid_spec.scratch_shapes
    prefetch = 0 if grid_spec is None else grid_spec.num_scalar_prefetch
    params = CompilerParams() if compiler_params is None else compiler_params
    semantics = params.dimension_semantics or ()
    return call(
        kernel,
        out_shape,
        grid=() if grid is None else grid,
        in_specs=in_specs,
        out_specs=out_specs,
        scratch=scratch_shapes,
        prefetch=prefetch,
        parallel=[i for i, s in enumerate(semantics) if "parallel" in str(s).lower()],
        aliases={i - prefetch: j for i, j in (input_output_aliases or {}).items()},
        name=name,
        params=replace(params, dimension_semantics=None),
        cost=cost_estimate,
    )


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is not less than a non-negative integer."""
    if x < 0:
        raise ValueError(f"next_power_of_2: expected a non-negative integer; got {short_repr(x)}.")
    return 1 << (x - 1).bit_length() if x else 1


def align_to(x: int, multiple: int) -> int:
    """The smallest multiple that is not less than x."""
    return -(-x // multiple) * multiple


def strides_from_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The distances between neighbors along each dimension of an array in row-major order."""
    return tuple([int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))])


def multiple_of(x: Array, values: Sequence[int] | int) -> Array:
    """`x`, of which the user knows that it is a multiple of these: a hint for compilers."""
    return x
