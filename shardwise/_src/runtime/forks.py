"""`os.fork`: a child lacks the threads that run programs, so it would wait forever.

After devices were started, the first fork in a process issues a warning, and in the child every
access to devices and arrays raises. Attributes of modules and classes that are registered with
`closed_by_fork` are replaced in the child by a function that raises, so that calls in the parent
have no overhead. A child that does not use the library runs normally, as do children started by
`subprocess`, or by `multiprocessing` with methods other than "fork".
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
    """devices: whether any were started in this process; warned: whether a fork was warned about,
    here or in a parent; parent: pid of the parent, in a child."""

    devices = False
    warned = False
    parent = 0


def closed_by_fork(owner: Any, *names: str) -> None:
    """Registers functions of a module or methods of a class that raise in forked children."""
    _closed.extend((owner, name) for name in names)


def forgotten_by_fork(forget: Callable[[], Any]) -> None:
    """Registers a function that is called in a child, to drop objects that it would wait for."""
    _forgotten.append(forget)


def devices_started() -> None:
    _State.devices = True


def _before() -> None:
    if not _State.devices or _State.warned:
        return
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] (the forking frame)
    if frame.f_globals.get("__name__") == "subprocess":  # the child runs another program
        return
    _State.warned = True
    warn(
        "os.fork() after shardwise has started its devices: the child has none of the threads that "
        "run programs, so every use of an array there will raise. Start processes with "
        'multiprocessing.get_context("spawn") or "forkserver", or fork before the first array.',
        RuntimeWarning,
    )


def _in_child() -> None:
    if not _State.devices or _State.parent:
        return
    _State.parent = os.getppid()
    for owner, name in _closed:
        setattr(owner, name, _reject)
    for forget in _forgotten:
        forget()


def _reject(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        f"this process, {os.getpid()}, was forked from process {_State.parent}, in which shardwise "
        "had started its devices. Their threads do not exist here, so arrays cannot be read, "
        'created or used. Start processes with multiprocessing.get_context("spawn") or '
        '"forkserver", or fork before the first array.'
    )


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_child=_in_child)
