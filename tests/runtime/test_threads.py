"""Threads at the end of Python, which starts no threads then since 3.12."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardwise._src.runtime import threads


@pytest.fixture
def no_starts(monkeypatch):
    """Returns a function after which Python starts no threads; some may have been reserved."""
    monkeypatch.setattr(threads, "_reserve", threads._Reserve())

    def reject(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    return lambda: monkeypatch.setattr(threading.Thread, "start", reject)


def test_a_task_runs_in_a_thread_and_is_waited_for():
    go, seen = threading.Event(), []

    def work():
        go.wait(30)
        seen.append(threading.current_thread())

    task = threads.start(work, "test")
    assert not task.join(0) and task.is_alive()
    go.set()
    assert task.join(30) and not task.is_alive()
    assert (seen[0].name, seen[0].daemon) == ("shardwise-test", True)


def test_reserved_threads_work_where_none_start(no_starts):
    threads.reserve()
    threads.reserve()  # reserves no more
    no_starts()
    go, seen = threading.Event(), []

    def work():
        go.wait(30)
        seen.append(threading.current_thread().name)

    tasks = [threads.start(work, "test") for _ in range(threads.RESERVE)]
    assert not any(task.join(0) for task in tasks)
    go.set()
    assert all(task.join(30) for task in tasks)
    assert seen == ["shardwise-reserve"] * threads.RESERVE
    threads.start(lambda: seen.append("again"), "test").join(30)
    assert seen[-1] == "again"


def test_without_a_reserve_the_work_is_done_here(no_starts):
    no_starts()
    seen = []
    task = threads.start(lambda: seen.append(threading.get_ident()), "test")
    assert seen == [threading.get_ident()] and task.join(0)
    with pytest.raises(RuntimeError):
        threads.reserve()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork")
def test_a_forked_child_has_no_reserve(no_starts):
    reserve = threads._Reserve()
    reserve.fill(1)
    reserve.clear()  # `os.register_at_fork` calls this
    assert not reserve.take(threads.Task(lambda: None))


def test_an_executor_that_takes_no_calls():
    executor = ThreadPoolExecutor(1)
    assert threads.submit(executor, max, 1, 2).result(30) == 2
    executor.shutdown()
    assert threads.submit(executor, max, 1, 2).result(0) == 2
    with pytest.raises(ZeroDivisionError):
        threads.submit(executor, divmod, 1, 0).result(0)


def test_a_call_that_is_queued_though_no_thread_starts_is_made_once(no_starts):
    """An executor queues a call before it starts a thread for it."""
    go, calls = threading.Event(), []
    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(go.wait, 60)
        no_starts()
        threads.submit(executor, calls.append, 1).result(0)
        go.set()
        assert first.result(60)
    assert calls == [1]
