"""The op of `custom_partitioning`: a function with user-defined per-device code.

The op holds the function's program, which defines its meaning: on one device it is inlined. Its
`rule` wraps the user's functions: how dimensions correspond, and what is done with shards once the
shardings of operands and results are known. Under `vmap` the rule has one more dimension, which
the user's functions do not see; it is sharded over axes that they do not use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from shardwise._src.control.checkify_rules import checkify_call, eval_call
from shardwise._src.control.shard_map import inside
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.structure import shared
from shardwise._src.custom.sharding_rules import Factors
from shardwise._src.ops.basis import move_axis
from shardwise._src.transforms.batch import (
    Axis,
    MappedAxis,
    axes_in,
    batch_program,
    moved_into,
    without_dim,
)
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
    tells:     whether it determines result shardings; otherwise the function's program does.
    questions: the questions for the partitioner callback, by everything they depend on.
    """

    __slots__ = ("name", "key", "decode", "tells", "questions", "__weakref__")

    def __init__(self, name: str, key: tuple[Any, ...], decode: bool, tells: bool):
        self.name, self.key, self.decode, self.tells = name, key, decode, tells
        self.questions: dict[tuple[Any, ...], Any] = {}

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
        super().__init__(inner.name, (inner, size, marks), inner.decode, inner.tells)
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
        inner = [(without_dim(t, 0), _without(s, t.ndim)) if m else (t, s)
                 for (t, s), m in zip([*ins, *outs], marks, strict=True)]
        found = self.inner.decide(mesh, inner[: len(ins)], inner[len(ins) :])
        places = [*found.ins, *found.outs]
        axes = self._free_axes([p for p, m in zip([*ins, *outs], marks, strict=True) if m],
                               places, found)
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


# -- the op: values → results --


def _type(
    op: Op, *types: ArrayType, program: Program, rule: PartitioningRule
) -> tuple[ArrayType, ...]:
    return program.out_types


def _dims(op: Op, *types: ArrayType, program: Program, rule: PartitioningRule) -> Dims:
    mesh = next((t.mesh for t in types if t.mesh is not None), None)
    return rule.dims(mesh, types, program.out_types)


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, program: Program, rule: PartitioningRule
) -> list[str]:
    return e.asked(rule, program, xs, ins, outs)


def _no_derivative(op: Op, *given: Any, rule: PartitioningRule, **p: Any) -> NoReturn:
    raise NotImplementedError(
        f"custom_partitioning function {rule.name} has no derivative: nothing specifies how it "
        "would be partitioned. Define one with `shardwise.custom_vjp` or `shardwise.custom_jvp`, "
        "around a function that calls it."
    )


def _batch(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, *, program: Program, rule: PartitioningRule
) -> tuple[list[Any], list[int]]:
    name = mapped.axis.name
    if name is not None and name in axes_in(program):
        raise NotImplementedError(
            f"custom_partitioning function {rule.name} has collectives along {name!r}, the axis "
            "of a `vmap` around it, which its `partition` cannot see. Call them outside of "
            "the function."
        )
    marks = tuple([d is not None for d in dims])
    axis = Axis(mapped.size) if rule.tells else mapped.of(args, dims)
    wide, _ = batch_program(program, axis, marks, (True,) * len(program.outputs))
    given = [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    given = given if rule.tells else moved_into(wide, args, dims)
    outs = op(*given, program=shared(wide), rule=MappedRule(rule, mapped.size, marks))
    return outs, [0] * len(outs)


custom_partitioning_call = Op(
    "custom_partitioning",
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=_no_derivative,
    transpose=_no_derivative,
    batch=_batch,
    checkify=checkify_call,
    eval=eval_call,
    multiple=True,
    programs=("program",),
    has_partitioner_callback=True,
    aliases={"call": "program"},
)
