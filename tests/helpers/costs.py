"""The costs of tests: a pytest plugin.

The CPU seconds of each test (its process and child processes that ended) and the peak
memory of its process are properties in the JUnit file. At its end, a run prints the sum, the time
per folder and the slowest tests, and stores the cost of each in build/costs.json. No test passes
or fails because of them.
"""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

CPU, MEMORY = "cpu_seconds", "peak_bytes"
SLOWEST = 10  # number of tests to print
FOLDERS = 12
STORED = Path("build/costs.json")

_started = pytest.StashKey[float]()


def cpu_seconds() -> float:
    """CPU seconds of this process and of its child processes that ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[_started] = cpu_seconds()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    if call.when == "teardown":  # the last report of a test, which contains its properties
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        cost = round(cpu_seconds() - item.stash[_started], 3)
        item.user_properties += [(CPU, cost), (MEMORY, peak)]
    yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints and stores the costs, and prints the sums of the tests' own counters."""
    costs: dict[str, float] = {}
    counts: dict[str, int] = {}
    peak = 0
    for report in (r for rs in terminalreporter.stats.values() for r in rs):
        if getattr(report, "when", "") == "teardown":
            found = dict(report.user_properties)
            costs[report.nodeid], peak = found.get(CPU, 0), max(peak, found.get(MEMORY, 0))
            for name in found.keys() - {CPU, MEMORY}:
                counts[name] = counts.get(name, 0) + found[name]
    line = terminalreporter.write_line
    total = sum(costs.values())
    line(f"{total:.0f} s of CPU in tests; at most {peak / 2**30:.1f} GiB in a process")
    for name, count in counts.items():
        line(f"{name}: {count}")
    if len(costs) > SLOWEST:
        folders = _largest(by_folder(costs), FOLDERS)
        line("by folder: " + ", ".join(f"{name} {cost:.0f} s" for name, cost in folders))
        for name, cost in _largest(costs, SLOWEST):
            line(f"{cost:6.1f} s  {name}")
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(costs, indent=0, sort_keys=True))


def folder(nodeid: str) -> str:
    """`tests/jit/test_stages.py::test_x` is in `tests/api`, `tests/test_layers.py::…` in itself."""
    parts = nodeid.partition("::")[0].split("/")
    return "/".join(parts[:2])


def by_folder(costs: dict[str, float]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for name, cost in costs.items():
        sums[folder(name)] += cost
    return dict(sums)


def _largest(costs: dict[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(costs.items(), key=lambda pair: -pair[1])[:count]
