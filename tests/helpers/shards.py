"""Sweeps in shards: a pytest plugin. `tools/sweep.py` is the command for developers.

    pytest --sweep                                 all cases of all tests
    pytest --sweep --shard 3/16                    the third of sixteen shards
    pytest --sweep --seconds 900 --of 4d5b230      cases worth so many CPU seconds, chosen by a name
    pytest --sweep … --journal FILE                appends each result; skips tests in FILE

The shards are a function of the tests' names; the choice of `--seconds` is a function of the names,
the costs in tests/durations.json and `--of`. Both are the same on every machine.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

from tests.helpers.costs import CPU
from tests.helpers.everyday import Run

DURATIONS = Path(__file__).parents[1] / "durations.json"
UNKNOWN = 0.05  # CPU seconds assumed for a case without a stored cost
GROUP = 20  # this many cases of one test stay together: they share compiled programs

_outcomes: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shardwise")
    group.addoption("--sweep", action="store_true", help="all cases, not only the everyday ones")
    group.addoption("--shard", metavar="K/N", help="of a sweep: the K-th of N parts")
    group.addoption("--seconds", type=float, help="of a sweep: cases of so many seconds of CPU")
    group.addoption("--of", default="", metavar="NAME", help="which cases --seconds chooses")
    group.addoption("--journal", type=Path, metavar="FILE", help="appends results; goes on there")


def pytest_configure(config: pytest.Config) -> None:
    options = config.option
    Run.sweep = options.sweep
    if (options.shard or options.seconds or options.journal) and not options.sweep:
        raise pytest.UsageError("--shard, --seconds and --journal belong to a sweep: add --sweep")
    if options.shard:
        parse_shard(options.shard)
    if options.journal and not hasattr(config, "workerinput"):
        _snapshot(options.journal).write_text("\n".join(finished(options.journal)))


def parse_shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--shard {text}: expected K/N with K from 1 to N, as in 3/16")
    return int(number), int(count)


def finished(journal: Path) -> list[str]:
    """The tests whose results a journal contains."""
    if not journal.exists():
        return []
    return [json.loads(line)["test"] for line in journal.read_text().splitlines()]


def _snapshot(journal: Path) -> Path:
    """The tests that had finished when the run began: the same for a worker that starts later."""
    return journal.with_suffix(".finished")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects tests that run only in sweeps, and the other shards of a sweep.

    Tests that are named on the command line always run.
    """
    options = config.option
    if options.sweep:
        names = [item.nodeid for item in items]
        chosen = part_of(names, options.shard, options.seconds, options.of)
        if options.journal:
            chosen -= {*_snapshot(options.journal).read_text().splitlines()}
        left = [item for item in items if item.nodeid not in chosen]
    else:
        named = any("::" in arg for arg in config.args)
        left = [item for item in items if item.get_closest_marker("sweep") and not named]
    if left:
        config.hook.pytest_deselected(items=left)
        out = {*map(id, left)}
        items[:] = [item for item in items if id(item) not in out]


def part_of(names: list[str], shard: str | None, seconds: float | None, of: str) -> set[str]:
    """The names of a shard, or of `seconds`, of all these tests."""
    groups = grouped(names)
    if shard:
        number, count = parse_shard(shard)
        groups = {key: names for key, names in groups.items() if _hash(key) % count == number - 1}
    order = list(groups)
    if seconds is not None:
        durations = json.loads(DURATIONS.read_text())
        order.sort(key=lambda key: (_hash(f"{of} {key}"), key))
        total, taken = 0.0, []
        for key in order:
            cost = durations.get(key.partition("#")[0], UNKNOWN) * len(groups[key])
            if total + cost <= seconds:
                total += cost
                taken.append(key)
        order = taken
    return {name for key in order for name in groups[key]}


def grouped(names: list[str]) -> dict[str, list[str]]:
    """Groups of tests by function and case number: `tests/jit/test_stages.py::test_x#2`."""
    numbers: dict[str, int] = defaultdict(int)
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        test = function(name)
        groups[f"{test}#{numbers[test] // GROUP}"].append(name)
        numbers[test] += 1
    return groups


def function(name: str) -> str:
    """The test without its case."""
    return name.partition("[")[0]


def _hash(text: str) -> int:
    return crc32(text.encode())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The controller receives the reports of all workers, and writes the journal."""
    if _journal is None:
        return
    before = _outcomes.get(report.nodeid, "passed")
    outcome = _outcomes[report.nodeid] = before if before != "passed" else report.outcome
    if report.when not in ("setup", "call"):  # a worker that died reports a failure without a phase
        cost = dict(report.user_properties).get(CPU, 0)
        line = json.dumps({"test": report.nodeid, "outcome": outcome, "cpu": cost})
        with _journal.open("a") as file:
            file.write(line + "\n")


_journal: Path | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    global _journal
    if not hasattr(session.config, "workerinput"):
        _journal = session.config.option.journal
