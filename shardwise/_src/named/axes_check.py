"""`check`: checks an entire program for consistent logical axes.

Declarations compare sizes; two axes of the same size may still be mixed up. So `check` stages
the program, in which each declaration is an equation, and follows every axis through the equations:
the `dims` rule of an op defines its effect on dimensions. An axis with two names in one function
call is an error. Functions that call each other may have different names for it.

It does not follow axes that are merged or split, or that an op operates along; nor from one
iteration of a loop to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.core.program import Atom, Equation, Program, Var
from shardwise._src.jit.eval_shape import make_jaxpr
from shardwise._src.messages.source import describe
from shardwise._src.named.axes_op import axes_op
from shardwise._src.named.declarations import checking
from shardwise._src.named.logical_axes import ANY, NONE

Call = tuple[Any, ...]


class Axis:
    """An axis of values, as far as it has been followed; `same` is an axis identified with it."""

    __slots__ = ("same", "words")

    def __init__(self, words: dict[Call, tuple[str, str]] | None = None) -> None:
        self.same: Axis | None = None
        self.words = words or {}  # by call: the name, and where it was declared

    def root(self) -> Axis:
        found = self
        while found.same is not None:
            found = found.same
        return found


def check(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Follows all logical axes through a function, for arguments or ShapeDtypeStructs like them.

    Nothing is computed. The declarations of functions (`checked`, `axes`, patterns) are compared
    with the actual axes in between, including derivatives and loops.

    Raises:
      ValueError: if an axis has two names in one function call; also any exception of the function
        itself during staging.
    """
    with checking(itertools.count()):
        program = make_jaxpr(fun)(*args, **kwargs)
    _Check().run(program, {}, ())


class _Check:
    """The axes of all variables of a program being checked."""

    def run(self, program: Program, axes: dict[Var, list[Axis]], call: Call) -> None:
        """axes: those of the inputs, if known; extended to all variables."""
        for eqn in program.eqns:
            if eqn.op is axes_op:
                self._border(eqn, axes, call)
            elif eqn.op.programs:
                for held in eqn.programs():
                    self._held(eqn, held, axes, (*call, id(eqn)))
            elif eqn.op.dims is not None and eqn.invars:
                self._follow(eqn, axes)

    def _border(self, eqn: Equation, axes: dict[Var, list[Axis]], call: Call) -> None:
        p = eqn.params
        where = f"{p['who']}, at {describe(eqn.site)}"
        olds, news = _axes(eqn.invars[0], axes), _axes(eqn.outvars[0], axes)
        for old, new, word, other in zip(olds, news, p["words"], p["to"], strict=True):
            if word == other:
                _unite(old, new, eqn)
            for axis, said in ((old, word), (new, other)):
                if said not in (ANY, NONE):
                    _unite(axis, Axis({(*call, p["call"]): (said, where)}), eqn)

    def _follow(self, eqn: Equation, axes: dict[Var, list[Axis]]) -> None:
        """Identifies axes that have the same factor."""
        rule: Any = eqn.op.dims
        dims = rule(eqn.op, *[a.aval for a in eqn.invars], **eqn.params)
        first: dict[Any, tuple[Axis, int]] = {}
        for atoms, rows in ((eqn.invars, dims.inputs), (eqn.outvars, dims.outputs)):
            for atom, factors in zip(atoms, rows, strict=True):
                own = zip(_axes(atom, axes), factors, atom.aval.shape, strict=False)
                for axis, factor, size in own:
                    if isinstance(factor, str):
                        other, its_size = first.setdefault(factor, (axis, size))
                        if size == its_size:
                            _unite(other, axis, eqn)

    def _held(self, eqn: Equation, held: Program, axes: dict[Var, list[Axis]], call: Call) -> None:
        """A program in an equation: identifies its arguments with the equation's last operands.

        An argument with one dimension less is a slice of its operand along the first dimension.
        """
        inside: dict[Var, list[Axis]] = {}
        count = len(held.invars)
        if len(eqn.invars) - count in (0, 1):  # branches do not get the index operand
            operands = eqn.invars[len(eqn.invars) - count :]
            _link(operands, axes, held.invars, inside, eqn)
        self.run(held, inside, call)
        if len(held.outvars) == len(eqn.outvars):
            _link(eqn.outvars, axes, held.outvars, inside, eqn)


def _link(
    outer: Sequence[Atom],
    axes: dict[Var, list[Axis]],
    inner: Sequence[Atom],
    inside: dict[Var, list[Axis]],
    eqn: Equation,
) -> None:
    for x, y in zip(outer, inner, strict=True):
        more = x.aval.ndim - y.aval.ndim
        if more in (0, 1):
            for one, other in zip(_axes(x, axes)[more:], _axes(y, inside), strict=True):
                _unite(one, other, eqn)


def _axes(atom: Atom, axes: dict[Var, list[Axis]]) -> list[Axis]:
    if not isinstance(atom, Var):
        return []
    return axes.setdefault(atom, [Axis() for _ in range(atom.aval.ndim)])


def _unite(one: Axis, other: Axis, eqn: Equation) -> None:
    one, other = one.root(), other.root()
    if one is other:
        return
    for call, (word, where) in other.words.items():
        held, there = one.words.setdefault(call, (word, where))
        if held != word:
            raise ValueError(
                f"named.check: one axis is named {held!r} ({there}) and {word!r} ({where}) in the "
                f"same function; the two meet in {eqn.op.name!r}, at {describe(eqn.site)}. If "
                "the dimensions are in the wrong order, `rearrange` them; if one "
                "axis should have two names, use `shardwise.named.rename`."
            )
    other.same = one
