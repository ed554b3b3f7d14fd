"""Analyses of modules through MLIR's bindings; mainly Shardy's propagation, run on a module in
isolation, to see how it shards the results.

At the boundary of a program, Shardy drops mesh axes that do not divide a dimension; inside, it
keeps them. So the sharding of a result that may be uneven is visible only there. MLIR's bindings
are imported when they are first needed: few programs need them.
"""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from shardwise._src.base.interrupts import uninterrupted

if TYPE_CHECKING:
    from jaxlib.mlir import ir


class AxisPart(NamedTuple):
    """A part of a mesh axis, which Shardy writes as `"name":(before)size`."""

    name: str
    before: int
    size: int


# The mesh's symbol in the module, and the axes of each dimension; for a result, only full axes.
ValueSharding = tuple[str, tuple[tuple[str | AxisPart, ...], ...]]
ResultSharding = tuple[str, tuple[tuple[str, ...], ...]]

ATTRIBUTES = "mhlo.frontend_attributes"
_MARKED = re.compile(r'loc\("([^"]*\\00@[^"]*)"')  # a location name with marks
_MARK = re.compile(r'\\00@[^/"]*/?')
_NOWHERE = re.compile(r'loc\((?:""|"-":\d+:\d+)\)')  # empty, or a line of the text itself

_TENSOR = r"tensor<((?:\d+x)*)(?:[^<>]|<[^<>]*>)*>"
_CHLO = re.compile(
    rf"\bchlo\.\w+ (%[\w#]+(?:, %[\w#]+)*)[^:\n]* : ((?:{_TENSOR}, )*{_TENSOR}) -> ({_TENSOR})"
)
_COMPOSITE = re.compile(
    r'stablehlo\.composite "(?:[^"\\]|\\.)*" ?((?:%[\w#]+(?:, )?)*) ?\{composite_attributes = .*?, '
    r"decomposition = @([\w$.]+), version = \d+ : i32\}"
)
# For the search of what a value is made of: where it ends, and what moves elements.
_ENDS = {
    f"stablehlo.{name}"
    for name in ("dot_general", "convolution", "reduce", "reduce_window", "sort", "constant",
                 "iota", "fft", "rng_bit_generator", "optimization_barrier")
}  # fmt: skip
_MOVES = {
    f"stablehlo.{name}"
    for name in ("reshape", "concatenate", "slice", "pad", "gather", "scatter", "dynamic_slice",
                 "dynamic_update_slice", "custom_call")
}  # fmt: skip

_lock = threading.RLock()  # two threads must not use the context concurrently


@functools.cache
def upstream_dialects() -> ir.DialectRegistry:
    """The registry of MLIR's own dialects."""
    with uninterrupted():
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext

        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        return registry


def load_dialects(context: ir.Context) -> ir.Context:
    """Loads the dialects that programs use into a context, and returns it."""
    with uninterrupted():
        from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

    return _loaded(
        context,
        sdy.register_dialect,
        mhlo.register_mhlo_dialect,
        chlo.register_dialect,
        stablehlo.register_dialect,
    )


def kernel_context(register: Callable[[ir.Context], None]) -> ir.Context:
    """A context with MLIR's own dialects, and one for kernels that `register` adds."""
    with uninterrupted():
        from jaxlib.mlir import ir

        return _loaded(ir.Context(), register)


def _loaded(context: ir.Context, *registers: Callable[[ir.Context], None]) -> ir.Context:
    context.append_dialect_registry(upstream_dialects())
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    for register in registers:
        register(context)
    return context


@functools.cache
def _context() -> ir.Context:
    """MLIR's context. Callers must be in a block with deferred interrupts."""
    from jaxlib.mlir import ir

    return load_dialects(ir.Context())


@contextmanager
def in_context() -> Generator[ir.Context]:
    """MLIR's context with all dialects, for one thread at a time.

    Interrupts are raised at the end of the block, since MLIR imports modules and calls visitors
    from C++.
    """
    with uninterrupted():
        from jaxlib.mlir import ir

        with _lock, _context() as context, ir.Location.unknown():
            yield context


def propagated_results(text: str) -> list[ResultSharding | None]:
    """The shardings of the values that `main` returns, after propagation.

    None: unknown, or sharded by a part of a mesh axis.
    """
    with in_context():
        module = _propagated(text)
        main = next(op for op in module.body.operations if _is_main(op))
        *_, last = main.regions[0].blocks[0].operations
        return [_by_whole_axes(_sharding_of(main, value)) for value in last.operands]


def _propagated(text: str, before: str = "") -> ir.Module:
    """The parsed module after Shardy's propagation. before: other passes."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    module = ir.Module.parse(text)
    PassManager.parse(f"builtin.module({before}sdy-propagation-pipeline)").run(module.operation)
    return module


def _by_whole_axes(found: ValueSharding | None) -> ResultSharding | None:
    if found is None:
        return None
    dims = [tuple([a for a in axes if isinstance(a, str)]) for axes in found[1]]
    return (found[0], tuple(dims)) if tuple(dims) == found[1] else None


class Flow(NamedTuple):
    """The operands and results of an instruction, as sharded by propagation: the axes of each
    dimension.

    None: unknown.
    """

    operands: list[tuple[tuple[int, ...], ValueSharding | None]]
    results: list[tuple[tuple[int, ...], ValueSharding | None]]


def propagated_flows(text: str, prefix: str) -> dict[int, Flow]:
    """The flow of the instructions whose location names are this prefix and a number.

    Operations with the same number count as one instruction: its operands are those that it does
    not produce itself, and its results are those of its last operation.
    """
    text = _CHLO.sub(_of_same_shape, text)
    named = re.compile(rf'loc\("{re.escape(prefix)}(\d+)"')
    groups: dict[int, list[ir.Operation]] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        found = named.match(str(op.location))
        if found is not None:
            groups.setdefault(int(found[1]), []).append(op)
        return ir.WalkResult.ADVANCE

    with in_context():
        from jaxlib.mlir import ir

        module = _propagated(text)  # owns the operations
        module.operation.walk(visit)
        return {number: _flow(ops) for number, ops in groups.items()}


Reads = Sequence[tuple[int, Sequence[int] | None]]  # the number of an operand, dimensions or all


def sharded_operands(text: str, prefix: str, reads: Mapping[int, Reads]) -> set[int]:
    """The numbers of the instructions of which one of these operands may be sharded along one of
    these dimensions after propagation, at a place where it is called.

    Their location names are the prefix and the number. An operand may also be sharded if it is made
    by moving elements of a sharded value: XLA may simplify these movements before it propagates.
    """
    text = _COMPOSITE.sub(r"func.call @\2(\1)", _CHLO.sub(_of_same_shape, text))
    text = _over_one_mesh(text)
    named = re.compile(rf'"{re.escape(prefix)}(\d+)"')
    sharded: set[int] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        found = named.search(str(op.location))
        if found is not None and any(_may_be_sharded(op, *r) for r in reads[int(found[1])]):
            sharded.add(int(found[1]))
        return ir.WalkResult.ADVANCE

    with in_context():
        from jaxlib.mlir import ir

        module = _propagated(text, "inline,")
        module.operation.walk(visit)
    return sharded


def _over_one_mesh(text: str) -> str:
    """Constraints that name no axis, over a mesh of the program: Shardy does not propagate between
    meshes, which XLA merges first."""
    symbols = re.findall(r"sdy\.mesh @(\w+) = <\[", text)
    if len(symbols) < 2:
        return text
    return re.sub(r"<@\w+, (\[(?:\{\??\}(?:, )?)*\])>", rf"<@{symbols[1]}, \1>", text)


def _may_be_sharded(op: ir.Operation, number: int, dims: Sequence[int] | None) -> bool:
    from jaxlib.mlir import ir

    value = op.operands[number]
    axes = _axes_of(value)
    if any(used and (dims is None or d in dims) for d, used in enumerate(axes)):
        return True
    seen: set[int] = set()
    open_ = [value]
    while open_:
        value = open_.pop()
        if isinstance(value.owner, ir.Block):
            is_state = value.owner.owner.operation.name != "func.func"
            if is_state and any(_axes_of(value)):
                return True
            continue
        made = value.owner
        name = made.operation.name
        if name in _ENDS or hash(made) in seen:
            continue
        seen.add(hash(made))
        if len(made.regions) or (name in _MOVES and not _keeps_shards(made)):
            if any(any(_axes_of(x)) for x in (*made.operands, *made.results)):
                return True
            continue
        open_ += made.operands
    return False


def _keeps_shards(op: ir.OpView) -> bool:
    """Whether an operation that moves elements keeps each sharded dimension of its operands."""
    if op.operation.name.endswith(("gather", "scatter", "custom_call")):
        return False
    after = _shape(op.results[0])
    ends = {(math.prod(after[:d]), n) for d, n in enumerate(after)}
    is_reshape = op.operation.name == "stablehlo.reshape"
    for x in op.operands:
        shape = _shape(x)
        for d, axes in enumerate(_axes_of(x)):
            if axes and not (
                (math.prod(shape[:d]), shape[d]) in ends if is_reshape else shape[d] == after[d]
            ):
                return False
    return True


def _shape(value: ir.Value) -> tuple[int, ...]:
    from jaxlib.mlir import ir

    return tuple(ir.RankedTensorType(value.type).shape)


def _axes_of(value: ir.Value) -> tuple[tuple[str | AxisPart, ...], ...]:
    """The mesh axes of each dimension; empty if it is not sharded."""
    from jaxlib.mlir import ir

    holder = value.owner.owner if isinstance(value.owner, ir.Block) else None
    found = _sharding_of(holder, value)
    return () if found is None else found[1]


def _of_same_shape(found: re.Match[str]) -> str:
    """An operation that propagation supports, in place of an elementwise one that it does not."""
    result = re.match(_TENSOR, found[5])
    operands = zip(found[1].split(", "), re.finditer(_TENSOR, found[2]), strict=False)
    for name, t in operands:
        if result is not None and t[1] == result[1]:
            return f"stablehlo.convert {name} : ({t[0]}) -> {found[5]}"
    return found[0]


def _flow(ops: list[ir.Operation]) -> Flow:
    from jaxlib.mlir import ir

    def described(value: ir.Value) -> tuple[tuple[int, ...], ValueSharding | None]:
        shape = tuple(ir.RankedTensorType(value.type).shape)
        holder = value.owner.owner if isinstance(value.owner, ir.Block) else None
        return shape, _sharding_of(holder, value)

    last = ops[-1]
    made = [result for op in ops for result in op.results]
    taken = [x for op in ops for x in op.operands if x not in made and not _inside(x, last)]
    unique = [x for i, x in enumerate(taken) if x not in taken[:i]]
    return Flow([described(x) for x in unique], [described(x) for x in last.results])


def _inside(value: ir.Value, op: ir.Operation) -> bool:
    """Whether a value is defined in a region of an operation, such as the state of a loop."""
    from jaxlib.mlir import ir

    at = value.owner.owner if isinstance(value.owner, ir.Block) else value.owner.parent
    while at is not None and at != op:
        at = at.operation.parent
    return at is not None


def with_attributes(text: str, of_path: Callable[[str], dict[str, str]]) -> str:
    """A module with the attributes specified by marks in its location names (`messages.source`).

    of_path: returns the attributes of a path with marks.
    """

    def visit(op: ir.Operation) -> ir.WalkResult:
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


def parsed(text: str) -> ir.Module:
    """The parsed module of a text, for APIs that do not accept text.

    It has a separate MLIR context, since these APIs do not lock: XLA's passes over two modules of
    one context, in two threads, crash.
    """
    with uninterrupted():
        from jaxlib.mlir import ir

        with _lock, load_dialects(ir.Context()):
            return ir.Module.parse(text)


def _is_main(op: ir.OpView) -> bool:
    from jaxlib.mlir import ir

    name = op.attributes["sym_name"] if op.operation.name == "func.func" else None
    return name is not None and ir.StringAttr(name).value == "main"


def _sharding_of(holder: ir.OpView | None, value: ir.Value) -> ValueSharding | None:
    """The sharding of a value; `holder` is the operation whose region has it as an argument, if
    any."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import sdy

    if isinstance(value.owner, ir.Block):
        assert holder is not None
        number = ir.BlockArgument(value).arg_number
        kind, held = holder.operation.name, holder.attributes
        if kind == "func.func":
            found = None
            if "arg_attrs" in held:
                own = ir.DictAttr(ir.ArrayAttr(held["arg_attrs"])[number])
                found = _attribute(own, "sdy.sharding")
        elif kind == "stablehlo.while" and "sdy.sharding" in held:
            found = sdy.TensorShardingPerValueAttr(held["sdy.sharding"]).shardings[number]
        elif kind == "sdy.manual_computation":
            return _of_manual(held, number)
        else:
            found = None
    else:
        held = value.owner.attributes
        found = _attribute(held, "sharding")
        if "sdy.sharding" in held:
            each = sdy.TensorShardingPerValueAttr(held["sdy.sharding"])
            found = each.shardings[ir.OpResult(value).result_number]
    return None if found is None else _read(found)


def _of_manual(held: ir.OpAttributeMap, number: int) -> ValueSharding | None:
    """The sharding of an argument of a manual computation, along the axes that are not manual."""
    from jaxlib.mlir.dialects import sdy

    given = sdy.TensorShardingPerValueAttr(held["in_shardings"]).shardings[number]
    manual = {str(name) for name in sdy.ManualAxesAttr(held["manual_axes"])}
    symbol, dims = _read(given)
    return symbol, tuple([tuple([a for a in axes if a not in manual]) for axes in dims])


def _attribute(held: ir.OpAttributeMap | ir.DictAttr, name: str) -> ir.Attribute | None:
    if name in held:  # MLIR's maps have no `get` in every jaxlib
        return held[name]
    return None


def _read(attribute: ir.Attribute) -> ValueSharding:
    from jaxlib.mlir.dialects import sdy

    sharding = sdy.TensorShardingAttr(attribute)
    dims = [
        tuple([_axis(axis) for axis in sdy.DimensionShardingAttr(part).axes])
        for part in sharding.dimension_shardings
    ]
    return str(sharding.mesh_or_ref).removeprefix("@").strip('"'), tuple(dims)


def _axis(attribute: ir.Attribute) -> str | AxisPart:
    from jaxlib.mlir.dialects import sdy

    axis = sdy.AxisRefAttr(attribute)
    if axis.sub_axis_info is None:
        return str(axis.name)
    part = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    return AxisPart(str(axis.name), part.pre_size, part.size)


def as_mhlo(text: str) -> ir.Module:
    """A module in StableHLO, translated to XLA's former dialect."""
    module = parsed(text)
    with uninterrupted():
        from jaxlib.mlir import passmanager
        from jaxlib.mlir._mlir_libs import _mlirHlo

        with _lock, module.context as context:
            _mlirHlo.register_mhlo_dialect(context)
            _mlirHlo.register_mhlo_passes()
            passes = passmanager.PassManager.parse("builtin.module(stablehlo-legalize-to-hlo)")
            passes.run(module.operation)
            return module
