"""Processes that fail: what the others report, within what time, and how all processes end."""

import os
import re
import signal
import time

import psutil
import pytest

from tests.helpers.everyday import everyday
from tests.helpers.failures import KINDS, last_line, normal, provoke
from tests.helpers.patience import seconds, until
from tests.helpers.processes import run_processes

ALWAYS = ("killed", "raises", "skips one", "sleeps")
TIMES = everyday(range(4), 1)  # tools/failure_times.py provokes each ten times
OTHERS = everyday([kind for kind in KINDS if kind not in ALWAYS], 1)


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("name", [*ALWAYS, *OTHERS])
def test_all_others_name_who_failed(name, time):
    kind = KINDS[name]
    run = provoke(name, devices=1 + time % 2)
    told = "\n".join(run.errors)
    expected = [kind.others] * 3
    expected[kind.culprit] = kind.status
    assert run.statuses == expected, told
    if name not in ("coordinator killed", "never arrives"):
        assert [normal(said[-1]) for said in run.says] == [kind.says] * 2, told
        assert [normal(line) for line in run.raised] == [
            f"shardwise.errors.ProcessFailureError: {kind.says}"
        ] * 2
        assert not re.search("shardwise/_src", "".join(run.errors))
    elif name == "coordinator killed":
        assert [normal(said[0]) for said in run.says] == [kind.says] * 2, told
    else:
        assert [normal(line) for line in run.raised] == [f"RuntimeError: {kind.says}"] * 2, told
    reported = 2 if kind.options.get("patience") else 1
    assert all(len(said) == (reported if said else 0) for said in run.says), told


def test_a_wait_is_reported_once_with_the_stacks_of_all():
    run = provoke("sleeps")
    report, _ = run.says[0]
    assert report == run.says[1][0]
    wait = (
        "  thread MainThread:\n    program.py:L (<module>): float(double(x)), float(triple(x))\n"
        "    … N frames in libraries, up to shardwise._src.distributed.watch.Watch.wait\n"
    )
    assert (
        re.sub(r":\d+ \(", ":L (", re.sub(r"… \d+", "… N", report))
        == (
            "program 'double' has waited for N s; missing: process 1 is at program.py:L (fail).\n"
            f"process 0:\n{wait}\n"
            "process 1:\n  thread MainThread:\n    program.py:L (<module>): fail()\n"
            "    program.py:L (fail): time.sleep(10**4)  # for ever\n\n"
            f"process 2:\n{wait}"
        ).rstrip()
    )


def test_what_takes_long_does_not_fail():
    """Compilation that takes longer than the heartbeat timeout, and a long collective program."""
    results = run_processes(
        f"""
        import time
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.ones((4, 400), device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        def slow(x):
            if sw.process_index() == 1:
                time.sleep({1.5 * seconds(1)})  # tracing and compiling
            for i in range(60):
                x = jnp.sort(jnp.sin(x) + i, axis=1)
            return x.sum()
        print(round(float(sw.jit(slow)(x)) / 1e5))
        def loop(x):
            return sw.lax.fori_loop(0, 300, lambda i, x: x + x.sum() * 0, x).sum()
        print(float(sw.jit(loop)(x)))
        """,
        2,
        devices=2,
        heartbeat=1,
        patience=0.5,
        deadline=8,
        expect=None,
    )
    assert [r.status for r in results] == [0, 0], results[0].err + results[1].err
    assert results[0].out == results[1].out


PAIRS = """
import threading
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
rank, one = sw.process_index(), sw.devices()
def over(*pair):
    mesh = Mesh([one[i] for i in pair], ("x",))
    return sw.device_put(np.ones(2, "f4"), NamedSharding(mesh, P("x")))
arrays = {pair: over(*pair) for pair in ((0, 1), (1, 2), (0, 2)) if rank in pair}
total = sw.jit(lambda x: x.sum())
for x in arrays.values():  # compared: all in one order
    float(total(x))
"""


def test_orders_that_contradict_each_other_are_told_of():
    results = run_processes(
        PAIRS
        + """
order = {0: [(0, 1), (0, 2)], 1: [(1, 2), (0, 1)], 2: [(0, 2), (1, 2)]}[rank]
print([float(y) for y in [total(arrays[pair]) for pair in order]])
        """,
        3,
        patience=1,
        expect=None,
    )
    says = (
        "the processes wait for each other: process 0 launches '_lambda_' (launch 2 of processes "
        "0,1) before '_lambda_' (launch 2 of processes 0,2); process 2 launches '_lambda_' (launch "
        "2 of processes 0,2) before '_lambda_' (launch 2 of processes 1,2); process 1 launches "
        "'_lambda_' (launch 2 of processes 1,2) before '_lambda_' (launch 2 of processes 0,1). "
        "All processes must launch their common programs in the same order: look for an `if` on "
        "process_index(), threads, or sets or dicts in a different order."
    )
    said = "\n".join(r.err for r in results)
    assert [r.status for r in results] == [1, 1, 1], said
    assert {last_line(r.err) for r in results} == {
        f"shardwise.errors.ProcessFailureError: {says}"
    }, said


def test_another_order_just_before_the_end_is_told_of():
    results = run_processes(
        """
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(4.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        first, second = (sw.jit(lambda x, n=n: (x + n).sum()) for n in range(2))
        for n in range(20):
            first(x), second(x)
        found = (second(x), first(x)) if sw.process_index() else (first(x), second(x))
        print([float(y) for y in found])
        """,
        2,
        expect=None,
    )
    said = "\n".join(r.err for r in results)
    assert 75 in [r.status for r in results], said
    assert "do not run the same program (launch 41)" in said
    assert "exits with status 75: its last results may be wrong." in said


def test_an_interrupt_shows_the_lines_of_the_program():
    results = run_processes(
        """
        import shardwise as sw
        def step(x):
            raise KeyboardInterrupt
        if sw.process_index() == 1:
            sw.jit(step)(1.0)
        """,
        2,
        expect=None,
    )
    trace = re.fullmatch(
        r"Traceback \(most recent call last\):\n  File \S+program\.py\", line 6, in <module>\n"
        r"    sw\.jit\(step\)\(1\.0\)\n  File \S+program\.py\", line 4, in step\n"
        r"    raise KeyboardInterrupt\nKeyboardInterrupt\n",
        re.sub(r"(?m)^ +[\^~]+\n", "", results[1].err),
    )
    assert trace, results[1].err


def test_a_host_function_that_never_returns_is_shown():
    results = run_processes(
        """
        import threading
        import numpy as np
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(4.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        from shardwise._src.distributed.start import here
        watch, reported = here().watch, threading.Event()
        report = watch._on_report
        watch._on_report = lambda message: (report(message), reported.set())
        def host(total):
            reported.wait()  # or for ever
            return np.float32(total)
        like = sw.ShapeDtypeStruct((), "f4")
        print(float(sw.jit(lambda x: sw.pure_callback(host, like, x.sum()))(x)))
        """,
        2,
        patience=1,
        expect=None,
    )
    said = "\n".join(r.err for r in results)
    assert [(r.status, r.out) for r in results] == [(0, "6.0\n")] * 2, said
    assert re.search(r"has waited for \d+ s; all processes have launched it\.", results[1].err)
    assert "(host): reported.wait()  # or for ever" in results[1].err


def test_a_failure_is_heard_of_where_nobody_reads_what_is_said():
    """Process 0 has a closed stderr; process 2 has names that its locale cannot encode."""
    results = run_processes(
        """
        import os, signal
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        rank = sw.process_index()
        if rank == 0:
            end, begin = os.pipe()
            os.close(end), os.dup2(begin, 2)
        x = jnp.arange(6.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        f = sw.jit(lambda x: x.sum())
        def größe():
            return float(f(x))
        größe()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            größe()
        except sw.errors.ProcessFailureError as error:
            print(error.processes)
        """,
        3,
        expect=None,
        env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    said = "\n".join(r.err for r in results)
    assert [(r.status, r.out) for r in results] == [(0, "(1,)\n"), (-9, ""), (0, "(1,)\n")], said


def test_all_may_be_stopped_and_go_on(tmp_path):
    """As with Ctrl-Z and `fg`, or when Slurm suspends a job."""
    begun, beat = tmp_path / "begun", 2.5
    pause = 1.6 * seconds(beat)  # longer than the heartbeat timeout

    def suspend(running):
        until(lambda: begun.exists() or running[0].poll() is not None)
        children = psutil.Process().children()
        pids = [p.pid for p in children if "coordinator.py" in p.cmdline()[-1]]
        pids += [p.pid for p in running]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(pause)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    results = run_processes(
        """
        import pathlib, sys, time
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(4.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        f = sw.jit(lambda x: x.sum())
        for n in range(20):
            print(float(f(x)))
            pathlib.Path(sys.argv[1]).touch()
            time.sleep(0.1)
        """,
        2,
        during=suspend,
        args=[str(begun)],
        heartbeat=beat,
        expect=None,
    )
    said = "\n".join(r.err for r in results)
    assert [(r.status, r.out) for r in results] == [(0, "6.0\n" * 20)] * 2, said


def test_who_comes_to_the_same_after_other_launches_is_told_so():
    results = run_processes(
        """
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(6.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        f, g = sw.jit(lambda x: x + 1), sw.jit(lambda x: x.max()).lower(x).compile()
        f(x).block_until_ready()
        if sw.process_index() == 1:
            f(x)
        g(x)
        """,
        2,
        expect=None,
    )
    says = (
        r"shardwise.errors.ProcessFailureError: the processes do not run the same program: process "
        r"0 reaches program '_lambda_' at program.py:9 \(<module>\) after 1 launches; process 1 "
        r"reaches program '_lambda_' at program\.py:9 \(<module>\) after 2 launches. All processes "
        r"must "
    )
    assert all(re.match(says, last_line(r.err)) for r in results), results


@pytest.mark.sweep
def test_a_line_that_somebody_types_fails_alone():
    results = run_processes(
        """
        import sys
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.experimental import multihost_utils
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(6.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        f = sw.jit(lambda x: x.sum())
        print(float(f(x)))
        if sw.process_index():
            sys.ps1 = ">>> "  # what tells that a program is interactive
            try:
                nmae
            except NameError:
                sys.excepthook(*sys.exc_info())
        multihost_utils.sync_global_devices("what process 1 said of it was heard")
        print(float(f(x)))
        """,
        2,
        expect=None,
    )
    said = "\n".join(r.err for r in results)
    assert [(r.status, r.out) for r in results] == [(0, "15.0\n15.0\n")] * 2, said
    assert last_line(results[1].err).startswith("NameError: name 'nmae' is not defined")


@pytest.mark.parametrize("way", ["", "sw.distributed.shutdown()"])
def test_a_program_that_nobody_waits_for_does_not_fail_unnoticed(way):
    results = run_processes(
        f"""
        import os, signal, time
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(4.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        f = sw.jit(lambda x: x.sum())
        float(f(x))
        if sw.process_index():
            os.kill(os.getpid(), signal.SIGKILL)
        y = f(x)
        {way}
        """,
        2,
        devices=2,
        expect=None,
    )
    told = "\n".join(r.err for r in results)
    assert [r.status for r in results] == [1 if way else 75, -9], told
    ends = "exits with status 75: a program that it launched and did not wait for has failed."
    assert ("ProcessFailureError: process 1" if way else ends) in results[0].err, told
