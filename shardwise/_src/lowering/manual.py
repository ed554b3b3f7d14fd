"""Manual code, which each device runs on its shards: how to enter it, and collectives within it.

Ops name the manual axes along which values are exchanged, and the groups of participants;
`ManualAxes` maps these to devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.arrays.signature import stored_type
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import programs_in
from shardwise._src.lowering.text import return_text, unreduced_text
from shardwise._src.lowering.total_order_floats import loses_nan, ordered, unordered
from shardwise._src.runtime.compiler.callback_targets import bits_of
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

_CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
_INT32 = array_type((), np.dtype("int32"))
Groups = Sequence[Sequence[int]] | None


@dataclass(frozen=True)
class ManualAxes:
    """The mesh axes along which code sees the shards of individual devices.

    mesh:        all axes, with names; grid: the device numbers in the program, by mesh position.
    manual:      the manual axes; tracked: those of them that types keep track of.
    """

    mesh: Any
    grid: np.ndarray
    manual: frozenset[Any]
    tracked: frozenset[Any]

    @property
    def names(self) -> tuple[Any, ...]:
        return self.mesh.axis_names

    def rows(self, names: Sequence[Any]) -> np.ndarray:
        """Device numbers: those in a row differ in their positions along the names only."""
        along = [self.names.index(name) for name in names]
        others = [i for i in range(len(self.names)) if i not in along]
        count = math.prod([self.grid.shape[i] for i in along])
        return self.grid.transpose(others + along).reshape(-1, count)

    def groups(self, names: Sequence[Any], parts: Groups) -> np.ndarray:
        """Groups of participating devices. parts: groups of positions along the names."""
        rows = self.rows(names)
        if parts is None:
            return rows
        return np.concatenate([row[np.asarray(part)][None] for row in rows for part in parts])

    def places(self, name: Any) -> np.ndarray:
        """For each device number, its position along an axis."""
        places = np.indices(self.grid.shape)[self.names.index(name)]
        found = np.zeros(self.grid.size, np.int32)
        found[self.grid.ravel()] = places.ravel()
        return found


class Manual:
    """Methods that emit manual code; a mixin of the emitter.

    manual: the axes that are manual in the code being emitted; None outside of `shard_map`.
    places: the position of a device along an axis, as i32[1], by axis name, for the axes needed, if
            the partitioner handles other axes: XLA then has no device number.
    """

    manual: ManualAxes | None = None
    places: dict[Any, str]
    devices: int
    platform: Platform
    meshes: Any
    count: int
    fresh: Callable[[], str]
    hoisted: dict[int, str]
    within: Callable[[ManualAxes], Any]
    inline: Callable[..., list[str]]
    lets: Callable[[str, int], list[str]]
    ty: Callable[[ArrayType], str]
    let: Callable[[str], str]
    iota: Callable[[ArrayType, int], str]
    constant: Callable[[Any, ArrayType], str]
    bitcast: Callable[[str, ArrayType, ArrayType], str]
    folding: Callable[[ArrayType, str], str]
    constrained: Callable[[str, ArrayType, Any], str]

    def manually(
        self,
        program: Program,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        mesh: Any,
        places: Sequence[Sequence[NamedSharding]],
        axes: Sequence[Any],
        tracked: bool,
    ) -> list[str]:
        """A program that is manual along axes of a mesh.

        places: the shardings of the operands and of the results, over manual axes only.
        tracked: whether types in it record along which of them values vary.
        """
        outer = self.manual
        bound = frozenset() if outer is None else outer.manual
        varying = frozenset() if outer is None else outer.tracked
        order = (0,) if self.meshes is None else self.meshes.order(mesh)
        grid = np.asarray(order).reshape(mesh.axis_sizes)
        varying = varying.union(axes if tracked else ())
        own = ManualAxes(mesh, grid, bound.union(axes), varying)
        if self.devices == 1:
            self.manual = own
            results = self.inline(program, *xs)
            self.manual = outer
            return results
        held = [c for p in programs_in(program) for c in p.consts if id(c) in self.hoisted]
        types = [*program.in_types, *map(type_of, held)]
        inner = self.within(own)
        names = [inner.fresh() if t.size else inner.none(t) for t in types]
        inner.hoisted = {id(c): n for c, n in zip(held, names[len(xs) :], strict=True)}
        results = inner.inline(program, *names[: len(xs)])
        inner.lines.append(return_text("sdy.return", results, program.out_types))
        self.count = inner.count
        whole = NamedSharding(mesh, PartitionSpec())
        # Shardy only accepts unreduced operands after a constraint.
        xs = [
            self.constrained(x, t, place) if place.spec.unreduced else x
            for x, t, place in zip(xs, ins, places[0], strict=True)
        ]
        given = [*xs, *[self.hoisted[id(c)] for c in held]]
        given_types = [*ins, *map(type_of, held)]
        taken = [*places[0], *[whole] * len(held)]
        rows = zip(given, given_types, taken, names, types, strict=True)
        rows = [row for row in rows if row[-1].size]
        for axis, name in inner.places.items():
            size = mesh.shape[axis] if axis in axes else 1
            rows.append(
                (
                    self.iota(array_type((size,), _INT32.dtype), 0)
                    if axis in axes
                    else self._place(axis),
                    array_type((size,), _INT32.dtype),
                    whole.with_spec(PartitionSpec(axis)) if axis in axes else whole,
                    name,
                    array_type((1,), _INT32.dtype),
                )
            )
        return self._computation(rows, outs, places[1], own, axes, inner.lines)

    def _computation(
        self,
        rows: Sequence[tuple[Any, ...]],
        outs: Sequence[ArrayType],
        places: Sequence[NamedSharding],
        own: ManualAxes,
        axes: Sequence[Any],
        lines: Sequence[str],
    ) -> list[str]:
        """rows: for each operand its value, type and sharding, and the shard's name and type."""
        given, given_types, taken, names, types = zip(*rows, strict=True) if rows else [()] * 5
        mesh = own.mesh
        quoted = ", ".join(f'"{a}"' for a in mesh.axis_names if a in axes)
        args = ", ".join(f"{n}: {self.ty(t)}" for n, t in zip(names, types, strict=True))
        body = "\n".join(lines)
        return self.lets(
            f"sdy.manual_computation({', '.join(given)}) "
            f"in_shardings=[{self._targets(taken, given_types, own)}] "
            f"out_shardings=[{self._targets(places, outs, own)}] manual_axes={{{quoted}}} "
            f"({args}) {{\n{body}\n}} : ({', '.join(map(self.ty, given_types))}) -> "
            f"({', '.join(map(self.ty, outs))})",
            len(outs),
        )

    def run_on_one(
        self,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        call: Callable[[Any, Sequence[str]], list[str]],
    ) -> list[str]:
        """Runs a call on one of the devices that only differ in axes that are not manual; the
        others get its results, as sums of bits with zeros.

        call: `(emitter, operands) → results`.
        """
        own = self._axes()
        rest = [a for a in own.names if a not in own.manual]
        full = replace(own, manual=frozenset(own.names))
        inner = self.within(full)
        names = [inner.fresh() for _ in xs]
        bits = [t.update(dtype=bits_of(t.dtype)) for t in outs]

        def here() -> None:
            pairs = zip(call(inner, names), outs, bits, strict=True)
            done([inner.as_bits(x, t, b) for x, t, b in pairs])

        def elsewhere() -> None:
            done([inner.constant(np.zeros((), b.dtype), b) for b in bits])

        def done(found: Sequence[str]) -> None:
            inner.lines.append(return_text("stablehlo.return", found, bits))

        which = inner.place_along(rest[0])
        for axis in rest[1:]:
            which = inner.let(f"stablehlo.add {which}, {inner.place_along(axis)} : tensor<i32>")
        regions = ", ".join([f"{{\n{inner.region(write)}\n}}" for write in (here, elsewhere)])
        found = inner.lets(
            f'"stablehlo.case"({which}) ({regions}) : (tensor<i32>) -> '
            f"({', '.join(map(self.ty, bits))})",
            len(outs),
        )
        sums = [
            inner.all_reduce(x, b, "or" if b.dtype == bool else "add", rest)
            for x, b in zip(found, bits, strict=True)
        ]
        sums = [inner.as_bits(x, b, t) for x, b, t in zip(sums, bits, outs, strict=True)]
        inner.lines.append(return_text("sdy.return", sums, outs))
        self.count = inner.count
        whole = NamedSharding(own.mesh, PartitionSpec())
        rows = [(x, t, whole, name, t) for x, t, name in zip(xs, ins, names, strict=True)]
        return self._computation(rows, outs, [whole] * len(outs), full, rest, inner.lines)

    def as_bits(self, x: str, t: ArrayType, other: ArrayType) -> str:
        return x if t.dtype == other.dtype else self.bitcast(x, t, other)

    def none(self, t: ArrayType) -> str:
        """A value without elements, as a constant in device code: XLA would turn operands without
        elements into constants, and then fail to recognize where such code begins.
        """
        stored = stored_type(t)
        return self.constant(np.zeros((), stored.dtype), stored)

    def _targets(
        self, places: Sequence[NamedSharding], types: Sequence[ArrayType], own: ManualAxes
    ) -> str:
        """Shardings over manual axes; open if there are other axes."""
        texts: list[str] = []
        for place, t in zip(places, types, strict=True):
            dims = place.spec.dims(stored_type(t).ndim)
            rows = [", ".join(f'"{a}"' for a in axes) for axes in dims]
            if len(own.manual) < len(own.names):
                rows = [f"{row}, ?" if row else "?" for row in rows]
            body = ", ".join(f"{{{row}}}" for row in rows)
            more = unreduced_text(place)
            texts.append(f"<@{self.meshes.symbol(place.mesh)}, [{body}]{more}>")
        return ", ".join(texts)

    def all_reduce(
        self, x: str, t: ArrayType, body: str, names: Sequence[Any], parts: Groups = None
    ) -> str:
        """All-reduce over each group. body: the name of a binary instruction.

        XLA error `extremes-without-nan`: floats are compared as integers in the same order.
        """
        if loses_nan(self.platform, body, t):
            x, keys = ordered(self, x, t, body)
            return unordered(self, self._all_reduce(x, keys, body, names, parts), keys, t.dtype)
        return self._all_reduce(x, t, body, names, parts)

    def _all_reduce(
        self, x: str, t: ArrayType, body: str, names: Sequence[Any], parts: Groups
    ) -> str:
        ty = self.ty(t)
        return self.let(
            f'"stablehlo.all_reduce"({x}) <{{{_CHANNEL}, {self._groups(names, parts)}, '
            f"use_global_device_ids}}> {self.folding(t, body)} : ({ty}) -> {ty}"
        )

    def all_gather(
        self, x: str, t: ArrayType, out: ArrayType, axis: int, names: Sequence[Any], parts: Groups
    ) -> str:
        return self.let(
            f'"stablehlo.all_gather"({x}) <{{all_gather_dim = {axis} : i64, {_CHANNEL}, '
            f"{self._groups(names, parts)}, use_global_device_ids}}> : "
            f"({self.ty(t)}) -> {self.ty(out)}"
        )

    def reduce_scatter(
        self, x: str, t: ArrayType, out: ArrayType, axis: int, names: Sequence[Any], parts: Groups
    ) -> str:
        return self.let(
            f'"stablehlo.reduce_scatter"({x}) <{{{_CHANNEL}, {self._groups(names, parts)}, '
            f"scatter_dimension = {axis} : i64, use_global_device_ids}}> "
            f"{self.folding(t, 'add')} : ({self.ty(t)}) -> {self.ty(out)}"
        )

    def all_to_all(
        self,
        x: str,
        t: ArrayType,
        out: ArrayType,
        split: int,
        concat: int,
        names: Sequence[Any],
        parts: Groups = None,
    ) -> str:
        groups = self._axes().groups(names, parts)
        return self.let(
            f'"stablehlo.all_to_all"({x}) <{{{_CHANNEL}, concat_dimension = {concat} : i64, '
            f"{_dense('replica_groups', groups)}, split_count = {groups.shape[1]} : i64, "
            f"split_dimension = {split} : i64}}> : ({self.ty(t)}) -> {self.ty(out)}"
        )

    def collective_permute(
        self, x: str, t: ArrayType, perm: Sequence[tuple[int, int]], names: Sequence[Any]
    ) -> str:
        """perm: pairs of positions along the names, source first. Non-destinations get zeros."""
        rows = self._axes().rows(names)
        pairs = np.array([[row[a], row[b]] for row in rows for a, b in perm]).reshape(-1, 2)
        ty = self.ty(t)
        return self.let(
            f'"stablehlo.collective_permute"({x}) <{{{_CHANNEL}, '
            f"{_dense('source_target_pairs', pairs)}}}> : ({ty}) -> {ty}"
        )

    def place_along(self, name: Any) -> str:
        """The position along an axis of the device that runs the code: an int32."""
        one = array_type((1,), _INT32.dtype)
        kinds = f"({self.ty(one)}) -> {self.ty(_INT32)}"
        return self.let(f"stablehlo.reshape {self._place(name)} : {kinds}")

    def _place(self, name: Any) -> str:
        """The same as `place_along`, as i32[1]."""
        if self.devices > 1:
            return self.places.setdefault(name, self.fresh())
        places = self._axes().places(name)
        number = self.let("stablehlo.partition_id : tensor<ui32>")
        table = array_type((places.size,), _INT32.dtype)
        every = self.let(f"stablehlo.constant dense<{places.tolist()}> : {self.ty(table)}")
        one = array_type((1,), _INT32.dtype)
        return self.let(
            f"stablehlo.dynamic_slice {every}, {number}, sizes = [1] : "
            f"({self.ty(table)}, tensor<ui32>) -> {self.ty(one)}"
        )

    def may_differ(self, names: Collection[Any], t: ArrayType) -> bool:
        """Whether a value of type `t` may differ along some of these axes, if they are manual.

        If control flow depends on it, not all devices would take part in collectives over them.
        """
        if self.manual is None:
            return False
        own = [name for name in names if name in self.manual.manual]
        return any(name in t.varying or name not in self.manual.tracked for name in own)

    def check_bound(self, op: str, names: Sequence[Any]) -> None:
        """Raises if an op is over an axis that is not manual here."""
        bound = () if self.manual is None else self.manual.manual
        if missing := [name for name in names if name not in bound]:
            raise NameError(
                f"[{op}] axis {' and '.join(map(repr, missing))} is not bound where the program "
                "runs. Call the function with the collective inside of "
                "`shardwise.vmap(f, axis_name=...)` or `shardwise.shard_map`."
            )

    def _axes(self) -> ManualAxes:
        if self.manual is None:
            raise RuntimeError("a cross-device instruction is outside of every shard_map")
        return self.manual

    def _groups(self, names: Sequence[Any], parts: Groups) -> str:
        return _dense("replica_groups", self._axes().groups(names, parts))


def _dense(what: str, numbers: np.ndarray) -> str:
    rows, columns = numbers.shape
    text = f"dense<{numbers.tolist()}>" if numbers.size else "dense<>"
    return f"{what} = {text} : tensor<{rows}x{columns}xi64>"
