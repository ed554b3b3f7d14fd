"""Full disks, file size limits, folders that cannot be made: the previous checkpoint
stays intact, the error says what to do, and the next save works."""

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from shardwise import checkpoints
from shardwise._src.saving import chunks, committing, storage
from shardwise.checkpoints import CheckpointManager
from tests.helpers import patience
from tests.helpers.errors import fails

pytest.importorskip("tensorstore")
STAYS = "The previous contents are unchanged."
ANOTHER = f"{STAYS} Free space on that disk, or choose a folder on another one."
LIMIT = (
    f"{STAYS} Raise the file size limit (`ulimit -f`), or choose a folder on a file "
    "system that allows larger ones."
)
ALLOWED = f"{STAYS} Choose a folder that this program may write to."


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    """A file system of 1 MiB."""
    at = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "tmpfs", str(at)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this process may not mount file systems")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


@contextmanager
def longest_file(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


TREES = {
    "an array": {"w": np.ones(1 << 18), "n": 2},
    "many arrays": {f"a{i}": np.ones(2) for i in range(300)},
    "a manifest": {"text": "x" * (1 << 20)},
}


@pytest.mark.parametrize("what", TREES)
def test_a_full_disk(small_disk, what):
    at = small_disk / "t"
    first = {"w": np.arange(60.0), "n": 1}
    checkpoints.save(at, first, overwrite=True)
    for how in ("save", "save_async", "manager"):
        with pytest.raises(OSError) as error:
            if how == "save":
                checkpoints.save(at, TREES[what], overwrite=True)
            elif how == "save_async":
                checkpoints.save_async(at, TREES[what], overwrite=True).wait()
            else:
                CheckpointManager(small_disk, wait=True).save(1, TREES[what])
        name = "step_00000001" if how == "manager" else "t"
        reason = "[Errno 28] No space left on device"
        text = str(error.value)
        if what == "an array":
            assert text == f"save: tree['w'] could not be written: {reason}. {ANOTHER}"
        elif what == "many arrays":
            start = f"save: {small_disk / name} could not be written: a zarr.json could not be "
            assert text.startswith(f"{start}written: {reason}: '{small_disk}/.{name}.saving/a")
            assert text.endswith(f"'. {ANOTHER}")
        else:
            assert text == (f"save: {small_disk / name} could not be written: it could not be "
                            f"moved to its final location: {reason}. {ANOTHER}")  # fmt: skip
        assert error.value.errno == errno.ENOSPC
        assert os.listdir(small_disk) == ["t"]
        back = checkpoints.restore(at)
        assert np.array_equal(back["w"], first["w"]) and back["n"] == 1
    checkpoints.save(at, {"n": 3}, overwrite=True)
    assert checkpoints.restore(at) == {"n": 3}


def test_a_full_disk_and_safetensors(small_disk):
    """Memory that is mapped to a file on a full disk would end the process."""
    at = small_disk / "t.safetensors"
    checkpoints.save_safetensors(at, {"w": np.ones(3)})
    fails(OSError, f"save_safetensors: {at} could not be written: its file could not be created: "
          f"[Errno 28] No space left on device. {ANOTHER}", checkpoints.save_safetensors, at,
          {"w": np.ones(1 << 18)})  # fmt: skip
    assert (checkpoints.load_safetensors(at)["w"] == 1).all()
    assert not (small_disk / ".t.safetensors.saving").exists()
    at.unlink()


def test_files_may_not_be_long(tmp_path):
    """The system's signal (SIGXFSZ) does not end the process."""
    at = tmp_path / "t"
    checkpoints.save(at, {"n": 1})
    cases = [
        ({"w": np.ones(1000), "n": 2}, "tree['w'] could not be written"),
        ({"w": np.ones(1 << 19), "n": 2}, "tree['w'] could not be written"),  # past the memory
        (
            {"text": "x" * 5000},
            f"{at} could not be written: it could not be moved to its final location",
        ),
    ]
    for tree, what in cases:
        with longest_file(1 << 12):
            fails(OSError, f"save: {what}: [Errno 27] File too large. {LIMIT}",
                  checkpoints.save, at, tree, overwrite=True)  # fmt: skip
        assert os.listdir(tmp_path) == ["t"] and checkpoints.restore(at) == {"n": 1}
    checkpoints.save(at, cases[0][0], overwrite=True)
    assert checkpoints.restore(at)["n"] == 2


def test_folders_that_cannot_be_made(tmp_path):
    def message(path, reason):
        return (f"save: {path} could not be written: its folder could not be created: {reason}. "
                f"{ALLOWED}")  # fmt: skip

    fails(OSError, message("/proc/x", "[Errno 2] No such file or directory: '/proc/.x.saving'"),
          checkpoints.save, "/proc/x", {"w": np.ones(3)})  # fmt: skip
    (tmp_path / "file").touch()
    beside = f"'{tmp_path}/file/.t.saving'"
    fails(OSError, message(f"{tmp_path}/file/t", f"[Errno 20] Not a directory: {beside}"),
          checkpoints.save, tmp_path / "file" / "t", 1)  # fmt: skip
    fails(OSError, "CheckpointManager: /proc/none could not be written: its folder could not be "
          f"created: [Errno 2] No such file or directory: '/proc/none'. {ALLOWED}",
          CheckpointManager, "/proc/none")  # fmt: skip


def frames(call):
    """The number of library frames in the traceback of an error, which has no cause."""
    try:
        call()
    except Exception as error:
        assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        return len([name for name in files if name != __file__])
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("call", [
    lambda: checkpoints.save("/proc/x", {"w": np.ones(3)}),
    lambda: checkpoints.save_async("/proc/x", {"w": np.ones(3)}).wait(),
    lambda: checkpoints.save("/proc/self", {"w": np.ones(3)}, overwrite=True),
    lambda: checkpoints.restore("/proc/self"),
    lambda: checkpoints.describe("/proc/none"),
    lambda: CheckpointManager("/proc/none"),
])  # fmt: skip
def test_errors_are_shown_without_frames_of_the_library(call):
    """Except for the frame where it is raised."""
    assert frames(call) == 1


def test_errors_of_a_manager_are_shown_without_frames_of_the_library(tmp_path):
    manager = CheckpointManager(tmp_path)
    with longest_file(1 << 12):
        assert frames(lambda: manager.save(1, {"w": np.ones(1000)}, wait=True)) == 1
        manager.save(1, {"w": np.ones(1000)})
        assert frames(manager.wait) == 1
    assert frames(lambda: manager.restore(1)) == 1


def test_the_one_before_comes_back_where_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    at, rename = tmp_path / "t", os.rename
    checkpoints.save(at, {"n": 1})

    def fail(source, target):
        if str(source).endswith(".saving"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    fails(OSError, f"save: {at} could not be written: it could not be moved to its final location: "
          f"[Errno 5] Input/output error. {STAYS} Look at the system log, or choose a folder on "
          "another disk.", checkpoints.save, at, {"n": 2}, overwrite=True)  # fmt: skip
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["t"] and checkpoints.restore(at) == {"n": 1}


# Two processes save to the same path until a file exists; each reports its number of saves.
WRITER = """
import os, sys
import numpy as np
from shardwise import checkpoints
from shardwise.errors import CheckpointError

at, name = sys.argv[1:]
done = refused = 0
while done < 4 or not os.path.exists(at + ".end"):
    try:
        checkpoints.save(at, {"by": name, "w": np.full(1000, done), "n": done}, overwrite=True)
        done += 1
    except CheckpointError as error:
        text = f"save: another writer is writing to {at}. Wait until it is done, or choose another "
        assert str(error) == text + "folder.", error
        refused += 1
    if done >= 4:
        open(f"{at}.{name}", "w").close()
print(done)
"""


def test_a_checkpoint_that_is_replaced_between_two_looks_is_one(tmp_path, monkeypatch):
    """Its manifest is read while it is set aside, and its files after the new one is in place."""
    at = tmp_path / "t"
    checkpoints.save(at, {"w": np.ones(3)})
    get, aside = committing.Place.get, tmp_path / ".aside"

    def get_once_too_early(place, name):
        monkeypatch.setattr(committing.Place, "get", get)
        at.rename(aside)
        try:
            return get(place, name)
        finally:
            aside.rename(at)

    monkeypatch.setattr(committing.Place, "get", get_once_too_early)
    checkpoints.save(at, {"w": np.zeros(3)}, overwrite=True)
    assert (checkpoints.restore(at)["w"] == 0).all()


def test_two_processes_write_one_checkpoint(tmp_path):
    at = tmp_path / "t"
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), str(at), name],
                         stdout=pipe, stderr=pipe, text=True) for name in "ab"
    ]  # fmt: skip
    seen = set()
    while not all((tmp_path / f"t.{name}").exists() for name in "ab"):
        if any(w.poll() is not None for w in writers):
            break  # one has failed
        try:
            back = checkpoints.restore(at)
        except (FileNotFoundError, ValueError):  # not yet, or replaced while it was read
            continue
        assert (back["w"] == back["n"]).all()
        seen.add(back["by"])
    (tmp_path / "t.end").touch()
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert writer.returncode == 0 and int(out) >= 4, err
    assert seen <= {"a", "b"}
    back = checkpoints.restore(at)
    assert (back["w"] == back["n"]).all()
    assert sorted(os.listdir(tmp_path)) == ["t", "t.a", "t.b", "t.end"]
    checkpoints.save(at, 1, overwrite=True)
    assert committing.staging_place(committing.Place.at("", at)).files() == []


def test_the_next_writer_waits_until_the_one_before_it_has_removed_what_was_there(
    tmp_path, monkeypatch
):
    """Otherwise both remove the checkpoint that was set aside, and one finds it missing."""
    at, remove, locked = tmp_path / "t", committing.remove, committing.locked
    checkpoints.save(at, {"n": 0})
    asked, states = threading.Event(), []
    second = threading.Thread(
        target=lambda: checkpoints.save(at, {"n": 2}, overwrite=True), daemon=True
    )

    def locked_and_told(folder, surely=False):
        lock = locked(folder, surely)
        if threading.current_thread() is second and folder == at:
            states.append(lock)
            asked.set()
        return lock

    def remove_late(path):
        if path.name == ".t.before" and path.exists() and not states:
            second.start()
            assert asked.wait(patience.seconds(30))
            assert path.is_dir() and checkpoints.restore(at) == {"n": 1}
        remove(path)

    monkeypatch.setattr(committing, "locked", locked_and_told)
    monkeypatch.setattr(committing, "remove", remove_late)
    checkpoints.save(at, {"n": 1}, overwrite=True)
    second.join(patience.seconds(30))
    assert states[0] is None and checkpoints.restore(at) == {"n": 2}
    assert os.listdir(tmp_path) == ["t"]


def test_a_folder_that_its_writer_renames_while_it_is_made(tmp_path, monkeypatch):
    at, beside, stat = tmp_path / "t", tmp_path / ".t.saving", Path.is_dir
    beside.mkdir()

    def is_dir_once_too_late(path):
        if path == beside:
            monkeypatch.setattr(Path, "is_dir", stat)
            beside.rename(at)
        return stat(path)

    monkeypatch.setattr(Path, "is_dir", is_dir_once_too_late)
    checkpoints.save(at, {"n": 1}, overwrite=True)
    assert checkpoints.restore(at) == {"n": 1} and os.listdir(tmp_path) == ["t"]
    (tmp_path / ".u.saving").touch()
    fails(OSError, f"save: {tmp_path}/u could not be written: its folder could not be created: "
          f"[Errno 17] File exists: '{tmp_path}/.u.saving'. "
          f"{ALLOWED}", checkpoints.save, tmp_path / "u", 1
    )  # fmt: skip


def test_a_checkpoint_that_is_replaced_while_its_files_are_looked_at(tmp_path, monkeypatch):
    at, read = tmp_path / "t", committing.read
    checkpoints.save(at, {"old": 1.5 * np.ones(3)})

    def read_early(what, there):
        found = read(what, there)
        monkeypatch.setattr(committing, "read", read)
        checkpoints.save(at, {"new": np.ones(3)}, overwrite=True)
        return found

    monkeypatch.setattr(committing, "read", read_early)
    checkpoints.save(at, {"ours": np.zeros(3)}, overwrite=True)
    assert list(checkpoints.restore(at)) == ["ours"] and os.listdir(tmp_path) == ["t"]


def test_a_folder_that_is_renamed_before_it_is_listed(tmp_path, monkeypatch):
    listdir = os.listdir
    (tmp_path / "t").mkdir()

    def listdir_late(path):
        monkeypatch.setattr(os, "listdir", listdir)
        os.rename(tmp_path / "t", tmp_path / ".t.before")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", listdir_late)
    assert committing.Place.at("", tmp_path / "t").names() == []


def test_what_was_there_before_and_cannot_be_removed(tmp_path, monkeypatch):
    """As on NFS, where another process reads it. The next save removes it."""
    at, remove = tmp_path / "t", committing.remove
    checkpoints.save(at, {"n": 0})

    def reject(path):
        if path.name == ".t.before" and path.exists():
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        remove(path)

    monkeypatch.setattr(committing, "remove", reject)
    checkpoints.save(at, {"n": 1}, overwrite=True)
    monkeypatch.undo()
    assert checkpoints.restore(at) == {"n": 1}
    checkpoints.save(at, {"n": 2}, overwrite=True)
    assert checkpoints.restore(at) == {"n": 2} and os.listdir(tmp_path) == ["t"]


def test_two_remove_one_folder(tmp_path, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    rmtree = storage.shutil.rmtree

    def late(path):
        monkeypatch.setattr(storage.shutil, "rmtree", rmtree)
        rmtree(path)
        raise FileNotFoundError(errno.ENOENT, "removed by another process")

    monkeypatch.setattr(storage.shutil, "rmtree", late)
    storage.remove(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_a_manager_leaves_what_another_process_writes_to_a_store(monkeypatch):
    manager, put = CheckpointManager("memory://two-managers", wait=True), committing.Place.put

    def put_late(place, name, data):
        if name == committing.MANIFEST:
            CheckpointManager("memory://two-managers")
        put(place, name, data)

    monkeypatch.setattr(committing.Place, "put", put_late)
    manager.save(1, {"w": np.ones(3)})
    assert (manager.restore(1)["w"] == 1).all()


def test_ctrl_c_in_a_save_within_an_event_loop(tmp_path, monkeypatch):
    """As in a notebook: the save has ended when the exception is raised, and the next one works."""
    write = chunks.write_chunk
    at, begun, go, active = tmp_path / "t", threading.Event(), threading.Event(), []

    def write_late(path, chunk):
        active.append(path)
        begun.set()
        assert go.wait(60)
        try:
            return write(path, chunk)
        finally:
            active.remove(path)

    def interrupt():
        assert begun.wait(60)
        signal.raise_signal(signal.SIGINT)
        go.set()

    async def notebook():
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(at, {str(i): np.full(4, 1) for i in range(60)})
        assert active == []
        thread.join()
        assert os.listdir(tmp_path) == []
        checkpoints.save(at, {"n": 2})

    monkeypatch.setattr(chunks, "write_chunk", write_late)
    with asyncio.Runner() as runner:
        runner.get_loop().run_until_complete(notebook())
    assert checkpoints.restore(at) == {"n": 2}
