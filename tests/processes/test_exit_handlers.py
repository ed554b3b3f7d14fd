"""Code that runs while the interpreter exits: launches over several processes, and errors."""

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.failures import plain
from tests.helpers.processes import run_processes

PROGRAM = """
import atexit, sys
import shardwise as sw, shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

x = jnp.arange(8.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))

@sw.jit
def total(x):
    return x.sum()

float(total(x))

@atexit.register
def at_the_end():
    if sys.argv[1] == "raises" and sw.process_index() == 1:
        raise ValueError("too late")
    if sys.argv[1] != "one launches" or sw.process_index() == 0:
        print(float(total(x)))

if sys.argv[1] == "fails":
    raise KeyError("before")
"""
ENDED = (
    "shardwise.errors.ProcessFailureError: process 1 has ended, and never launched program "
    "'total'. Its last known line: program.py:12 (<module>). All processes must do this: look for "
    "an `if` on process_index() around it, for an early exit, or for data of different length."
)
LATER = "shardwise.errors.ProcessFailureError: "
AFTER_FAILURE = [
    LATER + "this process failed with KeyError: 'before', and the others exit without it.",
    *[
        LATER + f"process {rank} is lost: it failed with KeyError: 'before'. Its last known line: "
        "program.py:22 (<module>)."
        for rank in range(2)
    ],
]
CASES = {
    "all launch": (["28.0\n", "28.0\n"], [0, 0], ["", ""]),
    "one launches": (["", ""], [75, 0], [ENDED, ""]),
    "raises": (["", ""], [75, 0], [ENDED, "ValueError: too late"]),
}


@pytest.mark.parametrize("case", everyday(CASES, 1))
def test_a_handler_that_is_called_at_exit(case):
    outs, statuses, errors = CASES[case]
    results = run_processes(PROGRAM, 2, devices=2, args=[case], timeout=60, expect=None)
    told = "\n".join(r.err for r in results)
    assert [r.status for r in results] == statuses, told
    assert [r.out for r in results] == outs, told
    for result, error in zip(results, errors, strict=True):
        assert error in [*plain(result.err).splitlines(), result.err], told  # "": no error


def test_a_handler_after_a_failure_does_not_hang():
    results = run_processes(PROGRAM, 2, devices=2, args=["fails"], timeout=60, expect=None)
    told = "\n".join(r.err for r in results)
    assert [r.status for r in results] == [1, 1], told
    for result in results:
        assert "KeyError: 'before'" in result.err, told
        assert set(plain(result.err).splitlines()) & set(AFTER_FAILURE), told
        assert result.out == ""
