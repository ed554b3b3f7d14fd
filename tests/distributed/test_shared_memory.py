"""Memory shared by the processes of one machine, used twice in one process."""

import os
from pathlib import Path

import numpy as np
import pytest

from shardwise._src.distributed import shared_memory
from shardwise._src.distributed.shared_memory import Note, SharedMemory, are_together, give_up

MIB = 1 << 20
MAPS = Path("/proc/self/maps")
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only on Linux")


def bytes_of(value, size):
    return np.full(size, value, np.uint8)


def test_parts_of_two_users():
    with SharedMemory([5, 0, 2 * MIB]) as mine, SharedMemory([5, 0, 2 * MIB]) as theirs:
        assert mine.starts == theirs.starts == [0, 64, 64]
        notes = [mine.note(True), theirs.note(False)]
        assert are_together(notes, 0) and not are_together(notes, 1)
        assert mine.filled(notes[0], [(0, bytes_of(1, 5)), (64, bytes_of(2, MIB))])
        assert theirs.filled(notes[0], [(64 + MIB, bytes_of(3, MIB))])
        here, there = mine.mapped(), theirs.mapped()
    for found in (here, there):
        assert found[:5].tolist() == [1] * 5 and not found[5:64].any()
        assert (found[64 : 64 + MIB] == 2).all() and (found[64 + MIB :] == 3).all()
    here[:] = 9
    assert there[0] == 1


def test_the_system_frees_it_with_the_last_mapping():
    with SharedMemory([MIB]) as memory:
        note = memory.note(True)
        assert memory.filled(note, [(0, bytes_of(7, MIB))])
        found = memory.mapped()
    assert note.name in MAPS.read_text() and found[-1] == 7
    del found
    assert note.name not in MAPS.read_text()
    assert not any(note.name in os.readlink(f"/proc/self/fd/{n}") for n in held_files())


def held_files():
    return [n for n in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{n}")]


def test_another_file_under_the_number_is_not_touched(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"precious")
    with open(path, "r+b") as file, SharedMemory([8]) as memory:
        note = Note("here", f"/proc/{os.getpid()}/fd/{file.fileno()}", "shardwise-0123")
        assert not memory.filled(note, [(0, bytes_of(0, 8))])
        assert not memory.filled(note._replace(path="/proc/0/fd/1"), [(0, bytes_of(0, 8))])
    assert path.read_bytes() == b"precious"


def test_processes_that_share_nothing(monkeypatch):
    monkeypatch.setattr(shared_memory._State, "off", False)
    assert SharedMemory([]).note(True) == Note("")
    assert not are_together([Note("a", "/proc/1/fd/1", "x"), Note("b")], 0)
    assert not are_together([Note("a"), Note("a")], 0)

    def full(name):
        raise OSError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", full)
        assert SharedMemory([8]).note(True) == Note("")
    assert SharedMemory([8]).note(False).machine
    give_up()
    assert SharedMemory([8]).note(True) == Note("")
