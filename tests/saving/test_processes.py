"""Checkpoints of many processes: each writes its shards, and any number of processes reads them."""

import shutil

import numpy as np
import pytest

from shardwise import checkpoints
from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes

pytest.importorskip("tensorstore")

WRITE = """
import sys
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.sharding import NamedSharding, PartitionSpec as P
from shardwise._src.saving import chunks

folder = sys.argv[1]
mesh = sw.make_mesh((len(sw.devices()),), ("x",))
on = lambda *spec: NamedSharding(mesh, P(*spec))
w = np.arange(77.0, dtype=np.float32).reshape(7, 11)
written = []
write = chunks.write_parts
def noted(place, parts, *rest):
    written.extend([(entry.path, bounds) for entry, bounds, _ in parts])
    return write(place, parts, *rest)
from shardwise._src.saving import writing
writing.write_parts = noted
state = {
    "rows": sw.device_put(w, on("x")), "columns": sw.device_put(w, on(None, "x")),
    "same": sw.device_put(w, on()), "host": w + 1, "own": sw.numpy.float32(3),
    "keys": sw.device_put(sw.random.split(sw.random.key(0), 8), on("x")), "step": 5,
}
checkpoints.save(folder + "/a", state)
print(sorted({path for path, _ in written}), len(written), len({*written}) == len(written))
"""

READ = """
import sys
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.sharding import NamedSharding, PartitionSpec as P

folder = sys.argv[1]
mesh = sw.make_mesh((len(sw.devices()),), ("x",))
on = lambda *spec: NamedSharding(mesh, P(*spec))
w = np.arange(77.0, dtype=np.float32).reshape(7, 11)
places = {"rows": on(None, "x"), "columns": on("x"), "same": on("x"), "host": on(), "own": on(),
          "keys": on("x"), "step": None}
back = checkpoints.restore(folder + "/a", places)
own = lambda x, v: all(np.array_equal(s.data, v[s.index]) for s in x.addressable_shards)
print(*[own(back[k], w) for k in ("rows", "columns", "same")], own(back["host"], w + 1))
keys = sw.random.key_data(sw.random.split(sw.random.key(0), 8))
print(own(sw.random.key_data(back["keys"]), np.asarray(keys)), back["step"])
again = checkpoints.restore(folder + "/a")
print(np.array_equal(again["rows"], w), again["own"], type(again["host"]).__name__)
"""


TOGETHER = """
import sys
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.sharding import NamedSharding, PartitionSpec as P

folder = sys.argv[1]
mesh = sw.make_mesh((4,), ("x",))
on = lambda *spec: NamedSharding(mesh, P(*spec))
w = np.arange(77.0, dtype=np.float32).reshape(7, 11)
state = {"rows": sw.device_put(w, on("x"))}
saving = checkpoints.save_async(folder + "/b", {"rows": state["rows"]})
total = float((state["rows"] * 2).sum())
saving.wait()
back = checkpoints.restore(folder + "/b", on(None, "x"))["rows"]
print(total, all(np.array_equal(s.data, w[s.index]) for s in back.addressable_shards))
manager = checkpoints.CheckpointManager(folder + "/run", keep_last=2)
for step in range(4):
    manager.save(step, {"x": state["rows"] + step})
x = manager.restore(like={"x": state["rows"]})["x"]
print(all(np.array_equal(s.data, w[s.index] + 3) for s in x.addressable_shards), manager.steps())
for call in (
    lambda: checkpoints.save(f"{folder}/{sw.process_index()}", 1),
    lambda: checkpoints.save(folder + "/c", {"x": np.ones(2 + sw.process_index())}),
    lambda: checkpoints.save(folder, 1),
):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        print(str(error).replace(folder, "FOLDER"))
"""


APART = """
import sys
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.sharding import NamedSharding, PartitionSpec as P
from shardwise._src.runtime import backend
from shardwise._src.saving import restoring

folder = sys.argv[1]
before = checkpoints.restore(folder + "/a")["x"]
assert type(before) is np.ndarray and not backend.is_started()
me = sw.process_index()
mesh = sw.make_mesh((sw.device_count(),), ("x",))
pair = NamedSharding(sw.sharding.Mesh(sw.devices()[:2], "x"), P("x"))
split = NamedSharding(mesh, P("x"))
own = sw.sharding.SingleDeviceSharding(sw.local_devices()[0])
read, read_part = restoring.read, restoring.read_part

def told(*args, **kwargs):
    try:
        back = checkpoints.restore(*args, **kwargs)
        print({k: np.asarray(v.addressable_shards[0].data).tolist() for k, v in back.items()})
    except (ValueError, RuntimeError, OSError) as error:
        text = f"{type(error).__name__}: {error}".replace(folder, "FOLDER")
        print(text.replace("FOLDER/b", "FOLDER/a"))

def elsewhere(what, place):
    return read(what, type(place).at(what, folder + "/b") if me == 1 else place)

restoring.read = elsewhere  # replaced between the reads of the processes
told(folder + "/a", split)
told(folder + "/a", like={"x": sw.ShapeDtypeStruct((6,), np.float32, sharding=split)})
if me < 2:
    told(folder + "/a", {"x": pair})
print(checkpoints.restore(folder + "/a")["x"].tolist())  # each for itself
told(folder + "/a", own)
if me == 2:
    told(folder + "/a", own)

def none(what, place):
    return read(what, place / "none") if me == 1 else read(what, place)

restoring.read = none
told(folder + "/a", split)
restoring.read = read

async def damaged(what, *rest):
    if me == 1:
        raise OSError("no disk")
    await read_part(what, *rest)

restoring.read_part = damaged
told(folder + "/a", split)
restoring.read_part = read_part
told(folder + "/a", split)
if me == 1:
    print(checkpoints.CheckpointManager(folder + "/run").restore(3)["x"].tolist())
"""


STEPS = """
import sys
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.sharding import NamedSharding, PartitionSpec as P

folder = sys.argv[1]
split = NamedSharding(sw.make_mesh((sw.device_count(),), ("x",)), P("x"))
manager = checkpoints.CheckpointManager(f"{folder}/{sw.process_index()}")
for step in (3, 4, 5, 2):
    try:
        back = manager.restore(step, split)["x"]
        print(np.asarray(back.addressable_shards[0].data).tolist())
    except (RuntimeError, OSError) as error:
        print(f"{type(error).__name__}: {error}".replace(folder, "FOLDER"))
try:
    manager.latest = lambda: int("not read") if sw.process_index() == 0 else 2
    manager.restore(shardings=split)
except (RuntimeError, ValueError) as error:
    print(f"{type(error).__name__}: {error}".partition(" literal")[0])
"""


@pytest.mark.processes
def test_processes_read_the_same_checkpoint_or_raise_together(tmp_path):
    x = np.arange(6, dtype=np.float32)
    checkpoints.save(tmp_path / "a", {"x": x})
    checkpoints.save(tmp_path / "b", {"x": -x})
    with checkpoints.CheckpointManager(tmp_path / "run") as manager:
        manager.save(3, {"x": x + 3})
    runs = run_processes(APART, 3, devices=1, args=[str(tmp_path)], timeout=180)
    another = (
        "CheckpointError: restore: FOLDER/a is a different checkpoint in process 1 than in process "
        "0. If it was replaced just now, restore it again, and save each step into its own folder "
        "if other programs read it. Otherwise the path is not the same folder on all machines: "
        "name a shared one."
    )
    none = "FileNotFoundError: restore: there is no checkpoint at FOLDER/a/none."
    other = "RuntimeError: Process 1 could not read its part of a checkpoint: "
    for rank, out in enumerate([run.out.splitlines() for run in runs]):
        sign = -1 if rank == 1 else 1
        assert out == [
            another, another, *[another] * (rank < 2), str((sign * x).tolist()),
            *[str({"x": (sign * x).tolist()})] * (2 if rank == 2 else 1),
            none if rank == 1 else other + none,
            "OSError: no disk" if rank == 1 else other + "OSError: no disk",
            str({"x": x[2 * rank : 2 * rank + 2].tolist()}),
            *[str((x + 3).tolist())] * (rank == 1),
        ]  # fmt: skip


@pytest.mark.processes
def test_processes_of_which_one_does_not_see_a_step_raise_together(tmp_path):
    """Each has its own folder, as on machines without a shared one."""
    checkpoints.save(tmp_path / "saved", {"x": np.arange(4.0, dtype=np.float32)})
    for copy in ("0/step_00000002", "0/step_00000003", "1/step_00000002", "1/step_00000004"):
        shutil.copytree(tmp_path / "saved", tmp_path / copy)
    runs = run_processes(STEPS, 2, devices=1, args=[str(tmp_path)], timeout=60)

    def none(rank, step):
        return (f"FileNotFoundError: CheckpointManager.restore: FOLDER/{rank} has no checkpoint "
                f"for step {step}, but has steps 2 and {3 + rank}.")  # fmt: skip

    other = "RuntimeError: Process {} could not read its part of a checkpoint: {}"
    fails = "ValueError: invalid"
    for rank, out in enumerate([run.out.splitlines() for run in runs]):
        assert out == [
            none(1, 3) if rank == 1 else other.format(1, none(1, 3)),
            none(0, 4) if rank == 0 else other.format(0, none(0, 4)),
            none(rank, 5),
            str([[0.0, 1.0], [2.0, 3.0]][rank]),
            fails if rank == 0 else other.format(0, fails),
        ]


@pytest.mark.processes
@pytest.mark.parametrize(
    "writers, devices, readers", everyday([(2, 2, 1), (1, 3, 4), (4, 1, 2)], 1)
)
def test_any_number_of_processes_reads_what_others_wrote(tmp_path, writers, devices, readers):
    runs = run_processes(WRITE, writers, devices=devices, args=[str(tmp_path)], timeout=60)
    count = 0
    for rank, run in enumerate(runs):
        paths, number, distinct = run.out.strip().rsplit(" ", 2)
        count += int(number)
        assert distinct == "True"
        assert ("['host']" in paths) == ("['own']" in paths) == ("['same']" in paths) == (rank == 0)
    shards = writers * devices
    keys = 8 // -(-8 // shards) + (8 % -(-8 // shards) > 0)
    assert count == shards + shards + 1 + 2 + keys
    assert checkpoints.describe(tmp_path / "a").processes == writers
    w = np.arange(77.0, dtype=np.float32).reshape(7, 11)
    assert np.array_equal(checkpoints.restore(tmp_path / "a")["columns"], w)
    runs = run_processes(READ, readers, devices=2, args=[str(tmp_path)], timeout=60)
    for run in runs:
        assert run.out.splitlines() == [
            "True True True True", "True 5", "True 3.0 ndarray"
        ], run.out  # fmt: skip


@pytest.mark.processes
def test_processes_save_together(tmp_path):
    runs = run_processes(TOGETHER, 2, devices=2, args=[str(tmp_path)], timeout=60)
    for rank, out in enumerate([r.out.splitlines() for r in runs]):
        assert out[:2] == ["5852.0 True", "True [2, 3]"]
        places = ["FOLDER/0", "FOLDER/1"]
        assert out[2] == f"save: path must be the same in all processes; got {places}."
        assert out[3] == (
            "save: the tree of process 1 differs from that of process 0: names, shapes, dtypes and "
            "shardings must be the same in all processes."
        )
        before = "Process 0 could not write its part of a checkpoint: CheckpointError: "
        assert out[4].startswith(before if rank else "")
        assert out[4].removeprefix(before) == (
            "save: FOLDER has b, run, but no checkpoint.json: it is not a checkpoint, so it is not "
            "overwritten. Remove it, or choose another folder."
        )
