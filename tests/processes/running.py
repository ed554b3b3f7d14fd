"""Runs the programs in `programs/` in one process and in several, and compares their output."""

from pathlib import Path

import pytest

from tests.helpers.everyday import Run, everyday
from tests.helpers.processes import run_processes

PROGRAMS = Path(__file__).with_name("programs")
DEVICES = 4  # in all

PARTS = {"computing": 20}  # parts of the checks of a program; a part takes a few seconds


def cases(name):
    """Parametrizes over process counts and parts of a program."""
    pairs = [(count, part) for count in (2, 4) for part in range(parts_of(name))]
    return pytest.mark.parametrize(("count", "part"), everyday(pairs, 1, name))


def parts_of(name):
    return PARTS.get(name, 10)


def printed(name, count, part):
    """The output of the processes, which must be the same in all."""
    args = [f"part={part}", f"parts={parts_of(name)}", *["all"] * Run.sweep]
    program = PROGRAMS / f"{name}.py"
    results = run_processes(program, count, devices=DEVICES // count, args=args, timeout=110)
    (out,) = {r.out for r in results}
    return out


def agrees(name, count, part):
    """A program checks its values in several processes; its output must equal that of one."""
    found, expected = printed(name, count, part), printed(name, 1, part)
    assert found == expected, f"{found}\n instead of\n{expected}"
