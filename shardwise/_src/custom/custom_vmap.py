"""`custom_vmap`: a function with a custom rule for batches.

    @custom_vmap
    def f(x, y): ...

    @f.def_vmap
    def f_batched(axis_size, in_batched, x, y):     # batched leaves have a leading dimension
        x_batched, y_batched = in_batched
        return result, True                         # with a flag for each leaf of the result

A call is one op. Under `vmap` the rule is called instead, in the parent interpreter. In forward
mode the function with its derivative has a rule as well, made from the function's. Reverse mode
turns the derivative into an ordinary linear function, which `vmap` batches op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.base.marks import given, merge, partition, picked, spread
from shardwise._src.control.bodies import staged
from shardwise._src.control.call import batch_as_call, call, opaque_call, partial_eval_call
from shardwise._src.control.programs import with_results
from shardwise._src.control.scan_api import scan
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, pruned
from shardwise._src.core.structure import shared
from shardwise._src.custom.custom_calls import (
    CustomFunction,
    Rule,
    as_array,
    as_function_gives,
    check_own_tree,
    explained,
    pair_of,
)
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tree_paths import tree_difference
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import MappedAxis, batch, to_dim, with_dim
from shardwise._src.transforms.jvp import jvp_program, push_forward
from shardwise._src.types.annotations import P, T
from shardwise._src.types.dtypes import is_inexact
from shardwise._src.values.indexing import getitem

Marks = tuple[bool, ...]


class VmapRule(Rule):
    """batched: (size, marks, values) → (results, marks).

    Marks flag the values that have a batch dimension; it is the first.
    """

    kind = "custom_vmap"
    __slots__ = ("batched",)

    def __init__(self, name: str, key: tuple, batched: Callable):
        super().__init__(name, key)
        self.batched = batched


class custom_vmap(CustomFunction[P, T]):
    """A function with a custom batching rule.

    Args:
      fun: a function of positional arguments, pytrees of arrays.

    Returns:
      The function; set its rule with `def_vmap` before calling it.
    """

    kind = "custom_vmap"
    lacks = "batching rule: define one with @{}.def_vmap"
    vmap_rule: Any = None  # a function, after `def_vmap`

    def __init__(self, fun: Callable[P, T]):
        super().__init__(fun)

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the rule: `vmap_rule(axis_size, in_batched, *args) → (result, out_batched)`.

        in_batched: pytrees of the arguments, with a bool for each leaf. Leaves with True have the
          mapped axis as their first dimension.
        out_batched: the same for the result.
        """
        self.vmap_rule = vmap_rule
        self.ready = vmap_rule is not None
        return vmap_rule

    def called(self, fixed: tuple, leaves: Sequence[Any], tree: Any) -> Any:
        values = self.checked_leaves(leaves, tree)
        fun: Callable[..., Any] = self.fun
        body = staged(
            lambda *xs: fun(*tree.unflatten(xs)), [type_of(x) for x in values], self.kind, self.name
        )
        outs = custom_vmap_call(
            *body.outside,
            *values,
            rule=self._rule(tree, body.tree),
            program=shared(body.program),
            num_consts=len(body.outside),
        )
        return body.tree.unflatten(outs)

    def _rule(self, tree: Any, out_tree: Any) -> VmapRule:
        def batched(
            size: int, marks: Sequence[bool], leaves: Sequence[Any]
        ) -> tuple[list[Any], list[bool]]:
            values = list(map(as_array, leaves))
            result = self.vmap_rule(size, list(tree.unflatten(marks)), *tree.unflatten(values))
            return self._checked(size, result, out_tree)

        return VmapRule(self.name, (self, tree, out_tree), batched)

    def _checked(self, size: int, result: Any, expected: Any) -> tuple[list, list[bool]]:
        """Flat results and flags of the user's rule."""
        rule = f"{name_of(self.vmap_rule)}, the vmap rule of custom_vmap function {self.name},"
        out, out_batched = pair_of(rule, result, "(result, out_batched)")
        outs, tree = flatten(out)
        marks, mark_tree = flatten(out_batched)
        if mark_tree != tree:
            where = tree_difference("the result", tree, "out_batched", mark_tree, "out")
            raise ValueError(
                f"{rule} must return out_batched with the result's pytree structure; {where}."
            )
        check_own_tree(rule, tree, expected, ValueError)
        for x, mark in zip(outs, marks, strict=True):
            t = type_of(x)
            if mark and (not t.ndim or t.shape[0] != size):
                raise ValueError(
                    f"{rule} says that a result of type {t.str_short(True)} is batched, so its "
                    f"first dimension must have size {size}."
                )
        return outs, [bool(m) for m in marks]


def sequential_vmap(f: Callable) -> custom_vmap:
    """A function that `vmap` calls for one element at a time, in a loop."""
    mapped = custom_vmap(f)

    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        leaves, tree = flatten(args)
        marks = flatten(in_batched)[0]
        same, moving = partition(leaves, marks)

        def step(carry: Any, xs: Any) -> tuple[Any, Any]:
            return carry, mapped(*tree.unflatten(merge(marks, xs, same)))  # also under more maps

        outs = scan(step, None, moving, length=axis_size)[1]
        out_leaves, out_tree = flatten(outs)
        return outs, out_tree.unflatten([True] * len(out_leaves))

    mapped.def_vmap(rule)
    return mapped


# -- the op: (captured values…, values…) → results --


def _batch(
    op: Op,
    mapped: MappedAxis,
    args: Any,
    dims: Any,
    *,
    rule: VmapRule,
    program: Program,
    num_consts: int,
) -> tuple[list, list]:
    marks = [d is not None for d in dims]
    if not any(marks):  # mapped only because of a collective
        return batch_as_call(op, mapped, args, dims, program=program)
    if any(marks[:num_consts]):
        raise TypeError(
            f"custom_vmap function {rule.name} uses a mapped value from outside, which its "
            f"rule cannot see: pass the value to {rule.name} as an argument."
        )
    rows = zip(args[num_consts:], dims[num_consts:], strict=True)
    moved = [to_dim(x, d, None if d is None else 0, mapped.size) for x, d in rows]
    with explained(rule, num_consts):
        outs, found = rule.batched(mapped.size, marks[num_consts:], moved)
    pairs = zip(program.out_types, found, strict=True)
    types = [with_dim(t, mapped.size, 0, mapped.batch_sharding) if m else t for t, m in pairs]
    return as_function_gives(outs, types, rule), [0 if m else None for m in found]


def _jvp(
    op: Op, primals: Any, tangents: Any, *, rule: VmapRule, program: Program, num_consts: int
) -> tuple[list, list]:
    """One call that also returns the tangents, with a rule derived from the function's."""
    nonzero = tuple([t is not None for t in tangents])
    count = len(program.outvars)
    if any(nonzero[:num_consts]):  # w.r.t. captured values, unknown to the rule
        outs = custom_vmap_call(*primals, rule=rule, program=program, num_consts=num_consts)
        moving, smooth = _derivative(program, nonzero)
        args = map(reshard_like, [*primals, *given(tangents)], moving.in_types)
        return outs, spread(call(*args, program=moving), smooth)
    both, smooth = _with_derivative(program, nonzero)
    args = map(reshard_like, [*primals, *given(tangents)], both.in_types)
    new = MovingRule(rule, program, nonzero, smooth, num_consts)
    found = custom_vmap_call(*args, rule=new, program=both, num_consts=num_consts)
    return found[:count], spread(found[count:], smooth)


@derived
def _with_derivative(program: Program, nonzero: Marks) -> tuple[Program, Marks]:
    """The program from arguments and tangents to results and tangents of those that are
    differentiable."""
    both, marks = jvp_program(program, nonzero)
    types, count = [t.strong() for t in program.out_types], len(program.outvars)
    smooth = tuple([is_inexact(t.dtype) for t in types])
    return shared(with_results(both, count, marks, smooth, types)), smooth


@derived
def _derivative(program: Program, nonzero: Marks) -> tuple[Program, Marks]:
    """The same program without the results themselves."""
    both, smooth = _with_derivative(program, nonzero)
    return shared(pruned(both, both.outvars[len(program.outvars) :])), smooth


class MovingRule(VmapRule):
    """The rule of a function with its derivative, from those of the function.

    If a value and its tangent are both batched, or a batched value has no tangent, the inner rule
    gets batched values, which are repeated where only one of the two is batched. Otherwise it gets
    unbatched ones, and is itself mapped over those that are batched.
    """

    __slots__ = ("inner", "program", "nonzero", "smooth", "num_consts")

    def __init__(
        self, inner: VmapRule, program: Program, nonzero: Marks, smooth: Marks, num_consts: int
    ):
        super().__init__(inner.name, (inner, program, nonzero, smooth, num_consts), self.run)
        self.inner, self.program, self.num_consts = inner, program, num_consts
        self.nonzero, self.smooth = nonzero[num_consts:], smooth

    def run(
        self, size: int, marks: Sequence[bool], values: Sequence[Any]
    ) -> tuple[list[Any], list[bool]]:
        count = len(self.nonzero)
        own, moved = marks[:count], spread(marks[count:], self.nonzero)
        wide = [m and t is not False for m, t in zip(own, moved, strict=True)]
        if not any(wide):
            return self._mapped(size, marks, values)
        wide = [m or bool(t) for m, t in zip(own, moved, strict=True)]
        wanted = [*wide, *picked(wide, self.nonzero)]
        rows = zip(values, marks, wanted, strict=True)
        placed = [to_dim(x, 0 if m else None, 0 if w else None, size) for x, m, w in rows]
        outs, found = self._moved(size, wide, placed)
        return outs, [*found, *picked(found, self.smooth)]

    def _moved(
        self, size: int, wide: Sequence[bool], values: Sequence[Any]
    ) -> tuple[list[Any], list[bool]]:
        """Results and tangents by the inner rule, and which of the results are batched."""
        count, found = len(self.nonzero), []

        def run(*xs: Any) -> list[Any]:
            outs, found[:] = self.inner.batched(size, wide, xs)
            return outs

        tangents = spread(values[count:], self.nonzero)
        outs, moved = push_forward(run, values[:count], tangents, current().interpreter)
        rows = zip(outs, moved, self.smooth, strict=True)
        return [
            *outs,
            *[zeros(type_of(x).strong()) if t is None else t for x, t, s in rows if s],
        ], found

    def _mapped(
        self, size: int, marks: Sequence[bool], values: Sequence[Any]
    ) -> tuple[list[Any], list[bool]]:
        """The inner rule for arguments without batch dimensions, itself mapped over the values."""
        own: list[bool] = []

        def run(*xs: Any) -> list[Any]:
            outs, own[:] = self._moved(size, [False] * len(self.nonzero), xs)
            own.extend(picked(own, self.smooth))
            return outs

        found, dims = batch(run, values, [0 if m else None for m in marks], size)
        each, outs = np.arange(size), []
        for x, d, o in zip(found, dims, own, strict=True):
            x = to_dim(x, d, None if d is None else 0, size)
            outs.append(getitem(x, (each, each)) if o and d is not None else x)  # mapped in both
        return outs, [o or d is not None for o, d in zip(own, dims, strict=True)]


def _split(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    """Known results by the rule; the linear part of a derivative is an ordinary function."""
    rule = params["rule"]
    if rule.__class__ is MovingRule and not any(
        map(interpreter.is_unknown, args[: len(rule.program.invars)])
    ):
        known = args[: len(rule.program.invars)]
        p = {"rule": rule.inner, "program": rule.program, "num_consts": rule.num_consts}
        outs = interpreter.known(custom_vmap_call, known, p)
        moving, _ = _derivative(rule.program, rule.key[2])
        return [*outs, *partial_eval_call(call, interpreter, args, {"program": moving})]
    return partial_eval_call(call, interpreter, args, {"program": params["program"]})


custom_vmap_call = opaque_call(
    "custom_vmap_call",
    user_code=True,
    jvp=_jvp,
    batch=_batch,
    partial_eval=_split,
    aliases={"call": "program"},
)
