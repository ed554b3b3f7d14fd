"""Source locations of operations, for JAX-style interpreters: `extend.source_info_util`.

The origin of an equation (`eqn.source_info`) is a `SourceInfo`: the line of user code and the names
in scope there, with those of transforms around them: `outer/vmap(inner)`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shardwise._src.debug.name_scopes import named_scope
from shardwise._src.messages import source
from shardwise._src.messages.source import NameStack, SourceInfo, describe, replay, user_site


def register_exclusion(path: str) -> None:
    """From now on, frames of files whose paths begin with `path` are not user code."""
    source.exclude(path)


def new_source_info() -> SourceInfo:
    """An empty `SourceInfo`."""
    return SourceInfo(None)


def current() -> SourceInfo:
    """The `SourceInfo` of an operation recorded now."""
    return SourceInfo(user_site(2))


def current_name_stack() -> NameStack:
    """The names in scope."""
    return NameStack(source.names_of(replay.scope))


def new_name_stack(name: str = "") -> NameStack:
    """A stack of one name, or an empty stack."""
    return NameStack((name,) if name else ())


def summarize(source_info: Any, num_frames: int = 1) -> str:
    """`file.py:12 (function)`, or `<unknown>:0`.

    Args:
      source_info: from an equation, or from `current()`.
      num_frames: the maximum number of lines; only the innermost one is recorded.
    """
    return describe(source_info.traceback) if num_frames > 0 else ""


extend_name_stack = named_scope


@contextmanager
def set_name_stack(name_stack: NameStack) -> Generator[None]:
    """Replaces the names in scope inside a `with` block."""
    source.use_names()
    outer = replay.scope
    replay.scope = source.with_names(outer, str(name_stack))
    try:
        yield
    finally:
        replay.scope = outer


@contextmanager
def reset_name_stack() -> Generator[None]:
    """Clears the names in scope inside a `with` block."""
    with set_name_stack(NameStack()):
        yield


@contextmanager
def transform_name_stack(name: str) -> Generator[None]:
    """Names in a `with` block are those of a transform's equations: `outer/jvp(inner)`."""
    source.use_names()
    with source.transforming(name):
        yield


@contextmanager
def user_context(traceback: Any, *, name_stack: NameStack | None = None) -> Generator[None]:
    """Operations inside a `with` block get the source location of another operation.

    Args:
      traceback: from a `SourceInfo`; None uses the stack frames.
      name_stack: the names in scope; None leaves them unchanged.
    """
    outer = replay.given
    replay.given = traceback or outer
    try:
        with set_name_stack(name_stack or current_name_stack()):
            yield
    finally:
        replay.given = outer
