"""Runs the programs of `programs/`, in one process and in several, and compares what they print."""

from pathlib import Path

import pytest

from shardwise.testing import run_processes
from tests.helpers.sampling import Choice, sampled

PROGRAMS = Path(__file__).with_name("programs")
DEVICES = 4  # in all

counts = pytest.mark.parametrize("count", sampled([2, 4], 1))


def printed(name, count):
    """What each of some processes prints, which is the same."""
    args = ["all"] if Choice.sweep else []
    program = PROGRAMS / f"{name}.py"
    results = run_processes(program, count, devices=DEVICES // count, args=args, timeout=110)
    (out,) = {r.out for r in results}
    return out


def agrees(name, count):
    """A program checks its values in several processes; what it prints is what one prints."""
    assert printed(name, count) == printed(name, 1)
