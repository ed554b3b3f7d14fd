"""Values that only stand in for private ones of JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shardwise._src.base.context import current
from shardwise._src.ops.elementwise import stop_gradient as stop_gradient_p

__all__ = ["stop_gradient_p"]

F = TypeVar("F", bound=Callable[..., Any])
_exclude_paths: list[str] = []  # of traceback_util: which frames of libraries are hidden


def register_exclusion(path: str) -> None:
    """Says that a file's frames are of no interest in tracebacks."""
    _exclude_paths.append(path)


def include_frame(frame: Any) -> bool:
    return not any(frame.f_code.co_filename.startswith(path) for path in _exclude_paths)


def api_boundary(fun: F, **_: Any) -> F:
    """The function: errors of the library hide its frames themselves."""
    return fun


def trace_state_clean() -> bool:
    """Whether no transform is at work."""
    return current().interpreter.eager
