"""`Primitive`: a user-defined operation, which becomes an `Op` like those of the library.

    scale = Primitive("scale")
    scale.def_impl(lambda x, *, by: x * by)
    scale.def_abstract_eval(lambda x, *, by: x)
    mlir.register_lowering(scale, mlir.lower_fun(lambda x, *, by: x * by, multiple_results=False))
    ad.deflinear2(scale, lambda ct, x, *, by: [scale.bind(ct, by=by)])
    batching.defvectorized(scale)

Its rules are functions with JAX's signatures, stored in tables (`rule_tables.py`); the op's record
has functions that look them up when needed, and report which rule is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from shardwise._src.base.caches import cached
from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.core.program import Equation, Program
from shardwise._src.extend import rule_tables
from shardwise._src.extend.primitive_effects import lowerable_effects
from shardwise._src.extend.rule_tables import AxisData, FromFunction, Zero
from shardwise._src.ffi.call_description import ForeignRule, LoweringContext
from shardwise._src.messages.formatting import join
from shardwise._src.ops.sharded.sharding_ops import cotangent_type
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import canonicalize


class Primitive:
    """A named operation, with rules that are set one by one.

    multiple_results: set this to True before the first use if the operation has a list of results.
    """

    multiple_results = False
    call_primitive = map_primitive = False

    def __init__(self, name: str):
        self.name = name
        self.impl: Callable[..., Any] | None = None
        self.abstract_eval: Callable[..., Any] | None = None
        self._op: Op | None = None
        self._effects_of: Callable[..., frozenset[Any]] | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def op(self) -> Op:
        """The op that interpreters get."""
        if self._op is None or self._op.multiple != self.multiple_results:
            self._op = Op(
                self.name, type_rule=_types, lower=_lower, jvp=_jvp, transpose=_transpose,
                batch=_batch, expand=_expand, prune=_prune, eager=_eager,
                multiple=self.multiple_results, user_code=True, elements=Elements.KNOWN,
                is_expensive=True, needs_fusion=True, foreign=self,
            )  # fmt: skip
        return self._op

    @property
    def has_lowering(self) -> bool:
        """Whether it can be compiled, for some platform."""
        return rule_tables.has_lowering(self)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Applies it to values: the current interpreter gets the op."""
        op = self.op
        if self._effects_of is not None:
            found = self._effects_of(*map(type_of, args), **params)
            op = _with_effects(op, found) if found else op
        return op(*args, **params)

    def bind_with_trace(self, trace: Any, args: Any, avals: Any, params: dict[str, Any]) -> Any:
        """Like `bind`, with another current interpreter."""
        return self.op.bind_with_trace(trace, args, avals, params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of `bind`: the parameters of an equation."""
        return params

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the function that runs it outside of every transform: `impl(*arrays, **params)`."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the type rule: `abstract_eval(*types, **params)` returns the type of the result, or
        a sequence of types, as any object with a shape and a dtype."""
        self.abstract_eval, self._effects_of = abstract_eval, None
        return abstract_eval

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Like `def_abstract_eval`, for a rule that returns types and (possibly no) effects.

        A program with effects is compiled if `shardwise.interpreters.mlir.lowerable_effects`
        contains their classes. They may not occur in loops, branches, and functions with custom
        derivatives.
        """
        self.abstract_eval = lambda *types, **params: rule(*types, **params)[0]
        self._effects_of = lambda *types, **params: frozenset(rule(*types, **params)[1])
        return rule

    def def_bind_with_trace(self, bind: Callable[..., Any]) -> NoReturn:
        raise NotImplementedError(
            f"{self.name}: how an op is bound cannot be changed; an interpreter's `process` gets "
            "every op (`shardwise.core.Trace`)."
        )


# The rules of the op. They look up the user's rules in the tables.


def _missing(op: Op, what: str, how: str) -> NotImplementedError:
    return NotImplementedError(f"{op.name}: this primitive has no {what}. Define it with {how}.")


def _listed(op: Op, result: Any) -> list[Any]:
    return list(result) if op.multiple else [result]


def _types(op: Op, *types: ArrayType, **params: Any) -> Any:
    rule = op.foreign.abstract_eval
    if rule is None:
        raise _missing(op, "abstract evaluation rule", f"`{op.name}.def_abstract_eval(rule)`")
    found = [_as_type(op, t) for t in _listed(op, rule(*types, **params))]
    varying = frozenset().union(*[t.varying for t in types])
    found = [t.vary(varying) for t in found]
    split = any(t.spec is not None and any(t.spec) for t in types)
    if split and all(t.mesh is None for t in found):
        raise NotImplementedError(
            f"{op.name}: the primitive's operands are sharded over explicit mesh axes, and its "
            "abstract evaluation rule does not specify the sharding of results: give `ShapedArray` "
            "a sharding, or call it inside of `shardwise.sharding.auto_axes`."
        )
    return tuple(found) if op.multiple else found[0]


def _as_type(op: Op, found: Any) -> ArrayType:
    if isinstance(found, ArrayType):
        return found
    try:
        weak = bool(getattr(found, "weak_type", False))
        return array_type(tuple(found.shape), canonicalize(found.dtype), weak)
    except AttributeError:
        raise TypeError(
            f"{op.name}: the abstract evaluation rule returns {found!r}, where something with a "
            "shape and a dtype is expected, such as `shardwise.core.ShapedArray(shape, dtype)`."
        ) from None


def _eager(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    impl = op.foreign.impl
    if impl is None:
        raise _missing(op, "implementation", f"`{op.name}.def_impl(function)`")
    result = impl(*args, **params)
    return list(result) if op.multiple else result


def _prune(op: Op, eqn: Equation, used: list[bool]) -> Equation | None:
    rule = rule_tables.dce_rules.get(op.foreign)
    if rule is None:
        return eqn if any(used) or op.effects else None
    return rule(used, eqn)[1]


def _check_effects(op: Op) -> None:
    if unknown := lowerable_effects.filter_not_in(op.effects):
        raise ValueError(
            f"{op.name}: a program with the effects {join(sorted(map(str, unknown)))} cannot be "
            "lowered. Add their classes: `shardwise.interpreters.mlir.lowerable_effects.add_type`."
        )


def _expand(
    op: Op, types: Sequence[ArrayType], params: dict[str, Any], platform: Platform
) -> Program | None:
    _check_effects(op)
    rule = rule_tables.lowering(op.foreign, platform)
    return rule.staged(types, params) if isinstance(rule, FromFunction) else None


def _lower(
    op: Op, e: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType], *names: str, **params: Any
) -> Any:
    _check_effects(op)
    rule = rule_tables.lowering(op.foreign, e.platform)
    if rule is None:
        how = "`shardwise.interpreters.mlir.register_lowering(primitive, rule)`"
        raise _missing(op, f"lowering for {e.platform}", how)
    if isinstance(rule, ForeignRule):
        found = rule(LoweringContext(ins, outs, e), *names, **params)
    else:
        found = rule_tables.built(op, rule, e, ins, outs, names, params)
    return found if op.multiple else found[0]


def _rule(op: Op, what: str, table: dict[Any, rule_tables.Rule], name: str) -> rule_tables.Rule:
    """The user's rule in a table of `shardwise.interpreters`."""
    rule = table.get(op.foreign)
    if rule is None:
        raise _missing(op, what, f"`shardwise.interpreters.{name}[{op.name}] = rule`")
    return rule


def _jvp(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    rule = _rule(op, "JVP rule", rule_tables.primitive_jvps, "ad.primitive_jvps")
    given = [
        Zero(cotangent_type(type_of(x))) if t is None else t
        for x, t in zip(primals, tangents, strict=True)
    ]
    out, moved = rule(list(primals), given, **params)
    found = [None if isinstance(t, Zero) else t for t in _listed(op, moved)]
    return (list(out), found) if op.multiple else (out, found[0])


def _transpose(op: Op, ct: Any, *args: Any, **params: Any) -> list[Any]:
    table = rule_tables.primitive_transposes
    rule = _rule(op, "transpose", table, "ad.primitive_transposes")
    if op.multiple:
        undefined = rule_tables.is_undefined_primal
        types = _types(op, *[a.aval if undefined(a) else type_of(a) for a in args], **params)
        ct = [Zero(t) if c is None else c for c, t in zip(ct, types, strict=True)]
    found = rule(ct, *args, **params)
    return [None if c is None or isinstance(c, Zero) else c for c in found]


def _batch(op: Op, mapped: Any, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    table = rule_tables.fancy_primitive_batchers
    rule = _rule(op, "batching rule", table, "batching.primitive_batchers")
    return rule(AxisData.of(mapped), list(args), list(dims), **params)


def apply_primitive(primitive: Any, *args: Any, **params: Any) -> Any:
    """Runs an op or primitive on arrays as a separate program, compiled once."""
    op = primitive if isinstance(primitive, Op) else _without_impl(primitive.op)
    return current().interpreter.process(op, args, params)


@cached(1024)
def _with_effects(op: Op, effects: frozenset[Any]) -> Op:
    return replace(op, effects=effects)


@cached(1024)
def _without_impl(op: Op) -> Op:
    """The op of a primitive without its implementation: it runs by its lowering."""
    return replace(op, eager=None, prune=None)
