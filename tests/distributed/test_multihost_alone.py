"""`multihost_utils` in a program of one process."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from jax.experimental import multihost_utils as theirs

import shardwise as sw
from shardwise.experimental import multihost_utils as ours
from tests.helpers.errors import message
from tests.helpers.patience import seconds

TREES = [
    3,
    2.5,
    np.arange(6.0).reshape(2, 3),
    {"a": np.float32(1), "b": [np.ones(3, bool)]},
    [],
    None,
    np.zeros((0, 2), np.int8),
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_it_gives_what_jax_gives(tree):
    for function, how in (
        ("process_allgather", {}),
        ("process_allgather", {"tiled": True}),
        ("broadcast_one_to_all", {}),
        ("broadcast_one_to_all", {"is_source": True}),
    ):
        came = getattr(ours, function)(tree, **how)
        due = getattr(theirs, function)(tree, **how)
        assert sw.tree.structure(came) == sw.tree.structure(due)
        for a, b in zip(sw.tree.leaves(came), sw.tree.leaves(due), strict=True):
            assert type(a) is np.ndarray and a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_array_equal(a, b)


def test_arrays_and_keys():
    mesh = sw.sharding.Mesh(sw.devices(), ("x",))
    x = sw.device_put(
        np.arange(16.0, dtype="f"), sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec("x"))
    )
    np.testing.assert_array_equal(ours.process_allgather(x), np.arange(16.0)[None])
    np.testing.assert_array_equal(ours.process_allgather(x, tiled=True), np.arange(16.0))
    keys = sw.random.split(sw.random.key(0), 3)
    assert ours.process_allgather(keys).shape == (1, 3)
    came = ours.broadcast_one_to_all(keys)
    assert came.dtype == keys.dtype and (sw.random.key_data(came) == sw.random.key_data(keys)).all()


def test_the_others():
    ours.sync_global_devices("here")
    ours.sync_global_devices("here", timeout=0.1)
    ours.assert_equal({"a": np.nan, "b": "text"}, "never")
    with ours.live_devices(sw.devices()[::-1]) as devices:
        assert devices == sw.devices()
    with pytest.raises(ZeroDivisionError), ours.live_devices(sw.devices()):
        _ = 1 / 0
    assert ours.ProcessFailureError is sw.errors.ProcessFailureError


def test_a_barrier_waits_for_what_was_launched():
    x = np.ones((200, 200), np.float32)
    slow = sw.jit(lambda x: sw.lax.fori_loop(0, 200, lambda i, x: x @ x / 200, x))(x)
    ours.sync_global_devices("after")
    assert slow.is_ready()


def test_mistakes():
    assert message(ValueError, ours.broadcast_one_to_all, 1, is_source=False) == (
        "broadcast_one_to_all: no process is the source. Pass is_source=True in one of them."
    )
    assert message(ValueError, ours.live_devices([]).__enter__) == (
        "live_devices: 0 devices given, but none belongs to this process, 0. Call it only in the "
        "processes of the devices."
    )
    assert message(TypeError, ours.process_allgather, {"f": len}) == (
        "process_allgather: in_tree['f'] is <built-in function len> of type "
        "builtin_function_or_method, but must be an array or a number: only their bytes can be "
        "sent."
    )


def test_the_signal_that_comes_before_the_end():
    code = (
        "import os, signal\n"
        "from shardwise.experimental.multihost_utils import reached_preemption_sync_point as at\n"
        "assert not at(0)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "assert at(1) and not at(2)\n"
        "print('saved')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=seconds(60),
        env=os.environ,
    )
    assert (done.returncode, done.stdout) == (0, "saved\n"), done.stderr


def test_a_handler_of_the_program_stays():
    before = signal.getsignal(signal.SIGTERM)
    own = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        mine = signal.getsignal(signal.SIGTERM)
        assert not ours.reached_preemption_sync_point(np.int32(0))
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, own)
    assert signal.getsignal(signal.SIGTERM) is before
