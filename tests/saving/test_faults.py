"""Checkpoints survive kills at any moment, full disks, second writers, damaged files."""

import json
import os
import resource
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import shardwise as sw
from shardwise import checkpoints
from shardwise._src.saving import committing, restoring
from shardwise._src.saving.storage import Place
from shardwise.errors import CheckpointError
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday
from tests.helpers.processes import python

pytest.importorskip("tensorstore")
crc32c = pytest.importorskip("crc32c")


def values():
    return {"w": np.arange(60.0).reshape(3, 20), "b": [np.arange(6, dtype=np.int32)], "n": 3}


# Each round forks a process that saves one checkpoint after another to the same path until it is
# killed, and another one that reads the result.
KILLS = """
import os, random, signal, sys, time
import numpy as np
import tensorstore
from shardwise._src.saving import chunks, restoring, writing
from shardwise._src.running import eager
chunks.CHUNK_BYTES = 1 << 10
folder, seed, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
said = folder + ".said"
parent = os.getpid()

def save_all(first):
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    for step in range(first, 10**6):
        if os.getppid() != parent:
            os._exit(1)
        tree = {"w": [np.full((20, 20 + i), step) for i in range(3)], "step": step}
        begin = time.monotonic()
        writing.save(folder, tree, overwrite=True)
        os.pwrite(file, f"{step:10} {time.monotonic() - begin:.6f}".encode(), 0)

def look(last):
    back = restoring.restore(folder)
    step = back["step"]
    assert step in (last, last + 1), (step, last)
    for i, w in enumerate(back["w"]):
        assert w.shape == (20, 20 + i) and (w == step).all(), (step, w)

def child(run, *args):
    pid = os.fork()
    if not pid:
        try:
            run(*args)
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return pid

def heard():
    found = open(said).read().split() if os.path.exists(said) else []
    return (int(found[0]), float(found[1])) if found else (-1, 0.0)

rng = random.Random(seed)
seen = set()
for turn in range(turns):
    first, _ = heard()
    pid = child(save_all, first + 1)
    while heard()[0] == first:
        time.sleep(0.002)
    time.sleep(rng.random() * 2 * heard()[1])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    beside = set(os.listdir(os.path.dirname(folder)))
    seen |= {name.partition(".saving")[0] for name in beside if name.endswith("saving")}
    last, _ = heard()
    _, status = os.waitpid(child(look, last), 0)
    assert status == 0, (turn, last, beside)
print("survived", len(seen))
"""


@pytest.mark.parametrize("seed", everyday(range(50), 1))
def test_a_writer_is_killed_at_any_moment(tmp_path, seed):
    """50 groups of 4 kills."""
    run = python(KILLS, tmp_path / "ckpt", seed, 4)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("survived")
    # Files left by a dead writer do not hinder the next one.
    checkpoints.save(tmp_path / "ckpt", {"w": 1}, overwrite=True)
    assert checkpoints.restore(tmp_path / "ckpt") == {"w": 1}
    assert {p.name for p in tmp_path.iterdir()} == {"ckpt", "ckpt.said"}


def test_between_two_renames_the_one_before_is_there(tmp_path, monkeypatch):
    at = tmp_path / "t"
    checkpoints.save(at, {"n": 1})
    rename = os.rename

    def fail(source, target):
        if str(source).endswith(".saving"):
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(at, {"n": 2}, overwrite=True)
    monkeypatch.undo()
    assert not at.exists()
    assert checkpoints.restore(at) == {"n": 1} and checkpoints.describe(at).path == str(at)
    checkpoints.save(at, {"n": 3}, overwrite=True)
    assert checkpoints.restore(at) == {"n": 3} and os.listdir(tmp_path) == ["t"]


@contextmanager
def full_disk():
    """No file may be longer than 4 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk(tmp_path):
    at = tmp_path / "t"
    checkpoints.save(at, values())
    failed = r"^save: tree\['w'\] could not be written: "
    with full_disk(), pytest.raises(OSError, match=failed) as error:
        checkpoints.save(at, {"w": np.ones((100, 100)), "n": 4}, overwrite=True)
    assert str(error.value).endswith(
        ". The previous contents are unchanged. Raise the file size limit (`ulimit -f`), or choose "
        "a folder on a file system that allows larger ones."
    )
    assert "File too large" in str(error.value)
    assert checkpoints.restore(at)["n"] == 3 and os.listdir(tmp_path) == ["t"]
    with full_disk():
        saving = checkpoints.save_async(at, {"w": np.ones((100, 100)), "n": 4}, overwrite=True)
        with pytest.raises(OSError, match=failed):
            saving.wait()
    assert saving.done() and saving.wait() is None
    assert checkpoints.restore(at)["n"] == 3


def test_two_writers(tmp_path, monkeypatch):
    inside, go = threading.Event(), threading.Event()
    commit = committing.Writing.commit

    def slow(self, manifest):
        inside.set()
        assert go.wait(30)
        commit(self, manifest)

    for at in (str(tmp_path / "t"), "memory://two/t"):
        monkeypatch.setattr(committing.Writing, "commit", slow)
        inside.clear()
        go.clear()
        saving = checkpoints.save_async(at, {"n": 1})
        assert inside.wait(30) and not saving.done()
        with pytest.raises(CheckpointError) as error:
            checkpoints.save(at, {"n": 2})
        monkeypatch.undo()
        if at.startswith("memory"):
            assert str(error.value).startswith(f"save: another writer is writing to {at}, since 20")
            assert str(error.value).endswith(f". If that writer is dead, remove the files at {at}.")
        else:
            assert str(error.value) == (
                f"save: another writer is writing to {at}. Wait until it is done, or choose "
                "another folder."
            )
        go.set()
        saving.wait()
        assert checkpoints.restore(at) == {"n": 1}


def damage(at, file, change):
    path = at / file
    data = change(path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


def flipped(data, i):
    return data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]


DAMAGES = [
    ("is missing", lambda data: None),
    ("has 0 bytes, but 484 were written", lambda data: b""),
    ("has 483 bytes, but 484 were written", lambda data: data[:-1]),
    ("is corrupted: its checksum does not match", lambda d: flipped(d, 0)),
    ("is corrupted: its checksum does not match", lambda d: flipped(d, 483)),
    ("is corrupted: its checksum does not match", lambda d: bytes(484)),
]


@pytest.mark.parametrize("why, change", DAMAGES)
def test_damaged_files_are_named(tmp_path, why, change):
    at = tmp_path / "t"
    checkpoints.save(at, values())
    damage(at, "w/c/0/0", change)
    for sharding in (None, sw.sharding.SingleDeviceSharding(sw.devices()[1])):
        fails(CheckpointError, f"restore: {at} is damaged: the file w/c/0/0 of tree['w'] {why}. "
             "Restore another checkpoint.", checkpoints.restore, at, sharding)  # fmt: skip


def test_no_byte_can_be_changed_unseen(tmp_path):
    """In any file: either the damage is detected, or the values are the same."""
    at = tmp_path / "t"
    checkpoints.save(at, values())
    expected = checkpoints.restore(at)
    files = sorted(p.relative_to(at) for p in at.rglob("*") if p.is_file())
    assert len(files) == 7
    rng = np.random.default_rng(0)
    found = 0
    for file in files:
        whole = (at / file).read_bytes()
        for i in {0, len(whole) - 1, *rng.integers(0, len(whole), 6).tolist()}:
            damage(at, file, lambda data, i=i: flipped(data, i))
            try:
                back = checkpoints.restore(at)
                sw.tree.map(np.testing.assert_array_equal, back, expected)
            except CheckpointError:
                found += 1
            (at / file).write_bytes(whole)
    assert found >= 20


def test_manifests_of_others(tmp_path):
    at = tmp_path / "t"
    checkpoints.save(at, values())
    text = (at / "checkpoint.json").read_text()

    def restored(new):
        (at / "checkpoint.json").write_text(new)
        return checkpoints.restore(at)

    damaged = (f"restore: {at}/checkpoint.json is damaged: its checksum does not match. Restore "
               "another checkpoint.")  # fmt: skip
    for new in ("", "[]", text[:-3], text.replace('"value": 3', '"value": 4')):
        fails(CheckpointError, damaged, restored, new)
    about = json.loads(text)
    newer = json.dumps({**about, "version": 2})
    fails(CheckpointError, f"restore: {at} is a checkpoint of version 2, but this release "
         f"(shardwise {sw.__version__}) reads version 1. Read it with a newer release.",
         restored, newer)  # fmt: skip
    other = json.dumps({**about, "format": "theirs"})
    fails(CheckpointError, f"restore: {at}/checkpoint.json has format 'theirs', not "
         "'shardwise.checkpoint'. Another program wrote it: read it with that program.",
         restored, other)  # fmt: skip
    (at / "checkpoint.json").unlink()
    fails(CheckpointError, f"restore: {at} has no checkpoint.json, but b, w, zarr.json: it is not a "
         "checkpoint, or its writer was stopped before it finished.",
         checkpoints.restore, at)  # fmt: skip


def test_a_folder_within_is_not_left(tmp_path):
    """A manifest that names files elsewhere is rejected, even with the correct digest."""
    from shardwise._src.saving import manifest

    at = tmp_path / "t"
    checkpoints.save(at, {"w": np.ones(3)})
    about = json.loads((at / "checkpoint.json").read_text())
    about["content"]["arrays"][0]["folder"] = "../other/w"
    about["sha256"] = manifest._digest(about["content"])
    (at / "checkpoint.json").write_text(json.dumps(about))
    fails(CheckpointError, f"restore: {at}/checkpoint.json is not a valid manifest: '../other/w' is "
         "not a folder in the checkpoint.", checkpoints.restore, at)  # fmt: skip


def test_values_are_those_of_the_call(tmp_path):
    x = sw.numpy.arange(1000.0) * 2
    host = np.arange(10.0)
    expected = np.asarray(x).copy()
    saving = checkpoints.save_async(tmp_path / "t", {"x": x, "host": host})
    host[:] = -1
    y = sw.jit(lambda x: x * 0 - 1, donate_argnums=0)(x)
    y.block_until_ready()
    saving.wait()
    assert saving.done() and saving.progress() == 1.0
    assert repr(saving) == f"Saving('{tmp_path}/t', done)"
    back = checkpoints.restore(tmp_path / "t")
    assert np.array_equal(back["x"], expected) and np.array_equal(back["host"], np.arange(10.0))


def test_memory_is_not_used_again_while_it_is_written(tmp_path, monkeypatch):
    """For large arrays, whose memory the library reuses for the next ones."""
    go = threading.Event()
    begin = committing.begin

    def late(*args):
        assert go.wait(30)
        return begin(*args)

    monkeypatch.setattr(sw._src.saving.writing, "begin", late)
    x = sw.device_put(np.arange(1 << 20, dtype=np.float32), sw.devices()[0])
    saving = checkpoints.save_async(tmp_path / "t", x)
    x.delete()
    del x
    others = [sw.device_put(np.zeros(1 << 20, np.float32), sw.devices()[0]) for _ in range(4)]
    assert not saving.done()
    go.set()
    saving.wait()
    assert np.array_equal(checkpoints.restore(tmp_path / "t"), np.arange(1 << 20)) and others


def test_an_error_is_raised_at_the_next_save(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    saving = checkpoints.save_async(tmp_path / "other", 1)
    with pytest.raises(CheckpointError, match=r"has thesis\.tex"):
        checkpoints.save_async(tmp_path / "t", 1)
    assert saving.wait() is None
    saving = checkpoints.save_async(tmp_path / "other", 1)
    while not saving.done():
        pass
    assert repr(saving).startswith(f"Saving('{tmp_path}/other', failed: save: ")
    assert saving.progress() == 0.0
    with pytest.raises(CheckpointError, match=r"has thesis\.tex"):
        saving.wait()
    checkpoints.save_async(tmp_path / "t", 1).wait()
    assert checkpoints.restore(tmp_path / "t") == 1


@pytest.mark.parametrize("call", [
    "saving = checkpoints.save_async(at, np.zeros(1 << 18))",
    "checkpoints.save_async(at, np.zeros(1 << 18))",
    "checkpoints.CheckpointManager(at).save(1, np.zeros(1 << 18))",
])  # fmt: skip
def test_an_error_at_the_end_of_a_program_is_told(tmp_path, call):
    """The process did not wait for its last checkpoint, which is missing."""
    program = f"""
    import resource, signal
    import numpy as np
    from shardwise import checkpoints

    at = {str(tmp_path / "t")!r}
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    {call}
    print("the end")
    """
    done = python(program)
    assert (done.returncode, done.stdout) == (0, "the end\n"), done.stderr
    path = tmp_path / "t" / "step_00000001" if "Manager" in call else tmp_path / "t"
    (line, *_) = done.stderr.splitlines()
    assert f"RuntimeWarning: The checkpoint {path} could not be written, and wait() " in line
    assert "File too large" in line
    assert line.endswith(". Call wait() on the result of save_async, or on the manager.")


def test_threads_go_on_after_the_end_of_the_main_one(tmp_path):
    """When Python starts no more threads for the threads that it waits for."""
    program = f"""
    import threading
    import numpy as np
    from shardwise import checkpoints

    def work():
        threading.main_thread().join()
        back = checkpoints.restore({str(tmp_path / "a")!r})
        checkpoints.save({str(tmp_path / "b")!r}, {{"x": back["x"] + 1}})
        print(checkpoints.restore({str(tmp_path / "b")!r})["x"])

    checkpoints.save({str(tmp_path / "a")!r}, {{"x": np.arange(3)}})
    threading.Thread(target=work).start()
    checkpoints.save_async({str(tmp_path / "c")!r}, np.zeros(1 << 20))
    """
    done = python(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1 2 3]\n", "")
    assert checkpoints.describe(tmp_path / "c").nbytes == 1 << 23


@pytest.mark.parametrize("missing, verb", [
    (["tensorstore"], "is"), (["crc32c"], "is"), (["crc32c", "tensorstore"], "are")
])  # fmt: skip
def test_without_the_packages(missing, verb):
    """Only the import of this module reports missing packages, and how to install them."""
    program = f"""
    import sys
    for name in {missing}:
        sys.modules[name] = None
    import shardwise
    assert shardwise.numpy.ones(2).sum() == 2
    for call in (lambda: shardwise.checkpoints, lambda: __import__("shardwise.checkpoints")):
        try:
            call()
        except ImportError as error:
            print(error)
    assert "shardwise.checkpoints" not in sys.modules
    """
    done = python(program)
    assert done.returncode == 0, done.stderr
    why = (f"shardwise.checkpoints needs crc32c and tensorstore; {' and '.join(missing)} {verb} "
           "not installed: pip install 'shardwise[tensorstore]'.")  # fmt: skip
    assert done.stdout.splitlines() == [why, why]


def resigned(at, change):
    """Writes another manifest, with the correct digest."""
    from shardwise._src.saving import manifest

    about = json.loads((at / "checkpoint.json").read_text())
    change(about["content"]["arrays"][0])
    about["sha256"] = manifest._digest(about["content"])
    (at / "checkpoint.json").write_text(json.dumps(about))


WRONG = [
    ({"dtype": "object", "stored": "object"}, "'object' is not a numeric dtype"),
    ({"stored": "object"}, "'object' is not a numeric dtype"),
    ({"dtype": "void"}, "'void' is not a numeric dtype"),
    ({"stored": "uint8"}, "'uint8' differs in size from 'float32'"),
    ({"shape": [-3, 2]}, "(3, 2) is not a chunk shape for an array of shape (-3, 2)"),
    ({"chunks": [0, 2]}, "(0, 2) is not a chunk shape for an array of shape (3, 2)"),
    ({"chunks": [3]}, "(3,) is not a chunk shape for an array of shape (3, 2)"),
    ({"chunks": [3.0, 2]}, "(3.0, 2) is not a chunk shape for an array of shape (3, 2)"),
]


@pytest.mark.parametrize("fields, why", WRONG)
def test_manifests_that_describe_no_array(tmp_path, fields, why):
    """Rejected before anything is read into memory, even with the correct digest."""
    at = tmp_path / "t"
    checkpoints.save(at, {"w": np.ones((3, 2), np.float32)})
    resigned(at, lambda row: row.update(fields))
    fails(CheckpointError, f"restore: {at}/checkpoint.json is not a valid manifest: {why}.",
         checkpoints.restore, at)  # fmt: skip


def checksums_that_end_with_zero():
    return next(x for i in range(10_000) if crc32c.crc32c(x := np.float32([i, 1])) < 1 << 24)


@pytest.mark.parametrize("size, change", [(11, lambda x: x[:-1]), (13, lambda x: x + b"\0")])
def test_the_length_of_a_file_is_looked_at(tmp_path, size, change):
    """Also if the removed or added bytes do not change the checksum."""
    at = tmp_path / "t"
    checkpoints.save(at, {"w": checksums_that_end_with_zero()})
    damage(at, "w/c/0", change)
    fails(CheckpointError, f"restore: {at} is damaged: the file w/c/0 of tree['w'] has {size} "
         "bytes, but 12 were written. Restore another checkpoint.",
         checkpoints.restore, at)  # fmt: skip


def test_hosts_of_the_other_byte_order_swap_bytes(tmp_path, monkeypatch):
    """Files have the same byte order everywhere: here, as in memory; the simulated host swaps
    bytes."""
    tree = {"w": np.arange(60.0).reshape(3, 20), "z": np.complex64(1 + 2j), "b": np.arange(6)}
    for at in (tmp_path / "t", f"memory://{tmp_path.name}/order"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "byteorder", "big")
            checkpoints.save(at, tree)
            for sharding in (None, sw.sharding.SingleDeviceSharding(sw.devices()[1])):
                back = checkpoints.restore(at, sharding)
                assert np.array_equal(back["w"], tree["w"]) and back["z"] == 1 + 2j
        other = checkpoints.restore(at)
        assert np.array_equal(other["w"].byteswap(), tree["w"])
        assert np.array_equal(other["b"].byteswap(), tree["b"])


@pytest.mark.parametrize("where", ["folder", "store"])
@pytest.mark.parametrize("new", [{"a": np.ones(4), "b": np.ones(4)}, None])
def test_a_checkpoint_that_is_replaced_while_it_is_read(tmp_path, monkeypatch, new, where):
    """Half of the old value and half of the new one is not a value."""
    at = tmp_path / "t" if where == "folder" else f"memory://{tmp_path.name}/replaced"
    place = Place.at("", at)
    checkpoints.save(at, {"a": np.zeros(4), "b": np.zeros(4)})
    read = restoring.read_part
    seen = []

    async def late(what, place_, store, entry, *rest):
        await read(what, place_, store, entry, *rest)
        if not seen:
            seen.append(entry)
            place.remove() if new is None else checkpoints.save(at, new, overwrite=True)

    monkeypatch.setattr(restoring, "read_part", late)
    fails(CheckpointError, f"restore: {place.text} was replaced or removed while it was read. "
         "Restore it again, and save each step into its own folder if other programs read "
         "it.", checkpoints.restore, at)  # fmt: skip
    assert seen
