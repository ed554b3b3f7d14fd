"""What the leading launcher learns about processes that end, however late its threads run."""

import os
import threading

import pytest

from shardwise._src.distributed.status_files import LaunchStatus
from shardwise._src.launch import leader as module
from shardwise._src.launch import worker_output
from shardwise._src.launch.leader import Leader
from shardwise._src.launch.local_agent import Events, LocalAgent
from shardwise._src.launch.rank_assignment import Share
from shardwise._src.launch.worker_output import Output, Stream
from shardwise._src.launch.worker_reports import report
from shardwise._src.launch.workers import Plan


class Crew:
    """Four processes; 1 and 3 were killed. The event of 1 arrives when the leader checks for it."""

    generation, share = 0, Share(0, 4, 4)

    def __init__(self, events):
        self.events = events
        events.post("ended", 0, 3)

    def report(self, rank):
        return report(rank, f"process {rank}", -9, [])

    def dead(self):
        if self.events is not None:
            self.events.post("ended", 0, 1)
            self.events = None
        return {1, 3}


@pytest.fixture
def lead(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    notice = LaunchStatus({})
    plan = Plan(("program.py",), 4, restarts=1, least=2)
    yield Leader(LocalAgent(plan, Events(), "mark", (), notice))
    notice.remove()


def test_all_that_were_killed_count_however_late_their_ends_are_heard_of(lead, monkeypatch):
    monkeypatch.setattr(module, "LOSSES", 0.0)
    found = lead._watch(Crew(lead._events))
    assert [(r.rank, r.lost) for r in found] == [(3, True), (1, True)]


def test_last_words_are_waited_for_until_they_are_read(monkeypatch):
    """Also if the thread that reads them is late, and a child of the process keeps stderr open."""
    go, writing, drained = threading.Event(), threading.Event(), threading.Event()

    def slow(target, data):
        writing.set()
        go.wait()

    monkeypatch.setattr(worker_output, "write", slow)
    ours, theirs = os.pipe()
    stream = Stream(os.fdopen(ours, "rb"), 1, 0, None, keep=True)
    passed_on = Output([stream], lambda: None)
    os.write(theirs, b"first\n")
    writing.wait()
    os.write(theirs, b"its last words\n")

    def drain():
        stream.drain(1e6)
        drained.set()

    threading.Thread(target=drain, daemon=True).start()
    assert [*stream.tail] == [b"first\n"] and not drained.is_set()
    go.set()
    drained.wait()
    assert [*stream.tail] == [b"first\n", b"its last words\n"]
    os.close(theirs)
    passed_on.finish(lambda: False)
