"""How a transform enters the programs that ops contain: with a state that it passes through.

    class Largest(Inside): ...                      # a state, and what becomes of it in a program
    outs, state = Largest().enter(eqn, args, state)

A state is a list of values, for example a token, or an error code. The `enter` rule of an op passes
it through its programs: a loop carries it, a branch takes and returns it, and so does a call. A
transform with such a state therefore works with all of these ops, also with those added later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Program
from shardwise._src.core.program_tools import derived
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.ops.sharded.varying import everywhere, tracked_names
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType


class Inside(ABC):
    """What a transform does inside of the programs of an op.

    name:  of the transform, for messages.
    key:   represents what it does, in cache keys.
    types: of the state's values, except for the axes along which they vary.
    at_lowering: whether no other transform follows: custom rules are not needed any more.
    """

    name: str
    key: Hashable
    at_lowering: bool = False
    types: Sequence[ArrayType]

    @abstractmethod
    def has(self, program: Program) -> bool:
        """Whether a program uses or changes the state."""

    @abstractmethod
    def run(
        self, program: Program, args: Sequence[Any], state: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """The results of a program, and the state after it."""

    def fresh(self, op: Op, program: Program) -> Program:
        """The program that starts with zeros as its own state, which its last results are.

        For ops whose program runs on several devices; op: for messages.
        """

        def run(*args: Any) -> list[Any]:
            outs, state = self.run(program, args, [*map(zeros, self.types)])
            return [*outs, *map(everywhere, state)]

        return program_of(run, program.in_types, program.name)

    def plain(self, program: Program) -> Program:
        """The program without what the transform replaces, if results and state are separate."""
        return program

    @abstractmethod
    def join(self, state: Sequence[Any], states: Sequence[Any]) -> Sequence[Any]:
        """The state after several devices changed theirs: these have an additional dimension."""

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash((type(self), self.key))

    def enter(
        self, eqn: Equation, args: Sequence[Any], state: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The results of an equation whose op contains programs, and the state after it."""
        op = eqn.op
        if op.enter is None:
            raise op.missing("enter", self.name)
        given = [reshard_like(everywhere(x), t) for x, t in zip(state, self.types, strict=True)]
        return op.enter(op, self, given, list(args), **eqn.params)

    def program(self, program: Program, at: int = 0, out: int = 0) -> Program:
        """The program with the state's values as arguments from `at` on, and results from `out`."""
        return _with_state(program, self, self.types_here(), at, out)

    def types_here(self) -> tuple[ArrayType, ...]:
        """The types of the state in this scope: its values may vary along all axes."""
        return tuple([t.update(varying=tracked_names()) for t in self.types])


@derived
def _with_state(
    program: Program, inside: Inside, types: tuple[ArrayType, ...], at: int, out: int
) -> Program:
    def run(*args: Any) -> list[Any]:
        end = at + len(types)
        outs, state = inside.run(program, [*args[:at], *args[end:]], args[at:end])
        fitting = map(reshard_like, map(everywhere, state), types)
        return [*outs[:out], *fitting, *outs[out:]]

    given = program.in_types
    return program_of(run, [*given[:at], *types, *given[at:]], program.name)


@derived
def ignoring(program: Program, types: tuple[ArrayType, ...], at: int) -> Program:
    """The program with arguments from `at` on that it does not use."""

    def run(*args: Any) -> list[Any]:
        return program(*args[:at], *args[at + len(types) :])

    given = program.in_types
    return program_of(run, [*given[:at], *types, *given[at:]], program.name)
