"""`reduce` with a user function, and its public form.

    reduce(x, 0.0, lax.add, (1,))                             # same as reduce_sum
    reduce((x, i), (-inf, 0), lambda a, b: ..., (0,))         # several operands together

The function takes the accumulated scalars, then one element of each operand. It must be
associative, with `init` as its identity. A function that is a single known op becomes that
reduction, and may have any initial value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs
from shardwise._src.core.program import Literal, Program
from shardwise._src.core.program_tools import walk
from shardwise._src.core.structure import shared
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import reduce as ops
from shardwise._src.ops.basis import (
    batch_first,
    broadcast_in_dim,
    check_axes,
    reduce_sum,
    reduced,
    reshape,
    transpose,
)
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.shape import along, canonical_axis, concatenate, slice_in_dim
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import Axis, MappedAxis, axes_in, batch_program
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.transforms.stage import stage
from shardwise._src.types.annotations import Array, ArrayLike, OutSharding, T
from shardwise._src.types.array_type import ArrayType, array_type, in_row
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import max_value, min_value

# -- the op: operands, then as many initial scalars --


def _type(op: Op, *types: ArrayType, body: Program, axes: tuple) -> tuple[ArrayType, ...]:
    check_axes("reduce", types[0], axes)
    xs, weak = check_fold(op, types, body)
    return tuple([array_type(reduced(t, axes), t.dtype, w) for t, w in zip(xs, weak, strict=True)])


def check_fold(
    op: Op, types: Sequence[ArrayType], body: Program
) -> tuple[Sequence[ArrayType], list[bool]]:
    """The types of the operands, and which results are weak; raises if any does not fit."""
    half = len(types) // 2
    xs, inits = types[:half], types[half:]
    if any(t.shape != xs[0].shape for t in xs) or any(t.shape for t in inits):
        raise TypeError(
            f"[{op.name}] takes operands of one shape and a scalar initial value for each; got "
            f"{in_row(types)}."
        )
    scalars = [array_type((), t.dtype) for t in xs]
    if [t.strong() for t in body.out_types] != scalars:
        raise TypeError(
            f"[{op.name}] the function must return {in_row(scalars)}; got {in_row(body.out_types)}."
        )
    return xs, [t.weak_type and i.weak_type for t, i in zip(xs, inits, strict=True)]


def _dims(op: Op, *types: ArrayType, body: Program, axes: tuple) -> Dims:
    half = len(types) // 2
    names = along(types[0], axes)
    out = tuple(n for i, n in enumerate(names) if i not in axes)
    return Dims((names,) * half + ((),) * half, (out,) * half, worked="dropped")


def _lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str, body: Program, axes: tuple) -> list[str]:
    half = len(ins) // 2
    return e.reduce_by(combining(body), xs[:half], ins[:half], xs[half:], axes)


def combining(body: Program) -> Callable[..., list[str]]:
    """The function, for the emitter's methods that fold."""
    return lambda e, types, *names: e.inline(body, *names)


def _batch(op: Op, mapped: MappedAxis, args: Any, ds: Any, *, body: Program, axes: tuple) -> tuple:
    half = len(args) // 2
    xs = [batch_first(mapped.size, x, d) for x, d in zip(args[:half], ds[:half], strict=True)]
    shifted = tuple(a + 1 for a in axes)
    if all(d is None for d in ds[half:]):
        return reduce_op(*xs, *args[half:], body=body, axes=shifted), [0] * half
    # Scalars that differ: each becomes an additional element, and the fold starts without them.
    return list(folded(xs, args[half:], ds[half:], body, shifted)), [0] * half


def folded(
    xs: list, inits: Any, ds: Any, body: Program, axes: tuple, combine: Callable | None = None
) -> Any:
    """The reduction by a tree of halves, whose rules are those of the function's own ops.

    combine: `(body, first, second) → new`, of lists; else the function on each pair of elements.
    """
    shape = type_of(xs[0]).shape
    rest = [i for i in range(len(shape)) if i not in axes]
    kept = tuple(shape[i] for i in rest)
    count = math.prod([shape[i] for i in axes])
    perm = (*axes, *rest)
    flat = [reshape(transpose(x, perm=perm), shape=(count, *kept)) for x in xs]
    starts = [
        broadcast_in_dim(v, shape=(1, *kept), dims=(1,) if d is not None else ())
        for v, d in zip(inits, ds, strict=True)
    ]
    parts = [concatenate(s, x, dimension=0) for s, x in zip(starts, flat, strict=True)]
    while type_of(parts[0]).shape[0] > 1:
        n = type_of(parts[0]).shape[0]
        low = [slice_in_dim(p, 0, n // 2, 0) for p in parts]
        high = [slice_in_dim(p, n // 2, 2 * (n // 2), 0) for p in parts]
        left = [slice_in_dim(p, n - 1, n, 0) for p in parts]
        parts = (combine or elementwise)(body, low, high)
        if n % 2:
            parts = [concatenate(p, x, dimension=0) for p, x in zip(parts, left, strict=True)]
    return [reshape(p, shape=kept) for p in parts]


def elementwise(body: Program, low: list, high: list) -> list:
    """The function on each pair of elements."""
    shape = type_of(low[0]).shape
    size = math.prod(shape)
    flat = [reshape(x, shape=(size,)) for x in (*low, *high)]
    wide, _ = batch_program(body, Axis(size), (True,) * len(flat), (True,) * len(low))
    return [reshape(x, shape=shape) for x in wide(*flat)]


def _jvp(op: Op, primals: Any, tangents: Any, *, body: Program, axes: tuple) -> tuple[list, list]:
    def tree(xs: list, inits: list) -> list:
        return folded(xs, inits, [None] * len(inits), body, axes)

    return op(*primals, body=body, axes=axes), tangents_by_tree(op, tree, primals, tangents)


def tangents_by_tree(
    op: Op, tree: Callable[[list, list], list], primals: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """The tangents of a fold, from the same fold of operands and initial values by a tree."""
    half = len(primals) // 2

    def flat(*values: Any) -> list:
        return tree(list(values[:half]), list(values[half:]))

    return push_forward(flat, primals, tangents, current().interpreter, "jvp", op.name)[1]


reduce_op = Op(
    "reduce",
    multiple=True,
    contains=Programs(("body",)),
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    batch=_batch,
)

# -- the public function --

# The reduction that is a fold by one op, and the required identity.
KNOWN: dict[Op, tuple[Op, Callable]] = {
    ew.add: (reduce_sum, lambda d: 0),
    ew.mul: (ops.reduce_prod, lambda d: 1),
    ew.max: (ops.reduce_max, min_value),
    ew.min: (ops.reduce_min, max_value),
    ew.bitwise_and: (ops.reduce_and, ops.all_ones),
    ew.bitwise_or: (ops.reduce_or, lambda d: 0),
    ew.bitwise_xor: (ops.reduce_xor, lambda d: 0),
}


@overload
def reduce(
    operands: ArrayLike,
    init_values: ArrayLike,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: OutSharding = None,
) -> Array: ...
@overload
def reduce(
    operands: T,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: OutSharding = None,
) -> T: ...
@hides_frames
def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: OutSharding = None,
) -> Any:
    """Folds `dimensions` of one or several arrays with an associative function.

    Args:
      operands: an array, or a pytree of arrays of one shape.
      init_values: a scalar, or a pytree of scalars, of their dtypes: the identity of the function.
      computation: `(accumulated, elements) → new`, on scalars in such pytrees.
      dimensions: the dimensions to reduce.
      out_sharding: the sharding of the result, which must be one array, over explicit mesh axes.

    Raises:
      TypeError: if shapes or dtypes do not fit.
      ValueError: if pytrees do not.
    """
    xs, inits, tree = alike("reduce: operands and init_values", operands, init_values)
    if out_sharding is not None:
        if len(xs) != 1:
            raise ValueError(
                f"reduce: out_sharding is only supported with one operand; got {len(xs)}. Use "
                "`shardwise.sharding.reshard(x, P(...))` on each result."
            )
        start, axes = inits[0], tuple(dimensions)
        out = placed(_reduce_one, out_sharding, xs[0], start, computation, axes, tree)
        return tree.unflatten([out])
    types = [type_of(x) for x in xs]
    axes = tuple([canonical_axis(d, types[0].ndim) for d in dimensions])
    scalars = [array_type((), t.dtype) for t in types]
    starts = [start_of(v, t, "reduce") for v, t in zip(inits, scalars, strict=True)]
    body = staged_fold(computation, tree, scalars, "reduce")
    known = known_fold(body)
    if known is not None:
        return tree.unflatten([_reduced_by(known, xs[0], inits[0], starts[0], axes)])
    return tree.unflatten(reduce_op(*xs, *starts, body=shared(body), axes=axes))


def alike(what: str, operands: Any, init_values: Any) -> tuple[list[Any], list[Any], Any]:
    """The leaves of both pytrees, and their structure."""
    xs, tree = flatten(operands)
    inits, init_tree = flatten(init_values)
    if tree != init_tree:
        raise ValueError(f"{what} must have the same pytree structure; got {tree} and {init_tree}.")
    return xs, inits, tree


def staged_fold(
    computation: Callable, tree: Any, scalars: Sequence[ArrayType], name: str
) -> Program:
    """The function, of two pytrees of scalars, as a program that can run in any order."""

    def flat(*values: Any) -> list:
        half = len(values) // 2
        result = computation(tree.unflatten(values[:half]), tree.unflatten(values[half:]))
        leaves, found = flatten(result)
        if found != tree:
            raise ValueError(
                f"{name}: the function must return the pytree structure of its arguments, {tree}; "
                f"got {found}."
            )
        return leaves

    body, captured = stage(flat, [*scalars, *scalars], transform=name, name=name)
    if captured:
        raise TypeError(
            f"{name}: the function must not use values of an outer trace; pass them as operands."
        )
    if axes_in(body):
        raise TypeError(
            f"{name}: the function must not use collectives, as the order of its calls is "
            "unspecified."
        )
    if asks := _host_calls(body):
        raise TypeError(
            f"{name}: the function must not call the host, here with {', '.join(asks)}: it runs in "
            "an unspecified order, and any number of times. Use `scan`, or call the host with the "
            "result."
        )
    return body


def _reduce_one(x: Any, start: Any, computation: Any, dimensions: Any, tree: Any) -> Any:
    out = reduce(tree.unflatten([x]), tree.unflatten([start]), computation, dimensions)
    (found,) = flatten(out)[0]
    return found


def start_of(value: Any, t: ArrayType, name: str) -> Any:
    given = type_of(value)
    if given.dtype != t.dtype and not given.weak_type:
        raise TypeError(
            f"{name}: an init value must have the operand's dtype {t.dtype}; got "
            f"{given.str_short(True)}."
        )
    if given.dtype == t.dtype:
        return value
    return convert_element_type(value, dtype=t.dtype, weak=given.weak_type)


def _host_calls(body: Program) -> list[str]:
    """The names of the ops that call the host, including those of nested programs."""
    return list(dict.fromkeys(e.op.name for e in walk(body) if e.op.host is not None))


def known_fold(body: Program) -> Op | None:
    """The single op that the function consists of, if there is a reduction for it."""
    if len(body.outvars) != 1 or len(body.eqns) != 1:
        return None
    (eqn,) = body.eqns
    inputs = list(eqn.invars)
    same = inputs in ([*body.invars], [*body.invars][::-1])
    if eqn.op not in KNOWN or not same or any(a.__class__ is Literal for a in inputs):
        return None
    return eqn.op


def _reduced_by(op: Op, x: Any, init: Any, start: Any, axes: tuple) -> Any:
    """The reduction by a known op. The initial value counts once, even if not the identity."""
    reduction, identity = KNOWN[op]
    out = reduction(x, axes=axes)
    if is_identity(init, identity, type_of(x).dtype):
        return out
    return op(broadcast_in_dim(start, shape=type_of(out).shape, dims=()), out)


def is_identity(init: Any, identity: Callable[[Any], Any], dtype: Any) -> bool:
    """Whether an initial value is a number that is known to be the identity of a fold."""
    if hasattr(init, "aval"):
        return False
    neutral = np.asarray(identity(dtype)).astype(dtype)
    return bool(np.asarray(init).astype(dtype) == neutral)
