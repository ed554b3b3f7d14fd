"""Frames of other threads, while these run."""

import itertools
import subprocess
import sys
import threading
from pathlib import Path

from shardwise._src.base.frames import frames_by_thread
from tests.helpers.patience import seconds

ROOT = Path(__file__).parents[2]

# Each time, the thread returns from `inner` and calls others in a later collection of the walk.
WALKS = """
import gc, sys, threading
from shardwise._src.base.frames import frames_by_thread

class Runner:
    def __init__(self, after):
        self.left, self.walking = after, False
        self.ready, self.go, self.back, self.stay = [threading.Event() for _ in range(4)]
        self.thread = threading.Thread(target=self.outer)

    def outer(self):
        self.inner()
        self.other(1, 2, 3)

    def inner(self):
        self.ready.set()
        self.go.wait()

    def other(self, a, b, c):  # whose frames lie elsewhere in the memory of those before
        self.back.set()
        (lambda *args: self.stay.wait())(a, b, c)

    def collected(self, phase, info):
        if self.walking and phase == "stop":
            self.left -= 1
            if self.left == 0:
                self.go.set()
                self.back.wait()

    def walk(self):
        self.thread.start()
        self.ready.wait()
        gc.callbacks.append(self.collected)
        gc.set_threshold(1)
        self.walking = True
        frames = frames_by_thread()
        self.walking = False
        gc.set_threshold(700)
        gc.callbacks.remove(self.collected)
        names = [frame.f_code.co_name for frame in frames[self.thread.ident]]
        self.go.set(), self.stay.set(), self.thread.join()
        return names[names.index("outer"):]

for after in range(1, 16):
    print(Runner(after).walk())
"""


def test_a_collection_lets_a_thread_return_from_a_frame():
    """Python 3.11 collects while it creates the objects of frames."""
    ended = subprocess.run(
        [sys.executable, "-c", WALKS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(60),
        stdin=subprocess.DEVNULL,
    )
    found = set(ended.stdout.splitlines())
    bottom = "['outer', 'run', '_bootstrap_inner', '_bootstrap']"
    assert (ended.returncode, ended.stderr, found) == (0, "", {bottom})


def test_frames_are_given_innermost_first():
    def caller():
        return frames_by_thread()[threading.get_ident()]

    mine = caller()
    assert [frame.f_code.co_name for frame in mine[:3]] == [
        "frames_by_thread",
        "caller",
        "test_frames_are_given_innermost_first",
    ]
    assert all(a.f_back is b for a, b in itertools.pairwise(mine))
