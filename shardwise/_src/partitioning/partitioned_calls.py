"""Functions with user-defined partitioning: calls that XLA's partitioner resolves by a callback.

    names = partitioned_call(e, rule, program, xs, ins, outs)

On one device, and in code that is manual already, the program is inlined. Otherwise the text has a
call in its place, with a Shardy rule; once the partitioner knows the shardings of operands and
results, `rule.decide` determines the per-device code, emitted as a module for one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.context import Context, current
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import programs_in
from shardwise._src.effects.callback import host_functions
from shardwise._src.lowering.manual import ManualAxes
from shardwise._src.lowering.text import attribute_text, return_text, tensor_text
from shardwise._src.partitioning.partitioning_rule import Decision, PartitioningRule
from shardwise._src.runtime.compiler import partitioner_callbacks
from shardwise._src.runtime.compiler.partitioner_callbacks import Tiles
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import GSPMDSharding, NamedSharding, spec_from_tiles
from shardwise._src.types.tiling import Tiling


def partitioned_call(
    e: Any,
    rule: PartitioningRule,
    program: Program,
    xs: Sequence[str],
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
) -> list[str]:
    """Emits a call that its rule partitions; `e` is the emitter."""
    if e.devices == 1 or not all([t.size for t in (*ins, *outs)]):
        return e.inline(program, *xs)
    if e.manual is not None:
        raise NotImplementedError(
            f"custom_partitioning function {rule.name} is called inside of a "
            "`shardwise.shard_map` that leaves some mesh axes to the partitioner, which calls "
            "no functions there. Make all axes manual, or call it outside."
        )
    mesh = e.meshes.mesh
    if mesh is None:
        raise NotImplementedError(
            f"custom_partitioning function {rule.name} is partitioned by Python functions of "
            "this process when a program is compiled, so a program of several devices with it "
            "cannot be exported. Export it for one device."
        )
    name = _callback_name(e, rule, mesh, ins, outs)
    factors = rule.factors(mesh, ins, outs)
    note = "" if factors is None else f", sdy.sharding_rule = {factors.attribute()}"
    types = [", ".join(map(tensor_text, side)) for side in (ins, outs)]
    return e.lets(
        f"stablehlo.custom_call @{partitioner_callbacks.TARGET}({', '.join(xs)}) "
        f'{{api_version = 2 : i32, backend_config = "{name}"{note}}} : '
        f"({types[0]}) -> ({types[1]})",
        len(outs),
    )


def _callback_name(
    e: Any, rule: PartitioningRule, mesh: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType]
) -> str:
    """One name for equal questions, so that the module texts are equal too."""
    context = current()
    key = (mesh, e.platform, tuple(ins), tuple(outs), context.key)
    held = rule.callbacks.get(key)
    if held is None:
        context = context.replace(interpreter=eval_trace(), axes=())
        question = PartitionerCallback(rule, mesh, e.plain, e.platform, ins, outs, context)
        asked = partitioner_callbacks.ask(question, e.platform)
        held = rule.callbacks[key] = asked, question
    return held[0]


@dataclass(eq=False)
class PartitionerCallback:
    """A call, as the partitioner callback needs it."""

    rule: PartitioningRule
    mesh: Any
    emitter: Callable[[], Any]
    platform: Platform
    ins: Sequence[ArrayType]
    outs: Sequence[ArrayType]
    context: Context
    failure: BaseException | None = None

    def answer(
        self, ins: Sequence[Tiles], outs: Sequence[Tiles]
    ) -> tuple[str, Sequence[Any], Sequence[Any]]:
        with self.context.entered():  # XLA may call this on its own thread
            decode, mesh = self.rule.decode, self.mesh
            sides = [
                [(t, _sharding(mesh, tiles, decode)) for t, tiles in zip(*side, strict=True)]
                for side in ((self.ins, ins), (self.outs, outs))
            ]
            found = self.rule.decide(mesh, *sides)
            given, made = [
                [_tiling(s, t, mesh) for s, t in zip(*side, strict=True)]
                for side in ((found.ins, self.ins), (found.outs, self.outs))
            ]
            emitter = self.emitter()
            emitter.platform = self.platform
            return _module_text(emitter, found, self, given), given, made


def _sharding(mesh: Any, tiles: Tiles, decode: bool) -> Any:
    """XLA's sharding of a value, over the mesh if a spec for it exists."""
    held, ndim = tiles.sharding, len(tiles.shape)
    if held is None or not held.is_tiled():
        dims, order, last = (), (), False
    else:
        dims, order = held.tile_assignment_dimensions(), held.tile_assignment_devices()
        last = len(dims) > ndim
    if decode and (spec := spec_from_tiles(mesh, dims, order, last)) is not None:
        return NamedSharding(mesh, PartitionSpec(*[p or None for p in spec.dims(ndim)]))
    if not dims:
        return GSPMDSharding.get_replicated(mesh.flat_devices)
    return GSPMDSharding(mesh.flat_devices, held)


def _tiling(sharding: Any, t: ArrayType, mesh: Any) -> Tiling:
    """The tiles of a sharding, by device numbers of the program."""
    tiling = sharding.tiling(t.ndim)
    if sharding.devices == mesh.flat_devices:
        return tiling
    number = {d: i for i, d in enumerate(mesh.flat_devices)}
    place = [number[d] for d in sharding.devices]
    order = tuple([place[p] for p in tiling.tile_assignment().ravel().tolist()])
    return Tiling(tiling.dims, (len(order),), (0,), tiling.replicated, assignment=order)


def _module_text(
    emitter: Any, found: Decision, asked: PartitionerCallback, ins: Sequence[Tiling]
) -> str:
    """The module of one device. It sets padding to zero, so that sums are correct."""
    if host_functions(found.program):
        raise NotImplementedError(
            f"custom_partitioning function {asked.rule.name}: lower_fn calls host functions "
            "(a callback, or `shardwise.debug.print`), which the partitioner does not support. "
            "Call them outside of the function."
        )
    mesh, number = found.mesh, {d: i for i, d in enumerate(asked.mesh.flat_devices)}
    grid = np.array([number[d] for d in mesh.flat_devices]).reshape(mesh.axis_sizes)
    emitter.manual = ManualAxes(mesh, grid, frozenset(mesh.axis_names), frozenset())
    held = {id(c): c for p in programs_in(found.program) for c in p.consts}
    emitter.hoisted = {
        i: emitter.let(f"stablehlo.constant {attribute_text(np.asarray(c))}")
        for i, c in held.items()
    }
    types = found.program.in_types, found.program.out_types
    names = [f"%arg{i}" for i in range(len(ins))]
    rows = zip(names, asked.ins, types[0], ins, strict=True)
    results = emitter.inline(found.program, *[_zeroed(emitter, *row) for row in rows])
    args = ", ".join(f"{n}: {tensor_text(t)}" for n, t in zip(names, types[0], strict=True))
    body = "\n".join([*emitter.lines, return_text("func.return", results, types[1])])
    return (
        f"module {{\nfunc.func public @main({args}) -> ({', '.join(map(tensor_text, types[1]))}) "
        f"{{\n{body}\n}}\n" + "\n".join(emitter.functions) + "\n}"
    )


def _zeroed(e: Any, name: str, whole: ArrayType, part: ArrayType, tiling: Tiling) -> str:
    """A shard with zeros after the last element of the full value."""
    for d, (n, k) in enumerate(zip(whole.shape, tiling.dims, strict=True)):
        if n % k == 0:
            continue
        counts = np.zeros(tiling.num_devices, np.int32)
        tiles = np.unravel_index(tiling.tile_of_position(), tiling.dims)[d]
        counts[:] = np.clip(n - tiles * part.shape[d], 0, part.shape[d])
        table = array_type((counts.size,), np.dtype("int32"))
        every = e.let(f"stablehlo.constant {attribute_text(counts)}")
        one = array_type((1,), table.dtype)
        number = e.let("stablehlo.partition_id : tensor<ui32>")
        own = e.let(
            f"stablehlo.dynamic_slice {every}, {number}, sizes = [1] : "
            f"({tensor_text(table)}, tensor<ui32>) -> {tensor_text(one)}"
        )
        index, marks = part.update(dtype=table.dtype), part.update(dtype=np.dtype(bool))
        own = _spread(e, own, one, index)
        at = e.let(f"stablehlo.iota dim = {d} : {tensor_text(index)}")
        inside = e.let(
            f"stablehlo.compare LT, {at}, {own} : ({tensor_text(index)}, {tensor_text(index)}) -> "
            f"{tensor_text(marks)}"
        )
        zero = e.constant(np.zeros((), part.dtype), part)
        name = e.let(
            f"stablehlo.select {inside}, {name}, {zero} : {tensor_text(marks)}, {tensor_text(part)}"
        )
    return name


def _spread(e: Any, own: str, one: ArrayType, index: ArrayType) -> str:
    scalar = array_type((), one.dtype)
    own = e.let(f"stablehlo.reshape {own} : ({tensor_text(one)}) -> {tensor_text(scalar)}")
    return e.let(
        f"stablehlo.broadcast_in_dim {own}, dims = [] : ({tensor_text(scalar)}) -> "
        f"{tensor_text(index)}"
    )
