"""Checkpoint calls that some processes do not make: waits end with an error that names them."""

import re

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes

pytest.importorskip("tensorstore")
pytestmark = pytest.mark.processes

HEAD = """
import sys
import numpy as np
import shardwise as sw
from shardwise import checkpoints
from shardwise.experimental import multihost_utils
from shardwise.sharding import NamedSharding, PartitionSpec as P
from shardwise.experimental.array_serialization import serialization as s

folder = sys.argv[1]
x = sw.device_put(np.arange(6.0), NamedSharding(sw.make_mesh((2,), ("x",)), P("x")))
alone = sw.process_index() == 0
"""
CALLS = {
    "checkpoint save 0/same": 'checkpoints.save(folder + "/a", {"x": x})',
    "checkpoint save 0/same, later": 'checkpoints.save_async(folder + "/a", {"x": x}).wait()',
    "checkpoint restore 0/found": ('checkpoints.restore(folder + "/none", {"x": x.sharding})'),
    "save_safetensors 0/same": 'checkpoints.save_safetensors(folder + "/a.safetensors", {"x": x})',
    "checkpoint commit 0/written": (
        "m = s.GlobalAsyncCheckpointManager()\n"
        '    m.serialize_with_paths([x], [folder + "/a"], on_commit_callback=print)\n'
        "    m.wait_until_finished()"
    ),
}


def normal(text):
    text = re.sub(r"\(host [^,]+, pid \d+\)", "(HERE)", text)
    return re.sub(r"/\S+/program", "program", re.sub(r"\d+ s(?=[;. ])", "N s", text))


def raised(errors):
    """The last error of a traceback."""
    found = [line for line in errors.splitlines() if line.startswith("shardwise.errors.")]
    return normal(found[-1])


def line_of(source, text):
    return next(i for i, line in enumerate(source.splitlines(), 1) if text in line)


@pytest.mark.parametrize("name", everyday([*CALLS], 1))
def test_a_process_that_has_ended_comes_to_no_checkpoint(tmp_path, name):
    source = HEAD + f"if alone:\n    {CALLS[name]}\n"
    first, second = run_processes(source, 2, devices=1, args=[str(tmp_path)], expect=None)
    assert (first.status, second.status) == (1, 0), first.err + second.err
    doing = name.partition(",")[0]
    at = f" at program.py:{line_of(source, CALLS[name][:20])} (<module>)"
    at = "" if "later" in name or "commit" in name else at
    assert raised(first.err) == (
        "shardwise.errors.ProcessFailureError: process 1 (HERE) has ended, and never reached "
        f"{doing}{at}. Its last known line: program.py:{line_of(source, 'x = ')} (<module>). All "
        "processes must do this: look for an `if` on process_index() around it, for an early exit, "
        "or for data of different length."
    )


def test_a_process_that_is_elsewhere_is_named(tmp_path):
    source = (
        HEAD
        + f"if alone:\n    {CALLS['checkpoint save 0/same']}\n"
        + ('multihost_utils.sync_global_devices("after")\n')
    )
    first, second = run_processes(
        source, 2, devices=1, args=[str(tmp_path)], expect=None, patience=1, deadline=3
    )
    assert (first.status, second.status) == (75, 1), first.err + second.err
    save, sync = (f"program.py:{line_of(source, word)} (<module>)" for word in (".save(", "sync"))
    assert raised(second.err) == (
        "shardwise.errors.ProcessFailureError: process 0 (HERE) did not reach "
        f"sync_global_devices('after') at {sync} within N s (`wait_timeout_secs`). Its last known "
        f"line: {save}."
    )


def test_who_comes_too_late_is_named_and_the_program_goes_on(tmp_path):
    """A wait for a checkpoint has its own timeout, independent of other timeouts."""
    source = (
        HEAD
        + """
if alone:
    manager = s.GlobalAsyncCheckpointManager(timeout_secs=2)
    manager.serialize_with_paths([x], [folder + "/a"], on_commit_callback=print)
    try:
        manager.wait_until_finished()
    except s.BarrierTimeoutError as error:
        print(error)
multihost_utils.sync_global_devices("after")
print("both")
"""
    )
    first, second = run_processes(source, 2, devices=1, args=[str(tmp_path)])
    message, both = first.out.splitlines()
    assert (both, second.out) == ("both", "both\n")
    sync = f"program.py:{line_of(source, 'multihost_utils.sync')} (<module>)"
    assert normal(message) == (
        "Not all processes have reached checkpoint commit 0/written within N s. process 1 (HERE) "
        f"did not arrive. Its last known line: {sync}. All must call it: look for an `if` on "
        "process_index() around it, or allow more time for a slow process (timeout_secs of "
        "GlobalAsyncCheckpointManager)."
    )


def test_a_save_in_the_background_ends_where_its_process_leaves(tmp_path):
    source = (
        HEAD
        + """
if alone:
    saving = checkpoints.save_async(folder + "/a", {"x": x})
multihost_utils.sync_global_devices("begun")
sw.distributed.shutdown()
if alone:
    try:
        saving.wait()
    except RuntimeError as error:
        print(error)
"""
    )
    first, second = run_processes(source, 2, devices=1, args=[str(tmp_path)])
    assert (first.out, second.out) == (
        "checkpoint save 0/same: this process has left the others "
        "(`shardwise.distributed.shutdown`), and no longer waits for them.\n",
        "",
    )


def test_a_save_in_the_background_hides_no_stuck_launch(tmp_path):
    source = (
        HEAD
        + """
import time
x.sum().block_until_ready()
if alone:
    saving = checkpoints.save_async(folder + "/a", {"x": x})
    float(x.max())
while True:
    time.sleep(0.1)  # for ever
"""
    )
    first, second = run_processes(
        source, 2, devices=1, args=[str(tmp_path)], expect=None, patience=1, deadline=3
    )
    assert (first.status, second.status) == (1, 75), first.err + second.err
    line = f"program.py:{line_of(source, 'time.sleep')} (<module>)"
    assert raised(first.err) == (
        "shardwise.errors.ProcessFailureError: process 1 (HERE) did not reach program 'max' "
        f"at program.py:{line_of(source, 'x.max')} (<module>) within N s (`wait_timeout_secs`). "
        f"Its last known line: {line}."
    )


def test_safetensors_of_different_arrays_or_paths_raise_in_all_processes(tmp_path):
    source = (
        HEAD
        + """
y = sw.device_put(np.arange(4.0), x.sharding)
for trees, names in (
    (({"a": x, "b": y}, {"a": y, "b": x}), ("t", "t")), (({"a": x}, {"c": x}), ("t", "t")),
    (({"a": x}, {"a": x, "b": y}), ("t", "t")), (({"a": x}, {"a": x}), ("t", "u")),
    (({"a": x}, {"a": x}), ("t", "t")),
):
    at = folder + "/" + names[sw.process_index()]
    try:
        checkpoints.save_safetensors(at, trees[sw.process_index()])
    except ValueError as error:
        print(str(error).replace(folder, "FOLDER"))
print(np.asarray(checkpoints.load_safetensors(folder + "/t")["a"]).tolist())
"""
    )
    differs = (
        "save_safetensors: the arrays of process 1 differ from those of process 0: names, shapes, "
        "dtypes and metadata must be the same in all processes."
    )
    both = "['FOLDER/t', 'FOLDER/u']"
    paths = f"save_safetensors: path must be the same in all processes; got {both}."
    for run in run_processes(source, 2, devices=1, args=[str(tmp_path)]):
        assert run.out.splitlines() == [differs] * 3 + [paths, "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]"]
