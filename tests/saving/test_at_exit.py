"""Checkpoints written by exit handlers, when Python no longer starts threads."""

import os
import sys

import pytest

pytest.importorskip("tensorstore")

from shardwise import checkpoints
from tests.helpers.processes import python

PROGRAM = """
import asyncio, atexit, sys, threading
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.experimental.array_serialization import pytree_serialization

folder = sys.argv[1]
tree = {"w": sw.numpy.arange(8.0), "n": np.arange(3)}

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

async def within():  # another event loop runs in this thread
    checkpoints.save(folder + "/within", tree)
    print(checkpoints.restore(folder + "/within")["n"].sum())

@atexit.register
def end():
    if sys.version_info[:2] != (3, 12):  # which has no thread for it
        asyncio.run(within())
    threading.Thread.start = refuse
    checkpoints.save(folder + "/one", tree)
    checkpoints.save_async(folder + "/two", tree).wait()
    pytree_serialization.nonblocking_save(tree, folder + "/three").result()
    for name in ("one", "two"):
        print(checkpoints.restore(f"{folder}/{name}")["n"].tolist())
    print(sorted(pytree_serialization.nonblocking_load(folder + "/three", None).pytree))
"""


def test_exit_handlers_save_and_restore(tmp_path):
    done = python(PROGRAM, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    within = ["3"] * (sys.version_info[:2] != (3, 12))
    assert done.stdout.splitlines() == within + ["[0, 1, 2]"] * 2 + ["['n', 'w']"]


LAST = """
import atexit, sys
import numpy as np
from shardwise import checkpoints

checkpoints.save(sys.argv[1] + "/first", {"n": 1})
atexit.register(lambda: checkpoints.save_async(
    sys.argv[1] + "/last", {str(i): np.full((256, 1024), i) for i in range(20)}
))
"""


def test_an_exit_handler_that_does_not_wait(tmp_path):
    done = python(LAST, tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert checkpoints.restore(tmp_path / "last")["19"][0, 0] == 19
    assert sorted(os.listdir(tmp_path)) == ["first", "last"]
