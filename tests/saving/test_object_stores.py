"""Checkpoints in object stores, s3:// and gs://, over HTTP from a store on loopback."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.flags import xla_flags
from tests.helpers.object_store import object_store

pytest.importorskip("tensorstore")

PROGRAM = """
import sys
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.errors import CheckpointError
from shardwise.sharding import NamedSharding, PartitionSpec as P

def error(call, *args, **more):
    try:
        call(*args, **more)
    except Exception as found:
        print(f"{type(found).__name__}: {found}")

at, nowhere = sys.argv[1:]
mesh = sw.make_mesh((8,), ("x",))
w = np.arange(42, dtype=np.float32).reshape(7, 6)
checkpoints.save(at, {"w": sw.device_put(w, NamedSharding(mesh, P("x"))), "n": 3})
found = checkpoints.describe(at)
assert found.arrays[0].folder == "w" and found.values == {"['n']": 3}, found
back = checkpoints.restore(at, NamedSharding(mesh, P(None, "x")))
assert np.array_equal(back["w"], w) and back["w"].sharding.spec == P(None, "x"), back
error(checkpoints.save, at, 1)
checkpoints.save(at, {"v": w}, overwrite=True)
assert list(checkpoints.restore(at)) == ["v"]
checkpoints.save(at + "-2", {"v": 2})  # a neighbour, of a name that begins with its name
with checkpoints.CheckpointManager(at + "/run", keep_last=2, keep_best=(1, "loss", "min")) as run:
    for step, loss in enumerate([3.0, 1.0, 2.0, 4.0, 5.0]):
        run.save(step, {"w": w * step}, {"loss": loss})
print(run.steps(), run.latest(), run.best(), run.metrics(1))
assert np.array_equal(run.restore()["w"], w * 4)
checkpoints.save_async(at + "-2", {"v": 3}, overwrite=True).wait()
assert checkpoints.restore(at + "-2") == {"v": 3} and list(checkpoints.restore(at)) == ["v"]
error(checkpoints.restore, at + "/none")
error(checkpoints.restore, nowhere)
error(checkpoints.save, nowhere, 1)
print("done", flush=True)
input()  # until files have been damaged
error(checkpoints.restore, at)
error(checkpoints.restore, at + "-2")
"""


def started(program, store, *args):
    devices = {"XLA_FLAGS": xla_flags(8)}
    env = {**os.environ, **store.environment, **devices}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        env=env,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


@pytest.mark.parametrize("kind", everyday(["s3", "gs"], 1))
def test_checkpoints_in_buckets(kind):
    at = f"{kind}://bucket/models/größe 1+2/last"
    place = "models/größe 1+2/last"
    with object_store() as store:
        with started(PROGRAM, store, at, f"{kind}://elsewhere/run") as program:
            lines = list(itertools.takewhile(lambda line: line != "done\n", program.stdout))
            assert [name for name in sorted(store.objects) if "/run/" not in name] == [
                f"{place}-2/checkpoint.json", f"{place}-2/zarr.json", f"{place}/checkpoint.json",
                f"{place}/v/c/0/0", f"{place}/v/zarr.json", f"{place}/zarr.json",
            ]  # fmt: skip
            chunk, manifest = f"{place}/v/c/0/0", f"{place}-2/checkpoint.json"
            store.objects[chunk] = store.objects[chunk][:9] + b"!" + store.objects[chunk][10:]
            store.objects[manifest] = store.objects[manifest].replace(b"3", b"4")
            out, told = program.communicate("\n", timeout=60)
        assert program.returncode == 0, told
        assert "credentials" not in told  # as if files were tried first
        found = out.splitlines()
    ask = "Check that its bucket exists, and that this program may access it."
    rejection = f"OSError: {kind}://elsewhere/run: the store answered NOT_FOUND: "
    missing = {
        "s3": [f"{rejection}NoSuchBucket: No such bucket. {ask}"] * 2,
        "gs": [f"FileNotFoundError: restore: there is no checkpoint at {kind}://elsewhere/run.",
               f"{rejection}Not Found. {ask}"],
    }[kind]  # fmt: skip
    assert [line.rstrip() for line in lines] == [
        f"CheckpointError: save: {at} already contains a checkpoint, and overwrite is False. Pass "
        "overwrite=True to replace it, or choose another folder.",
        "[1, 3, 4] 4 1 {'loss': 1.0}",
        f"FileNotFoundError: restore: there is no checkpoint at {at}/none.",
        *missing,
    ]
    assert found == [
        f"CheckpointError: restore: {at} is damaged: the file v/c/0/0 of tree['v'] is corrupted: "
        "its checksum does not match. Restore another checkpoint.",
        f"CheckpointError: restore: {at}-2/checkpoint.json is damaged: its checksum does not "
        "match. Restore another checkpoint.",
    ]
