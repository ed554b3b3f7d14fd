"""Checkpoints are replaced only on request, and nothing else is ever deleted."""

import os
import threading

import numpy as np
import pytest

from shardwise import checkpoints
from shardwise._src.saving import committing
from shardwise._src.saving.storage import Place
from shardwise.checkpoints import CheckpointManager
from shardwise.errors import CheckpointError
from shardwise.testing import run_processes
from tests.helpers.errors import fails

pytest.importorskip("tensorstore")
WHERE = pytest.mark.parametrize("where", ["folder", "store"])


def place_of(tmp_path, where, name="t"):
    at = tmp_path / name if where == "folder" else f"memory://{tmp_path.name}/{where}/{name}"
    return Place.at("", at)


def is_there(at):
    return (
        f"save: {at} already contains a checkpoint, and overwrite is False. Pass overwrite=True to "
        "replace it, or choose another folder."
    )


def snapshot(place):
    return {name: place.get(name) for name in place.files()}


@WHERE
def test_a_checkpoint_is_replaced_only_if_told(tmp_path, where):
    place = place_of(tmp_path, where)
    checkpoints.save(place.text, {"w": np.ones(3)})
    before = snapshot(place)
    for call in (
        lambda: checkpoints.save(place.text, {"v": np.zeros(2)}),
        lambda: checkpoints.save_async(place.text, {"v": np.zeros(2)}).wait(),
    ):
        fails(CheckpointError, is_there(place.text), call)
        assert snapshot(place) == before
    if where == "folder":
        assert os.listdir(tmp_path) == ["t"]
    checkpoints.save(place.text, {"v": np.zeros(2)}, overwrite=True)
    assert list(checkpoints.restore(place.text)) == ["v"]
    checkpoints.save_async(place.text, {"u": np.zeros(2)}, overwrite=True).wait()
    assert list(checkpoints.restore(place.text)) == ["u"]


def test_one_that_was_set_aside_counts(tmp_path):
    """If a writer was killed between two renames."""
    at = tmp_path / "t"
    checkpoints.save(at, {"n": 1})
    os.rename(at, tmp_path / ".t.before")
    fails(CheckpointError, is_there(at), checkpoints.save, at, {"n": 2})
    assert checkpoints.restore(at) == {"n": 1}
    checkpoints.save(at, {"n": 2}, overwrite=True)
    assert checkpoints.restore(at) == {"n": 2} and os.listdir(tmp_path) == ["t"]


@WHERE
def test_of_two_writers_the_second_one_does_not_replace_the_first(tmp_path, monkeypatch, where):
    """Which finished after the second one checked, and before it began."""
    place = place_of(tmp_path, where)
    check = committing._check_free

    def late(what, at, overwrite):
        check(what, at, overwrite)
        monkeypatch.undo()
        checkpoints.save(place.text, {"n": 1})

    monkeypatch.setattr(committing, "_check_free", late)
    fails(CheckpointError, is_there(place.text), checkpoints.save, place.text, {"n": 2})
    assert checkpoints.restore(place.text) == {"n": 1}
    checkpoints.save(place.text, {"n": 3}, overwrite=True)
    assert checkpoints.restore(place.text) == {"n": 3}
    assert where == "store" or os.listdir(tmp_path) == ["t"]


@WHERE
def test_what_is_no_checkpoint_is_never_deleted(tmp_path, where):
    place = place_of(tmp_path, where)
    none = "it is not a checkpoint, so it is not overwritten. Remove it, or choose another folder."

    def refused(text):
        before = snapshot(place)
        for overwrite in (True, False):
            fails(CheckpointError, f"save: {place.text} {text}", checkpoints.save, place.text, 1,
                  overwrite=overwrite)  # fmt: skip
        assert snapshot(place) == before

    place.put("thesis.tex", b"x")
    refused(f"has thesis.tex, but no checkpoint.json: {none}")
    place.put("checkpoint.json", b'{"format": "theirs"}')
    refused(f"has a checkpoint.json that another program wrote: {none}")
    place.drop("checkpoint.json")
    place.drop("thesis.tex")
    if where == "folder":
        place.put("checkpoint.writer", b"x")
        refused(f"has checkpoint.writer, but no checkpoint.json: {none}")
        place.drop("checkpoint.writer")
        os.rmdir(place.folder)
    checkpoints.save(place.text, {"a": {"c": np.ones(2)}, "s": np.float32(1)})
    for name in ("notes.txt", "a/notes.txt", "a/c/notes.txt", "b/zarr.json"):
        place.put(name, b"x")
        with pytest.raises(CheckpointError) as error:
            checkpoints.save(place.text, 1, overwrite=True)
        assert str(error.value) == (
            f"save: {place.text} has {name} in addition to the checkpoint, which would be deleted "
            "with it. Move those files elsewhere, or choose another folder."
        )
        assert checkpoints.restore(place.text)["s"] == 1 and place.get(name) == b"x"
        place.drop(name)
    if where == "folder":
        (place.folder / "b").rmdir()
        (place.folder / ".DS_Store").touch()
    checkpoints.save(place.text, 1, overwrite=True)
    assert checkpoints.restore(place.text) == 1


def test_a_damaged_checkpoint_is_replaced(tmp_path):
    at = tmp_path / "t"
    checkpoints.save(at, {"n": 1})
    text = (at / "checkpoint.json").read_text()
    (at / "checkpoint.json").write_text(text[:-20])
    fails(CheckpointError, is_there(at), checkpoints.save, at, {"n": 2})
    checkpoints.save(at, {"n": 2}, overwrite=True)
    assert checkpoints.restore(at) == {"n": 2}


@WHERE
def test_a_manager_removes_only_what_writers_have_left(tmp_path, where):
    run = place_of(tmp_path, where, "run")
    manager = CheckpointManager(run.text, wait=True)
    manager.save(1, {"n": 1})
    manager.save(1, {"n": 2})  # replaced: it is the manager's
    assert manager.restore() == {"n": 2}
    for name in (".notes.saving/a", "step_00000003/notes.txt", ".step_00000002.saving/w/c/0",
                 "step_00000004/zarr.json"):  # fmt: skip
        run.put(name, b"x")
    CheckpointManager(run.text)
    left = {name for name in run.files() if not name.startswith("step_00000001/")}
    folders = {".notes.saving/a", "step_00000003/notes.txt"}
    more = {"step_00000004/zarr.json"} if where == "folder" else {".step_00000002.saving/w/c/0"}
    assert left == folders | more


def test_save_of_a_manager_waits_if_told(tmp_path, monkeypatch):
    manager, go = CheckpointManager(tmp_path), threading.Event()
    assert manager.save(1, {"n": 1}, wait=True) and manager.steps() == [1]
    commit = committing.Writing.commit

    def slow(self, manifest):
        assert go.wait(30)
        commit(self, manifest)

    monkeypatch.setattr(committing.Writing, "commit", slow)
    always = CheckpointManager(tmp_path, wait=True)
    for one in (manager, always):
        go.clear()
        assert one.save(2, {"n": 2}, wait=False) and one.steps() == [1]
        go.set()
        one.wait()
        assert one.steps() == [1, 2]
        (Place.at("", tmp_path) / "step_00000002").remove()


PROCESSES = """
import sys
import numpy as np
from shardwise import checkpoints

at = sys.argv[1]
checkpoints.save(at, {"n": 1})
for more in ({}, {"overwrite": True}):
    try:
        checkpoints.save_async(at, {"n": 2}, **more).wait()
    except (ValueError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}".replace(at, "AT"))
print(checkpoints.restore(at), sorted(checkpoints.describe(at).files))
"""


@pytest.mark.processes
def test_processes_replace_together(tmp_path):
    runs = run_processes(PROCESSES, 2, devices=1, args=[str(tmp_path / "t")], timeout=60)
    text = f"CheckpointError: {is_there('AT')}"
    for rank, run in enumerate(runs):
        other = f"RuntimeError: Process 0 could not write its part of a checkpoint: {text}"
        assert run.out.splitlines() == [text if rank == 0 else other, "{'n': 2} ['zarr.json']"]


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    for value in (1, 2):
        checkpoints.save(tmp_path / "link", value, overwrite=True)
        assert (tmp_path / "link").is_symlink() and checkpoints.restore(tmp_path / "disk") == value
