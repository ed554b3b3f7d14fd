"""`debug_key_reuse`: finds keys that are used twice, before a program runs.

While the flag is on, each program with keys is traversed once, without running it: keys are
numbered, and a key array is represented by an array of numbers, to which ops that only move
elements are applied. An op that draws consumes its keys; `split`, `fold_in` and `clone` make new
ones. The used keys of arrays are recorded, for the programs that the arrays are passed to next.

    key = random.key(0)
    random.normal(key)
    random.normal(key)      # KeyReuseError

Two iterations represent a loop, and all branches are traversed. Keys at positions that are unknown
before the program runs are treated as new ones. Raw keys are ordinary numbers.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.base.config import debug_key_reuse
from shardwise._src.base.errors import KeyReuseError
from shardwise._src.core.eval_context import eval_context_without
from shardwise._src.core.op import Elements, Op
from shardwise._src.core.program import Equation, Program, eval_program, held_in
from shardwise._src.core.program_tools import consts_to_args, derived, walk
from shardwise._src.messages.source import Site, describe, user_site
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import KeyDType, is_integer

FEW = 16  # maximum elements of values computed as possible key indices
_PLACES = ["", "an unknown line"]  # lines that used keys, by number from 1, without duplicates
_NUMBERS = {text: i for i, text in enumerate(_PLACES)}


def _number(site: Site | None) -> int:
    text = _PLACES[1] if site is None else describe(site)
    if text not in _NUMBERS:
        _NUMBERS[text] = len(_PLACES)
        _PLACES.append(text)
    return _NUMBERS[text]


def _error(here: int, before: int) -> KeyReuseError:
    return KeyReuseError(
        f"a key is used at {_PLACES[here]} that was already used at {_PLACES[before]}. Make new "
        "keys with `shardwise.random.split` or `fold_in`; `clone` allows a key to be used again on "
        "purpose. The flag debug_key_reuse enables this check."
    )


@derived
def has_keys(program: Program) -> bool:
    """Whether a value of it, or of a nested program, consists of keys."""
    made = [v for eqn in walk(program) for v in eqn.outvars]
    return any(_is_key(x.aval) for x in (*program.inputs, *made))


def _is_key(t: ArrayType) -> bool:
    return isinstance(t.dtype, KeyDType)


# -- traversal of a program --


class Keys(NamedTuple):
    """A value that consists of keys: their numbers."""

    ids: np.ndarray


class Flow:
    """The keys that a program uses. Values are `Keys`, small known ones, or None.

    marks: for each key, the number of the line that used it, or 0.
    constants: arrays of keys that are constants of programs, with their numbers.
    """

    def __init__(self) -> None:
        self.marks = np.zeros(64, np.int32)
        self.count = 0
        self.constants: dict[int, tuple[Any, Keys]] = {}

    def fresh(self, shape: tuple[int, ...], used: int = 0) -> Keys:
        """New keys."""
        start, self.count = self.count, self.count + math.prod(shape)
        if self.count > self.marks.size:
            self.marks = np.pad(self.marks, (0, self.count))
        self.marks[start : self.count] = used
        return Keys(np.arange(start, self.count, dtype=np.int32).reshape(shape))

    def use(self, keys: Any, site: Site | None) -> None:
        """Consumes keys."""
        before, here = self.marks[keys.ids], _number(site)
        if before.any():
            raise _error(here, int(before.max()))
        self.marks[keys.ids] = here

    def mark(self, keys: Any) -> int:
        """The line that used one of the keys, or 0."""
        return int(self.marks[keys.ids].max(initial=0)) if isinstance(keys, Keys) else 0

    def row(self, x: Any, i: int) -> Any:
        return Keys(np.asarray(x.ids[i])) if isinstance(x, Keys) else None

    def as_first(self, x: Any) -> None:
        """Marks all rows as used if the first one is."""
        if isinstance(x, Keys) and len(x.ids) and self.mark(self.row(x, 0)):
            rest = x.ids[2:]
            self.marks[rest] = np.where(self.marks[rest], self.marks[rest], self.marks[x.ids[0]])

    def stacked(self, y: Any, length: int) -> Any:
        if not isinstance(y, Keys):
            return None
        return self.fresh((length, *y.ids.shape), self.mark(y))

    def either(self, programs: Sequence[Program], args: Sequence[Any]) -> list[Any]:
        """One of several programs: the keys that any of them uses count as used."""
        start, found, marks = self.marks.copy(), [], self.marks
        for program in programs:
            self.marks = np.zeros(self.marks.size, np.int32)
            self.marks[: start.size] = start
            found.append(self.through(program, args))
            marks = np.maximum(np.pad(marks, (0, self.marks.size - marks.size)), self.marks)
        self.marks = marks
        return [self._merged(xs) for xs in zip(*found, strict=True)]

    def _merged(self, xs: Sequence[Any]) -> Any:
        keys = [x for x in xs if isinstance(x, Keys)]
        if len(keys) < len(xs):
            return None
        if all(np.array_equal(k.ids, keys[0].ids) for k in keys):
            return keys[0]
        return self.fresh(keys[0].ids.shape, max(map(self.mark, keys)))

    def through(self, program: Program, args: Sequence[Any]) -> list[Any]:
        """The results of a program. Inside maps over meshes, keys represent shards of the outer
        ones: if one is used, all are."""
        program, constants = consts_to_args(program)
        given, linked = [], []
        for var, x in zip(program.inputs, [*map(self._constant, constants), *args], strict=True):
            if isinstance(x, Keys) and x.ids.shape != var.aval.shape:
                inner = self.fresh(var.aval.shape, self.mark(x))
                linked.append((x, inner))
                x = inner
            elif x is None and _is_key(var.aval):
                x = self.fresh(var.aval.shape)
            given.append(x)
        outs = eval_program(program, given, self.equation)
        for outer, inner in linked:
            self.marks[outer.ids] = np.maximum(self.marks[outer.ids], self.mark(inner))
        return outs

    def _constant(self, x: Any) -> Any:
        if x.__class__ is not Array or not _is_key(x.aval):
            return None
        if id(x) not in self.constants:
            self.constants[id(x)] = x, self.fresh(x.shape)
        return self.constants[id(x)][1]

    # -- equations --

    def equation(self, eqn: Equation, values: list[Any]) -> list[Any]:
        op, keys = eqn.op, [v for v in values if isinstance(v, Keys)]
        outs: Sequence[Any] = ()
        if op.programs:
            outs = self._holding(eqn, values, keys)
        elif op.consumes_key:
            for k in keys:
                self.use(k, eqn.site)
        elif keys and op.elements is Elements.MOVED:
            outs = self._moved(op, values, eqn)
        elif not keys and not op.effects and op.elements is not Elements.KNOWN:
            outs = self._known(op, values, eqn)
        found: list[Any] = [None] * len(eqn.outvars)
        found = [*outs] if len(outs) == len(found) else found
        for i, var in enumerate(eqn.outvars):
            if _is_key(var.aval):
                old = found[i]
                if not isinstance(old, Keys) or old.ids.shape != var.aval.shape:
                    found[i] = self.fresh(var.aval.shape, self.mark(old))
        return found

    def _holding(self, eqn: Equation, values: list[Any], keys: list[Keys]) -> list[Any]:
        if (rule := eqn.op.contains.key_reuse) is not None:
            return rule(eqn.op, self, values, **eqn.params)
        programs = list(held_in(eqn.op, eqn.params))
        if len(programs) == 1 and len(programs[0].invars) == len(values):
            return self.through(programs[0], values)
        for k in keys:
            self.use(k, eqn.site)
        return []

    def _moved(self, op: Op, values: list[Any], eqn: Equation) -> list[Any]:
        """The op applied to the numbers; an empty list if an index is unknown."""
        if op.shardings or op.multiple:  # unchanged
            return values if len(values) == len(eqn.outvars) else []
        if None in [None if v is None else 0 for v in values]:
            return []
        with eval_context_without(debug_key_reuse.name):
            try:
                found = op(*[v.ids if isinstance(v, Keys) else v for v in values], **eqn.params)
                return [Keys(np.asarray(found))]
            except Exception:  # it needs the scope of the running program
                return []

    def _known(self, op: Op, values: list[Any], eqn: Equation) -> list[Any]:
        small = op.multiple or any(v is None or np.size(v) > FEW for v in values)
        if small or any(not is_integer(v.aval.dtype) or v.aval.size > FEW for v in eqn.outvars):
            return []
        with eval_context_without(debug_key_reuse.name):
            try:
                return [np.asarray(op(*values, **eqn.params))]
            except Exception:  # as above
                return []


class _Walked(NamedTuple):
    """A traversed program: the numbers of its arguments and results, and marks."""

    arguments: list[Any]
    constants: list[tuple[Any, Keys]]
    results: list[Any]
    marks: np.ndarray


@derived
def _walked(program: Program, places: tuple[tuple[int, int], ...]) -> _Walked:
    """places: positions and values of arguments that may be indices of keys."""
    flow, known = Flow(), dict(places)
    given = [
        flow.fresh(v.aval.shape) if _is_key(v.aval) else known.get(i)
        for i, v in enumerate(program.invars)
    ]
    results = flow.through(program, given)
    return _Walked(given, [*flow.constants.values()], results, flow.marks)


# -- keys of arrays --


class _Held(NamedTuple):
    """The marks of the keys of one or more arrays that share keys, and the array's own indices."""

    marks: np.ndarray
    ids: np.ndarray


_HELD: dict[int, tuple[weakref.ref[Array], _Held]] = {}


def _held(x: Array) -> _Held:
    found = _HELD.get(id(x))
    if found is not None and found[0]() is x:
        return found[1]
    return _hold(x, _Held(np.zeros(x.size, np.int32), np.arange(x.size).reshape(x.shape)))


def _hold(x: Array, held: _Held) -> _Held:
    place = id(x)
    _HELD[place] = weakref.ref(x, lambda _: _HELD.pop(place, None)), held
    return held


def key_checked(
    program: Program, run: Callable[[Sequence[Any]], Any], eager: bool
) -> Callable[[Sequence[Any]], Any]:
    """Wraps the function that runs a program: raises if a key is used again.

    eager: whether the program is an eager op or fused function, at the user's current line.

    Raises:
      KeyReuseError: naming both lines.
    """

    def checked(args: Sequence[Any]) -> Any:
        places = tuple(
            [
                (i, int(np.asarray(a)))
                for i, a in enumerate(args)
                if eager and a.__class__ is Array and not a.shape and is_integer(a.dtype)
            ]
        )
        walked = _walked(program, places)
        here = _number(user_site()) if eager else 0
        inputs = [
            (a, k)
            for a, k in zip(args, walked.arguments, strict=False)
            if isinstance(k, Keys) and a.__class__ is Array
        ]
        inputs += walked.constants
        helds = [_held(a) for a, _ in inputs]
        for (_, k), held in zip(inputs, helds, strict=True):
            used, before = walked.marks[k.ids], held.marks[held.ids]
            again = (used > 0) & (before > 0)
            if again.any():
                raise _error(here or int(used[again][0]), int(before[again][0]))
            held.marks[held.ids] = np.where(used > 0, here or used, before)
        result = run(args)
        sources = [(k, held) for (_, k), held in zip(inputs, helds, strict=True)]
        for x, k in zip(flatten(result)[0], walked.results, strict=False):
            if isinstance(k, Keys) and x.__class__ is Array:
                _hold(x, _of_result(k.ids, sources, walked.marks))
        return result

    return checked


def _of_result(ids: np.ndarray, sources: list[tuple[Any, _Held]], marks: np.ndarray) -> _Held:
    """Keys of a single argument keep their marks; others become new ones with the same usage."""
    found = marks[ids].ravel().astype(np.int32)
    for keys, held in sources:
        if not ids.size or not keys.ids.size:
            continue
        start = int(keys.ids.flat[0])
        inside = (ids >= start) & (ids < start + keys.ids.size)
        if inside.all():
            return _Held(held.marks, held.ids.ravel()[ids - start])
        own = held.marks[held.ids.ravel()[np.where(inside, ids - start, 0)]]
        found = np.where(inside, own, found.reshape(ids.shape)).ravel()
    return _Held(found, np.arange(ids.size).reshape(ids.shape))
