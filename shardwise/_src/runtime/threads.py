"""Threads that can also be started during interpreter shutdown.

    task = start(work, "drain")
    if not task.join(5.0):
        ...                       # it continues, as a daemon thread

Python 3.12 does not start threads after the main program has ended, even before exit handlers run.
At that point, work goes to one of a few threads that `reserve` has started earlier. Without these
(a single-process program does not reserve any) `start` runs the work itself, and returns when it is
done; so work that may run forever requires a reserved thread.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from shardwise._src.base.interrupts import import_module

with suppress(RuntimeError):  # it cannot be imported during interpreter shutdown
    import_module("concurrent.futures.thread")

RESERVE = 4  # threads; at the end, two write, one waits for programs, one answers the coordinator


class Task:
    """Work that runs in a thread."""

    def __init__(self, work: Callable[[], object]):
        self._work = work
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            self._work()
        finally:
            self._ended.set()

    def join(self, seconds: float | None = None) -> bool:
        """Waits until the work is done, for at most `seconds`; returns whether it is."""
        return self._ended.wait(seconds)

    def is_alive(self) -> bool:
        return not self._ended.is_set()


class _Reserve:
    """Threads that wait for work."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._count = 0

    def fill(self, count: int) -> None:
        for _ in range(self._count, count):
            threading.Thread(
                target=self._serve, args=(self._tasks,), name="shardwise-reserve", daemon=True
            ).start()
            self._count += 1

    def take(self, task: Task) -> bool:
        """Passes the task to one of the threads, if there are any."""
        if self._count:
            self._tasks.put(task)
        return self._count > 0

    @staticmethod
    def _serve(tasks: queue.SimpleQueue[Task]) -> None:
        while True:
            tasks.get().run()


_reserve = _Reserve()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_reserve.clear)


def reserve() -> None:
    """Starts the threads for work at shutdown, unless already started.

    Raises:
      RuntimeError: Python or the system cannot start threads.
    """
    _reserve.fill(RESERVE)


def start(work: Callable[[], object], name: str, *, daemon: bool = True) -> Task:
    """Runs `work`, which must not raise, in a thread `shardwise-NAME`."""
    task = Task(work)
    try:
        threading.Thread(target=task.run, name=f"shardwise-{name}", daemon=daemon).start()
    except RuntimeError:  # interpreter shutdown
        if not _reserve.take(task):
            task.run()
    return task


def future_of(work: Callable[[], Any], name: str) -> Future[Any]:
    """Runs `work` in a thread `shardwise-NAME`, for its result or exception."""
    made: Future[Any] = Future()
    start(lambda: _fill(made, work), name)
    return made


def result_of(work: Callable[[], Any], name: str) -> Any:
    """Runs `work` in another thread; returns its result or raises its exception."""
    return future_of(work, name).result()


def submit(executor: Executor, call: Callable[..., Any], *args: Any) -> Future[Any]:
    """Submits a call to an executor. During shutdown, executors reject it: it is made here."""
    made: Future[Any] = Future()
    turns = itertools.count()

    def once() -> None:
        if next(turns) == 0 and made.set_running_or_notify_cancel():
            _fill(made, lambda: call(*args))

    try:
        executor.submit(once)
    except RuntimeError:  # the executor may have queued it nevertheless
        once()
    return made


def _fill(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
