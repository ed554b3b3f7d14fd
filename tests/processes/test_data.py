"""The input pipeline of docs/data.md yields the same in any number of processes."""

import re
from pathlib import Path

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data.md"


@pytest.mark.parametrize("count", everyday([1, 2, 4], 1))
def test_the_same_in_any_number_of_processes(count):
    text = PAGE.read_text()
    program = "".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    wanted = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[-1]
    results = run_processes(program, count, devices=8 // count)
    assert [r.out for r in results] == [wanted] * count
