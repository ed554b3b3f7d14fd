"""Lowering rules that build operations with MLIR's Python bindings, like JAX's rules.

    def rule(ctx, x, *, by):
        return [hlo.multiply(x, mlir.ir_constant(np.float32(by)))]      # jaxlib's stablehlo as hlo

    mlir.register_lowering(scale, rule)

The library writes programs as text. A rule builds a function in a separate module; the operations
of its body then replace the primitive in the text, and functions that the rule adds to the module
are added to the program. Such a rule may call the result of `lower_fun`: the module contains a
call of a declared function, whose body is written when the text is generated.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.effects.callback import Callback, HostFunction
from shardwise._src.extend.jaxpr import AbstractToken
from shardwise._src.lowering.emitter import MAX_DENSE
from shardwise._src.lowering.text import attribute_text, element_text, tensor_text
from shardwise._src.messages.formatting import join
from shardwise._src.runtime.compiler import mlir_bindings
from shardwise._src.runtime.compiler.mlir_bindings import ir
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.array_type import ArrayType, array_type

LoweringRule = Callable[..., Any]


@dataclasses.dataclass
class ModuleContext:
    """The context of the module in which a rule builds.

    context, module, ip, symbol_table: MLIR objects; platforms: the target platforms.
    """

    context: ir.Context
    module: ir.Module
    ip: ir.InsertionPoint
    symbol_table: ir.SymbolTable
    platforms: Sequence[str]
    keepalives: list[Any] = dataclasses.field(default_factory=list)
    cached_primitive_lowerings: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def add_keepalive(self, keepalive: Any) -> None:
        """Not needed: programs retain the functions that they call."""
        self.keepalives.append(keepalive)


@public("shardwise.interpreters.mlir")
class TokenSet:
    """A token for each of some effects, immutable."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Mapping[Any, Any] | None = None):
        self._tokens = dict(tokens or {})

    @classmethod
    def create(cls, effects: Sequence[Any]) -> TokenSet:
        """A new token for each effect, in a rule that builds operations."""
        return cls({e: mlir_bindings.create_token() for e in effects})

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"TokenSet({self._tokens})"

    def get(self, effect: Any) -> Any:
        """The token of an effect. Raises KeyError if it has none."""
        return self._tokens[effect]

    def items(self) -> tuple[tuple[Any, Any], ...]:
        """Pairs of effects and tokens, in order."""
        return tuple(self._tokens.items())

    def effects(self) -> set[Any]:
        """The effects."""
        return {*self._tokens}

    def subset(self, effects: Sequence[Any]) -> TokenSet:
        """The tokens of some of the effects."""
        return TokenSet({e: self._tokens[e] for e in effects})

    def update_tokens(self, tokens: TokenSet) -> TokenSet:
        """The set with other tokens for some of its effects, in the same order."""
        if not len(tokens):
            return self
        return TokenSet({e: tokens._tokens.get(e, token) for e, token in self.items()})


@dataclasses.dataclass
class LoweringRuleContext:
    """The context passed to a lowering rule.

    module_context; primitive; avals_in, avals_out: its types; platforms: the targets; emitter:
    writes text in place of a call (`lowering.emitter`).
    """

    module_context: ModuleContext
    primitive: Any
    avals_in: Sequence[ArrayType]
    avals_out: Sequence[ArrayType]
    emitter: Any
    platforms: Sequence[str]
    name_stack: Any = None
    tokens_in: TokenSet = dataclasses.field(default_factory=TokenSet)
    tokens_out: TokenSet | None = None

    def set_tokens_out(self, tokens_out: TokenSet) -> None:
        """States the tokens after the operations. There are none: effects are not ordered."""
        self.tokens_out = tokens_out

    def replace(self, **changes: Any) -> LoweringRuleContext:
        """A copy of the context with some fields changed."""
        return dataclasses.replace(self, **changes)

    def is_forward_compat(self) -> bool:
        """Whether to avoid operations of the newest release: never."""
        return False


class _Apart:
    """The emitter for a rule that builds: it declares functions and writes their bodies later.

    writers: by symbol, `(names of operands) → names of results`.
    """

    def __init__(self, emitter: Any, function: Any):
        self._emitter, self._function = emitter, function
        self.writers: dict[str, Callable[[Sequence[str]], Sequence[str]]] = {}
        self.devices, self.platform = emitter.devices, emitter.platform
        self._numbers = itertools.count()

    def later(
        self,
        write: Callable[[Sequence[str]], Sequence[str]],
        operands: Sequence[Any],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
    ) -> list[Any]:
        """The results, as values, of text that is written later."""
        symbol = f"shardwise.later.{next(self._numbers)}"
        texts = [[tensor_text(t) for t in side] for side in (ins, outs)]
        self._function.declare(symbol, *texts)
        self.writers[symbol] = write
        return list(mlir_bindings.call(symbol, [ir.Type.parse(t) for t in texts[1]], operands))

    def inline(self, program: Program, *operands: Any) -> list[Any]:
        """`Emitter.inline` for a stored program."""
        ins, outs = program.in_types, program.out_types
        return self.later(lambda names: self._emitter.inline(program, *names), operands, ins, outs)

    def custom_call(
        self,
        target: str,
        operands: Sequence[Any],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        **how: Any,
    ) -> list[Any]:
        """`Emitter.custom_call`."""

        def write(names: Sequence[str]) -> Any:
            return self._emitter.custom_call(target, names, ins, outs, **how)

        return self.later(write, operands, ins, outs)

    def host_call(self, function: HostFunction, operands: Sequence[Any], *how: Any) -> list[Any]:
        """`Emitter.host_call` of a function that the program does not name."""
        ins, outs, pure = how
        numbers = self._emitter.host_numbers
        numbers.setdefault(function, len(numbers))

        def write(names: Sequence[str]) -> Any:
            return self._emitter.host_call(function, ins, outs, names, pure)

        return self.later(write, operands, ins, outs)


def lowered(
    op: Op,
    rule: LoweringRule,
    e: Any,
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    names: Sequence[str],
    params: dict[str, Any],
) -> list[str]:
    """Writes the operations that a rule builds; returns the names of its results."""
    given, gives = ([tensor_text(t) for t in side] for side in (ins, outs))
    apart: list[_Apart] = []

    def build(function: Any) -> Any:
        apart.append(_Apart(e, function))
        platforms = (e.platform.name,)
        module = ModuleContext(
            function.module.context, function.module, function.ip, function.symbols, platforms
        )
        ctx = LoweringRuleContext(module, op.foreign, ins, outs, apart[0], platforms)
        return rule(ctx, *function.arguments, **params)

    with mlir_bindings.in_context():
        try:
            function = mlir_bindings.Function(given, gives, build)
        except TypeError as error:
            raise TypeError(f"the lowering rule of {op.name}: {error}") from error
        except ir.MLIRError as error:
            raise ValueError(
                f"the lowering rule of {op.name} builds an invalid program: {error}"
            ) from None
        function.rename(lambda name: e.symbol(name))
        e.functions.extend(function.beside())

        def called(symbol: str, operands: list[str]) -> Sequence[str] | None:
            write = apart[0].writers.get(symbol)
            return None if write is None else write(operands)

        return function.write(names, e.fresh, e.lines.append, called)


# ---------------------------------------------------------------- helpers for writing rules


def emit_python_callback(
    ctx: LoweringRuleContext,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[ir.Value],
    operand_avals: Sequence[ArrayType],
    result_avals: Sequence[ArrayType],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[Sequence[ir.Value], None, Any]:
    """Calls a host function.

    Args:
      ctx: the context of the rule.
      callback: takes arrays, and returns a sequence of arrays.
      operands, operand_avals, result_avals: the operands, and the types of operands and results.
      has_side_effect: whether it is called even if its results are unused by the program.
      partitioned: whether each device makes a call with its shards; without results.
      token, sharding: must be None: calls are not ordered, and the first device makes them.
      returns_token: has no effect, as there are no tokens.

    Returns:
      The results; None in place of a token; the function, which programs retain themselves.
    """
    if token is not None or sharding is not None:
        raise NotImplementedError(
            f"the lowering rule of {ctx.primitive}: emit_python_callback has neither tokens nor "
            "shardings; pass None. Ordered calls, and calls by another device, are those of "
            "`shardwise.experimental.io_callback`, which a rule of `lower_fun` may use."
        )
    if partitioned and result_avals:
        raise ValueError(
            f"the lowering rule of {ctx.primitive}: emit_python_callback with partitioned=True "
            f"must have no results; got {join(map(str, result_avals))}."
        )
    trees = flatten((tuple(operands), {}))[1], flatten(tuple(result_avals))[1]
    held = Callback(callback, "emit_python_callback", trees[0], {}, trees[1], local=partitioned)
    function = HostFunction(held, tuple(result_avals), False)
    how = operand_avals, result_avals, not has_side_effect
    return ctx.emitter.host_call(function, operands, *how), None, function


def dtype_to_ir_type(dtype: Any) -> ir.Type:
    """The MLIR element type of a dtype."""
    return ir.Type.parse(element_text(np.dtype(dtype)))


def aval_to_ir_type(ctx: Any, aval: Any = None) -> ir.Type:
    """The MLIR type of values of an array type, `tensor<…>`.

    ctx: an unneeded `ModuleContext`: the array type may be the only argument.
    """
    found = ctx if aval is None else aval
    if isinstance(found, AbstractToken):
        return token_type()
    return ir.Type.parse(tensor_text(array_type(tuple(found.shape), found.dtype)))


def aval_to_ir_types(ctx: Any, aval: Any = None) -> tuple[ir.Type, ...]:
    """The MLIR types of the values that represent a value of this type: always one."""
    return (aval_to_ir_type(ctx, aval),)


def token_type() -> ir.Type:
    """The MLIR type of tokens."""
    return ir.Type.parse("!stablehlo.token")


def ir_attribute(val: Any) -> ir.Attribute:
    """A number, string or NumPy array, or a pytree of these, as an attribute.

    Raises:
      TypeError: for anything else.
    """
    if isinstance(val, ir.Attribute):
        return val
    try:
        return ir.Attribute.parse(attribute_text(val))
    except TypeError as error:
        raise TypeError(f"ir_attribute: the value {error}") from None


def ir_constant(val: Any, *, const_lowering: Any = None, aval: Any = None) -> ir.Value:
    """A number or array as an MLIR value.

    aval: its type, if not that of `val`; const_lowering: unused.
    """
    dtype = (type_of(val) if aval is None else aval).dtype
    value = np.asarray(val).astype(dtype)
    small = element_text(dtype).lstrip("uif")[:1] in "24" and value.dtype.itemsize == 1
    if (value.size > MAX_DENSE and not small) or value.dtype.kind == "c":
        return mlir_bindings.constant(mlir_bindings.dense_elements(value, dtype_to_ir_type(dtype)))
    return mlir_bindings.constant(ir.Attribute.parse(attribute_text(value)))


def ir_constants(val: Any, *, const_lowering: Any = None, aval: Any = None) -> tuple[ir.Value, ...]:
    """The MLIR values that represent a constant: always one."""
    return (ir_constant(val, aval=aval),)


def shape_tensor(ctx: Any, sizes: Sequence[Any]) -> ir.Value:
    """Sizes, each a number or a value, as one value of type i32[n]."""
    parts = [x if isinstance(x, ir.Value) else ir_constant(np.array([x], np.int32)) for x in sizes]
    if not parts:
        return ir_constant(np.zeros(0, np.int32))
    return parts[0] if len(parts) == 1 else mlir_bindings.concatenated(parts, 0)


def flatten_ir_values(xs: Sequence[Any]) -> list[ir.Value]:
    """Flattens a sequence of values and sequences of values."""
    return list(_leaves(xs))


def flatten_ir_types(xs: Sequence[Any]) -> list[ir.Type]:
    """Flattens a sequence of types and sequences of types."""
    return list(_leaves(xs))


def _leaves(xs: Any) -> Iterator[Any]:
    for x in xs:
        if isinstance(x, tuple | list):
            yield from _leaves(x)
        else:
            yield x


def module_to_string(module: ir.Module, enable_debug_info: bool | None = None) -> str:
    """The text of a module. enable_debug_info: whether to print source locations; yes if None."""
    return module.operation.get_asm(enable_debug_info=enable_debug_info is not False)
