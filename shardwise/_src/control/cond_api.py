"""`lax.cond` and `lax.switch`: the public functions around the `cond` op.

The branches are staged once for each set of functions and types (see `bodies`). Values of outer
traces that they capture become operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.config import disable_jit
from shardwise._src.base.context import CURRENT
from shardwise._src.control.bodies import (
    Body,
    body_caches,
    cached_body,
    check_function,
    differing,
    leaf,
    on_mesh_of,
    reject_own_effects,
    remedy,
    staged,
    threading,
    together,
    with_types,
)
from shardwise._src.control.cond import cond as cond_op
from shardwise._src.core.infer import as_arraylike, is_operand, type_of
from shardwise._src.core.op import BoundOp
from shardwise._src.core.structure import shared
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, paths_in, tree_difference
from shardwise._src.ops.logical import ne
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.refs.passing import with_refs_outside
from shardwise._src.refs.refs import Ref, is_ref, values_of, write_back
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.annotations import ArrayLike, T
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_bool, is_complex, is_integer, is_numeric
from shardwise._src.values.convert import cast

_FLAG = array_type((), np.dtype(bool))
_NUMBER = array_type((), np.dtype("int32"))
_NONE: Any = object()


@dataclass(slots=True, eq=False)
class Choice:
    """Staged branches with everything that a call needs. refs: captured refs that they access."""

    op: BoundOp
    outside: list[Any]
    tree: Any
    refs: Sequence[Ref]

    def __call__(self, which: Any, leaves: Sequence[Any]) -> Any:
        if not self.refs:
            return self.tree.unflatten(self.op(which, *self.outside, *leaves))
        given = [*leaves, *values_of(self.refs)]
        outs = self.op(which, *self.outside, *given)
        count = len(outs) - len(self.refs)
        write_back(self.refs, outs[count:])
        return self.tree.unflatten(outs[:count])


@hides_frames
def cond(
    pred: ArrayLike,
    true_fun: Callable[..., T],
    false_fun: Callable[..., T],
    *operands: Any,
    operand: Any = _NONE,
) -> T:
    """Conditionally applies one of two functions.

        true_fun(*operands) if pred else false_fun(*operands)

    Only that one runs, except under `vmap` with a batched `pred`: then both run, and
    the result is selected. Both functions are staged, whatever `pred` is.

    Args:
      pred: a boolean scalar; a number is compared with zero.
      true_fun, false_fun: functions of the operands, with results of the same structure and types.
      operands: pytrees of arrays. Values that the functions capture need not be among them.
      operand: a single operand, as a keyword.

    Returns:
      The result of the selected function.

    Raises:
      TypeError: if `pred` is not a scalar, or the results differ in structure or types.
    """
    if operand is not _NONE:
        operands = _only("cond", operand, operands)
    if len(operands) == 2 and callable(operands[1]) and not callable(true_fun):
        return _with_operands_of_their_own(pred, true_fun, false_fun, *operands)
    leaves, tree = flatten(operands)
    try:
        bodies = body_caches[true_fun].bodies
        key = (body_caches[false_fun], "cond", CURRENT.get().key, tree, *[x.aval for x in leaves])
        aval = pred.aval  # pyright: ignore[reportAttributeAccessIssue] (caught below)
        choice = bodies[key] if aval is _FLAG else None
    except (AttributeError, KeyError, TypeError):
        choice = None
    if choice is None or disable_jit.value:
        for what, f in (("true_fun", true_fun), ("false_fun", false_fun)):
            check_function("cond", what, f)
        if any(map(is_ref, leaves)):
            funs, leaves = _refs_outside((true_fun, false_fun), leaves, tree)
            return cond(pred, *funs, *leaves)
        labels = (f"true_fun ({name_of(true_fun)})", f"false_fun ({name_of(false_fun)})")
        call = _Call("cond", (true_fun, false_fun), labels, leaves, tree)
        return call.run(_predicate(pred))
    return choice(pred, leaves)


def _only(who: str, operand: Any, operands: tuple[Any, ...]) -> tuple[Any]:
    if operands:
        raise TypeError(f"{who}: pass operands by position or as `operand`, not both.")
    return (operand,)


def _with_operands_of_their_own(pred: Any, x: Any, true_fun: Callable, y: Any, g: Callable) -> Any:
    """The older form `cond(pred, true_operand, true_fun, false_operand, false_fun)`."""
    return cond(pred, lambda x, y: true_fun(x), lambda x, y: g(y), x, y)


@hides_frames
def switch(
    index: ArrayLike, branches: Sequence[Callable[..., T]], *operands: Any, operand: Any = _NONE
) -> T:
    """Applies the function with a given number, `branches[index](*operands)`.

    Only that one runs, except under `vmap` with a batched `index`.

    Args:
      index: an integer scalar; clamped to the range of the branches.
      branches: functions of the operands, with results of the same structure and types.
      operands: pytrees of arrays. Values that the functions capture need not be among them.
      operand: a single operand, as a keyword.

    Returns:
      The result of the selected function.

    Raises:
      TypeError: if `index` is not an integer scalar, or the results differ in structure or types.
      ValueError: if there are no branches.
    """
    if operand is not _NONE:
        operands = _only("switch", operand, operands)
    branches = tuple(branches)
    if not branches:
        raise ValueError("switch: branches must not be empty.")
    for i, f in enumerate(branches):
        check_function("switch", f"branches[{i}]", f)
    index = _index(index)
    if len(branches) == 1:
        return branches[0](*operands)
    leaves, tree = flatten(operands)
    try:
        others = [body_caches[f] for f in branches[1:]]
        key = (*others, "switch", CURRENT.get().key, tree, *[x.aval for x in leaves])
        choice = body_caches[branches[0]].bodies[key]
    except (AttributeError, KeyError, TypeError):
        choice = None
    if choice is None or disable_jit.value:
        if any(map(is_ref, leaves)):
            branches, leaves = _refs_outside(branches, leaves, tree)
            return switch(index, branches, *leaves)
        labels = [f"branches[{i}] ({name_of(f)})" for i, f in enumerate(branches)]
        return _Call("switch", branches, labels, leaves, tree).run(index)
    return choice(index, leaves)


def _refs_outside(
    funs: Sequence[Callable], leaves: list[Any], tree: Any
) -> tuple[list[Callable], list[Any]]:
    """The functions with the refs among their operands as captured values; the other operands."""

    def flat(f: Callable) -> Callable:
        inner = functools.wraps(f)(lambda *xs: f(*tree.unflatten(xs)))
        return with_refs_outside(inner, leaves)

    return [flat(f) for f in funs], [x for x in leaves if not is_ref(x)]


def _predicate(pred: Any) -> Any:
    """A boolean scalar."""
    pred = as_arraylike(pred)
    if not is_operand(pred):
        raise TypeError(f"cond: pred must be a boolean scalar; got {short_repr(pred)}.")
    t = type_of(pred)
    if t.shape:
        raise TypeError(
            f"cond: pred must be a boolean scalar; got {t.str_short(True)}. To select elementwise, "
            "use `shardwise.lax.select` or `shardwise.numpy.where`."
        )
    if is_bool(t.dtype):
        return pred
    if not is_numeric(t.dtype) or is_complex(t.dtype):
        raise TypeError(
            f"cond: pred must be a boolean, or a number to compare with zero; got "
            f"{t.str_short(True)}."
        )
    return ne(pred, cast(0, t.dtype, t.weak_type))


def _index(index: Any) -> Any:
    """An int32 scalar."""
    if getattr(index, "aval", None) is _NUMBER:
        return index
    index = as_arraylike(index)
    given = short_repr(index)
    if is_operand(index):
        t = type_of(index)
        if not t.shape and is_integer(t.dtype):
            return cast(index, _NUMBER.dtype)
        given = t.str_short(True)
    raise TypeError(f"switch: index must be an integer scalar; got {given}.")


class _Call:
    """A call whose branches may not be staged yet."""

    def __init__(
        self, who: str, funs: Sequence[Callable], labels: Sequence[str], leaves: list, tree: Any
    ):
        self.who, self.funs, self.labels, self.tree = who, funs, labels, tree
        self.last = len(funs) - 1
        self.leaves = [leaf(x, who, "operands", tree, i) for i, x in enumerate(leaves)]

    def run(self, which: Any) -> Any:
        if disable_jit.value and not isinstance(which, Tracer):
            which = (not which) if self.who == "cond" else min(max(int(which), 0), self.last)
            return self.funs[which](*self.tree.unflatten(self.leaves))
        if names := type_of(which).varying:  # of different branches, no partial sums are added
            self.leaves = [pvary(x, type_of(x).reduced & names) for x in self.leaves]
        types = [type_of(x) for x in self.leaves]
        key = (self.who, CURRENT.get().key, self.tree, *types)
        return cached_body(self.funs, key, lambda: self.staged(types))(which, self.leaves)

    def staged(self, types: Sequence[ArrayType]) -> tuple[Choice, bool]:
        """The staged branches, and whether they may be cached."""
        names = paths_in("operands", self.tree)
        distinct = {id(f): f for f in self.funs}  # the same function is traced once
        made = {i: self._staged_branch(f, types, names) for i, f in distinct.items()}
        bodies = [made[id(f)] for f in self.funs]
        reject_own_effects(self.who, *[body.program for body in bodies])
        self._check_trees(bodies)
        out_types = self._out_types(bodies)
        refs = list(dict.fromkeys(r for body in bodies for r in body.refs))
        programs, outside = together([threading(body, refs) for body in bodies])
        branches = tuple([shared(with_types(p, out_types)) for p in programs])
        if self.who == "cond":
            branches = branches[::-1]  # the one for False comes first
        may_keep = not any(body.captures for body in bodies)
        choose = BoundOp(cond_op, {"branches": branches})
        return Choice(choose, outside, bodies[0].tree, refs), may_keep

    def _staged_branch(self, f: Callable, types: Sequence[ArrayType], names: list[str]) -> Body:
        def flat(*leaves: Any) -> Any:
            return f(*self.tree.unflatten(leaves))

        return staged(flat, types, self.who, name_of(f), names, with_refs=True)

    def _check_trees(self, bodies: Sequence[Body]) -> None:
        first, one = bodies[0].tree, f"that of {self.labels[0]}"
        rows = [
            tree_difference(one, first, f"that of {label}", body.tree, "result")
            for body, label in zip(bodies, self.labels, strict=True)
            if body.tree != first
        ]
        if rows:
            raise TypeError(
                f"{self.who}: the branches must return results with the same pytree structure; "
                f"{'; '.join(rows)}."
            )

    def _out_types(self, bodies: Sequence[Body]) -> list[ArrayType]:
        """The types of the results: weak only if weak in all branches."""
        found: list[ArrayType] = []
        rows: list[str] = []
        kinds: list[str] = []
        for i, column in enumerate(zip(*[b.out_types for b in bodies], strict=True)):
            most = next((t for t in column if t.mesh is not None), column[0])
            most = most.vary(name for t in column for name in t.varying)
            placed = [on_mesh_of(t, most) for t in column]
            if any(t.strong() is not placed[0].strong() for t in placed):
                each = " and ".join(
                    f"{t.str_short(True)} from {label}"
                    for t, label in zip(column, self.labels, strict=True)
                )
                other = differing(*placed)
                kinds += other
                what = " and ".join(other)
                rows.append(f"{path_in('result', bodies[0].tree, i)} is {each} (differ in {what})")
            found.append(placed[0] if all(t.weak_type for t in placed) else placed[0].strong())
        if rows:
            raise TypeError(
                f"{self.who}: the branches must return results of the same types; "
                f"{', '.join(rows)}. Make them agree{remedy(kinds)}."
            )
        return found
