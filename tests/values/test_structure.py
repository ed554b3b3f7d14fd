"""Programs that move, fold and look up elements return the same under all shardings."""

from __future__ import annotations

import pytest

from tests.helpers.everyday import everyday
from tests.values.structure import Case, Input, sweep
from tests.values.structure_families import PARTS, part


@pytest.mark.parametrize("number", everyday(range(PARTS), 1))
def test_values_are_those_of_one_device(number):
    report = sweep(part(number))
    assert not report.faults, report.text()


FOUR = Input((4,), "x", "float32", "counted")
RIGHT = Case("a[::-1]", (FOUR,), (2,), "x", "a[::-1]")


def test_a_child_that_dies_is_counted_and_the_others_are_still_checked():
    dies = Case("__import__('os').abort() if at(a, 'x') is not a else a", (FOUR,), (2,), "x")
    report = sweep([RIGHT, dies, RIGHT])
    assert dict(report.kinds) == {"death": 1}
    [told] = report.faults
    assert told.startswith(
        "death: __import__('os').abort() if at(a, 'x') is not a else a for a = float32[4] counted "
        "at (x) over (2,) to (x)\n  ended with -6"
    )


def test_what_differs_is_told():
    differs = Case("a if at(a, 'x') is a else a + 1", (FOUR,), (2,), "x", "a")
    other = Case("a * 2", (FOUR,), (2,), "x", "a")
    refused = Case("a if at(a, 'x') is a else a.reshape(3)", (FOUR,), (2,), "x")
    report = sweep([RIGHT, differs, other, refused])
    assert sorted(told.partition("\n")[0] for told in report.faults) == [
        "not NumPy's: a * 2 for a = float32[4] counted at () over (1,) to (?)",
        "refused: a if at(a, 'x') is a else a.reshape(3) for a = float32[4] counted at (x) over "
        "(2,) to (x)",
        "wrong: a if at(a, 'x') is a else a + 1 for a = float32[4] counted at (x) over (2,) to (x)",
    ]
    assert "  got float32[4] [2. 3. 4. 5.], want float32[4] [1. 2. 3. 4.]" in report.text()


def test_counts():
    report = sweep([RIGHT, RIGHT])
    assert report.text() == "2 cases, 1 shardings, 1 modules: all right"
