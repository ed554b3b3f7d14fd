"""MLIR's Python bindings, for users' lowering rules that build operations with them.

Everything here needs a current context, as set by `shardy.in_context`. Imported when such a rule is
registered, or uses one of these names.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from shardwise._src.runtime.compiler import shardy
from shardwise._src.runtime.compiler.shardy import in_context

upstream_dialects = shardy.upstream_dialects()
Value = ir.Value
_NAME = re.compile(r'"(?:[^"\\\\]|\\\\.)*"|%[\w$.-]+(?:#\d+)?')  # a value name, or a string


class JaxIrContext(ir.Context):
    """An MLIR context without dialects, until some are loaded."""

    def __init__(self, *args: Any, **kwargs: Any):
        super(ir.Context, self).__init__(*args, **kwargs)


def make_ir_context() -> ir.Context:
    """A context with the dialects used by programs."""
    return shardy.load_dialects(JaxIrContext())


# ------------------------------------------------------------------------------- attributes


def i32_attr(i: int) -> ir.IntegerAttr:
    """An attribute of type i32."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), i)


def i64_attr(i: int) -> ir.IntegerAttr:
    """An attribute of type i64."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), i)


def dense_int_elements(xs: Sequence[int]) -> ir.DenseIntElementsAttr:
    """`dense<[…]> : tensor<nxi64>`"""
    return ir.DenseIntElementsAttr.get(np.asarray(xs, np.int64))


def dense_int_array(xs: Sequence[int]) -> ir.DenseI64ArrayAttr:
    """`array<i64: …>`"""
    return ir.DenseI64ArrayAttr.get(xs)


def dense_elements(value: np.ndarray, element: ir.Type) -> ir.DenseElementsAttr:
    """An array as a bit-exact attribute. Elements must be booleans or of a byte or more."""
    shape, value = value.shape, np.ascontiguousarray(value)
    if value.dtype.kind == "V":  # dtypes that NumPy itself does not support
        value = value.view(f"u{value.dtype.itemsize}")
    return ir.DenseElementsAttr.get(value, type=element, shape=shape)


def custom_call(
    call_target_name: str,
    *,
    result_types: Sequence[ir.Type],
    operands: Sequence[ir.Value],
    backend_config: str | bytes | dict[str, ir.Attribute] | None = "",
    has_side_effect: bool = False,
    result_shapes: Sequence[ir.Value] | None = None,
    called_computations: Sequence[str] = (),
    api_version: int = 2,
    operand_output_aliases: Mapping[int, int] | None = None,
    operand_layouts: Sequence[Sequence[int]] | None = None,
    result_layouts: Sequence[Sequence[int]] | None = None,
    extra_attributes: Mapping[str, ir.Attribute] | None = None,
) -> ir.OpView:
    """Builds a custom call of a function registered with XLA.

    Args:
      call_target_name: the registered name.
      result_types, operands: those of the call.
      backend_config: a string, or attributes by name; a dictionary is for XLA's typed
        interface, and `api_version` has no effect then.
      has_side_effect: whether it is called even if its results are unused.
      result_shapes: the shape of each result as a value, if they are dynamic.
      called_computations: symbols of functions of the module.
      operand_output_aliases: for each aliased operand index, the result that reuses its memory.
      operand_layouts, result_layouts: for each, its dimensions in minor-to-major order.
      extra_attributes: attributes of the operation, by name.
    """
    given, shapes = list(operands), list(result_shapes or ())
    held: dict[str, ir.Attribute] = {}
    if isinstance(backend_config, dict):
        held["mhlo.backend_config"] = ir.DictAttr.get(backend_config)
        backend_config, api_version = "", 1
    if shapes:
        at = np.arange(len(given), len(given) + len(shapes), dtype=np.int64)
        held["indices_of_shape_operands"] = ir.DenseIntElementsAttr.get(at)
        if operand_layouts is not None:
            operand_layouts = [*operand_layouts, *[(0,)] * len(shapes)]
    if operand_output_aliases is not None:
        held["output_operand_aliases"] = ir.ArrayAttr.get([
            stablehlo.OutputOperandAlias.get([out] if len(result_types) > 1 else [], i, [])
            for i, out in operand_output_aliases.items()
        ])  # fmt: skip
    for name, layouts in (("operand_layouts", operand_layouts), ("result_layouts", result_layouts)):
        if layouts is not None:
            held[name] = ir.ArrayAttr.get([
                ir.DenseIntElementsAttr.get(
                    np.atleast_1d(np.asarray(row, np.int64)), type=ir.IndexType.get()
                ) for row in layouts
            ])  # fmt: skip
    return stablehlo.CustomCallOp.build_generic(
        results=result_types, operands=[*given, *shapes], attributes={
            "call_target_name": ir.StringAttr.get(call_target_name),
            "has_side_effect": ir.BoolAttr.get(has_side_effect),
            "backend_config": ir.StringAttr.get(backend_config or ""),
            "api_version": i32_attr(api_version),
            "called_computations": ir.ArrayAttr.get(
                [ir.FlatSymbolRefAttr.get(name) for name in called_computations]
            ), **held, **(extra_attributes or {}),
        },
    )  # fmt: skip


def constant(value: ir.Attribute) -> ir.Value:
    """A constant value from an elements attribute."""
    return stablehlo.ConstantOp(value).result


def create_token() -> ir.Value:
    """A new token."""
    return stablehlo.CreateTokenOp().result


def concatenated(values: Sequence[ir.Value], dimension: int) -> ir.Value:
    """Concatenates values along a dimension."""
    return stablehlo.concatenate(values, dimension)


def call(
    symbol: str, result_types: Sequence[ir.Type], operands: Sequence[ir.Value]
) -> ir.OpResultList:
    """Calls a function of the module; returns its results."""
    return func.CallOp(result_types, ir.FlatSymbolRefAttr.get(symbol), list(operands)).results


# ---------------------------------------------------------------------------------- functions


class Function:
    """A function that is built in a separate module, to be printed as text.

    build: `(function)` → its results, as values or sequences of them; `function.arguments` are its
      arguments. It may add other functions to the module.
    """

    def __init__(self, ins: Sequence[str], outs: Sequence[str], build: Callable[[Any], Any]):
        self.module = ir.Module.create()
        self.ip = ir.InsertionPoint(self.module.body)
        self.symbols = ir.SymbolTable(self.module.operation)
        types = [[ir.Type.parse(t) for t in side] for side in (ins, outs)]
        with self.ip:
            self._main = func.FuncOp("main", ir.FunctionType.get(*types))
        block = self._main.add_entry_block()
        self.arguments = list(block.arguments)
        with ir.InsertionPoint(block):
            results = _flat(build(self))
            found = [str(r.type) for r in results]
            wanted = [str(t) for t in types[1]]
            if found != wanted:
                raise TypeError(
                    f"it returned values of types {', '.join(found) or 'none'}, but its type "
                    f"rule expects {', '.join(wanted) or 'none'}."
                )
            func.ReturnOp(results)
        self.module.operation.verify()

    def declare(self, symbol: str, ins: Sequence[str], outs: Sequence[str]) -> None:
        """Declares an external function."""
        types = [[ir.Type.parse(t) for t in side] for side in (ins, outs)]
        with self.ip:
            declared = func.FuncOp(symbol, ir.FunctionType.get(*types), visibility="private")
        self.symbols.insert(declared)

    def rename(self, fresh: Callable[[str], str]) -> None:
        """Renames the other functions of the module."""
        for op in self.module.body.operations:
            if op.operation != self._main.operation and not self._is_declared(op):
                name = ir.StringAttr(op.operation.attributes["sym_name"]).value
                new = fresh(name)
                if new != name:
                    ir.SymbolTable.replace_all_symbol_uses(name, new, self.module.operation)
                    ir.SymbolTable.set_symbol_name(op, new)

    def beside(self) -> list[str]:
        """The texts of the other functions of the module."""
        return [
            op.operation.get_asm(use_local_scope=True)
            for op in self.module.body.operations
            if op.operation != self._main.operation and not self._is_declared(op)
        ]

    def _is_declared(self, op: ir.OpView) -> bool:
        return isinstance(op, func.FuncOp) and op.is_external

    def write(
        self,
        arguments: Sequence[str],
        fresh: Callable[[], str],
        line: Callable[[str], None],
        called: Callable[[str, list[str]], Sequence[str] | None],
    ) -> list[str]:
        """Passes the text of each operation of the body to `line`; returns the result names.

        arguments: their names in the text; fresh: returns a new name for a value.
        called: `(symbol, operands)` of a call → the names of its results, if it prints that itself.
        """
        state = ir.AsmState(self._main.operation, use_local_scope=True)
        pairs = zip(self.arguments, arguments, strict=True)
        names = {value.get_name(state): name for value, name in pairs}

        def renamed(found: re.Match[str]) -> str:
            text = found[0]
            if text[0] == '"' or text in names:
                return names.get(text, text)
            base, mark, number = text.partition("#")
            if base not in names:
                names[base] = fresh()
            return names[base] + mark + number

        def name_of(value: ir.Value) -> str:
            return _NAME.sub(renamed, value.get_name(state))

        for op in self._main.regions[0].blocks[0].operations:
            if isinstance(op, func.ReturnOp):
                return [name_of(v) for v in op.operands]
            if isinstance(op, func.CallOp):
                symbol = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                results = called(symbol, [name_of(v) for v in op.operands])
                if results is not None:
                    own = [v.get_name(state) for v in op.results]
                    names.update(zip(own, results, strict=True))
                    continue
            text = io.StringIO()
            op.operation.print(state=state, file=text)
            line(_NAME.sub(renamed, text.getvalue()))
        raise AssertionError("a function without an end")


def _flat(values: Any) -> list[ir.Value]:
    if isinstance(values, ir.Value):
        return [values]
    if isinstance(values, ir.OpView | ir.Operation):
        return list(values.results)
    return [v for part in values for v in _flat(part)]


__all__ = ["in_context", "ir"]
