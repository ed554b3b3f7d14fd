"""`custom_remat`: a function that decides itself what `checkpoint` saves of it.

    sin = custom_remat(
        numpy.sin,
        lambda policy, x: (numpy.sin(x), numpy.cos(x)),   # first run: saves the cosine
        lambda cos, x: (numpy.sin(x), cos),               # second run: need not compute it again
        lambda cos, ct: (cos * ct,),                      # reverse mode
    )

It is a `custom_vjp` function whose forward rule is an op. The op runs both functions, one after the
other; where a checkpoint divides a program into what runs first and what runs again, it becomes a
call of each. Under `vmap` the checkpoint's policy decides what is saved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardwise._src.autodiff.jvp_vjp import linear_transpose
from shardwise._src.base.context import current
from shardwise._src.base.marks import picked, spread
from shardwise._src.control.call import call, described_call, jvp_as_call
from shardwise._src.control.entering_rules import eval_call
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import prune_call
from shardwise._src.custom.custom_calls import CallRule, pair_of, run_eagerly, stage_rule
from shardwise._src.custom.custom_vjp import custom_vjp, custom_vjp_linear
from shardwise._src.ops.basis import zeros
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType


class CallRemat(CallRule):
    """The functions of one call, on flat values. rules: `f_fwd` and `f_rem`."""

    __slots__ = ("rules",)

    def __init__(self, function: Any, fixed: tuple, in_tree: Any, rules: tuple[Any, Any]):
        super().__init__(function, fixed, in_tree)
        self.rules, self.key = rules, (*self.key, rules)

    def forward(self, policy: Any, values: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        """The result and the residuals to save, as leaves, and the pytree of these."""
        out, residuals = self._pair(0, policy, values)
        return flatten(out)[0], *flatten(residuals)

    def recompute(self, residuals: Any, values: Sequence[Any]) -> list[Any]:
        """The leaves of the result and of the residuals for reverse mode."""
        leaves, self.tree = flatten(self._pair(1, residuals, values))
        return leaves

    def fun(self, *values: Any) -> list[Any]:
        _, residuals, tree = self.forward(None, values)
        return self.recompute(tree.unflatten(residuals), values)

    def _pair(self, number: int, given: Any, values: Sequence[Any]) -> tuple[Any, Any]:
        what = f"{('f_fwd', 'f_rem')[number]} of custom_remat function {self.name}"
        found = self.rules[number](given, *self.arguments(values))
        return pair_of(what, found, "(result, residuals)")


def _remat(op: Op, planner: Any, eqn: Equation) -> tuple[Equation, list[Var], Equation]:
    """A call of `f_fwd`, what it saves, and a call of `f_rem`."""
    rule: CallRemat = eqn.params["rule"]
    values = eqn.invars[eqn.params["num_consts"] :]
    types = [a.aval for a in values]
    trees: list[Any] = []

    def forward(*xs: Any) -> list[Any]:
        outs, residuals, tree = rule.forward(planner.policy, xs)
        trees.append(tree)
        more = rule.recompute(tree.unflatten(residuals), xs)[len(outs) :]
        return [*outs, *more, *residuals]

    def recompute(*xs: Any) -> list[Any]:
        return rule.recompute(trees[0].unflatten(xs[: len(saved)]), xs[len(saved) :])

    first = program_of(forward, types, rule.name)
    saved = [Var(t) for t in first.out_types[len(eqn.outvars) :]]
    second = program_of(recompute, [*[v.aval for v in saved], *types], rule.name)
    return (
        Equation(call, values, [*eqn.outvars, *saved], {"program": first}, eqn.site),
        saved,
        Equation(call, [*saved, *values], eqn.outvars, {"program": second}, eqn.site),
    )


def _prune(op: Op, eqn: Equation, needed: list[bool]) -> Equation | None:
    """If only residuals are needed, a call for these."""
    if any(needed[: eqn.params["rule"].tree.children()[0].num_leaves]):
        return eqn
    plain = eqn.replace(op=call, params={"program": eqn.params["program"]})
    return prune_call(call, plain, needed)


custom_remat_call = described_call(
    "custom_remat",
    user_code=True,
    eager=run_eagerly,
    prune=_prune,
    contains=Programs(("program",), eval=eval_call, remat=_remat),
)


# -- the linear part: its transpose is the user's function, which forward mode transposes --


def _forward(
    *, backward: Any, num_residuals: int, moving: Any, out_types: Any, smooth: Any
) -> Callable[..., list[Any]]:
    def run(*given: Any) -> list[Any]:
        residuals, tangents = given[:num_residuals], given[num_residuals:]

        def back(*cts: Any) -> tuple[Any, ...]:
            found = picked(backward.run(residuals, spread(cts, smooth)), moving)
            pairs = zip(found, map(type_of, tangents), strict=True)
            return tuple([zeros(t) if x is None else x for x, t in pairs])

        return list(linear_transpose(back, *picked(out_types, smooth))(tangents))

    return run


def _program(types: Sequence[ArrayType], params: dict[str, Any]) -> Program:
    return program_of(_forward(**params), types, params["backward"].name)


remat_linear = replace(
    custom_vjp_linear,
    name="custom_remat_linear",
    eager=lambda op, args, params: _forward(**params)(*args),
    jvp=lambda op, primals, tangents, **p: jvp_as_call(
        op, primals, tangents, program=_program([*map(type_of, primals)], p)
    ),
    expand=lambda op, types, params, platform: _program(types, params),
)


class CustomRemat(custom_vjp[P, T]):
    """What `custom_remat` returns."""

    kind = "custom_remat"
    fixed = "static_arg"
    linear = remat_linear
    rules = "f_rem", "f_bwd"


def custom_remat(
    f: Callable[P, T],
    f_fwd: Callable[..., Any],
    f_rem: Callable[..., Any],
    f_bwd: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[P, T]:
    """A function that decides itself what `checkpoint` saves of it.

    Args:
      f: the function; in reverse mode the others replace it.
      f_fwd: `f_fwd(policy, *args) → (result, residuals)`; runs in the forward pass. policy: that of
        the checkpoint around the call; None outside of one, for which it is traced, too. The
        residuals, a pytree of arrays, are saved.
      f_rem: `f_rem(residuals, *args) → (result, others)`; runs again in the backward pass.
      f_bwd: `f_bwd(others, ct) → cotangents`, a tuple; one for each argument that is not static.
      static_argnums, static_argnames: arguments that are not arrays, by position or by name.
    """
    function = CustomRemat(f, static_argnums, static_argnames)

    def fwd(*args: Any) -> Any:
        fixed, rest = function.separated(args)
        leaves, tree = flatten(tuple(rest))
        rule, here = CallRemat(function, fixed, tree, (f_fwd, f_rem)), current().interpreter
        given, params = stage_rule(custom_remat_call, here, tuple(leaves), {"rule": rule})
        return rule.tree.unflatten(custom_remat_call(*given, **params))

    @functools.wraps(f_bwd)
    def bwd(*given: Any) -> Any:
        return f_bwd(*given[-2:])

    function.defvjp(functools.wraps(f_rem)(fwd), bwd)
    return function
