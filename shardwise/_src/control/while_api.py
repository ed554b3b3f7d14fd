"""`lax.while_loop` and `lax.fori_loop`: public functions around the ops `while_loop` and `scan`.

A loop with known bounds is a scan, which supports reverse mode; any other is a
`while_loop`. Bodies are staged once for each function and types (see `bodies`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.base.config import disable_jit
from shardwise._src.base.context import CURRENT
from shardwise._src.base.errors import ConcretizationTypeError
from shardwise._src.control.bodies import (
    Body,
    BodyCache,
    Loop,
    body_cache_of,
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
    threading,
    widest,
    with_types,
)
from shardwise._src.control.call import call
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan as scan_op
from shardwise._src.control.while_loop import flag_programs
from shardwise._src.control.while_loop import while_loop as while_op
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.core.op import BoundOp
from shardwise._src.core.structure import shared
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import paths_in
from shardwise._src.ops.families import add
from shardwise._src.ops.logical import lt
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.refs.refs import values_of, write_back
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.annotations import ArrayLike, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_integer
from shardwise._src.values.convert import cast, constant


@hides_frames
def while_loop(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init_val: T) -> T:
    """Applies a function to a state repeatedly, while a condition holds.

        state = init_val
        while cond_fun(state):
            state = body_fun(state)
        return state

    The number of iterations is not known before the loop runs, so there is no reverse-mode
    derivative: for that, use `fori_loop` with Python integers as bounds, or `scan`.

    Args:
      cond_fun: takes the state, returns a boolean scalar.
      body_fun: takes the state, returns the next one.
      init_val: the initial state, a pytree. Its types apply to every state: they may not change.

    Returns:
      The last state.

    Raises:
      TypeError: if `cond_fun` does not return a boolean scalar, or the state changes its structure
        or types.
    """
    leaves, tree = flatten(init_val)
    try:
        key = (body_caches[cond_fun], "while", CURRENT.get().key, tree, *[x.aval for x in leaves])
        loop = body_caches[body_fun].bodies[key]
    except (AttributeError, KeyError, TypeError):
        loop = None
    if loop is not None and not disable_jit.value:
        return loop(leaves)
    check_function("while_loop", "cond_fun", cond_fun)
    check_function("while_loop", "body_fun", body_fun)
    if disable_jit.value:
        try:
            return _in_python(cond_fun, body_fun, init_val)
        except ConcretizationTypeError:  # the condition is traced: no iteration can run in Python
            pass
    return _While(cond_fun, body_fun, leaves, tree).run()


def _in_python(cond_fun: Callable, body_fun: Callable, state: Any) -> Any:
    while cond_fun(state):
        state = body_fun(state)
    return state


def _varying(types: list[ArrayType], names: frozenset[Any]) -> list[ArrayType]:
    """Types of a state after an iteration count that differs along named axes."""
    return [t.vary(names) for t in types] if names else types


class _Carried:
    """A loop whose body may not be staged yet. who: the public function."""

    who = ""

    def __init__(self, body_fun: Callable, leaves: list, tree: Any):
        self.body_fun, self.name, self.tree = body_fun, name_of(body_fun), tree
        self.leaves = [leaf(x, self.who, "init_val", tree, i) for i, x in enumerate(leaves)]

    def staged_body(self, types: list[ArrayType], first: tuple = ()) -> tuple[Body, list]:
        """The body in terms of its inputs, and the types of its carry.

        first: types of the values before the state in the carry.
        """
        count = len(first)
        body, wider = widest(types, lambda types: self._staged_once([*first, *types]), count)
        reject_own_effects(self.who, body.program)
        check_carry(self.who, self.name, self.tree, wider, body.out_types[count:])
        body.program = with_types(body.program, [*first, *wider])
        self.count = len(first) + len(wider)
        return body, [*first, *wider]

    def _staged_once(self, types: list[ArrayType]) -> Body:
        names = ["i"] * (len(types) - len(self.leaves)) + paths_in("carry", self.tree)
        return staged(self.turn, types, self.who, self.name, names, lambda found: found, True)

    def turn(self, *leaves: Any) -> tuple[list[Any], Any]:
        """The carry after one iteration, and its pytree."""
        raise NotImplementedError

    def checked(self, result: Any) -> tuple[list[Any], Any]:
        outs, tree = flatten(result)
        check_carry_tree(self.who, self.name, self.tree, tree)
        return outs, tree


class _While(_Carried):
    who = "while_loop"

    def __init__(self, cond_fun: Callable, body_fun: Callable, leaves: list, tree: Any):
        super().__init__(body_fun, leaves, tree)
        self.cond_fun = cond_fun

    def run(self) -> Any:
        types = [type_of(x) for x in self.leaves]
        key = ("while", CURRENT.get().key, self.tree, *types)
        loop = cached_body((self.body_fun, self.cond_fun), key, lambda: self.staged(types))
        return loop(self.leaves)

    def turn(self, *leaves: Any) -> tuple[list[Any], Any]:
        return self.checked(self.body_fun(self.tree.unflatten(leaves)))

    def staged(self, types: list[ArrayType]) -> tuple[Loop, bool]:
        carry = types
        while True:
            body, carry = self.staged_body(carry)
            test = self._test(carry)
            names = test.out_types[0].varying
            if all([names <= t.varying for t in carry]):
                break
            carry = _varying(carry, names)
        refs = list(dict.fromkeys([*body.refs, *test.refs]))
        test, body = _asking(threading(test, refs)), threading(body, refs)
        programs = shared(test.program), shared(body.program)
        params = WhileParams(*programs, len(test.outside), len(body.outside))
        consts, casts = [*test.outside, *body.outside], casts_of(types, carry)
        kind = _Flagged if test.program.effects else Loop
        op = BoundOp(while_op, params._asdict())
        loop = kind(op, consts, casts, self.tree, refs, self.count)
        return loop, not (test.captures or body.captures)

    def _test(self, carry: list[ArrayType]) -> Body:
        name = name_of(self.cond_fun)
        names = paths_in("carry", self.tree)

        def fun(*leaves: Any) -> Any:
            return self.cond_fun(self.tree.unflatten(leaves))

        test = staged(fun, carry, self.who, name, names, with_refs=True)
        reject_own_effects(self.who, test.program)
        found = test.out_types
        if test.tree != flatten(0)[1]:
            came = f"a pytree {test.tree}"
        elif found[0].shape or not is_bool(found[0].dtype):
            came = found[0].str_short(True)
        else:
            return test
        raise TypeError(
            f"while_loop: {name} must return a boolean scalar, which decides whether to continue; "
            f"it returned {came}."
        )


class _Flagged(Loop):
    """A loop whose test has effects: it runs once before the loop, then in each iteration."""

    def __call__(self, leaves: list[Any]) -> Any:
        self.fit(leaves)
        own = WhileParams(**self.op.params)
        leaves = [*leaves, *values_of(self.refs)]
        (go_on,) = call(*self.consts[: own.num_test], *leaves, program=own.test)
        asked, body = flag_programs(own.body, own.test, own.num_test, own.num_body)
        new = WhileParams(asked, body, 0, len(self.consts))
        _, *outs = while_op(*self.consts, go_on, *leaves, **new._asdict())
        write_back(self.refs, outs[self.at :])
        return self.tree.unflatten(outs[: self.at])


def _asking(test: Body) -> Body:
    """A test that returns no values of refs: it may only read them."""
    p, count = test.program, len(test.refs)
    if not count:
        return test
    for ref, start, end in zip(test.refs, p.inputs[-count:], p.outvars[-count:], strict=True):
        if start is not end:
            raise ValueError(
                f"while_loop: {p.name}, which decides whether to continue, writes to {ref.short}. "
                "It may only read refs: write in the body."
            )
    return replace(test, program=p.replace(outvars=p.outvars[:-count]), refs=())


@hides_frames
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, T], T],
    init_val: T,
    *,
    unroll: int | bool | None = None,
) -> T:
    """Applies a function to a number and a state, for each number from `lower` up to `upper`.

        state = init_val
        for i in range(lower, upper):
            state = body_fun(i, state)
        return state

    With bounds whose values are known the loop is a scan, and has a reverse-mode derivative; else
    it is a `while_loop`, which has none.

    Args:
      lower, upper: integer scalars of one dtype.
      body_fun: takes the number and the state, returns the next state.
      init_val: the initial state, a pytree. Its types apply to every state: they may not change.
      unroll: how many steps one iteration of the compiled loop performs; True for all of them. For
        known bounds only.

    Returns:
      The last state.

    Raises:
      TypeError: if the bounds are not integer scalars of one dtype, or the state changes its
        structure or types.
      ValueError: if `unroll` is given for bounds that are not known.
    """
    leaves, tree = flatten(init_val)
    if type(lower) is int and type(upper) is int:
        try:
            key = _key_of_counted(upper - lower, unroll, tree, [x.aval for x in leaves])
            loop = body_caches[body_fun].bodies[key]
        except (AttributeError, KeyError, TypeError):
            pass
        else:
            return loop([lower, *leaves])[1]
    check_function("fori_loop", "body_fun", body_fun)
    lower, upper = as_arraylike(lower), as_arraylike(upper)
    count_type = _type_of_bounds(lower, upper)
    if isinstance(lower, Tracer) or isinstance(upper, Tracer):
        if unroll not in (None, 0, 1):
            raise ValueError(
                f"fori_loop: unroll={unroll} needs concrete bounds; got "
                f"{type_of(lower).str_short(True)} and {type_of(upper).str_short(True)}, at least "
                "one of which is traced. Use Python integers."
            )
        fori = _Fori(body_fun, leaves, tree)
        names = type_of(lower).varying | type_of(upper).varying
        below, *bounds = [
            pvary(cast(x, count_type.dtype, count_type.weak_type), names) for x in (upper, lower)
        ]
        return fori.below(below)([*bounds, *fori.leaves])[1]
    first, last = int(lower), int(upper)  # pyright: ignore[reportArgumentType] (known)
    if disable_jit.value:
        for i in range(first, last):
            init_val = body_fun(i, init_val)
        return init_val
    fori = _Fori(body_fun, leaves, tree)
    return fori.counted(last - first, unroll)([first, *fori.leaves])[1]


def _type_of_bounds(lower: Any, upper: Any) -> ArrayType:
    try:
        types = [type_of(x) for x in (lower, upper)]
    except TypeError:
        types = []
    if any(t.shape or not is_integer(t.dtype) for t in types) or not types:
        came = (
            " and ".join(t.str_short(True) for t in types) if types else f"{lower!r} and {upper!r}"
        )
        raise TypeError(f"fori_loop: lower and upper must be integer scalars; got {came}.")
    a, b = types
    if a.dtype == b.dtype:
        return a if b.weak_type else b
    if a.weak_type != b.weak_type and np.dtype(a.dtype).kind == np.dtype(b.dtype).kind == "i":
        return b if a.weak_type else a
    raise TypeError(
        f"fori_loop: lower and upper must be of one dtype; got {a.str_short(True)} and "
        f"{b.str_short(True)}. Convert one of them."
    )


def _key_of_counted(length: int, unroll: Any, tree: Any, types: list[ArrayType]) -> tuple:
    """The cache key of a loop; nothing is cached under `disable_jit`, which is in the context."""
    return "fori", length, unroll, type(unroll), CURRENT.get().key, tree, *types


class _Fori(_Carried):
    """A loop whose carry is the number and the user's state."""

    who = "fori_loop"

    def counted(self, length: int, unroll: Any) -> Loop:
        """The loop with this many iterations; it takes the first number, and the leaves."""
        body, casts, cache = self._body(type_of(0))
        turns = max(length, 1) if unroll is True else steps_per_turn("fori_loop", unroll or 1)
        counts = len(body.outside), self.count + len(body.refs)
        params = ScanParams(body.program, *counts, max(length, 0), False, turns)
        loop = self._loop(BoundOp(scan_op, params._asdict()), body, casts, body.outside)
        if not body.captures:
            types = [type_of(x) for x in self.leaves]
            cache.keep(_key_of_counted(length, unroll, self.tree, types), loop)
        return loop

    def below(self, upper: Any) -> Loop:
        """The loop up to a number; it takes the first number, and the leaves."""
        t = type_of(upper)
        body, casts, _ = self._body(t)
        carry = body.program.in_types[len(body.outside) :]

        def is_below(upper: Any, i: Any, *state: Any) -> list[Any]:
            return [lt(i, upper)]

        test = shared(program_of(is_below, [t, *carry], body.program.name))
        params = WhileParams(test, body.program, 1, len(body.outside))
        return self._loop(BoundOp(while_op, params._asdict()), body, casts, [upper, *body.outside])

    def _loop(self, op: BoundOp, body: Body, casts: list, consts: list[Any]) -> Loop:
        return Loop(op, consts, casts, body.tree, body.refs, self.count)

    def _body(self, number: ArrayType) -> tuple[Body, list[tuple[int, ArrayType]], BodyCache]:
        """The body of loops of any length, how leaves are cast for it, and the cache it is in."""
        types = [type_of(x) for x in self.leaves]
        key = ("turn", number, CURRENT.get().key, self.tree, *types)
        cache, key = body_cache_of((self.body_fun,), key)
        self.count = 1 + len(types)
        if key in cache.bodies:
            return *cache.bodies[key], cache
        body, carry = self.staged_body(_varying(types, number.varying), (number,))
        body.program = shared(body.program)
        casts = casts_of([number, *types], carry)
        if not body.captures:
            cache.keep(key, (body, casts))
        return body, casts, cache

    def turn(self, *leaves: Any) -> tuple[list[Any], Any]:
        i, *state = leaves
        outs, _ = self.checked(self.body_fun(i, self.tree.unflatten(state)))
        return [add(i, constant(1, i)), *outs], flatten((0, self.tree.unflatten(outs)))[1]
