"""`lax.scan`: the public function around the `scan` op.

The body is staged once for each function and types. Values of outer traces that it uses become
constants of the scan. What was staged is kept for as long as the function lives; a body that is
made anew in each call is staged again, but finds everything that was derived from an equal one.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.config import disable_jit
from shardwise.base.context import CURRENT
from shardwise.base.errors import ShardingTypeError
from shardwise.control.programs import Extension, opened, shared
from shardwise.control.scan import scan as scan_op
from shardwise.control.scan import sliced_type
from shardwise.core.infer import is_value, known, type_of
from shardwise.core.interpreter import name_of
from shardwise.core.program import Program
from shardwise.numpy.convert import cast, device_array
from shardwise.ops.basis import reshape
from shardwise.ops.shape import concatenate, slice_in_dim
from shardwise.ops.sharding import settle
from shardwise.runtime.pytree import flatten, flatten_with_path
from shardwise.transforms.stage import stage
from shardwise.types.array_type import ArrayType
from shardwise.types.partition_spec import PartitionSpec
from shardwise.types.promotion import lattice_join

BODIES_PER_FUNCTION = 256

_bodies: weakref.WeakKeyDictionary[Any, dict[tuple, Body]] = weakref.WeakKeyDictionary()


class Body:
    """A staged body with all that a call needs.

    consts: values of the body's first arguments.
    casts:  (position, type) of leaves of `init` that the body wants in another type.
    tree:   of the pair (carry, ys).
    """

    __slots__ = ("params", "consts", "casts", "tree")

    def __init__(self, params: dict, consts: list[Any], casts: list[tuple], tree: Any):
        self.params = params
        self.consts = consts
        self.casts = casts
        self.tree = tree

    def __call__(self, leaves: list[Any]) -> Any:
        for position, t in self.casts:
            leaves[position] = settle(cast(leaves[position], t.dtype, t.weak_type), t)
        return self.tree.unflatten(scan_op(*self.consts, *leaves, **self.params))


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Applies a function along the leading dimension of arrays, carrying a state from step to step.

        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, stack(ys)

    The function is staged once; the loop is one op, whatever its length.

    Args:
      f: takes the carry and one slice of `xs`, gives the next carry and one `y`; all pytrees.
      init: the first carry. Its types are those of every carry: they may not change.
      xs: a pytree of arrays with equal sizes along dimension 0, or None.
      length: the number of steps; needed where `xs` has no arrays.
      reverse: whether to go from the last slice to the first; ys keep their places.
      unroll: how many steps one turn of the compiled loop does; True for all of them.

    Returns:
      The last carry, and the ys stacked along a new dimension 0.

    Raises:
      ValueError: if sizes along dimension 0 differ from each other or from `length`.
      TypeError: if `f` does not return a pair, or the carry changes its tree or types.
    """
    init_leaves, init_tree = flatten(init)
    xs_leaves, xs_tree = flatten(xs)
    leaves = init_leaves + xs_leaves
    try:
        types = [x.aval for x in leaves]
        key = (CURRENT.get().key, init_tree, xs_tree, length, reverse, unroll, unroll is True)
        body = _bodies[f][(*key, *types)]
    except (AttributeError, KeyError, TypeError):
        pass
    else:
        if not disable_jit.value:
            return body(leaves)
    return _Call(f, init_leaves, init_tree, xs_leaves, xs_tree, length, reverse, unroll).run()


class _Call:
    """A call of `scan` whose body may not be staged yet."""

    def __init__(
        self, f: Callable, init: list, init_tree: Any, xs: list, xs_tree: Any, length: Any,
        reverse: bool, unroll: int | bool,
    ):
        if not callable(f):
            raise TypeError(f"scan: the body must be a function; got {f!r}.")
        self.f, self.name = f, name_of(f)
        self.init_tree, self.xs_tree = init_tree, xs_tree
        self.init = [_leaf(x, "init", init_tree, i) for i, x in enumerate(init)]
        self.xs = [_leaf(x, "xs", xs_tree, i) for i, x in enumerate(xs)]
        self.given = length, unroll
        self.length = self._length(length)
        self.reverse = bool(reverse)
        self.unroll = self._unroll(unroll)

    def _length(self, length: Any) -> int:
        sizes = []
        for i, x in enumerate(self.xs):
            t = type_of(x)
            if not t.ndim:
                raise ValueError(
                    f"scan: {_path('xs', self.xs_tree, i)} is of type {t.str_short(True)}, which "
                    "has no dimension to go along."
                )
            sizes.append(t.shape[0])
        if length is not None:
            length = operator.index(length)
            if length < 0:
                raise ValueError(f"scan: length must not be negative; got {length}.")
        elif not sizes:
            raise ValueError("scan: xs has no arrays, so that length must be given.")
        wanted = sizes[0] if length is None else length
        if any(n != wanted for n in sizes):
            rows = [
                f"{_path('xs', self.xs_tree, i)} of type {type_of(x).str_short(True)} has {n}"
                for i, (x, n) in enumerate(zip(self.xs, sizes, strict=True))
            ]
            asked = "" if length is None else f" length is {length}."
            raise ValueError(
                "scan: the arrays of xs must have one size along dimension 0; "
                f"{', '.join(rows)}.{asked}"
            )
        return wanted

    def _unroll(self, unroll: int | bool) -> int:
        if unroll is True:
            return max(self.length, 1)
        count = 1 if unroll is False else operator.index(unroll)
        if count < 1:
            raise ValueError(f"scan: unroll must be a bool or a positive int; got {unroll}.")
        return count

    def run(self) -> tuple[Any, Any]:
        if disable_jit.value:
            return self.in_python()
        types = [type_of(x) for x in self.init + self.xs]
        length, unroll = self.given
        key = (CURRENT.get().key, self.init_tree, self.xs_tree, length, self.reverse, unroll,
               unroll is True, *types)
        try:
            held = _bodies.setdefault(self.f, {})
        except TypeError:  # neither hashed nor weakly referenced
            held = {}
        body = held.get(key)
        if body is None:
            body, may_keep = self.staged(types)
            if may_keep:
                if len(held) >= BODIES_PER_FUNCTION:
                    del held[next(iter(held))]
                held[key] = body
        return body(self.init + self.xs)

    # -- staging --

    def staged(self, types: Sequence[ArrayType]) -> tuple[Body, bool]:
        """The staged body, and whether it may be kept: not if it uses values of outer traces."""
        count = len(self.init)
        carry, slices = list(types[:count]), self._slices(types[count:])
        program, tree, captured = self._staged_once([*carry, *slices])
        wider = [_widened(a, b) for a, b in zip(carry, program.out_types, strict=False)]
        if wider != carry:
            program, tree, captured = self._staged_once([*wider, *slices])
        self._check_carry(wider, program)
        pairs = enumerate(zip(carry, wider, strict=True))
        casts = [(i, new) for i, (old, new) in pairs if old is not new]
        program, constants = opened(program)
        consts = [*constants, *captured]
        params = {
            "body": shared(_with_carry(program, wider)), "num_consts": len(consts),
            "num_carry": count, "length": self.length, "reverse": self.reverse,
            "unroll": self.unroll,
        }
        return Body(params, consts, casts, tree), not captured

    def _slices(self, types: Sequence[ArrayType]) -> list[ArrayType]:
        for i, t in enumerate(types):
            if t.spec is not None and t.spec[0] is not None:
                raise ShardingTypeError(
                    f"scan: {_path('xs', self.xs_tree, i)} is of type {t.str_short(True)}: its "
                    "dimension 0, which scan goes along, is split over a mesh. Use `reshard` to "
                    "gather that dimension first."
                )
        return [sliced_type(t) for t in types]

    def _staged_once(self, types: Sequence[ArrayType]) -> tuple[Program, Any, list[Any]]:
        trees: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            carry, ys, tree = self.apply(leaves)
            trees.append(tree)
            return carry + ys

        names = [_path("carry", self.init_tree, i) for i in range(len(self.init))]
        names += [_path("x", self.xs_tree, i) for i in range(len(self.xs))]
        program, captured = stage(flat, types, transform="scan", name=self.name, names=names)
        return program, trees[0], captured

    def apply(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        """One step on leaves: those of the carry, those of y, and the tree of both."""
        count = len(self.init)
        carry = self.init_tree.unflatten(leaves[:count])
        result = self.f(carry, self.xs_tree.unflatten(leaves[count:]))
        if not (isinstance(result, tuple | list) and len(result) == 2):
            raise TypeError(
                f"scan: {self.name} must return a pair (carry, y); it returned {_shown(result)}."
            )
        outs, tree = flatten(result[0])
        if tree != self.init_tree:
            raise TypeError(
                f"scan: {self.name} must return a carry with the tree of init, {self.init_tree}; "
                f"it returned one with {tree}."
            )
        ys, y_tree = flatten(result[1])
        outs = [_leaf(x, "the returned carry", tree, i) for i, x in enumerate(outs)]
        ys = [_leaf(y, "the returned y", y_tree, i) for i, y in enumerate(ys)]
        return outs, ys, flatten(tuple(result))[1]

    def _check_carry(self, types: Sequence[ArrayType], program: Program) -> None:
        rows = []
        for i, (a, b) in enumerate(zip(types, program.out_types, strict=False)):
            if a.strong() is not on_mesh_of(b, a).strong():
                rows.append(
                    f"{_path('carry', self.init_tree, i)} came in as {a.str_short(True)} and was "
                    f"returned as {b.str_short(True)}"
                )
        if rows:
            raise TypeError(
                f"scan: {self.name} must return the carry in the types that it takes; "
                f"{', '.join(rows)}. Change init or {self.name} so that they agree."
            )

    # -- without staging --

    def in_python(self) -> tuple[Any, Any]:
        """The loop in Python, for debugging under `disable_jit`."""
        if not self.length:
            raise ValueError("scan: a scan of length 0 does not run under disable_jit.")
        carry, rows, tree = [_array(x) for x in self.init], [], None
        steps = range(self.length)
        for i in reversed(steps) if self.reverse else steps:
            carry, ys, tree = self.apply([*carry, *[_row(x, i) for x in self.xs]])
            rows.append(ys)
        if self.reverse:
            rows.reverse()
        columns = zip(*rows, strict=True)
        stacked = [concatenate(*map(_as_row, column), dimension=0) for column in columns]
        # There was a step, so there is a tree.
        return tree.unflatten(  # pyright: ignore[reportOptionalMemberAccess]
            [*map(_array, carry), *stacked]
        )


def _widened(given: ArrayType, returned: ArrayType) -> ArrayType:
    """The type of a carry: one that is weak, or has no mesh, gives way to what the body returns."""
    given = on_mesh_of(given, returned)
    if not given.weak_type or given.shape != returned.shape:
        return given
    pairs = (given.dtype, True), (returned.dtype, returned.weak_type)
    dtype, weak = lattice_join(*pairs)
    return given.update(dtype=dtype, weak_type=weak)


def on_mesh_of(t: ArrayType, other: ArrayType) -> ArrayType:
    """The type with the mesh of another one: a value without a mesh is whole on every device."""
    if t.mesh is not None or other.mesh is None:
        return t
    return t.update(mesh=other.mesh, spec=PartitionSpec())


def _with_carry(program: Program, types: Sequence[ArrayType]) -> Program:
    """The program with its first results in exactly these types."""
    if all(a.aval is t for a, t in zip(program.outputs, types, strict=False)):
        return program
    new = Extension(program)
    count = len(types)
    carry = [new.fitted(a, t) for a, t in zip(program.outputs, types, strict=False)]
    return new.program(program.inputs, [*carry, *program.outputs[count:]])


def _leaf(x: Any, what: str, tree: Any, i: int) -> Any:
    """A leaf as something with a type."""
    x = known(x)
    if is_value(x) or isinstance(x, bool | int | float | complex | np.generic | np.ndarray):
        return x
    raise TypeError(f"scan: {_path(what, tree, i)} is {_shown(x)}, which is not an array.")


def _path(what: str, tree: Any, i: int) -> str:
    """`xs['a'][0]`: the name of a leaf."""
    paths = flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0]
    return what + "".join(map(str, paths[i][0]))


def _shown(x: Any) -> str:
    text = repr(x)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(x).__name__}"


def _array(x: Any) -> Any:
    return x if hasattr(x, "aval") else device_array(x)


def _row(x: Any, i: int) -> Any:
    return reshape(slice_in_dim(_array(x), i, i + 1, 0), shape=type_of(x).shape[1:])


def _as_row(y: Any) -> Any:
    y = _array(y)
    return reshape(y, shape=(1, *type_of(y).shape))
