"""Deadlines of tests: their length on a machine that is busy for a while."""

import pytest

from tests.helpers import patience


@pytest.fixture
def machine(monkeypatch):
    """Sets the time and the load of the machine."""
    state = {"now": 1000.0, "slow": 1.0}

    def measure():
        patience._measured[:] = [(state["now"], state["slow"])]
        return state["slow"]

    monkeypatch.setattr(patience.time, "monotonic", lambda: state["now"])
    monkeypatch.setattr(patience, "measure", measure)
    monkeypatch.setattr(patience, "_measured", [(1000.0, 1.0)])
    return state


def ends(machine, n, phases):
    """When a deadline is over; phases: (end, load of the machine)."""
    begin, deadline = machine["now"], patience.Deadline(n)
    while not deadline.is_over():
        machine["now"] += 1
        late = machine["now"] - begin
        machine["slow"] = next(slow for end, slow in phases if late <= end)
    return machine["now"] - begin


def test_on_a_quiet_machine_it_is_what_the_clock_says(machine):
    assert ends(machine, 60, [(1000, 1.0)]) == 60


def test_on_a_busy_machine_it_is_as_many_times_as_long(machine):
    assert 600 <= ends(machine, 60, [(10_000, 10.0)]) <= 615


def test_time_in_which_the_machine_was_busy_counts_less_once_it_is_quiet(machine):
    # 30 s of 300 s, and 30 s more; the time between two measurements counts as busy.
    assert 330 <= ends(machine, 60, [(300, 10.0), (10_000, 1.0)]) <= 600
