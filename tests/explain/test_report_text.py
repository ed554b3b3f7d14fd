"""Reports in terminals: full texts, at several widths; human-readable numbers."""

import dataclasses
import io
import os

import numpy as np
import pytest
from rich.console import Console

import shardwise as sw
from shardwise import explain
from shardwise._src.explain.rendering.report_phrases import (
    amount_text,
    seconds_text,
    share_text,
    tail,
    where,
)
from shardwise._src.explain.rendering.report_text import ROWS
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.processes import python
from tests.helpers.reports import report as made

WHOLE = """\
step: 8 devices, mesh (data=4, model=2), estimated for machine 'ours'

estimated time: at least 1.2 ms, mostly communication
  compute         2.6 µs  ▏
  memory         0.50 µs  ▏
  communication   1.2 ms  ████████████████████████

communication: 11+ collectives, 160.3 KiB per device
  collective                   over         count      bytes    time  line
  all-gather f32               data           10+  160.0 KiB  1.2 ms  train<b>.py:2  h = x @ w
    dot_general(f32[32@data,64], f32[64@data,64]) → f32[32@data,64]
    in mlp/up
    'data' shards dimension 0 of operand 1, which is added over
  all-reduce f32               data, model     1*      256 B  2.5 µs  train<b>.py:3
    return h.sum(0) < 4
    reduce_sum(f32[32@data,64]) → f32[64]
    sums over dimension 0 of operand 0, which is sharded over 'data'
  collective-permute pred,s32  8 devices        1       16 B  1.0 µs
    the partitioner moves parts of it between devices
  total                                       11+  160.3 KiB  1.2 ms
  * runs as part of a collective that another row counts
  + at least: in a loop whose length is unknown until it runs

memory per device: 32.3 KiB at its peak, under 0.1 % of 1.0 GiB
  arguments    16.2 KiB  ████████████▏
  results         320 B  ▎
  temporaries  16.0 KiB  ███████████▉
  donated         256 B  ▏
  donated: arguments whose memory results reuse; counted once

largest buffers per device
  16.0 KiB  argument      -              params['<i>&']['w']
  16.0 KiB  temporary ×2  train<b>.py:2  dot_general(f32[32@data,64], f32[64,64])
     256 B  donated       -              x
      64 B  result        train<b>.py:3  lt(f32[64], f32[]) → bool[64]

computation per device
  products of f32          2.62 Mflop
  products of bf16         1.02 kflop
  other arithmetic         12.3 kflop
  memory read and written    48.8 KiB
  at least: a loop of unknown length counts as one iteration
  not counted: the FFI calls 'ours.fft'
"""
SUBBYTE = """\
step: 8 devices, mesh (data=4, model=2), estimated for
  machine 'ours'

estimated time: at least 1.2 ms, mostly communication
  compute         2.6 µs  ▏
  memory         0.50 µs  ▏
  communication   1.2 ms  ████████████████████

communication: 11+ collectives, 160.3 KiB per device
  all-gather f32 over data: 10+ ×, 160.0 KiB, 1.2 ms
    train<b>.py:2
    h = x @ w
    dot_general(f32[32@data,64], f32[64@data,64]) →
      f32[32@data,64]
    in mlp/up
    'data' shards dimension 0 of operand 1, which is added
      over
  all-reduce f32 over data, model: 1* ×, 256 B, 2.5 µs
    train<b>.py:3
    return h.sum(0) < 4
    reduce_sum(f32[32@data,64]) → f32[64]
    sums over dimension 0 of operand 0, which is sharded
      over 'data'
  collective-permute pred,s32 over 8 devices: 1 ×, 16 B, 1.0
    µs
    the partitioner moves parts of it between devices
  total: 11+ ×, 160.3 KiB, 1.2 ms
  * runs as part of a collective that another row counts
  + at least: in a loop whose length is unknown until it
    runs

"""


@pytest.fixture
def report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return made(tmp_path)


def test_the_whole_text(report):
    assert f"{report}\n" == WHOLE


def test_narrow_terminals_fold(report, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = str(report)
    assert max(map(len, text.splitlines())) <= 60
    assert text.partition("memory per")[0] == SUBBYTE


@pytest.mark.parametrize("columns", [1, 40, 55, 70, 85, 100, 240])
def test_lines_fit_and_say_the_same(report, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = str(report)
    assert max(map(len, text.splitlines())) <= min(max(columns, 40), 100)
    words = " ".join(text.split())
    wanted = ("all-gather", "160.0 KiB", "1.2 ms", "10+", "train<b>.py:2", "h = x @ w",
              "'data' shards dimension 0 of operand 1, which is added over", "in mlp/up",
              "dot_general(f32[32@data,64], f32[64@data,64]) → f32[32@data,64]",
              "under 0.1 % of 1.0 GiB",
              "not counted: the FFI calls 'ours.fft'")  # fmt: skip
    assert [said for said in wanted if said not in words] == []


def test_rich_prints_the_same_in_styles(report):
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(report)
    assert "\n".join([line.rstrip() for line in out.getvalue().splitlines()]) == str(report)
    styled = io.StringIO()
    Console(file=styled, width=100, force_terminal=True, color_system="standard").print(report)
    assert "\x1b[1mestimated time: " in styled.getvalue()


def test_rows_beyond_the_limit_are_summed(report):
    first = report.communication[1]
    row = dataclasses.replace(first, shared=0, bytes=1024, seconds=2e-6)
    many = [dataclasses.replace(row, op=str(i)) for i in range(ROWS + 30)]
    text = str(dataclasses.replace(report, communication=tuple(many)))
    lines = [line.split() for line in text.splitlines()]
    assert ["30", "more", "30", "30.0", "KiB", "60", "µs"] in lines
    assert ["total", "42", "42.0", "KiB", "84", "µs"] in lines


def test_nothing_to_tell(report):
    none = dataclasses.replace(
        report, communication=(), buffers=(), mesh={}, devices=1, seconds=explain.Seconds(0, 0, 0)
    )
    text = str(none)
    assert text.startswith("step: 1 device, estimated for machine 'ours'\n\n")
    assert "\ncommunication: none\n" in text and "largest buffers" not in text
    assert "\nestimated time: at least 0 s\n" in text


def test_memory_that_a_device_has_not(report):
    memory = dataclasses.replace(report.memory, peak=3 * 2**30 // 2)
    text = str(dataclasses.replace(report, memory=memory))
    wanted = "memory per device: 1.5 GiB at its peak, 150 % of 1.0 GiB: EXCEEDS DEVICE MEMORY by "
    assert f"{wanted}512.0 MiB" in text


def test_a_real_program(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(os.path.dirname(__file__))
    mesh = Mesh(np.array(sw.devices("cpu")[:8]).reshape(4, 2), ("x", "y"))
    w = sw.ShapeDtypeStruct((64, 32), np.float32, sharding=NamedSharding(mesh, P("y")))
    x = sw.ShapeDtypeStruct((16, 64), np.float32, sharding=NamedSharding(mesh, P("x", "y")))

    def layer(w, x):
        return x @ w

    text = str(explain(layer)(w, x))
    line = layer.__code__.co_firstlineno + 1
    assert text.partition("\n\n")[0] == (
        "layer: 8 devices, mesh (x=4, y=2), estimated for machine 'cpu'"
    )
    assert (
        f"""
communication: 1 collective, 512 B per device
  collective      over  count  bytes   time  line
  all-reduce f32  y         1  512 B  61 µs  test_report_text.py:{line}  return x @ w
    dot_general(f32[16@x,64@y], f32[64@y,32]) → f32[16@x,32]
    sums over dimension 1 of operand 0, which is sharded over 'y'

memory per device: """
        in text
    )


def test_printing_needs_no_rich(tmp_path):
    code = (
        "import sys, pathlib; from tests.helpers.reports import report\n"
        "print(report(pathlib.Path(sys.argv[1])).save(sys.argv[1] + '/r.html'))\n"
        "print(report(pathlib.Path(sys.argv[1])))\n"
        "assert 'rich' not in sys.modules"
    )
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/r.html\nstep: 8 devices, mesh (data=4, model=2), ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (1.5e-8, "0.015 µs"), (6.3072e-4, "630 µs"), (0.0019555, "2.0 ms"),
     (9.96e-4, "1.0 ms"), (9.94e-4, "990 µs"), (0.131, "130 ms"), (1.96, "2.0 s"), (12.4, "12 s"),
     (98765.0, "99,000 s"), (2.0e-7, "0.20 µs"), (9.97e-6, "10 µs")],
)  # fmt: skip
def test_seconds_have_two_digits(seconds, text):
    assert seconds_text(seconds) == text


def test_amounts_and_shares():
    assert [amount_text(n, "flop") for n in (0, 999, 245760, 1.8e9, 2.5e18)] == [
        "0 flop", "999 flop", "246 kflop", "1.8 Gflop", "2,500 Pflop"
    ]  # fmt: skip
    assert [share_text(n, 1000) for n in (0, 0.2, 12, 123, 999, 1500)] == [
        "0 %", "under 0.1 %", "1.2 %", "12 %", "100 %", "150 %"
    ]  # fmt: skip


def test_places(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert where(f"{tmp_path}/a/b.py:3") == "a/b.py:3"
    assert where(f"{tmp_path}x/b.py:3") == f"{tmp_path}x/b.py:3"
    assert where("<stdin>:3") == "<stdin>:3" and where("") == ""
    assert tail("/home/me/project/models/gpt.py:12", 24) == "…/models/gpt.py:12"
    assert tail("a_long_name_without_any_folder.py:12", 20) == "…ut_any_folder.py:12"
