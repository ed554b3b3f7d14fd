"""The programs in `programs/`, in one process and in several: their output is the same.

`searched` has random arrays under random shardings, for a range of seeds.
"""

from pathlib import Path

import pytest

from tests.helpers.everyday import Run, everyday
from tests.helpers.processes import run_processes

FOLDER = Path(__file__).with_name("programs")
DEVICES = 4  # in all
# Into how many parts the checks of a program are divided; a part takes a few seconds.
PARTS = {name: 10 for name in "layouts making maps moving reading searched".split()}
PARTS |= {"computing": 20}
CASES = [
    pytest.param(name, *case, marks=[pytest.mark.sweep] * (name == "searched"))
    for name, parts in PARTS.items()
    for case in everyday([(count, part) for count in (2, 4) for part in range(parts)], 1, name)
]


def printed(name, count, part):
    """The output of the processes, which must be the same in all."""
    args = [f"part={part}", f"parts={PARTS[name]}", *["all"] * Run.sweep]
    program = FOLDER / f"{name}.py"
    results = run_processes(program, count, devices=DEVICES // count, args=args, timeout=110)
    (out,) = {r.out for r in results}
    return out


@pytest.mark.parametrize(("name", "count", "part"), CASES)
def test_a_program_prints_the_same_in_several_processes(name, count, part):
    found, expected = printed(name, count, part), printed(name, 1, part)
    assert found == expected, f"{found}\n instead of\n{expected}"


def test_every_program_is_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*PARTS, "checking"}
