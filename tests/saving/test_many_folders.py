"""Checkpoints of many arrays: all folders are synced before the checkpoint appears."""

from __future__ import annotations

import errno
import os
import threading

import numpy as np
import pytest

from shardwise import checkpoints
from shardwise._src.saving import chunk_files, chunks, committing, storage

TREE = {f"a{i:03}": np.full(3, i) for i in range(storage._MANY)}


def test_every_folder_is_synced_once(tmp_path, monkeypatch):
    synced, real, lock = [], storage.sync, threading.Lock()

    def sync(folder):
        assert not (tmp_path / "x").exists()
        with lock:
            synced.append(os.fspath(folder))
        real(folder)

    monkeypatch.setattr(storage, "sync", sync)
    monkeypatch.setattr(committing, "sync", lambda folder: None)
    checkpoints.save(tmp_path / "x", TREE)
    top = os.fspath(tmp_path / ".x.saving")
    found = [
        os.path.join(top, os.path.relpath(at, tmp_path / "x"))
        for at, _, _ in os.walk(tmp_path / "x")
    ]
    assert sorted(synced) == sorted(map(os.path.normpath, found))
    restored = checkpoints.restore(tmp_path / "x")
    assert all((restored[k] == v).all() for k, v in TREE.items())


def test_a_folder_that_cannot_be_synced_leaves_the_previous_checkpoint(tmp_path, monkeypatch):
    checkpoints.save(tmp_path / "x", {"a": np.arange(3)})

    def sync(folder):
        if os.fspath(folder).endswith("a007"):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(storage, "sync", sync)
    with pytest.raises(OSError, match="could not be moved to its final location"):
        checkpoints.save(tmp_path / "x", TREE, overwrite=True)
    np.testing.assert_array_equal(checkpoints.restore(tmp_path / "x")["a"], np.arange(3))
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_small_files_are_passed_to_threads_in_groups(tmp_path, monkeypatch):
    calls, real = [], chunk_files.in_thread

    async def in_thread(call, *args):
        calls.append(call)
        return await real(call, *args)

    for module in (chunks, storage):
        monkeypatch.setattr(module, "in_thread", in_thread)
    tree = {f"a{i:03}": np.full((3, i % 5), i) for i in range(150)}
    checkpoints.save(tmp_path / "x", tree)
    assert len(calls) == 3 + 3  # of 151 zarr.json, and of 150 arrays
    restored = checkpoints.restore(tmp_path / "x")
    assert all((restored[k] == v).all() and restored[k].shape == v.shape for k, v in tree.items())


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([1] * 130, [64, 64, 2]),
        ([1 << 20, 1, 1, 1 << 20], [1, 2, 1]),
        ([1 << 30, 1 << 30], [1, 1]),
        ([1 << 19, 1 << 19, 1 << 19], [2, 1]),
        ([0] * 65, [64, 1]),
    ],
)
def test_groups(sizes, groups):
    found = list(chunk_files.in_groups(sizes, lambda size: size))
    assert [len(group) for group in found] == groups
    assert [size for group in found for size in group] == sizes
