"""Processes that fail: what the others say of it, within which time, and how all end."""

import re

import pytest

from shardwise.testing import run_processes
from tests.helpers.failures import KINDS, normal, provoke
from tests.helpers.sampling import sampled

ALWAYS = ("killed", "raises", "skips one", "sleeps")
TIMES = sampled(range(10), 1)
OTHERS = sampled([kind for kind in KINDS if kind not in ALWAYS], 3)


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("name", [*ALWAYS, *OTHERS])
def test_all_others_name_who_failed(name, time):
    kind = KINDS[name]
    run = provoke(name)
    told = "\n".join(run.errors)
    expected = [kind.others] * 3
    expected[kind.culprit] = kind.status
    assert run.statuses == expected, told
    assert run.to_message < 5 or name == "never arrives"
    if name not in ("coordinator killed", "never arrives"):
        assert [normal(said[-1]) for said in run.says] == [kind.says] * 2, told
        assert [normal(line) for line in run.raised] == [
            f"shardwise.errors.ProcessFailureError: {kind.says}"
        ] * 2
        assert run.to_error < 7
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
        "    … N frames of libraries, to shardwise._src.distributed.watch.Watch.wait\n"
    )
    assert re.sub(r":\d+ \(", ":L (", re.sub(r"… \d+", "… N", report)) == (
        "program 'double' has waited for N s; not here: process 1 is at program.py:L (fail).\n"
        f"process 0:\n{wait}\n"
        "process 1:\n  thread MainThread:\n    program.py:L (<module>): fail()\n"
        "    program.py:L (fail): time.sleep(100)  # for ever\n\n"
        f"process 2:\n{wait}"
    ).rstrip()


def test_what_takes_long_does_not_fail():
    """Compiling longer than the time of a sign of life, and a long collective program."""
    results = run_processes(
        """
        import time
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.ones((4, 400), device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        def slow(x):
            if sw.process_index() == 1:
                time.sleep(1.5)  # tracing and compiling
            for i in range(150):
                x = jnp.sort(jnp.sin(x) + i, axis=1)
            return x.sum()
        print(round(float(sw.jit(slow)(x)) / 1e5))
        def loop(x):
            return sw.lax.fori_loop(0, 300, lambda i, x: x + x.sum() * 0, x).sum()
        print(float(sw.jit(loop)(x)))
        """,
        2, devices=2, heartbeat=1, patience=0.5, deadline=2.5, timeout=60, expect=None,
    )
    assert [r.status for r in results] == [0, 0], results[0].err + results[1].err
    assert results[0].out == results[1].out
