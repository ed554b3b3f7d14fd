"""Where operations come from, in the words of interpreters for JAX: `extend.source_info_util`.

What an equation says of its origin (`eqn.source_info`) is a `SourceInfo`: the line of the user's,
and the names in scope there. Names of transforms are not kept: what a transform makes of a program
has the names of that program.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shardwise._src.api.naming import named_scope
from shardwise._src.messages import source
from shardwise._src.messages.source import NameStack, SourceInfo, describe, replay, user_site


def register_exclusion(path: str) -> None:
    """From now on, frames of files whose paths begin with this one are not the user's."""
    source.exclude(path)


def new_source_info() -> SourceInfo:
    """One that says nothing."""
    return SourceInfo(None)


def current() -> SourceInfo:
    """That of an operation that would be recorded now."""
    return SourceInfo(user_site(2))


def current_name_stack() -> NameStack:
    """The names in scope."""
    return NameStack(source.names_of(replay.scope))


def new_name_stack(name: str = "") -> NameStack:
    """A stack of one name, or of none."""
    return NameStack((name,) if name else ())


def summarize(source_info: Any, num_frames: int = 1) -> str:
    """`file.py:12 (function)`, or `<unknown>:0`.

    Args:
      source_info: of an equation, or `current()`.
      num_frames: how many lines at most; the innermost is the only one that is kept.
    """
    return describe(source_info.traceback) if num_frames > 0 else ""


extend_name_stack = named_scope


@contextmanager
def set_name_stack(name_stack: NameStack) -> Generator[None]:
    """The names in scope are these ones, inside a `with` block."""
    source.use_names()
    outer = replay.scope
    replay.scope = source.with_names(outer, str(name_stack))
    try:
        yield
    finally:
        replay.scope = outer


@contextmanager
def reset_name_stack() -> Generator[None]:
    """No names are in scope, inside a `with` block."""
    with set_name_stack(NameStack()):
        yield


@contextmanager
def transform_name_stack(name: str) -> Generator[None]:
    """The names in scope are those of what a transform of this name makes: `jvp(outer/inner)`."""
    with set_name_stack(NameStack((f"{name}({current_name_stack()})",))):
        yield


@contextmanager
def user_context(
    traceback: Any, *, name_stack: NameStack | None = None
) -> Generator[None]:
    """Operations inside a `with` block come from where another one came from.

    Args:
      traceback: of a `SourceInfo`; None leaves it to the frames.
      name_stack: the names in scope; None leaves them.
    """
    outer = replay.given
    replay.given = traceback or outer
    try:
        with set_name_stack(name_stack or current_name_stack()):
            yield
    finally:
        replay.given = outer
