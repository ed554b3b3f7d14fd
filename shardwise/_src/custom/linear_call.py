"""`linear_call`: a linear function with a user-defined transpose.

    linear_call(fun, fun_transpose, residuals, x)

where `fun(residuals, x)` is linear in x, and `fun_transpose(residuals, ct)` is its transpose:
reverse mode replaces the first by the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.control.bodies import Body, check_function, leaf, staged
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs, is_linear
from shardwise._src.core.program import Program
from shardwise._src.custom.implicit import as_params, groups_of, tangents_of
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tree_paths import path_in, paths_in, tree_difference
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.families import add
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import MappedAxis, batch_program, to_dim
from shardwise._src.types.annotations import T
from shardwise._src.types.array_type import ArrayType

WHO = "linear_call"
Pair = tuple[Program, Program]

# -- the op: (constants of fun…, constants of its transpose…, residuals…, x…) → results --
#
# programs: fun and its transpose, each from its constants, the residuals, and x or cotangents.
# counts:   the number of constants of each, and of residuals.


def _type(op: Op, *types: ArrayType, programs: Pair, counts: tuple) -> tuple[ArrayType, ...]:
    return programs[0].out_types


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, programs: Pair, counts: tuple
) -> list[str]:
    consts, _, residuals, given = groups_of(xs, counts)
    return e.call(programs[0], *consts, *residuals, *given)


def _jvp(
    op: Op, primals: Any, tangents: Any, *, programs: Pair, counts: tuple
) -> tuple[list, list]:
    """Linear in x; with respect to the residuals, it differentiates `fun`."""
    outs = linear_call_op(*primals, programs=programs, counts=counts)
    known = primals[: sum(counts)]
    moved: list[Any] = [None] * len(outs)
    consts, _, residuals, given = groups_of(tangents, counts)
    if any(t is not None for t in given):
        ts = [
            zeros(type_of(x).strong()) if t is None else t
            for t, x in zip(given, primals[sum(counts) :], strict=True)
        ]
        moved = linear_call_op(*known, *ts, programs=programs, counts=counts)
    if any(t is not None for t in (*consts, *residuals)):
        own, _, values, xs = groups_of(primals, counts)
        still = [None] * len(xs)
        found = tangents_of(programs[0], [*own, *values, *xs], [*consts, *residuals, *still])
        moved = [
            b if a is None else a if b is None else add(a, b)
            for a, b in zip(moved, found, strict=True)
        ]
    return outs, moved


def _transpose(op: Op, cts: Any, *args: Any, programs: Pair, counts: tuple) -> list[Any]:
    if any(is_linear(a) for a in args[: sum(counts)]):
        raise TypeError(
            f"linear_call: {programs[0].name} is linear in its second argument only, so it has no "
            "transpose with respect to the residuals."
        )
    types = programs[0].out_types
    cts = [zeros(t.strong()) if ct is None else ct for ct, t in zip(cts, types, strict=True)]
    own, other, residuals, _ = groups_of(args, counts)
    swapped = counts[1], counts[0], counts[2]
    found = linear_call_op(*other, *own, *residuals, *cts, programs=programs[::-1], counts=swapped)
    return [None] * sum(counts) + list(found)


def _batch(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, *, programs: Pair, counts: tuple
) -> tuple[list, list]:
    """Both programs over values with batch dimensions, except for the residuals."""
    axis = mapped.of(args, dims)
    own, other, residuals, given = groups_of([d is not None for d in dims], counts)
    new = []
    for program, marks in zip(programs, (own, other), strict=True):
        every = [True] * (len(program.invars) - len(marks) - len(residuals))
        force = (True,) * len(program.outvars)
        marked = (*marks, *residuals, *every)
        new.append(batch_program(program, axis, marked, force)[0])
    known = sum(counts)
    wanted = [None if d is None else 0 for d in dims[:known]] + [0] * len(given)
    moved = [to_dim(a, d, w, mapped.size) for a, d, w in zip(args, dims, wanted, strict=True)]
    first, second = new
    types = [
        *first.in_types[: counts[0]],
        *second.in_types[: counts[1]],
        *first.in_types[counts[0] :],
    ]
    moved = map(reshard_like, moved, types)
    outs = linear_call_op(*moved, programs=(first, second), counts=counts)
    return outs, [0] * len(outs)


def _eval(op: Op, run: Any, args: list[Any], *, programs: Pair, counts: tuple) -> None:
    consts, _, residuals, given = groups_of(args, counts)
    run(programs[0], [*consts, *residuals, *given])


linear_call_op = Op(
    "linear_call",
    type_rule=_type,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple=True,
    contains=Programs(("programs",), eval=_eval),
)

# -- the public function --


def linear_call(
    fun: Callable[[Any, Any], T],
    fun_transpose: Callable[[Any, Any], Any],
    residual_args: Any,
    linear_args: Any,
) -> T:
    """`fun(residual_args, linear_args)`, a linear function of `linear_args` with its transpose.

    Args:
      fun: linear in its second argument; from a pytree of arrays to one.
      fun_transpose: `fun_transpose(residual_args, ct)` returns cotangents of `linear_args`, for
        cotangents of the result.
      residual_args: a pytree of arrays.
      linear_args: a pytree of arrays.

    Returns:
      The result of `fun`. Derivatives with respect to `linear_args` use both functions directly.

    Raises:
      TypeError: if `fun_transpose` does not return cotangents in the types of `linear_args`.
    """
    check_function(WHO, "fun", fun)
    check_function(WHO, "fun_transpose", fun_transpose)
    residuals, residual_tree = _leaves(residual_args, "residual_args")
    given, tree = _leaves(linear_args, "linear_args")
    body = _body(fun, residuals, residual_tree, [type_of(x) for x in given], tree)
    types = [t.strong() for t in body.out_types]
    back = _body(fun_transpose, residuals, residual_tree, types, body.tree)
    _check_transpose(name_of(fun_transpose), back, tree, [type_of(x) for x in given])
    consts, programs, counts = as_params((body, back))
    outs = linear_call_op(
        *consts, *residuals, *given, programs=programs, counts=(*counts, len(residuals))
    )
    return body.tree.unflatten(outs)


def _leaves(value: Any, what: str) -> tuple[list[Any], Any]:
    leaves, tree = flatten(value)
    return [leaf(x, WHO, what, tree, i) for i, x in enumerate(leaves)], tree


def _body(
    fun: Callable,
    residuals: Sequence[Any],
    residual_tree: Any,
    types: Sequence[ArrayType],
    tree: Any,
) -> Body:
    count = len(residuals)
    return staged(
        lambda *xs: fun(residual_tree.unflatten(xs[:count]), tree.unflatten(xs[count:])),
        [*[type_of(x) for x in residuals], *types],
        WHO,
        name_of(fun),
        [*paths_in("residual_args", residual_tree), *paths_in("linear_args", tree)],
    )


def _check_transpose(name: str, back: Body, tree: Any, types: Sequence[ArrayType]) -> None:
    if back.tree != tree:
        where = tree_difference("the arguments", tree, "the result", back.tree, "linear_args")
        raise TypeError(f"linear_call: {name} must return a pytree like linear_args; {where}.")
    for i, (t, wanted) in enumerate(zip(back.out_types, types, strict=True)):
        if t.shape != wanted.shape or t.dtype != wanted.dtype:
            raise TypeError(
                f"linear_call: {name} must return values with the types of linear_args; it "
                f"returned {t.str_short(True)} for {path_in('linear_args', tree, i)} of type "
                f"{wanted.str_short(True)}."
            )
