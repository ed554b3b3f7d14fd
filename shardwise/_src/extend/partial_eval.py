"""Partial evaluation of a function: what does not depend on unknown arguments runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.base.context import CURRENT, current
from shardwise._src.core.fused import Fused
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program, Var
from shardwise._src.core.toolbox import without_dead_code
from shardwise._src.extend.linear_util import WrappedFun
from shardwise._src.transforms.stage import Stage, StageTracer
from shardwise._src.transforms.stage import stage as stage_function
from shardwise._src.types.array_type import ArrayType


class PartialVal(NamedTuple):
    """A value that is known, of type None, or the type of one that is not."""

    pval: ArrayType | None
    const: Any = None

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        return cls(None, const)

    @classmethod
    def unknown(cls, aval: ArrayType) -> PartialVal:
        return cls(aval, None)

    def is_known(self) -> bool:
        return self.pval is None

    def get_known(self) -> Any:
        return self.const if self.pval is None else None

    def get_aval(self) -> ArrayType | None:
        return self.pval


class _Partly(Stage):
    """Records only ops that depend on what is unknown; the parent runs the others."""

    __slots__ = ()

    def _is_mine(self, args: Sequence[Any]) -> bool:
        return any(a.__class__ is StageTracer and a.interpreter is self for a in args)

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.stage is not None and not op.is_staged(params):
            args, params = op.stage(op, self, args, params)
        if self._is_mine(args):
            return self.record(op, args, params)
        token = CURRENT.set(self.parent_context())
        try:
            return self.parent.process(op, args, params)
        finally:
            CURRENT.reset(token)

    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        if self._is_mine(args):
            return super().call(fused, args, static)
        token = CURRENT.set(self.parent_context())
        try:
            return self.parent.call(fused, args, static)
        finally:
            CURRENT.reset(token)


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Program, list[PartialVal], list[Any]]:
    """Runs a function of which some arguments are unknown.

    instantiate: whether results that are known are results of the program all the same; for all,
      or for each.

    Returns the program of what is unknown, whose arguments are the unknown ones after the values
    that it takes from the rest; the results, each known or of a type; and these values.
    """
    stager = _Partly(current().interpreter, "partial evaluation", fun.__name__)
    with stager.entered():
        given = [v.const if v.is_known() else stager.new_input(v.pval) for v in pvals]  # pyright: ignore[reportArgumentType]
        outs = list(fun.call_wrapped(*given))
        forced = [instantiate] * len(outs) if isinstance(instantiate, bool) else list(instantiate)
        unknown = [
            stager._is_mine([x]) or force for x, force in zip(outs, forced, strict=True)
        ]
        program, captured = stager.finish([x for x, u in zip(outs, unknown, strict=True) if u])
    types = iter(program.out_types)
    found = [
        PartialVal.unknown(next(types)) if u else PartialVal.known(x)
        for x, u in zip(outs, unknown, strict=True)
    ]
    return program, found, captured


def trace_to_jaxpr_dynamic(
    fun: WrappedFun, in_avals: Sequence[ArrayType], *, keep_inputs: Any = None, lower: bool = False
) -> tuple[Program, list[ArrayType], list[Any]]:
    """Stages a function of leaves: its program, the types of its results, and its constants."""
    program, outer = stage_function(
        lambda *args: list(fun.call_wrapped(*args)), list(in_avals), name=fun.__name__
    )
    consts = [*program.constants, *outer]
    return program, list(program.out_types), consts


def dce_jaxpr(
    jaxpr: Program, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Program, list[bool]]:
    """A program without what some of its results do not need, and which arguments are left.

    instantiate: arguments that are kept all the same; all, or for each.
    """
    outputs = [a for a, used in zip(jaxpr.outputs, used_outputs, strict=True) if used]
    equations = without_dead_code(outputs, list(jaxpr.equations))
    needed = {a for e in equations for a in e.inputs if isinstance(a, Var)}
    needed |= {a for a in outputs if isinstance(a, Var)}
    arguments = jaxpr.arguments
    forced = [instantiate] * len(arguments) if isinstance(instantiate, bool) else list(instantiate)
    marks = [v in needed or force for v, force in zip(arguments, forced, strict=True)]
    pairs = [(v, x) for v, x in zip(jaxpr.constant_vars, jaxpr.constants, strict=True)
             if v in needed]
    inputs = [*[v for v, _ in pairs], *[v for v, m in zip(arguments, marks, strict=True) if m]]
    return Program(inputs, outputs, equations, [x for _, x in pairs], jaxpr.name), marks


