"""`multihost_utils` between real processes."""

import os
import re
import signal

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes, until_written

GATHER = """
    import sys

    import ml_dtypes
    import numpy as np

    import shardwise as sw
    from shardwise._src.distributed import shared_memory
    from shardwise.experimental import multihost_utils as m
    from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

    n, me = sw.process_count(), sw.process_index()
    if "on several machines" in sys.argv:
        shared_memory._identity = lambda: f"machine {me}"
    if "not readable" in sys.argv and me == n - 1:
        shared_memory.SharedMemory.write = lambda self, note, parts: False
    # What each process has for itself: stacked, or joined if tiled.
    own = {"a": np.arange(6.0).reshape(2, 3) + me, "b": me, "c": sw.numpy.ones(2, "int8") * me,
           "none": np.ones((0, 3)), "big": np.full((3, 50_001), me, np.float64)}
    all_of_them = [{"a": np.arange(6.0).reshape(2, 3) + i, "b": i, "c": np.ones(2, "int8") * i,
                    "none": np.ones((0, 3)), "big": np.full((3, 50_001), i, np.float64)}
                   for i in range(n)]
    for tiled in (False, True):
        got = m.process_allgather(own, tiled=tiled)
        for name, x in got.items():
            parts = [np.asarray(tree[name]) for tree in all_of_them]
            due = np.concatenate(parts) if tiled and parts[0].ndim else np.stack(parts)
            assert type(x) is np.ndarray and x.dtype == due.dtype and x.shape == due.shape, name
            np.testing.assert_array_equal(x, due)
    for size in (1, 100_000):
        keys = m.process_allgather(sw.random.split(sw.random.key(me), size))
        assert keys.shape == (n, size) and keys.dtype == sw.random.key(0).dtype
        due = [sw.random.key_data(sw.random.split(sw.random.key(i), size)) for i in range(n)]
        np.testing.assert_array_equal(sw.random.key_data(keys), np.stack(due))

    # Arrays over all processes come out whole, however they are split.
    flat = Mesh(sw.devices(), ("x",))
    grid = Mesh(np.array(sw.devices()).reshape(2, -1), ("x", "y"))
    turned = Mesh(np.array(sw.devices()).reshape(2, -1).T, ("x", "y"))
    places = [(flat, P("x")), (flat, P()), (flat, P(None, "x")), (grid, P("x")), (grid, P("y")),
              (grid, P("y", "x")), (turned, P("x", "y")), (flat.update(), P("x"))]
    for i, (mesh, spec) in enumerate(places):
        for shape in ((8, 4), (13, 7), (3, 2), (256, 512)):
            for dtype in (np.float32, ml_dtypes.bfloat16, bool)[: 1 if shape[0] > 100 else 3]:
                v = (np.arange(np.prod(shape)) * 7 % 251).reshape(shape).astype(dtype)
                place = NamedSharding(mesh, spec)
                x = sw.make_array_from_callback(shape, place, v.__getitem__, dtype)
                got = m.process_allgather({"x": x}, tiled=True)["x"]
                assert got.dtype == v.dtype, (spec, shape, dtype)
                np.testing.assert_array_equal(got, v)
    v = np.arange(16).astype(ml_dtypes.int4)
    x = sw.make_array_from_callback((16,), NamedSharding(flat, P("x")), v.__getitem__, v.dtype)
    np.testing.assert_array_equal(m.process_allgather(x, tiled=True), v)
    keys = sw.jit(lambda k: sw.random.split(k, 8), out_shardings=NamedSharding(flat, P("x")))(
        sw.random.key(3))
    got = m.process_allgather(keys, tiled=True)
    np.testing.assert_array_equal(
        sw.random.key_data(got), sw.random.key_data(sw.random.split(sw.random.key(3), 8)))
    mixed = m.process_allgather({"x": x, "y": np.arange(3) + me}, tiled=True)
    assert mixed["x"].shape == (16,) and mixed["y"].shape == (3 * n,)

    # Bits are as they were, small or large, from any process.
    bits = np.array([0x7FC00123, 0xFFC00001, 0x80000000, 0x7F800001], np.uint32)
    for times in (1, 30_000):
        nans = np.tile(bits, times).view(np.float32)
        mine = nans if me == n - 1 else np.full_like(nans, me)
        tree = {"nan": mine, "half": mine.view(ml_dtypes.bfloat16), "yes": mine.view(np.uint32) > 9,
                "odd": mine.view(np.int8)[1:], "key": sw.random.split(sw.random.key(me), times)}
        got = m.broadcast_one_to_all(tree, is_source=me == n - 1)
        assert got["nan"].tobytes() == nans.tobytes() and got["nan"].shape == nans.shape
        assert got["half"].dtype == ml_dtypes.bfloat16 and got["half"].tobytes() == nans.tobytes()
        np.testing.assert_array_equal(got["yes"], nans.view(np.uint32) > 9)
        assert got["odd"].tobytes() == nans.tobytes()[1:]
        due = sw.random.key_data(sw.random.split(sw.random.key(n - 1), times))
        np.testing.assert_array_equal(sw.random.key_data(got["key"]), due)
        rows = m.process_allgather(mine)
        assert rows[n - 1].tobytes() == nans.tobytes() and (rows[0] == 0).all()
    assert m.broadcast_one_to_all({"a": me, "b": [True, 2.5]})["a"] == 0  # from process 0

    # A barrier: what was launched before has ended; processes that were late are waited for.
    ones = np.ones((8, 8))
    x = sw.make_array_from_callback((8, 8), NamedSharding(flat, P("x")), ones.__getitem__, "f")
    slow = sw.jit(lambda x: sw.lax.fori_loop(0, 300, lambda i, x: x @ x / 8, x))(x)
    m.sync_global_devices("after the loop")
    assert slow.is_ready()
    m.sync_global_devices("with a timeout", timeout=30)
    for _ in range(20):  # large results count as launches by their tokens
        large = m.process_allgather(np.full(1 << 21, me, np.float32))
    m.sync_global_devices("after large ones")
    assert large.shape == (n, 1 << 21) and large[-1, 0] == n - 1

    # What a process does to its result, or to what it has sent, changes nothing elsewhere.
    sent = np.full(1 << 16, me)
    rows = m.process_allgather(sent)
    sent[:] = -1
    if rows.flags.writeable:
        rows[:] = -1
    m.sync_global_devices("written")
    again = m.process_allgather(np.full(1 << 16, me))
    assert (again == np.arange(n)[:, None]).all()
    assert (rows == (-1 if rows.flags.writeable else np.arange(n)[:, None])).all()

    m.assert_equal({"a": np.ones(3), "b": "text", "big": np.zeros(10**6)}, "all alike")
    m.assert_equal([0.0 if me else -0.0, np.nan])
    m.assert_equal({"sharded": x, "whole": sw.device_put(x, NamedSharding(flat, P()))})
    with m.live_devices(sw.devices()) as devices:
        assert devices == sorted(sw.devices(), key=lambda d: d.id)
    with m.live_devices(sw.local_devices()) as devices:
        assert devices == sw.local_devices()
    print("done", n)
"""


@pytest.mark.parametrize("where", ["on one machine", "on several machines", "not readable"])
@pytest.mark.parametrize(("count", "devices"), everyday([(2, 2), (4, 1), (2, 1), (3, 2)], 1))
def test_values_go_round(count, devices, where):
    results = run_processes(GATHER, count, devices=devices, args=[where], timeout=100)
    assert [r.out for r in results] == [f"done {count}\n"] * count


INTERRUPTED = """
    import os

    import numpy as np

    import shardwise as sw
    from shardwise._src.distributed.shared_memory import SharedMemory
    from shardwise.experimental import multihost_utils as m

    me, write = sw.process_index(), SharedMemory.write

    def interrupted(memory, note, parts):
        SharedMemory.write = write
        raise KeyboardInterrupt

    if me:
        SharedMemory.write = interrupted
    for _ in range(2):
        try:
            print(m.process_allgather(np.full(20_000, me)))
        except (KeyboardInterrupt, sw.errors.ProcessFailureError) as error:
            print(type(error).__name__, " through memory " in str(error), flush=True)
    os._exit(0)
"""


def test_a_process_that_was_interrupted_gets_no_parts_of_values():
    results = run_processes(INTERRUPTED, 2, devices=1)
    failed = "ProcessFailureError True\n"
    assert [r.out for r in results] == [2 * failed, "KeyboardInterrupt False\n" + failed]


ERRORS = """
    import sys
    import time
    from pathlib import Path

    import numpy as np

    import shardwise as sw
    from shardwise.experimental import multihost_utils as m
    from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

    me = sw.process_index()
    mesh = Mesh(sw.devices(), ("x",))
    spread = sw.device_put(np.arange(8.0, dtype="f"), NamedSharding(mesh, P("x")))

    def show(function, *args, **kwargs):
        try:
            function(*args, **kwargs)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")

    show(m.process_allgather, {"a": np.ones(3), "b": [np.arange(2 + me)]})
    show(m.process_allgather, np.ones(10**5, np.float32 if me else np.int32))
    show(m.process_allgather, {"a": 1} if me else {"b": 1})
    show(m.process_allgather, {"x": spread})
    show(m.process_allgather, [object])
    show(sw.jit(m.process_allgather), np.ones(2, "f"))
    show(m.broadcast_one_to_all, 1, is_source=True)
    show(m.broadcast_one_to_all, 1, is_source=False)
    show(m.broadcast_one_to_all, spread)
    show(m.broadcast_one_to_all, {"w": np.ones((2, 1 + me))})
    show(m.assert_equal, {"a": np.ones(3), "b": np.arange(2) * me}, "params differ")
    show(m.assert_equal, [np.full(100, me)])
    show(m.assert_equal, (1, 2) if me else [1, 2], "structures")
    copies = [sw.device_put(np.arange(8.0, dtype="f") + me, d) for d in sw.local_devices()]
    broken = sw.make_array_from_single_device_arrays(
        (8,), NamedSharding(mesh, P()), copies)
    show(m.assert_equal, {"replicas": broken})
    if me == 0:
        show(m.live_devices([d for d in sw.devices() if d.process_index]).__enter__)
        show(m.sync_global_devices, "step 1", timeout=0.3)
        show(m.reached_preemption_sync_point, 1.5)
        Path(sys.argv[1]).touch()
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    m.sync_global_devices("step 1")  # they meet after all
    assert m.process_allgather(me).tolist() == [0, 1]
"""

TOLD = """\
ValueError: process_allgather: in_tree['b'][0] is i64[2] in process 0 and i64[3] in process 1. Its \
shape and dtype must be the same in all processes: pad shorter arrays, and send the lengths \
separately.
ValueError: process_allgather: in_tree is i32[100000] in process 0 and f32[100000] in process 1. \
Its shape and dtype must be the same in all processes: pad shorter arrays, and send the lengths \
separately.
ValueError: process_allgather: the pytree is {'b': *} in process 0 and {'a': *} in process 1. Its \
structure must be the same in all processes.
ValueError: process_allgather: in_tree['x'] is f32[8] over the devices of several processes: it is \
one global array, with nothing to stack. Pass tiled=True to gather it.
TypeError: process_allgather: in_tree[0] is <class 'object'> of type type, but must be an array or \
a number: only their bytes can be sent.
UnexpectedTracerError: process_allgather: in_tree is a jit tracer f32[2]. Values are exchanged \
between processes when the program runs, not when it is traced: call it outside of jit, grad, \
vmap. Inside, use collectives such as `shardwise.lax.all_gather`.
ValueError: broadcast_one_to_all: processes 0, 1 are all sources. Pass is_source=True in one of \
them.
ValueError: broadcast_one_to_all: no process is the source. Pass is_source=True in one of them.
ValueError: broadcast_one_to_all: in_tree is f32[8] over the devices of several processes, so no \
process has all of it. Use process_allgather(tiled=True).
ValueError: broadcast_one_to_all: in_tree['w'] is f64[2,1] in process 0 and f64[2,2] in process 1. \
Its shape and dtype must be the same in all processes: pad shorter arrays, and send the lengths \
separately.
AssertionError: params differ: in_tree['b'] of type i64[2] is not the same in all processes: \
process 0 has [0, 0], process 1 has [0, 1].
AssertionError: in_tree[0] of type i64[100] is not the same in all processes: process 0, process 1 \
differ.
AssertionError: structures: assert_equal: the pytree is [*, *] in process 0 and (*, *) in process \
1. Its structure must be the same in all processes.
AssertionError: in_tree['replicas'] of type f32[8] over NamedSharding(mesh=Mesh('x': 4), spec=P()) \
is not the same in all processes: at [0:8], process 0 has [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, \
7.0], process 1 has [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0].
"""

OF_ONE = """\
ValueError: live_devices: 2 devices given, but none belongs to this process, 0. Call it only in \
the processes of the devices.
TimeoutError: sync_global_devices('step 1'): within 0.3 s process 1 (host HOST, pid PID) did not \
arrive. Its last known line: LINE.
TypeError: reached_preemption_sync_point: step_id must be an integer; got 1.5 of type float.
"""


def test_what_does_not_fit_is_an_error_in_all(tmp_path):
    late = str(tmp_path / "late")  # once it exists, process 1 comes to the barrier
    first, second = [r.out for r in run_processes(ERRORS, 2, devices=2, args=[late])]
    first = re.sub(r"\(host .*?, pid \d+\)", "(host HOST, pid PID)", first)
    first = re.sub(r"line: .*(?=\.)", "line: LINE", first)
    assert second == TOLD
    assert first == TOLD + OF_ONE


def test_other_places_are_told_apart():
    program = """
        import shardwise as sw
        from shardwise.experimental import multihost_utils as m

        try:
            m.sync_global_devices("left" if sw.process_index() else "right")
        except m.ProcessFailureError as error:
            print(error.processes, "sync_global_devices('right')" in str(error),
                  "sync_global_devices('left')" in str(error), str(error).count("program.py:6"))
    """
    results = run_processes(program, 2)
    assert [r.out for r in results] == ["(0, 1) True True 2\n"] * 2


LOST = """
    import os, signal, sys, time

    import shardwise as sw
    from shardwise.experimental import multihost_utils as m

    everyone = sw.devices()
    try:
        with m.live_devices(everyone) as devices:
            assert len(devices) == 3
            if sw.process_index() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except m.ProcessFailureError as error:
        print([d.process_index for d in error.failed_devices], error)
    with m.live_devices(everyone) as devices:
        print([d.process_index for d in devices])
    try:
        m.sync_global_devices("all")
    except m.ProcessFailureError as error:
        print(error.processes)
"""


def test_survivors_agree_on_live_devices():
    results = run_processes(LOST, 3, expect=None)
    assert [r.status for r in results] == [0, -signal.SIGKILL, 0]
    printed = "[1] live_devices: process 1 failed, and with it devices [2048].\n[0, 2]\n(1,)\n"
    assert [results[0].out, results[2].out] == [printed, printed]


PREEMPTED = """
    import time

    import shardwise as sw
    from shardwise.experimental import multihost_utils as m

    m.sync_global_devices("start")
    for step in range(10_000):
        if m.reached_preemption_sync_point(step):
            break
        print("going", flush=True)
        time.sleep(0.01)
    steps = m.process_allgather(step)
    assert steps[0] == steps[1] and step < 9_999
    print("saved")
"""


def test_a_signal_leads_all_to_one_step():
    def during(running):
        for process in running:  # until all have completed a first step
            until_written(process, "going")
        os.kill(running[1].pid, signal.SIGTERM)

    results = run_processes(PREEMPTED, 2, during=during)
    assert [r.out.splitlines()[-1] for r in results] == ["saved"] * 2
