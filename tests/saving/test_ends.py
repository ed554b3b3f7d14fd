"""Saves whose beginning or end fails: no complete checkpoint is lost, and others may write."""

import os
import re

import numpy as np
import pytest

from shardwise import checkpoints
from shardwise._src.saving import async_manager, committing
from shardwise._src.saving.async_manager import together
from shardwise._src.saving.storage import Place
from shardwise.checkpoints import CheckpointManager
from shardwise.errors import CheckpointError

pytest.importorskip("tensorstore")
WHERE = pytest.mark.parametrize("where", ["folder", "store"])


def place_of(tmp_path, where):
    return str(tmp_path / "run") if where == "folder" else f"memory://{tmp_path.name}/run"


def refused(*_):
    raise OSError("refused")


class Refusing:
    """A store that does not remove objects with some name."""

    def __init__(self, store, name):
        self._store, self._name = store, name

    def write(self, name, value, **more):
        return (
            refused()
            if (name, value) == (self._name, None)
            else (self._store.write(name, value, **more))
        )

    def __getattr__(self, name):
        return getattr(self._store, name)


def reject(patch, name):
    opened = Place._opened
    patch.setattr(Place, "_opened", lambda self: Refusing(opened(self), name))


@WHERE
def test_a_checkpoint_stays_where_removing_another_one_fails(tmp_path, monkeypatch, where):
    manager = CheckpointManager(place_of(tmp_path, where), keep_last=1, wait=True)
    manager.save(1, {"x": np.ones(3)})
    with monkeypatch.context() as patch:
        remove = Place.remove
        patch.setattr(
            Place, "remove", lambda self: refused() if self.text.endswith("1") else remove(self)
        )
        with pytest.raises(OSError, match=r"^refused$"):
            manager.save(2, {"x": np.full(3, 2.0)})
    assert manager.steps() == [1, 2]
    assert np.array_equal(manager.restore(2)["x"], [2, 2, 2])
    manager.save(2, {"x": np.full(3, 3.0)})
    assert manager.steps() == [2] and np.array_equal(manager.restore()["x"], [3, 3, 3])


@WHERE
def test_a_checkpoint_stays_where_another_process_ends_after_it(tmp_path, monkeypatch, where):
    """As does what the next writer has begun by then."""
    place = Place.at("", place_of(tmp_path, where))
    others = []

    def lost(name, step, *rest):
        found = together(name, step, *rest)
        if name.endswith("/end"):
            others.append(committing.begin("save", place / "b", True))
            others.append(committing.begin("save", place / "a", True))
            others[1].place.put("w/c/0", b"begun")
            raise RuntimeError("process 1 has ended")
        return found

    checkpoints.save(f"{place.text}/b", 1)
    with monkeypatch.context() as patch:
        patch.setattr(async_manager, "together", lost)
        with pytest.raises(RuntimeError, match=r"^process 1 has ended$"):
            checkpoints.save(f"{place.text}/a", 2)
    for writer, name in zip(others, "ba", strict=True):
        with pytest.raises(CheckpointError, match="another writer is writing to"):
            checkpoints.save(f"{place.text}/{name}", 3, overwrite=True)
        assert (writer.place.get("w/c/0") is not None) == (name == "a")
        writer.abandon()
    checkpoints.save(f"{place.text}/a", 4, overwrite=True)
    assert checkpoints.restore(f"{place.text}/a") == 4


def test_a_claim_that_a_store_does_not_remove_is_removed_at_the_end(tmp_path, monkeypatch):
    at = place_of(tmp_path, "store")
    write = committing._release
    asked = []

    def once(place):
        asked.append(place)
        return refused() if len(asked) == 1 else write(place)

    monkeypatch.setattr(committing, "_release", once)
    with pytest.raises(OSError, match=r"^refused$"):
        checkpoints.save(at, 1)
    assert checkpoints.restore(at) == 1 and Place.at("", at).get("checkpoint.writer") is None
    checkpoints.save(at, 2, overwrite=True)
    assert checkpoints.restore(at) == 2


def test_what_begins_and_fails_in_a_store_claims_nothing(tmp_path, monkeypatch):
    at = place_of(tmp_path, "store")
    checkpoints.save(at, 1)
    with monkeypatch.context() as patch:
        reject(patch, "checkpoint.json")
        with pytest.raises(OSError, match=r"^refused$"):
            checkpoints.save(at, 2, overwrite=True)
    assert Place.at("", at).get("checkpoint.writer") is None and checkpoints.restore(at) == 1
    checkpoints.save(at, 3, overwrite=True)
    assert checkpoints.restore(at) == 3


def test_what_begins_and_fails_in_a_folder_locks_nothing(tmp_path, monkeypatch):
    at = tmp_path / "step_00000001"
    (tmp_path / f".{at.name}.saving" / "w").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(committing, "remove", refused)
        with pytest.raises(OSError, match=r"^refused$"):
            checkpoints.save(at, 1)
        with pytest.raises(OSError, match=r"^refused$"):
            CheckpointManager(tmp_path)
    checkpoints.save(at, 2, overwrite=True)
    assert checkpoints.restore(at) == 2 and os.listdir(tmp_path) == [at.name]


def test_what_is_not_removed_is_not_locked(tmp_path, monkeypatch):
    """When a save fails, and so does the removal of its files."""
    at = tmp_path / "t"
    with monkeypatch.context() as patch:
        patch.setattr(committing.Writing, "commit", refused)
        patch.setattr(committing, "remove", refused)
        with pytest.raises(OSError, match=re.escape("refused")):
            checkpoints.save(at, 1)
    checkpoints.save(at, 2)
    assert checkpoints.restore(at) == 2 and os.listdir(tmp_path) == ["t"]


@pytest.mark.parametrize("commits", [True, False])
def test_a_writer_whose_claim_was_removed_changes_nothing(tmp_path, commits):
    """A writer that was thought dead must not touch the files of the next writer."""
    at = place_of(tmp_path, "store")
    place = Place.at("", at)
    first = committing.begin("save", place, False)
    place.remove()  # as the error for the second writer says, if the first one is dead
    second = committing.begin("save", place, False)
    second.place.put("w/c/0", b"of the second")
    if commits:
        with pytest.raises(CheckpointError) as raised:
            first.commit(b"of the first")
        assert str(raised.value).splitlines()[0] == (
            f"save: the claim of this writer at {at} was removed while it wrote, and another "
            "writer may be writing there. Nothing was saved. Save again, or choose another folder."
        )
    first.abandon()
    second.commit(b"the manifest")
    assert place.get("w/c/0") == b"of the second"
    assert place.get("checkpoint.json") == b"the manifest"
    assert place.get("checkpoint.writer") is None
