"""`CheckpointManager`: which checkpoints it retains, and how a run resumes from them."""

import errno
import fcntl
import os

import numpy as np
import pytest

import shardwise as sw
from shardwise import checkpoints
from shardwise.checkpoints import CheckpointManager
from shardwise.errors import CheckpointError
from tests.helpers.errors import fails, message

pytest.importorskip("tensorstore")


def folders(tmp_path):
    return {"local": tmp_path / "run", "memory": f"memory://{tmp_path.name}/run"}


@pytest.mark.parametrize("where", ["local", "memory"])
def test_the_last_and_the_best_are_kept(tmp_path, where):
    at = folders(tmp_path)[where]
    losses = {0: 5.0, 10: 1.0, 20: float("nan"), 30: 3.0, 40: 2.0, 50: 4.0}
    with CheckpointManager(at, keep_last=2, keep_best=(2, "loss", "min"), every=10) as manager:
        assert manager.latest() is None and manager.best() is None and manager.steps() == []
        for step in range(55):
            saved = manager.save(step, {"x": np.full(3, step)}, {"loss": losses.get(step, 0)},
                                 metadata={"epoch": step // 20})  # fmt: skip
            assert saved == (step % 10 == 0)
    assert manager.steps() == [10, 40, 50]
    assert manager.latest() == 50 and manager.best() == 10 and manager.best("loss", "max") == 50
    assert manager.metrics(10) == {"loss": 1.0} and manager.metadata(40) == {"epoch": 2}
    assert repr(manager).endswith("run', steps=[10, 40, 50])")
    again = CheckpointManager(at, keep_last=1)
    assert again.latest() == 50 and again.best("loss") == 10 and again.best("speed") is None
    assert np.array_equal(again.restore()["x"], [50] * 3)
    assert np.array_equal(again.restore(10)["x"], [10] * 3)
    place = sw.sharding.SingleDeviceSharding(sw.devices()[1])
    assert again.restore(40, place)["x"].sharding == place
    assert again.restore(40, like={"x": np.ones(3, np.float16)})["x"].dtype == np.float16
    assert again.save(51, {"x": 1})
    again.wait()
    assert again.steps() == [51] and again.restore() == {"x": 1}
    fails(FileNotFoundError, f"CheckpointManager.restore: {at} has no checkpoint for step 10, but "
         "has steps 51.", again.restore, 10)  # fmt: skip


def test_all_are_kept_unless_told(tmp_path):
    manager = CheckpointManager(tmp_path, wait=True)
    for step in (3, 1, 2):
        manager.save(step, step)
    assert manager.steps() == [1, 2, 3] and sorted(os.listdir(tmp_path)) == [
        "step_00000001", "step_00000002", "step_00000003"
    ]  # fmt: skip
    manager.save(2, "again")
    assert manager.restore(2) == "again"
    every = CheckpointManager(tmp_path, every=7, wait=True)
    assert not every.save(8, 8) and every.save(8, 8, force=True) and every.latest() == 8
    best = CheckpointManager(tmp_path, keep_best=(1, "score", "max"), wait=True)
    best.save(9, 9, {"score": 1})
    best.save(10, 10, {"score": 0})
    assert best.steps() == [9, 10]  # the newest one always


def test_half_written_ones_are_ignored_and_removed(tmp_path):
    manager = CheckpointManager(tmp_path, wait=True)
    manager.save(1, 1)
    manager.save(2, 2)
    (tmp_path / ".step_00000003.saving" / "w").mkdir(parents=True)
    (tmp_path / ".step_00000001.removed").mkdir()
    (tmp_path / "step_00000004").mkdir()
    (tmp_path / "notes").mkdir()
    os.rename(tmp_path / "step_00000002", tmp_path / ".step_00000002.before")
    assert manager.steps() == [1, 2] and manager.restore() == 2
    again = CheckpointManager(tmp_path, keep_last=1, wait=True)
    assert again.steps() == [1, 2]
    assert sorted(os.listdir(tmp_path)) == [
        ".step_00000002.before", "notes", "step_00000001", "step_00000004"
    ]  # fmt: skip
    again.save(4, 4)
    assert sorted(os.listdir(tmp_path)) == ["notes", "step_00000004"]
    at = f"memory://half/{tmp_path.name}"
    checkpoints.save(f"{at}/step_00000001", {"x": np.ones(2)})
    checkpoints.save(f"{at}/step_00000002", {"x": np.ones(2)})
    from shardwise._src.saving.storage import Place

    Place.at("", f"{at}/step_00000002")._opened().write("checkpoint.json", None).result()
    assert CheckpointManager(at).steps() == [1]
    assert {n.split("/")[0] for n in Place.at("", at).names()} == {"step_00000001"}


def test_what_a_live_writer_has_is_not_removed(tmp_path):
    from shardwise._src.saving.committing import begin
    from shardwise._src.saving.storage import Place

    CheckpointManager(tmp_path, wait=True).save(1, 1)
    writing = begin("save", Place.at("save", tmp_path / "step_00000002"), True)
    writing.place.put("w/c/0", b"x")
    manager = CheckpointManager(tmp_path)
    assert manager.steps() == [1] and (tmp_path / ".step_00000002.saving/w/c/0").exists()
    writing.abandon()
    assert os.listdir(tmp_path) == ["step_00000001"]


def test_where_there_are_no_locks_nothing_is_taken_for_left(tmp_path, monkeypatch):
    (tmp_path / ".step_00000002.saving").mkdir()

    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        manager = CheckpointManager(tmp_path, wait=True)
        assert os.listdir(tmp_path) == [".step_00000002.saving"]
        manager.save(2, 2)
    assert os.listdir(tmp_path) == ["step_00000002"]


def test_a_run_that_goes_back_keeps_what_it_saves(tmp_path):
    manager = CheckpointManager(tmp_path, keep_last=2, wait=True)
    for step in (10, 40, 50):
        manager.save(step, step)
    for step in (20, 30):
        assert manager.save(step, step)
        assert manager.steps() == [step, 40, 50] and manager.restore(step) == step
    manager.save(60, 60)
    assert manager.steps() == [50, 60]


def test_a_damaged_checkpoint_does_not_stop_the_next_ones(tmp_path):
    best = {"keep_last": 1, "keep_best": (1, "loss", "min"), "wait": True}
    with CheckpointManager(tmp_path, **best) as manager:
        manager.save(1, 1, {"loss": 1})
        manager.save(2, 2, {"loss": 2})
    (tmp_path / "step_00000001" / "checkpoint.json").write_text("{}")
    with CheckpointManager(tmp_path, **best) as manager:
        assert manager.best() == 2
        manager.save(3, 3, {"loss": 3})
        assert manager.steps() == [2, 3] and manager.restore() == 3


def test_errors_come_at_the_next_save(tmp_path):
    manager = CheckpointManager(tmp_path)
    (tmp_path / "step_00000001").mkdir()
    (tmp_path / "step_00000001" / "thesis.tex").touch()
    manager.save(1, 1)
    with pytest.raises(CheckpointError, match=r"has thesis\.tex"):
        manager.save(2, 2)
    manager.save(2, 2)
    manager.wait()
    assert manager.steps() == [2]


def test_mistakes(tmp_path):
    def manager(**how):
        return CheckpointManager(tmp_path, **how)

    what = "CheckpointManager"
    fails(ValueError, f"{what}: keep_last must be a positive integer; got 0 of type int.",
         manager, keep_last=0)  # fmt: skip
    fails(ValueError, f"{what}: every must be a positive integer; got 0.5 of type float.",
         manager, every=0.5)  # fmt: skip
    fails(ValueError, f"{what}: keep_best must be (count, metric name, 'min' or 'max'), such as "
         "(2, 'loss', 'min'); got 'loss' of type str.", manager, keep_best="loss")  # fmt: skip
    fails(ValueError, f"{what}: the last entry of keep_best must be 'min' or 'max'; got 'least'.",
         manager, keep_best=(1, "loss", "least"))  # fmt: skip
    fails(ValueError, f"{what}: step must be a non-negative integer; got -1 of type int.",
         manager().save, -1, 1)  # fmt: skip
    fails(ValueError, f"{what}.save: metrics must contain 'loss', the metric of keep_best; got None "
         "of type NoneType.",
         manager(keep_best=(1, "loss", "min")).save, 1, 1)  # fmt: skip
    fails(TypeError, f"{what}.save: metrics['loss'] must be a number; got 'low' of type str.",
         manager().save, 1, 1, {"loss": "low"})  # fmt: skip
    fails(TypeError, f"{what}.save: metrics must be a dict from names to numbers; got 0.5 of type "
         "float.", manager().save, 1, 1, 0.5)  # fmt: skip
    fails(ValueError, f"{what}.best: metric is required, because the manager has no keep_best.",
         manager().best)  # fmt: skip
    (tmp_path / "file").touch()
    fails(NotADirectoryError, f"{what}: {tmp_path}/file is not a folder. Choose a folder for "
         "the checkpoints.", CheckpointManager, tmp_path / "file")  # fmt: skip
    fails(FileNotFoundError, f"{what}.restore: {tmp_path} has no checkpoint.",
         manager().restore)  # fmt: skip


def test_a_checkpoint_that_no_manager_wrote(tmp_path):
    about = {"metrics": "all of them"}
    checkpoints.save(tmp_path / "step_00000002", 1, metadata=about)
    manager = CheckpointManager(tmp_path, keep_best=(1, "loss", "min"))
    assert manager.steps() == [2] and manager.best() is None
    assert manager.metrics(2) == {} and manager.metadata(2) == about


def test_a_step_that_is_not_there_is_told_with_the_last_one(tmp_path):
    checkpoints.save(tmp_path / "run" / "step_00000003", 1)
    assert message(FileNotFoundError, checkpoints.restore, tmp_path / "run" / "step_3") == (
        f"restore: there is no checkpoint at {tmp_path}/run/step_3. The last one in the same "
        "folder is step_00000003."
    )


@pytest.mark.parametrize("where", ["local", "memory"])
def test_the_folder_of_a_run_is_no_checkpoint(tmp_path, where):
    at = folders(tmp_path)[where]
    with CheckpointManager(at) as manager:
        manager.save(3, 1)
        manager.save(20, 1)
    for call in (checkpoints.describe, checkpoints.restore):
        fails(CheckpointError, f"{call.__name__}: {at} contains the checkpoints of a run: name one "
             f"of them, such as {at}/step_00000020, or use CheckpointManager({str(at)!r}).",
             call, at)  # fmt: skip
