"""Names for parts of programs, shown in the metadata of compiled programs and in profiles.

    with named_scope("attention"):
        y = softmax(q @ k)          # op_name="jit(f)/attention/dot_general", …

Names in scope are stored in the sites of equations (`messages.source`), which transforms preserve,
and are written to the program's module. They have no other effect: programs that are staged
without names are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import ParamSpec, TypeVar

from shardwise._src.messages import source
from shardwise._src.messages.source import replay

P = ParamSpec("P")
T = TypeVar("T")


class named_scope(ContextDecorator):
    """Names the computations inside a `with` block, or a function that it decorates.

    Names of nested blocks are joined: `outer/inner`. Jitted code carries them into the metadata of
    its instructions: `jit(f)/outer/inner/sin`; reports of communication and profiles show them.
    Around eager code they do nothing, nor around a call of a jitted function that is not inside
    another one.

    Args:
      name: a nonempty string.

    Raises:
      TypeError: if the name is not a string.
      ValueError: if it is empty.
    """

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(
                f"shardwise.named_scope takes a name; got {name!r} of type {type(name).__name__}."
            )
        if not name:
            raise ValueError("shardwise.named_scope takes a name; got an empty string.")
        self.name = name
        self._outer: list[str] = []

    def _recreate_cm(self) -> named_scope:  # threads may call one decorated function
        return named_scope(self.name)

    def __enter__(self) -> None:
        source.use_names()
        outer = replay.scope
        self._outer.append(outer)
        replay.scope = f"{outer}/{self.name}" if outer else self.name

    def __exit__(self, *_: object) -> None:
        replay.scope = self._outer.pop()


def named_call(fun: Callable[P, T], *, name: str | None = None) -> Callable[P, T]:
    """The function with `named_scope` around each of its calls.

    Args:
      fun: any function.
      name: of the scope; by default the name of the function.
    """
    own: str = getattr(fun, "__name__", type(fun).__name__)
    return named_scope(own if name is None else name)(fun)
