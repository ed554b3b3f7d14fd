"""tools/conformance.py counts results; docs/conformance.md declines tests with reasons."""

import re
from collections import Counter
from pathlib import Path

from tools.conformance import listed, rows, table, with_results

PAGE = (Path(__file__).parents[2] / "docs/conformance.md").read_text()
SMALL = """# Title

## Results

Text.

### Old

1

## Declined tests

### a_test.py

- `A::test_x*`,
  `A::test_y`: because of `z`.
"""


def test_declined_tests_have_reasons():
    entries = PAGE[PAGE.index("## Declined tests") :].replace("\n  ", " ")
    for line in entries.splitlines():
        if line.startswith("- "):
            assert re.fullmatch(r"- `[\w*]+::\S+`(, `[\w*]+::\S+`)*: \S.*\.", line), line
    names = [*listed(PAGE, "Declined tests"), *listed(PAGE, "Tests of words")]
    assert names and all(re.fullmatch(r"\w+_test\.py", name) for name in names)


def test_patterns_of_declined_tests():
    assert listed(SMALL, "Declined tests") == {"a_test.py": ["A::test_x*", "A::test_y"]}


def test_failures_are_divided():
    words = 'AssertionError: "theirs" does not match "ours"'
    failures = {"A::test_x1": "wrong", "A::test_z": words, "A::test_w": "wrong", "A::no": "wrong"}
    of_jax = [f"a_test.py::A::{name}" for name in ("test_x1", "test_z", "test_w", "test_ok")]
    file = {
        "area": "first",
        "denominator": 5,  # one did not run
        "got": 1,
        "not_passed": {f"a_test.py::{k}": ("failed", v) for k, v in failures.items()},
    }
    baseline = {"files": {"a_test.py": {"passed": of_jax}}}
    found = [*rows({"files": {"a_test.py": file}}, baseline, SMALL)]
    counts = Counter({"tests": 5, "passed": 1, "in other words": 1, "declined": 1, "left": 2})
    assert found == [("first", counts)]
    assert table(found).splitlines()[2:] == [
        "| first | 5 | 1 | 1 | 1 | 2 | 40.0 % | 60.0 % |",
        "| all | 5 | 1 | 1 | 1 | 2 | 40.0 % | 60.0 % |",
    ]


def test_results_are_replaced_in_the_page():
    once = with_results(SMALL, "Old", "2")
    assert once == SMALL.replace("1\n\n## Declined", "2\n\n## Declined")
    both = with_results(once, "New", "3")
    assert "Text.\n\n### New\n\n3\n\n### Old\n\n2\n\n## Declined tests" in both
