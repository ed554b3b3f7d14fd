"""A pytest plugin: runs a library's own tests on this library, and writes an outcome per line.

The variable SUITE_MODULE is 'shardwise', for `import jax` to import this library, or 'jax';
SUITE_OUTCOMES is the file; SUITE_SHARE=3 takes a third of the tests, the same in each run.
"""

from __future__ import annotations

import json
import os
import zlib

import pytest

if os.environ["SUITE_MODULE"] == "shardwise":
    import shardwise

    shardwise.compat.as_jax()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    share = int(os.environ.get("SUITE_SHARE", "1"))
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % share == 0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome, report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(report.nodeid, "not collected", report)


def _write(name: str, outcome: str, report: pytest.TestReport | pytest.CollectReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # the process that started this one writes it
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr or "")[-500:]
    with open(os.environ["SUITE_OUTCOMES"], "a") as file:
        file.write(json.dumps([name, outcome, message[:500]]) + "\n")
