"""`os.fork`: a child has none of the threads that run programs, so that it would wait forever.

Once devices were started, a fork is warned of, once in a process; and in the child every way to
devices and arrays raises. What leads there says so: attributes of modules and classes that are
`closed_by_fork` are replaced in the child by a function that raises, so that calls in the parent
pay nothing. A child that does not touch the library runs as ever, and so do those that `subprocess`
starts, or `multiprocessing` by other methods than "fork".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from shardwise._src.base.warn import warn

_closed: list[tuple[Any, str]] = []
_forgotten: list[Callable[[], Any]] = []


class _State:
    """devices: whether any were started in this process; warned: of a fork, or in a parent."""

    devices = False
    warned = False
    parent = 0


def closed_by_fork(owner: Any, *names: str) -> None:
    """Functions of a module or methods of a class that raise in children of this process."""
    _closed.extend((owner, name) for name in names)


def forgotten_by_fork(forget: Callable[[], Any]) -> None:
    """What is called in a child, to drop what it would wait for."""
    _forgotten.append(forget)


def devices_started() -> None:
    _State.devices = True


def _before() -> None:
    if not _State.devices or _State.warned:
        return
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] (who forks)
    if frame.f_globals.get("__name__") == "subprocess":  # it runs another program then
        return
    _State.warned = True
    warn(
        "os.fork() after shardwise has started its devices: the child has none of the threads that "
        "run programs, and every use of an array there will raise. Start processes by "
        'multiprocessing.get_context("spawn") or "forkserver", or fork before the first array.',
        RuntimeWarning,
    )


def _in_child() -> None:
    if not _State.devices or _State.parent:
        return
    _State.parent = os.getppid()
    for owner, name in _closed:
        setattr(owner, name, _refuse)
    for forget in _forgotten:
        forget()


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        f"this process, {os.getpid()}, was forked from process {_State.parent}, in which shardwise "
        "had started its devices. Their threads are not here, so arrays cannot be read, made or "
        'computed with. Start processes by multiprocessing.get_context("spawn") or "forkserver", '
        "or fork before the first array."
    )


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_child=_in_child)
