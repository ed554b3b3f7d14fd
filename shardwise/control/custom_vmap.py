"""`custom_vmap`: a function with its own rule for batches.

    @custom_vmap
    def f(x, y): ...

    @f.def_vmap
    def f_batched(axis_size, in_batched, x, y):     # batched leaves have a leading dimension
        x_batched, y_batched = in_batched
        return result, True                         # with a mark for each leaf of the result

A call is one op. Under `vmap` the rule runs in its place, in the parent interpreter. A derivative
of the function keeps the rule in forward mode, where the derivative of the rule is its rule. What
reverse mode makes of it is an ordinary linear function, which `vmap` batches op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.context import CURRENT, current
from shardwise.control.call import call
from shardwise.control.custom_common import (
    CustomFunction,
    ForgetfulCache,
    Rule,
    explained,
    fitted,
    lower_program,
    run_eagerly,
    stage_rule,
    transpose_program_rule,
    type_rule,
)
from shardwise.control.programs import shared
from shardwise.control.scan_api import scan
from shardwise.core.infer import type_of
from shardwise.core.interpreter import Interpreter, name_of
from shardwise.core.op import Op
from shardwise.core.ordering import through_program
from shardwise.core.program import Program, derived
from shardwise.core.trees import tree_difference
from shardwise.ops.basis import zeros
from shardwise.ops.sharding import settle
from shardwise.runtime.pytree import flatten
from shardwise.transforms.batch import MappedAxis, batch_program, run_batched, to_dim
from shardwise.transforms.jvp import jvp_program, push_forward

Marks = tuple[bool, ...]


class VmapRule(Rule):
    """fun: values → results. batched: (size, marks, values) → (results, marks).

    Marks say which values have a hidden dimension; it is the first.
    """

    __slots__ = ("fun", "batched")

    def __init__(self, name: str, key: tuple, fun: Callable, batched: Callable):
        super().__init__(name, key)
        self.fun = fun
        self.batched = batched


class custom_vmap(CustomFunction):
    """A function whose batched form is given by a rule.

    Args:
      fun: a function of positional arguments, pytrees of arrays.

    Returns:
      The function; give it its rule with `def_vmap` before it is called.
    """

    kind = "custom_vmap"
    vmap_rule: Any = None  # a function, once `def_vmap` was called

    def __init__(self, fun: Callable):
        super().__init__(fun)

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Sets the rule: `vmap_rule(axis_size, in_batched, *args) → (result, out_batched)`.

        in_batched: has the trees of the arguments, with a bool for each leaf. Leaves that are
          marked have the mapped axis as their first dimension.
        out_batched: the same for the result.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; batched by the rule."""
        if self.vmap_rule is None:
            raise AttributeError(
                f"custom_vmap function {self.name} has no rule for batches: define one with "
                f"@{self.name}.def_vmap."
            )
        if CURRENT.get().interpreter.eager:
            return self.fun(*args, **kwargs)
        leaves, tree = flatten(self.positional(args, kwargs))
        rule = self.rule(tree)
        outs = custom_vmap_call(*self.checked_leaves(leaves, tree), rule=rule)
        return rule.tree.unflatten(outs)

    def rule(self, tree: Any) -> VmapRule:
        def fun(*leaves: Any) -> list[Any]:
            outs, rule.tree = flatten(self.fun(*tree.unflatten(leaves)))
            return outs

        def batched(
            size: int, marks: Sequence[bool], leaves: Sequence[Any]
        ) -> tuple[list[Any], list[bool]]:
            result = self.vmap_rule(size, list(tree.unflatten(marks)), *tree.unflatten(leaves))
            outs, found, rule.tree = self._checked(size, result, rule.tree)
            return outs, found

        rule = VmapRule(self.name, (self, tree), fun, batched)
        return rule

    def _checked(self, size: int, result: Any, expected: Any) -> tuple[list, list[bool], Any]:
        """Flat results and marks of the user's rule, and their tree."""
        rule = f"{name_of(self.vmap_rule)}, the rule for batches of custom_vmap function {self.name},"
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(
                f"{rule} must return a pair (result, out_batched); it returned {result!r} of type "
                f"{type(result).__name__}."
            )
        outs, tree = flatten(result[0])
        marks, mark_tree = flatten(result[1])
        if mark_tree != tree:
            where = tree_difference("the result", tree, "out_batched", mark_tree, "out")
            raise ValueError(f"{rule} must return out_batched of the result's tree; {where}.")
        if expected is not None and tree != expected:
            where = tree_difference("that of the function", expected, "its own", tree, "out")
            raise ValueError(f"{rule} must return a result of the function's own tree; {where}.")
        for x, mark in zip(outs, marks, strict=True):
            t = type_of(x)
            if mark and (not t.ndim or t.shape[0] != size):
                raise ValueError(
                    f"{rule} says that a result of type {t.str_short(True)} is batched: then its "
                    f"first dimension must be of size {size}."
                )
        return outs, [bool(m) for m in marks], tree


def sequential_vmap(f: Callable) -> custom_vmap:
    """A function that `vmap` calls for one element after the other, in a loop."""
    mapped = custom_vmap(f)

    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        leaves, tree = flatten(args)
        marks = flatten(in_batched)[0]

        def step(carry: Any, xs: Any) -> tuple[Any, Any]:
            rows = iter(xs)
            given = [next(rows) if m else x for x, m in zip(leaves, marks, strict=True)]
            return carry, f(*tree.unflatten(given))

        moving = [x for x, m in zip(leaves, marks, strict=True) if m]
        outs = scan(step, None, moving, length=axis_size)[1]
        out_leaves, out_tree = flatten(outs)
        return outs, out_tree.unflatten([True] * len(out_leaves))

    mapped.def_vmap(rule)
    return mapped


# -- the op --


def _stage(interpreter: Interpreter, args: tuple, params: dict) -> tuple:
    return stage_rule(custom_vmap_call, interpreter, args, params)


def _batch(
    size: int, args: Any, dims: Any, *, mapped: MappedAxis, rule: VmapRule,
    program: Program | None = None, num_consts: int = 0,
) -> tuple[list, list]:
    marks = [d is not None for d in dims]
    if any(marks[:num_consts]):
        raise TypeError(
            f"custom_vmap function {rule.name} uses a batched value from outside, which its rule "
            f"does not know of: pass the value to {rule.name} as an argument."
        )
    wanted = [0 if m else None for m in marks]
    rows = zip(args, dims, wanted, strict=True)
    moved = [to_dim(x, d, w, size, mapped.hidden) for x, d, w in rows]
    with explained(rule, "custom_vmap", num_consts):
        outs, found = rule.batched(size, marks[num_consts:], moved[num_consts:])
    if program is not None:
        outs = _as_staged(outs, found, program)
    return outs, [0 if m else None for m in found]


def _as_staged(outs: Sequence[Any], marks: Sequence[bool], program: Program) -> list[Any]:
    """The rule's results in the dtypes of the staged function's."""
    return fitted(outs, program)


def _jvp(
    primals: Any, tangents: Any, *, rule: VmapRule, program: Program | None = None,
    num_consts: int = 0,
) -> tuple[list, list]:
    given = [t for t in tangents if t is not None]
    if program is None:
        nonzero = tuple([t is not None for t in tangents])
        new = _moving_rule(rule, nonzero)
        outs = custom_vmap_call(*primals, *given, rule=new)
        marks = new.tree
    else:
        nonzero = tuple([t is not None for t in tangents])
        both, marks = jvp_program(program, nonzero)
        new = _moving_rule(rule, nonzero[num_consts:])
        args = [*primals, *given]
        outs = custom_vmap_call(
            *map(settle, args, both.in_types), rule=new, program=shared(both),
            num_consts=num_consts,
        )
    count = len(outs) - sum(marks)
    moving = iter(outs[count:])
    return outs[:count], [next(moving) if m else None for m in marks]
