"""Modules as MLIR's bindings see them; above all Shardy's propagation, run on a module by itself,
to see how it shards the results.

At the boundary of a program Shardy drops mesh axes that do not divide a dimension; inside it keeps
them. What a result that need not divide is sharded like can be seen only there. MLIR's bindings are
imported when they are first needed: few programs need them.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from shardwise._src.base.interrupts import uninterrupted


class AxisPart(NamedTuple):
    """A part of a mesh axis, which Shardy writes as `"name":(before)size`."""

    name: str
    before: int
    size: int


# The mesh's symbol in the module, and the axes of each dimension; of a result, whole ones only.
ValueSharding = tuple[str, tuple[tuple[str | AxisPart, ...], ...]]
ResultSharding = tuple[str, tuple[tuple[str, ...], ...]]

ATTRIBUTES = "mhlo.frontend_attributes"
_MARKED = re.compile(r'loc\("([^"]*\\00@[^"]*)"')  # a location whose name has marks
_MARK = re.compile(r'\\00@[^/"]*/?')
_NOWHERE = re.compile(r'loc\((?:""|"-":\d+:\d+)\)')  # nothing left, or a line of the text itself

# An operation on each element that propagation knows nothing of; it is like any that it knows.
_ELEMENTWISE = re.compile(r"\bchlo\.\w+ (%\w+) : (tensor<[^<>]*>) -> \2(?![\w<])")

_lock = threading.RLock()  # the context is not to be used by two threads at once


@functools.cache
def _context() -> Any:
    """MLIR's context. Whoever asks for it is in a block without interrupts."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    for register in (
        sdy.register_dialect, mhlo.register_mhlo_dialect, chlo.register_dialect,
        stablehlo.register_dialect,
    ):
        register(context)
    return context


@contextmanager
def in_context() -> Generator[Any]:
    """MLIR's context with all dialects, for one thread at a time.

    Interrupts are raised at the end of the block: MLIR imports modules from C++, and calls visitors
    from there.
    """
    with uninterrupted():
        from jaxlib.mlir import ir

        with _lock, _context() as context, ir.Location.unknown():
            yield context


def propagated_results(text: str) -> list[ResultSharding | None]:
    """How the values that `main` returns are sharded after propagation.

    None: not known, or by a part of a mesh axis.
    """
    with in_context():
        from jaxlib.mlir import ir
        from jaxlib.mlir.passmanager import PassManager

        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(module.operation)
        main: Any = next(op for op in module.body.operations if _is_main(op))
        *_, last = main.regions[0].blocks[0].operations
        return [_by_whole_axes(_sharding_of(main, value)) for value in last.operands]


def _by_whole_axes(found: ValueSharding | None) -> ResultSharding | None:
    if found is None:
        return None
    dims = [tuple([a for a in axes if isinstance(a, str)]) for axes in found[1]]
    return (found[0], tuple(dims)) if tuple(dims) == found[1] else None


class Flow(NamedTuple):
    """What an instruction takes and gives, as propagation shards it: the axes of each dimension.

    None: not known.
    """

    operands: list[tuple[tuple[int, ...], ValueSharding | None]]
    results: list[tuple[tuple[int, ...], ValueSharding | None]]


def propagated_flows(text: str, prefix: str) -> dict[int, Flow]:
    """The flow of the instructions whose locations have names of this prefix and a number.

    Those of one number count as one instruction: it takes what it does not make itself, and gives
    what its last one gives.
    """
    text = _ELEMENTWISE.sub(r"stablehlo.negate \1 : \2", text)
    named = re.compile(rf'loc\("{re.escape(prefix)}(\d+)"')
    groups: dict[int, list[Any]] = {}

    def visit(op: Any) -> Any:
        found = named.match(str(op.location))
        if found is not None:
            groups.setdefault(int(found[1]), []).append(op)
        return ir.WalkResult.ADVANCE

    with in_context():
        from jaxlib.mlir import ir
        from jaxlib.mlir.passmanager import PassManager

        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(module.operation)
        module.operation.walk(visit)
        return {number: _flow(ops) for number, ops in groups.items()}


def _flow(ops: list[Any]) -> Flow:
    from jaxlib.mlir import ir

    def described(value: Any) -> tuple[tuple[int, ...], ValueSharding | None]:
        shape = tuple(ir.RankedTensorType(value.type).shape)
        return shape, _sharding_of(_holder(value), value)

    last = ops[-1]
    made = [result for op in ops for result in op.results]
    taken = [x for op in ops for x in op.operands if x not in made and not _inside(x, last)]
    unique = [x for i, x in enumerate(taken) if x not in taken[:i]]
    return Flow([described(x) for x in unique], [described(x) for x in ops[-1].results])


def _inside(value: Any, op: Any) -> bool:
    """Whether a value is one of the regions that an operation holds, as the state of a loop is."""
    from jaxlib.mlir import ir

    at = value.owner.owner if isinstance(value.owner, ir.Block) else value.owner.parent
    while at is not None and at != op:
        at = at.operation.parent
    return at is not None


def _holder(value: Any) -> Any:
    """The operation whose region a value is an argument of."""
    from jaxlib.mlir import ir

    return value.owner.owner if isinstance(value.owner, ir.Block) else None


def with_attributes(text: str, of_path: Callable[[str], dict[str, str]]) -> str:
    """A module with the attributes that marks in names of its locations say (`messages.source`).

    of_path: the attributes of a path with marks.
    """
    def visit(op: Any) -> Any:
        found = _MARKED.search(str(op.location))
        if found and not op.name.endswith((".constant", ".return", "func.func")):
            path = found[1].replace("\\00", "\0")
            texts = {key: ir.StringAttr.get(value) for key, value in of_path(path).items()}
            held = _attribute(op.attributes, ATTRIBUTES)
            texts |= {a.name: a.attr for a in ir.DictAttr(held)} if held is not None else {}
            if texts:
                op.attributes[ATTRIBUTES] = ir.DictAttr.get(texts)
        return ir.WalkResult.ADVANCE

    with in_context():
        from jaxlib.mlir import ir

        module = ir.Module.parse(text)
        module.operation.walk(visit)
        new = module.operation.get_asm(enable_debug_info=True)
    return _NOWHERE.sub("loc(unknown)", _MARK.sub("", new)).strip() + "\n"


def parsed(text: str) -> Any:
    """The module of a text, for what takes no texts."""
    with uninterrupted():
        from jaxlib.mlir import ir

        with _lock, _context():
            return ir.Module.parse(text)


def _is_main(op: Any) -> bool:
    return op.operation.name == "func.func" and op.attributes["sym_name"].value == "main"


def _sharding_of(holder: Any, value: Any) -> ValueSharding | None:
    """Of a value; `holder` is the operation of whose region it is an argument, if it is one."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import sdy

    if isinstance(value.owner, ir.Block):
        number = ir.BlockArgument(value).arg_number
        kind, held = holder.operation.name, holder.attributes
        if kind == "func.func":
            found = None
            if "arg_attrs" in held:
                found = _attribute(held["arg_attrs"][number], "sdy.sharding")
        elif kind == "stablehlo.while" and "sdy.sharding" in held:
            found = sdy.TensorShardingPerValueAttr(held["sdy.sharding"]).shardings[number]
        elif kind == "sdy.manual_computation":
            return _of_manual(sdy, held, number)
        else:
            found = None
    else:
        held = value.owner.attributes
        found = _attribute(held, "sharding")
        if "sdy.sharding" in held:
            each: Any = sdy.TensorShardingPerValueAttr(held["sdy.sharding"])
            found = each.shardings[ir.OpResult(value).result_number]
    return None if found is None else _read(sdy, found)


def _of_manual(sdy: Any, held: Any, number: int) -> ValueSharding | None:
    """Of an argument of a computation that is manual along some axes: by the others."""
    given = sdy.TensorShardingPerValueAttr(held["in_shardings"]).shardings[number]
    manual = {str(name) for name in sdy.ManualAxesAttr(held["manual_axes"])}
    symbol, dims = _read(sdy, given)
    return symbol, tuple([tuple([a for a in axes if a not in manual]) for axes in dims])


def _attribute(held: Any, name: str) -> Any:
    if name in held:  # MLIR's maps have no `get` in every jaxlib
        return held[name]
    return None


def _read(sdy: Any, attribute: Any) -> ValueSharding:
    sharding = sdy.TensorShardingAttr(attribute)
    dims = [
        tuple([_axis(sdy, axis) for axis in sdy.DimensionShardingAttr(part).axes])
        for part in sharding.dimension_shardings
    ]
    return str(sharding.mesh_or_ref).removeprefix("@").strip('"'), tuple(dims)


def _axis(sdy: Any, attribute: Any) -> str | AxisPart:
    axis = sdy.AxisRefAttr(attribute)
    if axis.sub_axis_info is None:
        return str(axis.name)
    part = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    return AxisPart(str(axis.name), part.pre_size, part.size)
