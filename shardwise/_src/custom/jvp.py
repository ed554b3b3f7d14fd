"""`custom_jvp`: a function with its own rule for tangents.

    @custom_jvp
    def f(x): ...

    @f.defjvp
    def f_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), t * cos(x)

A call is one op, whose parameters hold the user's functions. Run eagerly, the function runs; under
differentiation the rule runs in its place, in the parent interpreter; staged, the function becomes
a program and the rule waits for the transform that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.context import CURRENT
from shardwise._src.control.checked import call_checked, replay_call
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.ordering import through_program
from shardwise._src.core.program import Program
from shardwise._src.custom.common import (
    CustomFunction,
    Rule,
    as_function_gives,
    checked_tangent,
    explained,
    filled,
    lower_program,
    map_flat,
    refuse_outside,
    run_eagerly,
    stage_rule,
    transpose_program_rule,
    type_rule,
)
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.trees import tree_difference
from shardwise._src.messages.words import shown
from shardwise._src.numpy.convert import cast
from shardwise._src.ops.families import add
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import MappedAxis, batch_program, moved_into
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_inexact


class JvpRule(Rule):
    """fun: values → results. jvp: (values, tangents) → (results, tangents); None for zero."""

    __slots__ = ("fun", "jvp")

    def __init__(self, name: str, key: tuple, fun: Callable, jvp: Callable):
        super().__init__(name, key)
        self.fun = fun
        self.jvp = jvp


class custom_jvp(CustomFunction):
    """A function whose derivative is given by a rule.

    Args:
      fun: a function of arrays in pytrees.
      nondiff_argnums, nondiff_argnames: arguments that are no arrays (functions, settings). The
        rule gets them first, before primals and tangents.

    Returns:
      The function; give it a rule with `defjvp` or `defjvps` before it is called.
    """

    kind = "custom_jvp"
    jvp: Any = None  # a function, once `defjvp` was called
    symbolic_zeros = False

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Sets the rule: `jvp(*nondiff_args, primals, tangents) → (result, tangent)`.

        symbolic_zeros: tangents that are zero arrive as `SymbolicZero` instead of arrays.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Sets a rule for each argument: `jvp(tangent, result, *primals) → tangent`, or None."""
        if self.nondiff:
            raise TypeError(
                f"custom_jvp function {self.name}: defjvps does not go with nondiff_argnums; use "
                "defjvp."
            )

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            result = self(*primals)
            leaves, tree = flatten(result)
            total: list[Any] = [None] * len(leaves)
            for jvp, t in zip(jvps, tangents, strict=True):
                if jvp is None:
                    continue
                terms = tree.flatten_up_to(jvp(t, result, *primals))
                total = [_sum(*row) for row in zip(total, terms, leaves, strict=True)]
            pairs = zip(total, leaves, strict=True)
            return result, tree.unflatten([filled(t, type_of(x), False) for t, x in pairs])

        self.defjvp(rule)

    @hides_frames
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; differentiated by the rule."""
        if self.jvp is None:
            raise AttributeError(
                f"custom_jvp function {self.name} has no derivative rule: define one with "
                f"@{self.name}.defjvp."
            )
        if CURRENT.get().interpreter.eager:
            return self.fun(*args, **kwargs)
        fixed, rest = self.separated(self.positional(args, kwargs))
        leaves, tree = flatten(tuple(rest))
        rule = self.rule(fixed, tree)
        outs = custom_jvp_call(*self.checked_leaves(leaves, tree), rule=rule)
        return rule.tree.unflatten(outs)

    def rule(self, fixed: tuple, tree: Any) -> JvpRule:
        def fun(*leaves: Any) -> list[Any]:
            result = self.fun(*self.merged(fixed, tree.unflatten(leaves)))
            outs, rule.tree = flatten(result)
            return outs

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
            shown = [
                filled(t, type_of(x), self.symbolic_zeros)
                for x, t in zip(primals, tangents, strict=True)
            ]
            result = self.jvp(*fixed, tree.unflatten(primals), tree.unflatten(shown))
            outs, moved, rule.tree = self._checked(result, rule.tree)
            return outs, moved

        rule = JvpRule(self.name, (self, fixed, tree), fun, jvp)
        return rule

    def _checked(self, result: Any, expected: Any) -> tuple[list[Any], list[Any], Any]:
        """Flat results and tangents of the user's rule, and their tree."""
        rule = f"the derivative rule of custom_jvp function {self.name}"
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(
                f"{rule} must return a pair (result, tangent); it returned {shown(result)}."
            )
        outs, tree = flatten(result[0])
        tangents, tangent_tree = flatten(result[1])
        if tree != tangent_tree:
            where = tree_difference("the result", tree, "the tangent", tangent_tree, "out")
            raise TypeError(f"{rule} must return a result and a tangent of the same tree; {where}.")
        if expected is not None and tree != expected:
            where = tree_difference("that of the function", expected, "its own", tree, "out")
            raise TypeError(f"{rule} must return a result of the function's own tree; {where}.")
        moved = []
        for out, tangent in zip(outs, tangents, strict=True):
            aval = type_of(out)

            def wrong(came: str, wanted: ArrayType = aval) -> TypeError:
                return TypeError(
                    f"{rule} must return tangents in the types of its results; it returned a "
                    f"tangent of type {came} for a result of type {wanted.str_short(True)}."
                )

            moved.append(checked_tangent(tangent, aval, wrong))
        return outs, moved, tree


def _sum(total: Any, term: Any, result: Any) -> Any:
    """A tangent of `result` with one more term; None is zero."""
    dtype = type_of(result).dtype
    if not is_inexact(dtype):
        return None
    term = cast(term, dtype)
    return term if total is None else add(total, term)


def _jvp(
    op: Op, primals: Any, tangents: Any, *, rule: JvpRule, program: Program | None = None,
    num_consts: int = 0,
) -> tuple[list, list]:
    refuse_outside(rule, "custom_jvp", tangents[:num_consts])
    with explained(rule, "custom_jvp", num_consts):
        outs, moved = rule.jvp(primals[num_consts:], tangents[num_consts:])
    if program is not None:
        outs = as_function_gives(outs, program.out_types, "custom_jvp", rule)
    return outs, moved


def _batch(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, *, rule: JvpRule,
    program: Program | None = None, num_consts: int = 0,
) -> tuple[list, list]:
    if program is None:
        outs = custom_jvp_call(*args, rule=_batched_rule(rule, mapped, tuple(dims)))
        return outs, [0] * len(outs)
    marks = tuple([d is not None for d in dims])
    forced = (True,) * len(program.outputs)
    batched, _ = batch_program(program, mapped.axis, marks, forced)
    moved = moved_into(batched, args, dims)
    new = _batched_rule(rule, mapped, tuple([0 if m else None for m in marks[num_consts:]]))
    outs = custom_jvp_call(*moved, rule=new, program=batched, num_consts=num_consts)
    return outs, [0] * len(outs)


def _batched_rule(rule: JvpRule, mapped: MappedAxis, dims: tuple) -> JvpRule:
    """The rule over values with hidden dimensions; all results have one, the first."""

    def fun(*args: Any) -> list[Any]:
        return map_flat(mapped, rule.fun, args, dims)

    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        given = [t for t in tangents if t is not None]
        given_dims = [d for d, t in zip(dims, tangents, strict=True) if t is not None]
        marks: list[bool] = []

        def flat(*values: Any) -> list[Any]:
            ts = iter(values[len(primals) :])
            all_ts = [None if t is None else next(ts) for t in tangents]
            outs, moved = rule.jvp(values[: len(primals)], all_ts)
            marks[:] = [t is not None for t in moved]
            return [*outs, *[t for t in moved if t is not None]]

        results = map_flat(mapped, flat, [*primals, *given], [*dims, *given_dims])
        moving = iter(results[len(marks) :])
        return results[: len(marks)], [next(moving) if m else None for m in marks]

    return JvpRule(rule.name, (rule, mapped, dims), fun, jvp)


custom_jvp_call = Op(
    "custom_jvp_call",
    user_code=True,
    checked=call_checked,
    replay=replay_call,
    type_rule=type_rule,
    lower=lower_program,
    jvp=_jvp,
    transpose=transpose_program_rule,
    batch=_batch,
    stage=stage_rule,
    eager=run_eagerly,
    sequence=through_program,
    multiple=True,
    programs=("program",),
)
