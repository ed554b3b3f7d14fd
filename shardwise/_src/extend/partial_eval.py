"""Partial evaluation of a function: ops that only depend on known arguments run immediately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from shardwise._src.base.context import current
from shardwise._src.base.marks import picked
from shardwise._src.core.fused import Fused
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Program
from shardwise._src.core.program_tools import reduced_call, reduced_to
from shardwise._src.extend.jaxpr import set_current_trace
from shardwise._src.extend.linear_util import WrappedFun
from shardwise._src.transforms.stage import Stage, StageTracer
from shardwise._src.transforms.stage import stage as stage_function
from shardwise._src.types.array_type import ArrayType


class PartialVal(NamedTuple):
    """A known value (its type is then None), or the type of an unknown value."""

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
    """Records only ops that depend on unknown values; the parent runs the others."""

    __slots__ = ()

    def _is_mine(self, args: Sequence[Any]) -> bool:
        return any(a.__class__ is StageTracer and a.interpreter is self for a in args)

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.stage is not None and not op.is_staged(params):
            args, params = op.stage(op, self, args, params)
        if self._is_mine(args):
            return self.record(op, args, params)
        with set_current_trace(self.parent):
            return self.parent.process(op, args, params)

    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        if self._is_mine(args):
            return super().call(fused, args, static)
        with set_current_trace(self.parent):
            return self.parent.call(fused, args, static)


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Program, list[PartialVal], list[Any]]:
    """Runs a function some of whose arguments are unknown.

    instantiate: whether known results are also results of the program; for all, or for each.

    Returns the program of the unknown part, whose arguments are the residuals, then the unknown
    arguments; the results, each known or a type; and the residuals.
    """
    stager = _Partly(current().interpreter, "partial evaluation", fun.__name__)
    with stager.entered():
        given = [v.const if v.is_known() else stager.new_input(v.pval) for v in pvals]  # pyright: ignore[reportArgumentType]
        outs = list(fun.call_wrapped(*given))
        forced = [instantiate] * len(outs) if isinstance(instantiate, bool) else list(instantiate)
        unknown = [stager._is_mine([x]) or force for x, force in zip(outs, forced, strict=True)]
        program, captured = stager.finish([x for x, u in zip(outs, unknown, strict=True) if u])
    types = iter(program.out_types)
    found = [
        PartialVal.unknown(next(types)) if u else PartialVal.known(x)
        for x, u in zip(outs, unknown, strict=True)
    ]
    return program, found, captured


def trace_to_jaxpr_dynamic(
    fun: WrappedFun,
    in_avals: Sequence[ArrayType],
    *,
    keep_inputs: Sequence[bool] | None = None,
    lower: bool = False,
    auto_dce: bool = False,
) -> tuple[Program, list[ArrayType], list[Any]]:
    """Stages a function of leaves: its program, the types of its results, and its constants.

    keep_inputs: which arguments of the program the function gets; by default all.
    lower, auto_dce: ignored; operations are staged unchanged, and unused ones are dropped.
    """
    kept = [True] * len(in_avals) if keep_inputs is None else list(keep_inputs)

    def run(*args: Any) -> list[Any]:
        given = [a for a, keep in zip(args, kept, strict=True) if keep]
        return list(fun.call_wrapped(*given))

    program, outer = stage_function(run, list(in_avals), name=fun.__name__)
    return program, list(program.out_types), [*program.consts, *outer]


def dce_jaxpr(
    jaxpr: Program, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Program, list[bool]]:
    """A program reduced to what the used outputs need, and which arguments remain.

    instantiate: arguments that remain in any case; for all, or for each.
    """
    program, read = reduced_to(jaxpr, _each(used_outputs, jaxpr.outvars))
    forced = _each(instantiate, jaxpr.invars)
    marks = [u or force for u, force in zip(read, forced, strict=True)]
    inputs = [*program.constvars, *picked(jaxpr.invars, marks)]
    return program.replace(inputs=inputs), marks


def _each(marks: bool | Sequence[bool], values: Sequence[Any]) -> tuple[bool, ...]:
    return (marks,) * len(values) if isinstance(marks, bool) else tuple(marks)


def dce_jaxpr_consts(
    jaxpr: Program, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Program, list[bool], list[bool]]:
    """Like `dce_jaxpr`; also returns which constants remain; these may begin `instantiate`."""
    if not isinstance(instantiate, bool):
        instantiate = list(instantiate)[-len(jaxpr.invars) :]
    found, used = dce_jaxpr(jaxpr, used_outputs, instantiate)
    left = {*found.constvars}
    return found, [v in left for v in jaxpr.constvars], used


def dce_jaxpr_call_rule(
    used_outputs: Sequence[bool], eqn: Equation
) -> tuple[list[bool], Equation | None]:
    """The `dce_rules` entry for an equation that only calls a program: which operands are used, and
    the equation without unused operands and results."""
    if not any(used_outputs) and not eqn.effects:
        return [False] * len(eqn.invars), None
    reduced, read = reduced_call(eqn, tuple(used_outputs))
    return list(read), reduced


class _Refusing(dict[Any, Any]):
    """A table that rejects new rules, because nothing would use them."""

    def __init__(self, name: str, why: str):
        super().__init__()
        self._name, self._why = name, why

    def __setitem__(self, primitive: Any, rule: Any) -> NoReturn:
        raise NotImplementedError(
            f"shardwise.interpreters.partial_eval.{self._name}[{primitive}]: {self._why} Remove "
            "the rule."
        )


Val = Any
custom_partial_eval_rules = _Refusing(
    "custom_partial_eval_rules", "an operation whose operands are known runs immediately, and any "
    "other is part of the program, so this rule is never used."
)  # fmt: skip
partial_eval_jaxpr_custom_rules = _Refusing(
    "partial_eval_jaxpr_custom_rules", "`checkpoint` saves the results of an operation, "
    "or recomputes them, according to its policy, so this rule is never used."
)  # fmt: skip
