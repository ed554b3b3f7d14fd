"""`custom_jvp`: a function with a custom rule for tangents.

    @custom_jvp
    def f(x): ...

    @f.defjvp
    def f_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), t * cos(x)

A call is one op, whose parameters contain the user's functions. Eagerly, the function is called;
under differentiation the rule is called instead, in the parent interpreter; under tracing, the
function becomes a program and the rule waits for the transform that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.marks import given, picked, spread
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_calls import (
    BatchedRule,
    CallRule,
    CustomFunction,
    as_array,
    check_own_tree,
    checked_tangent,
    filled,
    map_flat,
    op_of_calls,
    pair_of,
)
from shardwise._src.messages.tree_paths import tree_difference
from shardwise._src.ops.families import add
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_inexact
from shardwise._src.values.convert import cast


class CallJvp(CallRule):
    """The rule for a call: `jvp(primals, tangents) → (results, tangents)`, None for zero."""

    __slots__ = ()

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        function, pairs = self.function, zip(primals, tangents, strict=True)
        ts = [as_array(filled(t, type_of(x), function.symbolic_zeros)) for x, t in pairs]
        tree, values = self.in_tree, list(map(as_array, primals))
        result = function.jvp(*self.fixed, tree.unflatten(values), tree.unflatten(ts))
        outs, moved, self.tree = _checked(function.name, result, self.tree)
        return outs, moved


class BatchedJvp(BatchedRule):
    """`jvp` over values with batch dimensions."""

    __slots__ = ()

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        nonzero, count = [t is not None for t in tangents], len(primals)
        dims = [*self.dims, *picked(self.dims, nonzero)]
        marks: list[bool] = []

        def flat(*values: Any) -> list[Any]:
            outs, moved = self.inner.jvp(values[:count], spread(values[count:], nonzero))
            marks[:] = [t is not None for t in moved]
            return [*outs, *given(moved)]

        results = map_flat(self.mapped, flat, [*primals, *given(tangents)], dims)
        return results[: len(marks)], spread(results[len(marks) :], marks)


def _jvp(rule: Any, primals: Any, tangents: Any, typed: Callable) -> tuple[list, list]:
    outs, moved = rule.jvp(primals, tangents)
    return typed(outs), moved


custom_jvp_call = op_of_calls("custom_jvp_call", _jvp, BatchedJvp)


class custom_jvp(CustomFunction[P, T]):
    """A function whose derivative is defined by a rule.

    Args:
      fun: a function of arrays in pytrees.
      nondiff_argnums, nondiff_argnames: arguments that are not arrays (functions, settings). The
        rule gets them first, before primals and tangents.

    Returns:
      The function; set its rule with `defjvp` or `defjvps` before calling it.
    """

    kind = "custom_jvp"
    lacks = "derivative rule: define one with @{}.defjvp"
    op = custom_jvp_call
    jvp: Any = None  # a function, after `defjvp`
    symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Sets the rule: `jvp(*nondiff_args, primals, tangents) → (result, tangent)`.

        symbolic_zeros: zero tangents are passed as `SymbolicZero` instead of arrays.
        """
        self.jvp = jvp
        self.ready = jvp is not None
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Sets a rule for each argument: `jvp(tangent, result, *primals) → tangent`, or None."""
        if self.nondiff:
            raise TypeError(
                f"custom_jvp function {self.name}: defjvps does not support nondiff_argnums; use "
                "defjvp."
            )

        itself: Any = self

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            result = itself(*primals)
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

    def rule(self, fixed: tuple, tree: Any) -> CallJvp:
        return CallJvp(self, fixed, tree)


def _checked(name: str, result: Any, expected: Any) -> tuple[list[Any], list[Any], Any]:
    """Flat results and tangents of the user's rule, and their tree."""
    rule = f"the derivative rule of custom_jvp function {name}"
    out, tangent = pair_of(rule, result, "(result, tangent)")
    outs, tree = flatten(out)
    tangents, tangent_tree = flatten(tangent)
    if tree != tangent_tree:
        where = tree_difference("the result", tree, "the tangent", tangent_tree, "out")
        raise TypeError(
            f"{rule} must return a result and a tangent with the same pytree structure; {where}."
        )
    check_own_tree(rule, tree, expected)
    moved = []
    for out, tangent in zip(outs, tangents, strict=True):
        aval = type_of(out)

        def wrong(came: str, wanted: ArrayType = aval) -> TypeError:
            return TypeError(
                f"{rule} must return tangents with the types of its results; it returned a "
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
