"""`lax.scan`: the public function around the `scan` op.

The body is staged once for each function and types. Values of outer traces that it captures become
constants of the scan. Staged bodies are cached (see `bodies`); a body that is staged again, because
its function is recreated in each call, finds everything that was derived from an equal one.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.config import disable_jit
from shardwise._src.base.context import CURRENT
from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.base.positions import put
from shardwise._src.control.bodies import (
    Body,
    Loop,
    body_caches,
    cached_body,
    casts_of,
    check_carry,
    check_carry_tree,
    check_function,
    leaf,
    reject_own_effects,
    staged,
    steps_per_turn,
    widest,
    with_types,
)
from shardwise._src.control.programs import ScanParams
from shardwise._src.control.scan import scan as scan_op
from shardwise._src.control.scan import sliced_type
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.core.op import BoundOp
from shardwise._src.core.program import Program
from shardwise._src.core.remedies import gathered
from shardwise._src.core.structure import shared
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, paths_in
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.refs.passing import lent, reject_parts
from shardwise._src.refs.refs import Ref, is_ref, reject_returned, values_of, write_back
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.annotations import Carry, X, Y
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_integer


@hides_frames
def scan(
    f: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carry, Y]:
    """Scans a function over the leading dimension of arrays, carrying state from step to step.

        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, stack(ys)

    The function is staged once; the loop is one op, whatever its length.

    Args:
      f: takes the carry and one slice of `xs`, returns the next carry and one `y`; all pytrees.
      init: the initial carry. Its types are the types of every carry: they may not change.
      xs: a pytree of arrays with equal sizes along dimension 0, or None. It may contain refs: the
        function gets refs of their slices.
      length: the number of steps; required if `xs` has no arrays.
      reverse: whether to go from the last slice to the first; ys keep their positions.
      unroll: how many steps one iteration of the compiled loop performs; True for all of them,
        False or 0 for one.
      _split_transpose: has no effect; derivatives hoist loop-invariant computation in any case.

    Returns:
      The last carry, and the ys stacked along a new dimension 0.

    Raises:
      ValueError: if sizes along dimension 0 differ from each other or from `length`.
      TypeError: if `f` does not return a pair, or the carry changes its structure or types.
    """
    leaves, tree = flatten((init, xs))
    try:
        key = _key(tree, length, reverse, unroll, [x.aval for x in leaves])
        loop = body_caches[f].bodies[key]
    except (AttributeError, KeyError, TypeError):
        pass
    else:
        return loop(leaves)
    if any(map(is_ref, flatten(xs)[0])):
        return _over_refs(f, init, xs, length, reverse, unroll)
    return _Call(f, init, xs, tree, length, reverse, unroll).run()


def _over_refs(f: Callable, init: Any, xs: Any, *options: Any) -> tuple[Any, Any]:
    """A scan over refs: each step has refs of their slices, whose last values are stacked."""
    check_function("scan", "the body", f)
    reject_parts("scan", xs)
    leaves, tree = flatten(xs)
    at = [i for i, x in enumerate(leaves) if is_ref(x)]
    refs, name = [leaves[i] for i in at], name_of(f)

    @functools.wraps(f)
    def step(carry: Any, row: list[Any]) -> Any:
        own = [Ref(row[i], kind=r.kind) for i, r in zip(at, refs, strict=True)]
        result = f(carry, tree.unflatten(put(row, at, own)))
        if not (isinstance(result, tuple | list) and len(result) == 2):
            return result  # is rejected later
        return result[0], (result[1], values_of(own))

    paths = paths_in("xs", tree)
    with lent(refs, f"scan of {name}", lambda: [paths[i] for i in at]) as values:
        carry, (ys, last) = scan(step, init, put(leaves, at, values), *options)
    write_back(refs, last)
    return carry, ys


def _key(tree: Any, length: Any, reverse: Any, unroll: Any, types: list[ArrayType]) -> tuple:
    """The cache key of a staged body; never used under `disable_jit`, which is in the context."""
    kinds = type(length), type(unroll)  # True equals 1
    return CURRENT.get().key, tree, length, reverse, unroll, *kinds, *types


class _Call:
    """A call of `scan` whose body may not be staged yet. tree: the pytree of (init, xs)."""

    def __init__(
        self,
        f: Callable,
        init: Any,
        xs: Any,
        tree: Any,
        length: Any,
        reverse: bool,
        unroll: int | bool,
    ):
        check_function("scan", "the body", f)
        self.f, self.name, self.tree = f, name_of(f), tree
        leaves, self.init_tree = flatten(init)
        self.init = [leaf(x, "scan", "init", self.init_tree, i) for i, x in enumerate(leaves)]
        leaves, self.xs_tree = flatten(xs)
        self.xs = [leaf(x, "scan", "xs", self.xs_tree, i) for i, x in enumerate(leaves)]
        self.length = self._length(length)
        self.given = None if length is None else self.length, unroll
        self.reverse = bool(reverse)
        self.unroll = self._unroll(unroll)

    def _length(self, length: Any) -> int:
        sizes = []
        for i, x in enumerate(self.xs):
            t = type_of(x)
            if not t.ndim:
                raise ValueError(
                    f"scan: {path_in('xs', self.xs_tree, i)} is of type {t.str_short(True)}, which "
                    "has no dimension to scan over."
                )
            sizes.append(t.shape[0])
        if length is not None:
            given: Any = length
            if isinstance(given, float | np.floating) and given.is_integer():
                length = int(given)
            try:
                length = operator.index(length)
            except TypeError:
                if isinstance(length, Tracer) and is_integer(length.dtype):
                    raise length.needed_for_shape("scan: length") from None
                raise TypeError(
                    f"scan: length must be an integer; got {short_repr(length)}."
                ) from None
            if length < 0:
                raise ValueError(f"scan: length must not be negative; got {length}.")
        elif not sizes:
            raise ValueError("scan: xs has no arrays, so length is required.")
        wanted = sizes[0] if length is None else length
        if any(n != wanted for n in sizes):
            rows = [
                f"{path_in('xs', self.xs_tree, i)} of type {type_of(x).str_short(True)} has {n}"
                for i, (x, n) in enumerate(zip(self.xs, sizes, strict=True))
            ]
            asked = "" if length is None else f", and length is {length}"
            raise ValueError(
                "scan: the arrays of xs must have the same size along dimension 0; "
                f"{', '.join(rows)}{asked}."
            )
        return wanted

    def _unroll(self, unroll: int | bool) -> int:
        if unroll is True:
            return max(self.length, 1)
        return steps_per_turn("scan", unroll)

    def run(self) -> tuple[Any, Any]:
        if disable_jit.value:
            return self.in_python()
        types = [type_of(x) for x in self.init + self.xs]
        length, unroll = self.given
        key = _key(self.tree, length, self.reverse, unroll, types)
        loop = cached_body((self.f,), key, lambda: self.staged(types))
        return loop(self.init + self.xs)

    # -- staging --

    def staged(self, types: Sequence[ArrayType]) -> tuple[Loop, bool]:
        """The staged body, and whether it may be cached: not if it uses values of outer traces."""
        count = len(self.init)
        carry, slices = list(types[:count]), self._slices(types[count:])
        body, wider = widest(carry, lambda types: self._staged_once([*types, *slices]))
        reject_own_effects("scan", body.program)
        check_carry("scan", self.name, self.init_tree, wider, body.out_types)
        program = _carrying(with_types(body.program, wider), len(body.outside) + count, count, body)
        counts = len(body.outside), count + len(body.refs)
        params = ScanParams(shared(program), *counts, self.length, self.reverse, self.unroll)
        op, casts = BoundOp(scan_op, params._asdict()), casts_of(carry, wider)
        loop = Loop(op, body.outside, casts, body.tree, body.refs, count)
        return loop, not body.captures

    def _slices(self, types: Sequence[ArrayType]) -> list[ArrayType]:
        for i, t in enumerate(types):
            if t.spec is not None and t.spec[0] is not None:
                name = path_in("xs", self.xs_tree, i)
                raise ShardingTypeError(
                    f"scan: {name} is of type {t.str_short(True)}: its dimension 0, which "
                    f"scan iterates over, is sharded. Use {gathered(name, t, 0)}."
                )
        return [sliced_type(t) for t in types]

    def _staged_once(self, types: Sequence[ArrayType]) -> Body:
        names = [*paths_in("carry", self.init_tree), *paths_in("x", self.xs_tree)]
        return staged(self._flat, types, "scan", self.name, names, lambda found: found, True)

    def _flat(self, *leaves: Any) -> tuple[list[Any], Any]:
        carry, ys, tree = self.apply(leaves)
        return carry + ys, tree

    def apply(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        """One step on leaves: those of the carry, those of y, and the pytree of both."""
        count = len(self.init)
        carry = self.init_tree.unflatten(leaves[:count])
        result = self.f(carry, self.xs_tree.unflatten(leaves[count:]))
        if not (isinstance(result, tuple | list) and len(result) == 2):
            raise TypeError(
                f"scan: {self.name} must return a pair (carry, y); it returned "
                f"{short_repr(result)}."
            )
        outs, tree = flatten(result[0])
        check_carry_tree("scan", self.name, self.init_tree, tree)
        ys, y_tree = flatten(result[1])
        reject_returned(f"scan: {self.name}", [*outs, *ys])
        outs = [leaf(x, "scan", "the returned carry", tree, i) for i, x in enumerate(outs)]
        ys = [leaf(y, "scan", "the returned y", y_tree, i) for i, y in enumerate(ys)]
        return outs, ys, flatten(tuple(result))[1]

    # -- without staging --

    def in_python(self) -> tuple[Any, Any]:
        """The loop in Python, for debugging under `disable_jit`."""
        if not self.length:
            raise ValueError("scan: a scan of length 0 cannot run under disable_jit.")
        carry, rows, tree = [_array(x) for x in self.init], [], None
        steps = range(self.length)
        for i in reversed(steps) if self.reverse else steps:
            carry, ys, tree = self.apply([*carry, *[_row(x, i) for x in self.xs]])
            rows.append(ys)
        if self.reverse:
            rows.reverse()
        columns = zip(*rows, strict=True)
        stacked = [concatenate(*map(_as_row, column), dimension=0) for column in columns]
        # There was a step, so there is a pytree.
        return tree.unflatten(  # pyright: ignore[reportOptionalMemberAccess]
            [*map(_array, carry), *stacked]
        )


def _carrying(program: Program, at: int, out: int, body: Body) -> Program:
    """The program with the values of refs, which were last, moved after the carry."""
    count = len(body.refs)
    if not count:
        return program
    ins, outs = program.inputs, program.outvars
    first, last = len(ins) - count, len(outs) - count
    inputs = [*ins[:at], *ins[first:], *ins[at:first]]
    outputs = [*outs[:out], *outs[last:], *outs[out:last]]
    return program.replace(inputs=inputs, outvars=outputs)


def _array(x: Any) -> Any:
    return x if is_array(x) else eval_trace().new_array(x)


def _row(x: Any, i: int) -> Any:
    return reshape(slice_in_dim(_array(x), i, i + 1, 0), shape=type_of(x).shape[1:])


def _as_row(y: Any) -> Any:
    y = _array(y)
    return reshape(y, shape=(1, *type_of(y).shape))
