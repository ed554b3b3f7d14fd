"""Traceback filtering: removes library frames from errors, and adds the called function's name.

Between a call of `grad`, `jit` or `scan` and the failing line of the user's function there are some
ten frames of this library, and as many between an eager `median` and the check that rejects its
argument. `hide_frames` removes them from errors raised through a function; the innermost frame
stays, even if it is the library's. The flag `traceback_filtering` can switch this off.

Ops, fused functions and operators use `except Exception as error: pass_on(error); raise`, which
costs nothing until an error is raised. `pass_on` also adds the name of the function that the user
called:

    jnp.median(keys)    # TypeError: median: [sort] keys are not numbers …
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from shardwise._src.base.config import traceback_filtering
from shardwise._src.base.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from shardwise._src.messages.called import public_call
from shardwise._src.messages.source import is_own

P = ParamSpec("P")
R = TypeVar("R")


def hides_frames(fun: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that users call, and that calls their functions."""

    @functools.wraps(fun)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise  # a bare raise adds no frame

    return call


def pass_on(error: Exception) -> None:
    """Must be called when an error passes through, before it is raised again.

    Hides frames, and names the library function that was called, unless the message does.
    """
    entries = _entries(error)
    if all(is_own(entry.tb_frame.f_code.co_filename) for entry in entries):
        _name_call(error)
    _hide(error, entries)


def hide_frames(error: Exception) -> None:
    """Removes library frames from an error's traceback, except for the innermost frame."""
    _hide(error, _entries(error))


def _entries(error: Exception) -> list[TracebackType]:
    found: list[TracebackType] = []
    entry = error.__traceback__
    while entry is not None:
        found.append(entry)
        entry = entry.tb_next
    return found


def _hide(error: Exception, entries: list[TracebackType]) -> None:
    if traceback_filtering.value == "off":
        return
    kept: TracebackType | None = None
    for entry in reversed(entries):
        if entry is entries[-1] or not is_own(entry.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = kept


# Errors about a traced value, which report where it comes from. (An error about a deleted array is
# a RuntimeError.)
_OF_VALUES = (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
_OF_AN_OP = re.compile(r"\[(\w+)\] ")


def _name_call(error: Exception) -> None:
    """Prefixes an error message with the name of the called function, which replaces the name of
    the op if one of the function's ops raised the error."""
    of_a_value = isinstance(error, _OF_VALUES) or type(error) is RuntimeError
    if of_a_value or list(map(type, error.args)) != [str]:
        return
    text, name = error.args[0], public_call()
    if not name:
        return
    if op := _OF_AN_OP.match(text):
        error.args = (f"{name}: {text[op.end() :]}",)
    elif not text.startswith(f"{name}: ") and not re.search(rf"\b{re.escape(name)}\b", text):
        error.args = (f"{name}: {text}",)
