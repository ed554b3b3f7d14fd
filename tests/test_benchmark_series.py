"""The series of benchmark runs and its drift, on made-up runs."""

import json

import pytest

pytest.importorskip("rich")

from benchmarks import __main__ as command
from benchmarks import readme, report, series


def run(date, cores=2, benchmark="rows", **rows):
    return {"date": date, "jaxlib": "1", "cores": cores, "benchmark": benchmark, "rows": rows}


@pytest.fixture
def path(tmp_path):
    runs = [
        run("2026-01-01", a=1.0, b=1.0, c=1.0),
        run("2026-01-03", a=1.2, b=1.0),
        run("2026-01-02", cores=64, a=9.0),
        run("2026-01-04", a=1.1, b=0.5, c=1.5, d=7.0),
        run("2026-01-04", benchmark="functions", e=2.0),
    ]
    path = tmp_path / "series.jsonl"
    path.write_text("".join(json.dumps(run) + "\n" for run in runs))
    return path


def test_rows_that_moved_are_printed_the_slower_ones_first(path, capsys):
    series.drift(["--by", "0.2"], path)
    assert capsys.readouterr().out.splitlines() == [
        "rows: 2026-01-04, jaxlib 1, 2 cores; 2 earlier runs",
        f"  {'c':<32}   1.000 → 1.500  +50%  (1 run)",
        f"  {'b':<32}   1.000 → 0.500  -50%  (2 runs)",
        "functions: 2026-01-04, jaxlib 1, 2 cores; 0 earlier runs",
        "  no row moved by over 20%",
    ]


def test_drift_is_a_command(monkeypatch):
    called = []
    monkeypatch.setattr(series, "drift", called.append)
    command.main(["drift", "--by", "0.5"])
    assert called == [["--by", "0.5"]]


def test_runs_are_appended_as_a_line_each(tmp_path):
    facts = {"date": "d", "python": "3", "jax": "j", "jaxlib": "l", "cores": 2, "numpy": "n"}
    rows = [{"name": "a", "ratio": 1.23456}, {"name": "failed", "ratio": None}]
    cells = [{"cells": {"first": {"values": v}}} for v in ([1, 2], [1, 4], [1, None], [2, 6])]
    path = tmp_path / "new" / "series.jsonl"
    assert series.read(path) == []
    series.append({"facts": facts, "rows": rows}, path)
    series.append({"facts": facts, "functions": [*cells, {"error": "died"}]}, path)
    first, second = series.read(path)
    assert (first["benchmark"], first["rows"]) == ("rows", {"a": 1.235})
    assert (second["benchmark"], second["rows"]) == ("functions", {"functions.first": 3.0})
    assert first["jaxlib"] == "l" and "numpy" not in first


def test_the_stored_series_can_be_read():
    assert {run["benchmark"] for run in series.read()} == {"rows", "functions"}


def test_the_table_of_the_readme_is_the_newest_run():
    text = readme.README.read_text()
    assert readme.START + readme.table(readme.newest()) + readme.END in text


def test_the_readme_command_replaces_the_table_only(tmp_path):
    facts = {"date": "2026-01-31T17:45:00", "python": "3.11", "jaxlib": "0.10", "cores": 2}
    facts |= {"jax": "0.10", "numpy": "2"}
    rows = [
        {"name": name, "unit": "s", "values": [2e-6, 1.5e-6], "ratio": 0.75} for name in readme.ROWS
    ]
    path, page = tmp_path / "series.jsonl", tmp_path / "README.md"
    report.write_json(tmp_path / "20260131-174500.json", {"facts": facts, "rows": rows})
    series.append({"facts": facts | {"date": "2026-01-30T00:00:00"}, "rows": []}, path)
    series.append({"facts": facts, "rows": rows}, path)
    page.write_text(f"before\n{readme.START}old\n{readme.END}after\n")
    readme.update(page, path)
    lines = page.read_text().splitlines()
    assert lines[2].startswith("Measured on 2026-01-31 with Python 3.11")
    assert lines[6] == "| cached `jit` call, one array | 2.00 µs | 1.50 µs | 0.75 |"
    assert (lines[0], lines[-1], "old" in lines) == ("before", "after", False)
