"""Evaluates and checks what the user of `custom_partitioning` defines for one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.control.bodies import staged
from shardwise._src.core.program import Program
from shardwise._src.lowering.text import element_text
from shardwise._src.maps.shard_types import inside
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.messages.tree_paths import path_in, tree_difference
from shardwise._src.partitioning.partitioning_rule import Decision, PartitioningRule, Placed
from shardwise._src.partitioning.sharding_rules import (
    Factors,
    SdyShardingRule,
    fitted,
    probed,
    rule_of,
)
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding, Sharding
from shardwise._src.types.tiling import tile_size

WHO = "custom_partitioning function"


@dataclass(frozen=True)
class ValueType:
    """An operand or result, for a `sharding_rule` that is a function.

    shape: a tuple of ints; element_type: as StableHLO writes it, such as "f32".
    """

    shape: tuple[int, ...]
    element_type: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    def get_dim_size(self, dim: int) -> int:
        return self.shape[dim]


class PartitionDefinition(NamedTuple):
    """The arguments of `def_partition`."""

    partition: Callable[..., Any]
    infer: Callable[..., Any] | None
    decode: bool
    rule: Any


class CallRule(PartitioningRule):
    """The definitions for one call: the user's functions, with static arguments and pytrees."""

    __slots__ = ("definition", "static", "in_tree", "out_tree")

    def __init__(
        self,
        name: str,
        key: tuple[Any, ...],
        definition: PartitionDefinition,
        static: tuple[Any, ...],
        in_tree: Any,
        out_tree: Any,
    ):
        sets_result_shardings = definition.rule is not None or definition.infer is not None
        super().__init__(name, key, definition.decode, sets_result_shardings)
        self.definition, self.static = definition, static
        self.in_tree, self.out_tree = in_tree, out_tree

    # -- how dimensions correspond --

    def factors(
        self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]
    ) -> Factors | None:
        if self.definition.rule is not None:
            return fitted(self._rule(mesh, ins, outs), ins, outs, self.name)
        if self.definition.infer is None:
            return None
        return probed(self._kept(mesh, ins, outs), ins, outs)

    def _rule(
        self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]
    ) -> SdyShardingRule:
        found: Any = self.definition.rule
        if isinstance(found, SdyShardingRule):
            return found
        kinds = [[ValueType(t.shape, element_text(t.dtype)) for t in side] for side in (ins, outs)]
        found, rest = found(*self.static, mesh, *kinds), {}
        if isinstance(found, list | tuple) and len(found) == 2:
            found, rest = found
        if isinstance(found, str):
            return rule_of(found, **rest)
        if isinstance(found, SdyShardingRule):
            return found
        raise ValueError(
            f"{WHO} {self.name}: the function sharding_rule must return a string such as "
            f"'b i, i o -> b o', or an SdyShardingRule; it returned {short_repr(found)}."
        )

    def _kept(
        self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]
    ) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """For each operand dimension, the result dimensions that are sharded if it alone is."""
        axis = max(mesh.axis_names, key=mesh.shape.__getitem__)
        whole = NamedSharding(mesh, PartitionSpec())
        found: list[tuple[int, int, list[tuple[int, int]]]] = []
        for i, t in enumerate(ins):
            for d in range(t.ndim):
                places = [whole] * len(ins)
                places[i] = whole.with_spec([*[None] * d, axis])
                results = self._inferred(list(zip(ins, places, strict=True)), outs, mesh)
                found.append(
                    (
                        i,
                        d,
                        [
                            (j, k)
                            for j, (s, out) in enumerate(zip(results, outs, strict=True))
                            for k in range(out.ndim)
                            if isinstance(s, NamedSharding) and axis in s.spec.dims(out.ndim)[k]
                        ],
                    )
                )
        return found

    def _inferred(self, ins: Sequence[Placed], outs: Sequence[ArrayType], mesh: Any) -> list[Any]:
        assert self.definition.infer is not None
        shapes = self.out_tree.unflatten([ShapeDtypeStruct(t.shape, t.dtype) for t in outs])
        result = self.definition.infer(*self.static, mesh, self._shapes(self.in_tree, ins), shapes)
        what = "the result of infer_sharding_from_operands"
        return self._shardings(result, self.out_tree, outs, what)

    def dims(self, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]) -> Dims:
        if self.definition.rule is not None:
            return fitted(self._rule(mesh, ins, outs), ins, outs, self.name).dims()
        inputs = tuple([(None,) * t.ndim for t in ins])
        outputs = tuple([(None,) * t.ndim for t in outs])
        if mesh is None:
            return Dims(inputs, outputs)
        specs = [PartitionSpec() if t.spec is None else t.spec for t in outs]
        if self.definition.infer is not None:
            own = [NamedSharding(mesh, t.spec or PartitionSpec()) for t in ins]
            found = self._inferred(list(zip(ins, own, strict=True)), outs, mesh)
            specs = [self._spec(s) for s in found]
        rows = zip(specs, outs, strict=True)
        return Dims(inputs, outputs, specs=tuple([s.dims(t.ndim) for s, t in rows]))

    def _spec(self, sharding: Any) -> PartitionSpec:
        if isinstance(sharding, NamedSharding):
            return sharding.spec
        raise ValueError(
            f"{WHO} {self.name}: infer_sharding_from_operands returned {sharding}; for operands "
            "whose types are sharded over explicit mesh axes it must return NamedShardings."
        )

    # -- computation on shards --

    def decide(self, mesh: Any, ins: Sequence[Placed], outs: Sequence[Placed]) -> Decision:
        shapes = self._shapes(self.in_tree, ins), self._shapes(self.out_tree, outs)
        result = self.definition.partition(*self.static, mesh, *shapes)
        if not isinstance(result, tuple | list) or len(result) != 4 or not callable(result[1]):
            raise TypeError(
                f"{WHO} {self.name}: partition must return (mesh, lower_fn, result_shardings, "
                f"arg_shardings), where lower_fn is a function; it returned {short_repr(result)}."
            )
        own, lower_fn, results, args = result
        if not isinstance(own, Mesh) or set(own.flat_devices) != set(mesh.flat_devices):
            raise ValueError(
                f"{WHO} {self.name}: partition returned the mesh {own!r}; it must be a Mesh over "
                f"the program's devices, such as {mesh!r}, which it was called with."
            )
        types = [[t for t, _ in side] for side in (ins, outs)]
        sides = (args, self.in_tree, "arg_shardings"), (results, self.out_tree, "result_shardings")
        places = [
            self._shardings(x, tree, ts, f"{what} of partition", mesh)
            for (x, tree, what), ts in zip(sides, types, strict=True)
        ]
        parts = [
            [t.strong().update(shape=_part(s, t)) for s, t in zip(*side, strict=True)]
            for side in zip(places, types, strict=True)
        ]
        return Decision(self._lowered(lower_fn, own, *parts), own, *places)

    def _shapes(self, tree: Any, values: Sequence[Placed]) -> Any:
        return tree.unflatten(
            [ShapeDtypeStruct(t.shape, t.dtype, sharding=sharding) for t, sharding in values]
        )

    def _shardings(
        self, given: Any, tree: Any, types: Sequence[ArrayType], what: str, mesh: Any = None
    ) -> list[Any]:
        """The shardings that the user's function returned, by leaf. mesh: of their devices."""
        who = f"{WHO} {self.name}: {what}"
        leaves, found = flatten(given)
        if found != tree:
            of = "arguments" if tree is self.in_tree else "result"
            where = tree_difference(f"the {of}", tree, "the shardings", found, "")
            raise ValueError(f"{who} must have a sharding for each leaf of the {of}; {where}.")
        for i, (s, t) in enumerate(zip(leaves, types, strict=True)):
            place = path_in("", tree, i)
            if not isinstance(s, Sharding):
                raise ValueError(f"{who}{place} must be a sharding; got {short_repr(s)}.")
            if s.partial_axes[0]:
                raise ValueError(
                    f"{who}{place} is {s}, which is unreduced. Sum over these axes in lower_fn, "
                    "with `shardwise.lax.psum`."
                )
            s.tiling(t.ndim)  # raises if the rank does not fit
            if mesh is not None and not _is_over(s, mesh):
                raise ValueError(
                    f"{who}{place} is {s}, which is not over the program's devices, those of "
                    f"{mesh!r}."
                )
        return leaves

    def _lowered(
        self,
        lower_fn: Callable[..., Any],
        mesh: Any,
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
    ) -> Program:
        """The program on shards."""
        with inside(NamedSharding(mesh, PartitionSpec()), mesh.axis_names, False):
            body = staged(
                lambda *xs: lower_fn(*self.in_tree.unflatten(xs)),
                ins,
                "custom_partitioning",
                name_of(lower_fn),
            )
        got = body.program.out_types
        who = f"{WHO} {self.name}: lower_fn"
        if len(got) != len(outs):
            raise ValueError(
                f"{who} returned {pluralize(len(got), 'array')}, but {self.name} has "
                f"{pluralize(len(outs), 'result')}."
            )
        for i, (a, b) in enumerate(zip(got, outs, strict=True)):
            if a.shape != b.shape or a.dtype != b.dtype:
                raise ValueError(
                    f"{who} returned{path_in(' result', self.out_tree, i)} of type "
                    f"{a.str_short(True)}, but shards are of type {b.str_short(True)} under "
                    "result_shardings."
                )
        return body.program.replace(consts=body.outside)


def _is_over(sharding: Any, mesh: Any) -> bool:
    """Whether a sharding is over the devices of a mesh."""
    named = isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh)
    return not named and set(sharding.devices) == set(mesh.flat_devices)


def _part(sharding: Any, t: ArrayType) -> tuple[int, ...]:
    """The shape of the shard of each device; the last ones are padded."""
    pairs = zip(t.shape, sharding.tiling(t.ndim).dims, strict=True)
    return tuple([tile_size(n, k) for n, k in pairs])
