"""How a call of a `custom_partitioning` function is partitioned, and the same under `vmap`.

A rule wraps the user's functions: how dimensions correspond, and what is done with shards once the
shardings of operands and results are known. Under `vmap` the rule has one more dimension, which
the user's functions do not see; it is sharded over axes that they do not use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.core.program import Program
from shardwise._src.maps.shard_types import inside
from shardwise._src.partitioning.sharding_rules import Factors
from shardwise._src.transforms.batch import Axis, axes_in, batch_program, without_dim
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import GSPMDSharding, NamedSharding
from shardwise._src.types.tiling import Tiling, replicated_tiling, tile_size

Placed = tuple[ArrayType, Any]  # a type and a sharding


class Decision(NamedTuple):
    """The code for each device. program: on shards; mesh: the mesh of its collectives' axes."""

    program: Program
    mesh: Any
    ins: Sequence[Any]
    outs: Sequence[Any]


class PartitioningRule:
    """The user's partitioning of a call. Equal for equal functions, trees and arguments.

    decode:    whether shardings are passed as specs over the mesh, if these exist.
    sets_result_shardings: whether it determines result shardings; otherwise the function's program
      does.
    callbacks: the questions for the partitioner callback, by everything they depend on.
    """

    __slots__ = ("name", "key", "decode", "sets_result_shardings", "callbacks", "__weakref__")

    def __init__(self, name: str, key: tuple[Any, ...], decode: bool, sets_result_shardings: bool):
        self.name, self.key, self.decode = name, key, decode
        self.sets_result_shardings = sets_result_shardings
        self.callbacks: dict[tuple[Any, ...], Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitioningRule) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.name

    def factors(
        self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]
    ) -> Factors | None:
        """How dimensions correspond; None if unspecified."""
        raise NotImplementedError

    def dims(self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]) -> Dims:
        """The same for types over explicit axes of a mesh, which may be None."""
        raise NotImplementedError

    def decide(self, mesh: Any, ins: Sequence[Placed], outs: Sequence[Placed]) -> Decision:
        """The per-device code, for operands and results with these shardings."""
        raise NotImplementedError


class MappedRule(PartitioningRule):
    """A rule with a batch dimension, the first, in some of the operands and all results."""

    __slots__ = ("inner", "size", "marks", "depth")

    def __init__(self, inner: PartitioningRule, size: int, marks: tuple[bool, ...]):
        key = inner, size, marks
        super().__init__(inner.name, key, inner.decode, inner.sets_result_shardings)
        self.inner, self.size, self.marks = inner, size, marks
        self.depth: int = getattr(inner, "depth", 0) + 1

    def _types(self, ins: Sequence[ArrayType], outs: Sequence[ArrayType]) -> Any:
        rows = zip(ins, self.marks, strict=True)
        return [without_dim(t, 0) if m else t for t, m in rows], [without_dim(t, 0) for t in outs]

    def factors(
        self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]
    ) -> Factors | None:
        found = self.inner.factors(mesh, *self._types(ins, outs))
        return found and found.batched(self.size, self.marks)

    def dims(self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]) -> Dims:
        found = self.inner.dims(mesh, *self._types(ins, outs))
        rows = zip(ins, self.marks, strict=True)
        axes = [t.spec.dims(t.ndim)[0] for t, m in rows if m and t.spec is not None]
        own = next(filter(None, axes), ())
        name = f"mapped {self.depth}"
        inputs = [((name, *r) if m else r) for r, m in zip(found.inputs, self.marks, strict=True)]
        specs = None if found.specs is None else tuple([(own, *row) for row in found.specs])
        return Dims(tuple(inputs), tuple([(name, *r) for r in found.outputs]), specs=specs)

    def decide(self, mesh: Any, ins: Sequence[Placed], outs: Sequence[Placed]) -> Decision:
        marks = [*self.marks, *[True] * len(outs)]
        inner = [
            (without_dim(t, 0), _without(s, t.ndim)) if m else (t, s)
            for (t, s), m in zip([*ins, *outs], marks, strict=True)
        ]
        found = self.inner.decide(mesh, inner[: len(ins)], inner[len(ins) :])
        places = [*found.ins, *found.outs]
        axes = self._free_axes(
            [p for p, m in zip([*ins, *outs], marks, strict=True) if m], places, found
        )
        count = math.prod([mesh.shape[a] for a in axes])
        with inside(NamedSharding(found.mesh, PartitionSpec()), found.mesh.axis_names, False):
            program, _ = batch_program(
                found.program, Axis(tile_size(self.size, count)), self.marks, (True,) * len(outs)
            )
        rows = zip(places, [*ins, *outs], marks, strict=True)
        new = [_with(s, axes, t.ndim) if m else s for s, (t, _), m in rows]
        return Decision(program, found.mesh, new[: len(ins)], new[len(ins) :])

    def _free_axes(
        self, given: Sequence[Placed], places: Sequence[Any], found: Decision
    ) -> tuple[Any, ...]:
        """The axes that split the batch dimension, except those that the user's function needs."""
        held = [s.spec.dims(t.ndim)[0] for t, s in given if isinstance(s, NamedSharding)]
        wanted = next(filter(None, held), ())
        if not all(isinstance(s, NamedSharding) and s.mesh is found.mesh for s in places):
            return ()
        used = {a for s in places for a in s.spec.axes}.union(axes_in(found.program))
        return tuple([a for a in wanted if a in found.mesh.axis_names and a not in used])


def _without(sharding: Any, ndim: int) -> Any:
    """A sharding for arrays without the first dimension."""
    if isinstance(sharding, NamedSharding):
        parts = [p or None for p in sharding.spec.dims(ndim)[1:]]
        return sharding.with_spec(sharding.spec.update(partitions=parts))
    tiling, count = sharding.tiling(ndim), len(sharding.devices)
    if tiling.dims[0] > 1:
        return GSPMDSharding(sharding.devices, replicated_tiling(ndim - 1, count))
    return GSPMDSharding(sharding.devices, _tiles(tiling, tiling.dims[1:]))


def _with(sharding: Any, axes: tuple[Any, ...], ndim: int) -> Any:
    """A sharding for arrays with one more dimension, the first, over these axes."""
    if isinstance(sharding, NamedSharding):
        parts = [axes or None, *[p or None for p in sharding.spec.dims(ndim - 1)]]
        return sharding.with_spec(sharding.spec.update(partitions=parts))
    tiling = sharding.tiling(ndim - 1)
    return GSPMDSharding(sharding.devices, _tiles(tiling, (1, *tiling.dims)))


def _tiles(tiling: Tiling, dims: tuple[int, ...]) -> Tiling:
    return Tiling(dims, tiling.mesh_sizes, tiling.order, tiling.replicated, tiling.assignment)
