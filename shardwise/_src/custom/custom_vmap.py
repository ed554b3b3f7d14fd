"""`custom_vmap`: a function with a custom rule for batches.

    @custom_vmap
    def f(x, y): ...

    @f.def_vmap
    def f_batched(axis_size, in_batched, x, y):     # batched leaves have a leading dimension
        x_batched, y_batched = in_batched
        return result, True                         # with a flag for each leaf of the result

A call is one op. Under `vmap` the rule is called instead, in the parent interpreter. In forward
mode the derivative of the function has a rule as well: the derivative of the rule. Reverse mode
turns it into an ordinary linear function, which `vmap` batches op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.base.marks import given, merge, partition, spread
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
from shardwise._src.transforms.batch import MappedAxis, to_dim, with_dim
from shardwise._src.transforms.jvp import jvp_program, push_forward
from shardwise._src.types.annotations import P, T
from shardwise._src.types.dtypes import is_inexact

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
            return carry, f(*tree.unflatten(merge(marks, xs, same)))

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
    """Two calls: the function, and its derivative, with a rule derived from the function's."""
    outs = custom_vmap_call(*primals, rule=rule, program=program, num_consts=num_consts)
    nonzero = tuple([t is not None for t in tangents])
    moving, smooth = derivative(program, nonzero)
    args = map(reshard_like, [*primals, *given(tangents)], moving.in_types)
    if any(nonzero[:num_consts]):  # w.r.t. captured values, unknown to the rule
        found = call(*args, program=moving)
    else:
        new = _moving_rule(rule, nonzero[num_consts:], smooth)
        found = custom_vmap_call(*args, rule=new, program=moving, num_consts=num_consts)
    return outs, spread(found, smooth)


@derived
def derivative(program: Program, nonzero: Marks) -> tuple[Program, Marks]:
    """The program from arguments and tangents to the tangents of differentiable results."""
    both, marks = jvp_program(program, nonzero)
    types, count = [t.strong() for t in program.out_types], len(program.outvars)
    smooth = tuple([is_inexact(t.dtype) for t in types])
    whole = with_results(both, count, marks, smooth, types)
    return shared(pruned(whole, whole.outvars[count:])), smooth


def _moving_rule(rule: VmapRule, nonzero: Marks, smooth: Marks) -> VmapRule:
    """The rule of the derivative. A value is batched there if it or its tangent is."""
    count = len(nonzero)

    def batched(
        size: int, marks: Sequence[bool], values: Sequence[Any]
    ) -> tuple[list[Any], list[bool]]:
        pairs = list(enumerate(spread(range(count, len(values)), nonzero)))
        wide = [marks[i] or (k is not None and marks[k]) for i, k in pairs]

        def placed(i: int | None, mark: bool) -> Any:
            if i is None:
                return None
            return to_dim(values[i], 0 if marks[i] else None, 0 if mark else None, size)

        primals = [placed(i, m) for (i, _), m in zip(pairs, wide, strict=True)]
        tangents = [placed(k, m) for (_, k), m in zip(pairs, wide, strict=True)]
        found: list[bool] = []

        def run(*xs: Any) -> list[Any]:
            outs, found[:] = rule.batched(size, wide, xs)
            return outs

        outs, moved = push_forward(run, primals, tangents, current().interpreter)
        rows = [
            (zeros(type_of(x).strong()) if t is None else t, m)
            for x, t, m, s in zip(outs, moved, found, smooth, strict=True)
            if s
        ]
        return [x for x, _ in rows], [m for _, m in rows]

    return VmapRule(rule.name, (rule, nonzero, smooth), batched)


def _split(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    """The linear part of a derivative is an ordinary linear function."""
    return partial_eval_call(call, interpreter, args, {"program": params["program"]})


custom_vmap_call = opaque_call(
    "custom_vmap_call",
    user_code=True,
    jvp=_jvp,
    batch=_batch,
    partial_eval=_split,
    aliases={"call": "program"},
)
