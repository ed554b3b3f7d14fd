"""The benchmark runner on tiny rows with a fake clock; no real time is measured."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("rich")

from rich.console import Console

from benchmarks import arguments, commits, functions, gpt, report
from benchmarks.libs import Lib, prepare_environment
from benchmarks.rows import ROWS, maps
from benchmarks.rows.steps import collectives
from benchmarks.runner import Case, Effort, Row, first_line, run_row, select
from benchmarks.targets.comparing import cells
from benchmarks.targets.programs import PROGRAMS, applies
from benchmarks.targets.reading import read_text

EFFORT = Effort(rounds=5, batch=10.0, budget=1e9)


class Machine:
    """A clock that advances only when a fake library works, and a log of which library worked."""

    def __init__(self):
        self.now = 0.0
        self.log = []
        self.clocks = {"cpu": lambda: self.now, "wall": lambda: self.now}

    def lib(self, name, cost):
        def work():
            self.now += cost
            self.log.append(name)

        root = SimpleNamespace(block_until_ready=lambda out: out)
        return SimpleNamespace(name=name, root=root, work=work, cost=cost)


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def pair(machine):
    return machine.lib("old", 2.0), machine.lib("new", 0.5)


def repeated(lib):
    return lib.work


def broken(lib):
    if lib.name == "new":
        raise NotImplementedError("no such op: sin\nand a long story")
    return lib.work


def test_repeat_takes_the_time_per_call(machine, pair):
    result = run_row(Row("a.row", 0.3, repeated), pair, EFFORT, machine.clocks)
    assert result.values == pytest.approx((2.0, 0.5))
    assert result.ratio == pytest.approx(0.25)
    assert result.status == "ok"
    assert [len(samples) for samples in result.samples] == [5, 5]


def test_per_divides_and_a_missed_goal_is_over(machine, pair):
    result = run_row(Row("a.row", 0.2, repeated, per=10), pair, EFFORT, machine.clocks)
    assert result.values == pytest.approx((0.2, 0.05))
    assert result.status == "over"


def test_fresh_does_not_time_what_makes_the_thunk(machine, pair):
    def setup(lib):
        def fresh():
            machine.now += 100.0
            return lib.work

        return fresh

    result = run_row(Row("a.row", 1.0, setup, kind="fresh"), pair, EFFORT, machine.clocks)
    assert result.values == pytest.approx((2.0, 0.5))


def test_value_rows_report_their_own_measurement(machine, pair):
    row = Row("a.row", 1.0, lambda lib: lambda: 1024 * lib.cost, kind="value", unit="B", rounds=2)
    result = run_row(row, pair, EFFORT, machine.clocks)
    assert result.values == (2048, 512)
    assert result.samples == ((2048, 2048), (512, 512))


def test_turns_alternate_and_the_order_flips(machine, pair):
    def setup(lib):
        return lambda: machine.log.append(lib.name) or 1.0

    run_row(Row("a.row", 1.0, setup, kind="value"), pair, EFFORT, machine.clocks)
    assert machine.log[:6] == ["old", "new", "new", "old", "old", "new"]


def test_budget_cuts_rounds_but_leaves_three(machine, pair):
    effort = Effort(rounds=9, batch=1.0, budget=0.1)
    result = run_row(Row("a.row", 1.0, repeated), pair, effort, machine.clocks)
    assert [len(samples) for samples in result.samples] == [3, 3]


def test_the_ratio_is_of_samples_of_the_same_round(machine, pair):
    """The machine is slow for some rounds, of which the medians may show more for one library."""
    speeds = iter([1.0, 1.0, 10.0, 10.0, 1.0, 10.0, 10.0, 10.0, 1.0, 1.0])

    def setup(lib):
        return lambda: lib.cost * next(speeds)

    result = run_row(Row("a.row", 0.3, setup, kind="value"), pair, EFFORT, machine.clocks)
    assert result.values == (2.0, 5.0) and result.ratio == 0.25
    assert report.thinned(range(150)) == range(0, 150, 11)
    assert report.thinned([1.0, 2.0]) == [1.0, 2.0] and report.thinned([]) == []


def test_an_error_stays_in_its_cell(machine, pair):
    result = run_row(Row("a.row", 1.0, broken), pair, EFFORT, machine.clocks)
    assert result.values == (pytest.approx(2.0), None)
    assert result.errors == (None, "NotImplementedError: no such op: sin")
    assert (result.ratio, result.status) == (None, "error")


def test_facts_that_differ_are_reported(machine, pair):
    def setup(lib):
        return Case(lib.work, {"all-reduce f32[8]": 2, lib.name: 1})

    result = run_row(Row("a.row", 1.0, setup), pair, EFFORT, machine.clocks)
    assert result.status == "differs"
    assert result.note == "new: 0 against 1; old: 1 against 0"


@pytest.mark.sweep
def test_table_and_json_and_comparison(machine, pair, tmp_path):
    rows = (Row("good.row", 0.3, repeated), Row("bad.row", 0.3, broken))
    results = [run_row(row, pair, EFFORT, machine.clocks) for row in rows]
    facts = {**report.machine_facts(), "date": "2026-01-31T17:45:00"}
    path = tmp_path / "kept" / "run.json"
    report.write_json(path, report.to_json(results, ("old", "new"), facts))

    data = json.loads(path.read_text())
    assert data["pair"] == ["old", "new"] and data["facts"]["cores"] >= 1
    good, bad = data["rows"]
    assert (good["values"], good["ratio"], good["status"]) == ([2.0, 0.5], 0.25, "ok")
    assert (bad["values"], bad["ratio"], bad["status"]) == ([2.0, None], None, "error")
    assert report.default_path(facts).name == "20260131-174500.json"

    before = {**report.read_ratios(path), "good.row": 0.5}
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(report.table(results, ("old", "new"), before))
    text = console.export_text()
    header, first, second = (line.split() for line in text.splitlines())
    assert header == ["row", "old", "new", "ratio", "goal", "before", "change"]
    assert first == ["good.row", "2.00", "s", "500", "ms", "0.25", "0.30", "0.50", "-50%", "ok"]
    assert second[:8] == ["bad.row", "2.00", "s", "-", "-", "0.30", "-", "-"]
    assert "new: NotImplementedError: no such op: sin" in text and "long story" not in text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (3.02e-6, "s", "3.02 µs"),
        (0.18, "s", "180 ms"),
        (27.4e-6, "s", "27.4 µs"),
        (4e-10, "s", "0.40 ns"),
        (1443, "B", "1.41 KiB"),
        (0, "B", "0.00 B"),
        (None, "s", "-"),
    ],
)
def test_values_are_shown_with_three_digits(value, unit, shown):
    assert report.show_value(value, unit) == shown


def test_first_line_of_an_empty_error():
    assert first_line(KeyError()) == "KeyError"


def test_rows_are_selected_by_glob_and_group():
    names = [row.name for row in select("jit.1_*,eager", ROWS)]
    assert names[0] == "jit.1_array" and "eager.add" in names and "jit.10_leaves" not in names
    assert select("nothing", ROWS) == []
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_environment_keeps_what_the_caller_set():
    environment = {"XLA_FLAGS": "--xla_other=1", "JAX_PLATFORMS": "cuda"}
    prepare_environment(environment)
    assert environment["XLA_FLAGS"] == "--xla_other=1 --xla_force_host_platform_device_count=8"
    assert environment["JAX_PLATFORMS"] == "cuda"
    assert "SHARDWISE_PLATFORMS" not in environment  # shardwise falls back to the other variable
    assert environment["SHARDWISE_ENABLE_COMPILATION_CACHE"] == "false"


def test_collectives_are_counted_by_kind_dtype_and_size():
    hlo = """
      %a = f32[8,128]{1,0} all-reduce(%x), channel_id=1, to_apply=%add
      %b = f32[128,8]{0,1} all-reduce(%y), channel_id=2, to_apply=%add
      %c = (f32[4]{0:T(8)}, /*index=1*/bf16[2,2]{1,0}, f32[4]{0}) all-reduce(%z, %w), channel_id=3
      %d = (f32[4], f32[32]) all-gather-start(%z), dimensions={0}
      %e = f32[4]{0} add(%z, %all-reduce.1)
      %f = f32[32] all-gather-done(%d)
    """
    assert collectives(hlo) == {
        "all-reduce f32[1024]": 2,
        "all-reduce bf16[4] 2×f32[4]": 1,
        "all-gather f32[32] f32[4]": 1,
    }


@pytest.mark.sweep
def test_a_step_by_hand_sends_what_it_sends_in_jax():
    config = gpt.Config(layers=1, width=16, heads=2, vocabulary=32, length=8, batch=8)
    ours, theirs = [
        maps.step_by_hand(Lib(name, itertools.count(1000)), config).facts
        for name in ("shardwise", "jax")
    ]
    assert ours == theirs and all(fact.startswith("all-reduce") for fact in ours)


# -- every function (benchmarks.functions) --

NEWER = {  # absent from some of the jax releases that the tests compare with
    "scipy.special.erfcinv",
    "lax.log2",
    "lax.one_minus_square",
    "lax.polynomial",
}
TRY = Effort(rounds=1, batch=0.0, budget=0.0, least=1)


@pytest.fixture(scope="module")
def libs():
    return tuple(Lib(name, itertools.count(1000, arguments.ROWS)) for name in functions.PAIR)


def test_every_shared_function_has_arguments_or_a_reason(libs):
    table = arguments.calls()
    assert not table.keys() & arguments.LEFT_OUT.keys()
    assert {*arguments.shared(*libs), *NEWER} == table.keys() | arguments.LEFT_OUT.keys()
    assert len(table) > 450


def test_names_of_a_call_are_those_inside_its_lambdas_too():
    assert arguments.arrays_in("f(lambda a: a + y, [x, x])") == ["x", "y"]
    assert arguments.arrays_in("f(key, (n,))") == ["key"]
    assert not arguments.Call("kind", "f(few, 2)", None).grows
    assert arguments.Call("kind", "f(few, n)", None).grows


@pytest.mark.parametrize("n", [8, 1 << 14, 1008])
def test_operands_hold_as_many_elements_as_asked(libs, n):
    operands = arguments.Operands(libs[1], n)
    assert operands["rows"] * operands["columns"] == n
    assert operands["matrix"].shape == operands["turned"].shape[::-1]
    for name, (_, sized) in arguments.ARRAYS.items():
        few = name in ("row", "column")
        assert not sized or few or n / 2 <= operands[name].size * (1 + (name == "z")) <= n


SLOW_TO_COMPILE = {
    f"random.{name}"
    for name in """ball beta binomial chisquare dirichlet f gamma generalized_normal loggamma
        multinomial poisson t""".split()
}


@pytest.mark.sweep
@pytest.mark.parametrize("group", range(40))
@pytest.mark.filterwarnings("ignore")  # both libraries warn, such as about disabled x64
def test_calls_run_in_both_libraries(group, libs):
    there = set(arguments.shared(*libs))  # the jax for Python 3.11 lacks some
    for name, call in [*arguments.calls().items()][group::40]:
        if name in SLOW_TO_COMPILE or name not in there:
            continue
        other = call.cached not in (None, call.eager)
        for cell in ("eager.small", "cached.small") if other else ("eager.small",):
            found = functions.measured(functions.cell_row(name, call, cell), libs, TRY)
            assert "errors" not in found, (name, cell, found)
            assert None not in found["values"], (name, cell)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_functions_are_measured_in_their_cells():
    names, cells = ["numpy.sin", "numpy.finfo"], ["eager.small", "cached.64K", "first"]
    sin, finfo = functions.measure(names, cells, TRY)
    assert (sin["name"], sin["kind"], [*sin["cells"]]) == ("numpy.sin", "unary", cells)
    assert [*finfo["cells"]] == ["eager.small"]
    assert all(v > 0 for m in sin["cells"].values() for v in m["values"])


CHILD = """
import json, sys, time
for name in sys.argv[1:]:
    if name == "dies":
        sys.exit(7)
    if name == "hangs":
        time.sleep(10**4)
    print(json.dumps({"name": name, "kind": "", "cells": {}}), flush=True)
"""


def test_a_child_that_dies_or_hangs_costs_one_function():
    started = []

    def start(names):
        started.append(names)
        command = [sys.executable, "-c", CHILD, *names]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    found = list(functions.collect(["a", "dies", "b", "hangs", "c"], start, patience=3))
    assert [f["name"] for f in found] == ["a", "dies", "b", "hangs", "c"]
    assert started == [["a", "dies", "b", "hangs", "c"], ["b", "hangs", "c"], ["c"]]
    errors = {f["name"]: f["error"] for f in found if "error" in f}
    assert errors == {"dies": "the process ended with 7", "hangs": "no result within 3 s"}


def test_functions_are_summed_up_by_kind(tmp_path):
    def cell(first, second):
        return {"values": [first, second]}

    found = [
        {"name": "a", "kind": "unary", "cells": {"first": cell(2.0, 1.0)}},
        {"name": "b", "kind": "unary", "cells": {"first": cell(1.0, 0.9)}},
        {"name": "c", "kind": "scan", "cells": {"first": cell(1e-3, 2e-3)}},
        {"name": "d", "kind": "scan", "cells": {"first": {"values": [1.0, None]}}},
    ]
    path = tmp_path / "kept" / "run.json"
    functions.write(path, found, {})
    assert functions.read(path) == found
    console = Console(width=140, record=True, file=io.StringIO())
    old = {"a": {"first": 1.0}, "b": {"first": 1.0}, "c": {"first": 1.0}}
    console.print(functions.summary(found, ["first"]), functions.summary(found, ["first"], old))
    rows = [line.split() for line in console.export_text().splitlines() if line]
    assert rows[1:5] == [
        ["unary", "2", "0.70"],
        ["scan", "2", "2.00"],
        ["all", "4", "0.90"],
        ["above", "1.5", "1", "1"],
    ]
    assert ["all", "4", "1.00", "→", "0.90"] in rows
    assert functions.worst(found, 2) == [(2.0, "c", "first"), (0.9, "b", "first")]


# -- programs for machines that are not attached --

HLO = """HloModule jit_f
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
%fused (p: f32[8,4]) -> f32[4] {
  %p = f32[8,4]{1,0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %reduce = f32[4]{0} reduce(%p, %zero), dimensions={0}, to_apply=%add
}
%body (state: (f32[8,4])) -> (f32[8,4]) {
  %state = (f32[8,4]{1,0}) parameter(0)
  %element = f32[8,4]{1,0} get-tuple-element(%state), index=0
  %copy.1 = f32[8,4]{1,0} copy(%element)
  ROOT %tuple.1 = (f32[8,4]{1,0}) tuple(%copy.1)
}
ENTRY %main (a: f32[8,4], b: bf16[6]) -> f32[4] {
  %a = f32[8,4]{1,0} parameter(0)
  %b = bf16[6]{0} parameter(1)
  %tuple = (f32[8,4]{1,0}) tuple(%a)
  %while = (f32[8,4]{1,0}) while(%tuple), condition=%less, body=%body
  %fusion = f32[4]{0} fusion(%a), kind=kInput, calls=%fused
  %start = f32[4]{0} all-reduce-start(%fusion), to_apply=%add, backend_config={"is_sync":true}
  %done = f32[4]{0} all-reduce-done(%start)
  %both = (bf16[6]{0}, /*index=1*/bf16[24]{0}) all-gather-start(%b), dimensions={0}
  %all = bf16[24]{0} all-gather-done(%both)
  ROOT %call = f32[4]{0} custom-call(%done), custom_call_target="solve"
}
"""


def test_the_facts_of_a_program():
    facts = read_text(HLO)
    assert facts.collectives == {"all-reduce f32[4]": 1, "all-gather bf16[6]": 1}
    assert facts.calls == {"solve": 1}
    assert facts.counts == {"fusions": 1, "kernels": 6, "copies": 1, "sent": 28, "async": 1}


def test_facts_are_compared():
    theirs = read_text(HLO).as_json()
    ours = read_text(HLO.replace(" fusion(%a)", " copy(%a)")).as_json()
    ours["memory"], theirs["memory"] = {"temp": 9000}, {"temp": 4000}
    found = {name: (cell.text, cell.status) for name, cell in cells(theirs, ours).items()}
    assert found == {
        "collectives": ("2/2", "equal"),
        "sent": ("28/28", "equal"),
        "synchronous": ("1/1", "equal"),
        "fusions": ("0/1", "better"),
        "kernels": ("6/6", "equal"),
        "copies": ("2/1", "worse"),
        "calls": ("1/1", "equal"),
        "temp": ("9000/4000", "worse"),
    }


def test_programs_are_compiled_for_one_machine_of_a_kind():
    assert [applies("split.max", m) for m in ("h100:8", "h100:2x4", "h100")] == [True, False, True]
    assert applies("gpt.dp8", "tpu-v6e:2x4") and not applies("attention.cudnn", "tpu-v5p:2x2x2")
    assert {name.partition(".")[0] for name in PROGRAMS} == {
        "gpt", "network", "attention", "draws", "function", "split",
    }  # fmt: skip


def test_two_versions_take_turns_and_losses_are_listed(tmp_path):
    """The new version lacks what the second row needs."""
    whole, broken = tmp_path / "old", tmp_path / "new"
    for folder, body in ((whole, "def zeros(n): return n"), (broken, "")):
        (folder / "shardwise" / "numpy").mkdir(parents=True)
        (folder / "shardwise" / "__init__.py").write_text("block_until_ready = lambda x: x\n")
        (folder / "shardwise" / "numpy" / "__init__.py").write_text(
            f"def arange(n): return n\n{body}\n"
        )
    rows = select("create.arange,create.zeros", ROWS)
    found = list(commits.compare(whole, broken, rows, quick=True))
    assert [row.name for row in found] == ["create.zeros", "create.arange"]
    assert found[0].old and found[0].new is None and found[0].lost(1e9)
    assert str(found[0]).split()[2:] == ["→", "failed"]
    assert found[1].old and found[1].new and found[1].change is not None


def test_a_row_is_lost_if_it_grew_by_more_than_the_fraction():
    of = commits.Compared
    assert of("row", 1.0, 1.1, 0.06).lost(0.05) and not of("row", 1.0, 1.1, 0.04).lost(0.05)
    assert not of("row", None, 1.0, None).lost(0.05)
    assert not of("row", None, None, None).lost(0.05)
    assert str(of("row", 2.0, 1.0, -0.5)).split() == ["row", "2", "→", "1", "-50.0%"]
