"""Which tests run: the everyday choice, shards of sweeps, records, and the coverage of a change."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.helpers import shards
from tests.helpers.everyday import Run, everyday, features
from tests.sweeps import PACKAGES, ROOT, SOURCE, covered_by
from tools import sweep

NAMES = [f"tests/a/test_{f}.py::test_{t}[{c}]" for f in "pq" for t in "xyz" for c in range(45)]


@pytest.fixture
def everyday_run(monkeypatch):
    monkeypatch.setattr(Run, "sweep", False)


# ---- the everyday choice -------------------------------------------------------------------------


def test_a_choice_depends_on_the_table_alone(everyday_run):
    assert everyday(range(60), 5) == [0, 8, 16, 32, 48]
    assert everyday(range(60), 5, "x") == [3, 11, 19, 35, 51]
    assert everyday([], 3) == [] and everyday("ab", 3) == ["a", "b"] and everyday("abc", 0.5)


def test_a_choice_by_names(everyday_run):
    cases = [("sin", object()), ("cos", object()), ("sin", object())]
    assert everyday(cases, 2, by=lambda case: case[0]) == cases[:2]


def test_pairs_of_features_come_first(everyday_run):
    chosen = everyday(product("abc", "xyz", (1, 2)), 10)
    assert {(a, b) for a, b, _ in chosen} == {*product("abc", "xyz")}
    assert {(a, n) for a, _, n in chosen} == {*product("abc", (1, 2))}
    assert everyday(["sum(x)", "sum(x, axis=0)", "max(x)", "max(x, axis=1)"], 2) == [
        "sum(x, axis=0)", "max(x, axis=1)"
    ]  # fmt: skip


@pytest.mark.parametrize("table, of", [
    ([object(), object()], ""), ([(1, 2), (1, object())], ""), ([1, 2], f"{ROOT}/tests/x.py 3"),
], ids=["address", "address in a tuple", "path"])  # fmt: skip
def test_a_choice_by_an_address_or_a_path_is_rejected(everyday_run, table, of):
    with pytest.raises(ValueError, match="is not the same in every checkout and process"):
        everyday(table, 1, of)


def test_a_sweep_takes_all(monkeypatch):
    monkeypatch.setattr(Run, "sweep", True)
    assert everyday(range(60), 5) == list(range(60))


def test_features():
    assert features("sum(x, axis=0)") == ["sum", "x", "axis", "=", "0"]
    assert features(("add", float, {"a": 1})) == [(0, "add"), (1, "float"), (2, "{'a': 1}")]
    assert features({"a": 1}) == [("key", "a", "1")]


# ---- shards --------------------------------------------------------------------------------------


def test_each_test_is_in_one_shard():
    parts = [shards.part_of(NAMES, f"{k}/5", None, "") for k in range(1, 6)]
    assert sum(map(len, parts)) == len(NAMES) and set().union(*parts) == {*NAMES}
    assert all(parts)


def test_cases_of_a_test_stay_together_by_twenty():
    sizes = {key: len(names) for key, names in shards.grouped(NAMES).items()}
    assert sizes["tests/a/test_p.py::test_x#0"] == 20 and sizes["tests/a/test_p.py::test_x#2"] == 5


def test_what_so_many_seconds_take_follows_from_a_name_and_the_stored_costs(monkeypatch, tmp_path):
    stored = tmp_path / "durations.json"
    stored.write_text(json.dumps({"tests/a/test_p.py::test_x": 2.0}))
    monkeypatch.setattr(shards, "DURATIONS", stored)
    cost = {name: 2.0 if "test_p.py::test_x" in name else 0.05 for name in NAMES}
    chosen = {of: shards.part_of(NAMES, None, 45.0, of) for of in ("4d5b230", "b28e29c")}
    assert chosen["4d5b230"] != chosen["b28e29c"]
    for of, names in chosen.items():
        assert names == shards.part_of(NAMES, None, 45.0, of)
        assert 10 <= sum(cost[name] for name in names) < 45.1


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "a/b", "-1/4"])
def test_shards_that_are_not_there(text):
    with pytest.raises(pytest.UsageError) as error:
        shards.parse_shard(text)
    assert str(error.value) == f"--shard {text}: expected K/N with K from 1 to N, as in 3/16"


# ---- what pytest does with the options -----------------------------------------------------------

TESTS = """
import pytest
from tests.helpers.everyday import everyday

@pytest.mark.parametrize("n", everyday(range(40), 4))
def test_table(n):
    assert n != 39

@pytest.mark.sweep
def test_long():
    pass
"""


@pytest.fixture
def project(tmp_path):
    """A folder with a table of forty cases and a test for sweeps."""
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["tests.helpers.costs", "tests.helpers.shards"]\n'
    )
    (tmp_path / "test_table.py").write_text(TESTS)
    return tmp_path


def collected(project, *options, cases=None, **environment):
    """pytest's status and the tests that it ran; `cases` names some."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(project), "-W", "ignore", *options, *(cases or [str(project)])]
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
    )  # fmt: skip
    lines = [line.split()[0] for line in done.stdout.splitlines() if "::" in line and "%]" in line]
    return done.returncode, lines


def test_dates_and_hash_seeds_change_nothing(project):
    dates = [{"PYTHONHASHSEED": str(n), "SOURCE_DATE_EPOCH": str(n * 10**8)} for n in (1, 2)]
    first, second = [collected(project, **date) for date in dates]
    assert first == second
    assert first == (0, [f"test_table.py::test_table[{n}]" for n in (0, 8, 16, 32)])


def test_tests_for_sweeps_run_in_sweeps_and_by_name(project):
    status, ran = collected(project, "--sweep")
    assert status == 1 and len(ran) == 41 and "test_table.py::test_long" in ran
    name = f"{project}/test_table.py::test_long"
    assert collected(project, cases=[name]) == (0, ["test_table.py::test_long"])


def test_a_journal_is_gone_on_with(project):
    journal = project / "journal.jsonl"
    journal.write_text('{"test": "test_table.py::test_table[3]", "outcome": "passed", "cpu": 1}\n')
    status, ran = collected(project, "--sweep", "--journal", str(journal))
    assert status == 1 and len(ran) == 40 and "test_table.py::test_table[3]" not in ran
    results = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(results) == 41
    assert [r["test"] for r in results if r["outcome"] == "failed"] == [
        "test_table.py::test_table[39]"
    ]
    assert collected(project, "--sweep", "--journal", str(journal)) == (5, [])  # nothing remains


def test_parts_belong_to_sweeps(project):
    assert collected(project, "--shard", "1/2") == (4, [])


# ---- records -------------------------------------------------------------------------------------


def line(at, shard, only, **folders):
    return {"commit": at, "shard": shard, "only": only,
            "folders": {f"tests/{name}": counts for name, counts in folders.items()}}  # fmt: skip


def test_the_newest_commit_at_which_a_folder_was_swept_whole():
    found = [
        line("a", "1/2", None, core=[3, 0, 1.0]),
        line("a", "2/2", None, core=[4, 1, 2.0], ops=[1, 0, 1.0]),
        line("b", None, "tests/ops", ops=[9, 0, 5.0]), line("b", "1/2", None, core=[3, 0, 1.0]),
    ]  # fmt: skip
    assert sweep.newest("tests/core", found, ["b", "a"]) == ("a", [7, 1, 3.0])
    assert sweep.newest("tests/ops", found, ["b", "a"]) == ("b", [9, 0, 5.0])
    assert sweep.newest("tests/core", found[2:], ["b", "a"]) is None


# ---- what covers a change ------------------------------------------------------------------------


def test_every_package_has_sweeps_that_are_there():
    folders = {p.name for p in (ROOT / SOURCE).iterdir() if (p / "__init__.py").exists()}
    assert folders == {*PACKAGES}
    for tests in PACKAGES.values():
        assert all((ROOT / "tests" / test).exists() for test in tests.split())


def test_every_folder_with_sweeps_covers_a_package():
    covered = {test.partition("/")[0] for tests in PACKAGES.values() for test in tests.split()}
    own = {"docs", "examples", "clusters"}  # swept only when these folders change
    for path in sorted(Path(ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if path.parent.name != "tests" and ("everyday(" in text or "mark.sweep" in text):
            assert path.relative_to(ROOT / "tests").parts[0] in covered | own, path


def test_what_covers_a_change():
    assert covered_by(["shardwise/_src/saving/writing.py"]) == ["tests/saving"]
    assert covered_by(["README.md", "tests/helpers/errors.py", "shardwise/_src/new/x.py"]) == []
    assert covered_by(["tests/ops/test_elementwise.py", "tests/test_layers.py"]) == [
        "tests/ops", "tests/test_layers.py"
    ]  # fmt: skip
    assert covered_by(["docs/maps.md", "shardwise/_src/distributed_linalg/columns.py"]) == [
        "tests/distributed_linalg", "tests/docs", "tests/linalg"
    ]  # fmt: skip
    assert covered_by(["shardwise/_src/numpy/a.py", "shardwise/_src/distributed_linalg/b.py"]) == [
        "tests/distributed_linalg", "tests/lax", "tests/linalg", "tests/messages", "tests/numpy",
        "tests/scipy", "tests/signal", "tests/special", "tests/values",
    ]  # fmt: skip
