"""`shardwise explain script.py`: reports of a small program's compilations."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardwise as sw
from shardwise._src.cli import main
from shardwise._src.explain.scripts import observed
from shardwise._src.jit.compilations import compilations
from tests.helpers.patience import seconds

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = '''\
"""Two jitted functions over a mesh of all devices."""

import sys

import numpy as np

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

mesh = Mesh(np.array(sw.devices("cpu")[:8]).reshape(4, 2), ("data", "model"))


@sw.jit
def mean(x):
    return x.mean()


@sw.jit
def layer(w, x):
    return x @ w


def put(shape, *spec):
    return sw.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))


if __name__ == "__main__":
    y = layer(put((64, 32), "model"), put((16, 64), "data", "model"))
    print("mean", float(mean(y)), float(mean(y)), *sys.argv[1:])
    mean.lower(put((8,), "data")).compile()
    END
'''


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes the program with a different ending, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def written(end="pass"):
        (tmp_path / "small.py").write_text(SCRIPT.replace("END", end))
        return "small.py"

    sw.clear_caches()
    return written


def test_a_program_and_its_functions(script, capsys):
    argv, path = sys.argv, sys.path[:]
    assert main(["explain", "--html", "new/pages", "--json", "all.json", script(), "a", "-b"]) == 0
    assert (sys.argv, sys.path) == (argv, path)
    out = capsys.readouterr().out
    assert out.startswith("""\
mean 64.0 64.0 a -b

function  devices  collectives  bytes   memory    time  mostly
layer           8            1  512 B  """)
    names = [line.split(":")[0] for line in out.splitlines() if ": 8 devices, mesh (data=4" in line]
    assert sorted(names) == ["layer", "mean", "mean-2"] and names[0] == "layer"
    assert (
        f"""
  all-reduce f32  model      1  512 B  61 µs  small.py:{at("x @ w")}  return x @ w
    dot_general(f32[16@data,64@model], f32[64@model,32]) → f32[16@data,32]
    sums over dimension 1 of operand 0, which is sharded over 'model'
"""
        in out
    )
    saved = [line.split()[1] for line in out.splitlines() if line.startswith("saved ")]
    assert sorted(saved) == ["new/pages/layer.html", "new/pages/mean-2.html", "new/pages/mean.html"]
    assert all([Path(path).read_text().startswith("<!doctype html>") for path in saved])
    rows = json.loads(Path("all.json").read_text())
    assert [row["name"] for row in rows] == names
    assert rows[0]["communication"][0]["bytes"] == 512


def at(text):
    """The number of a line of the program."""
    (number,) = [i for i, line in enumerate(SCRIPT.splitlines(), 1) if text in line]
    return number


def test_only_one_function_on_another_machine(script, capsys):
    assert main(["explain", "--function", "layer", "--machine", "h200", script()]) == 0
    out = capsys.readouterr().out
    assert "\nlayer: 8 devices, mesh (data=4, model=2), estimated for machine 'h200'\n" in out
    assert "mean: " not in out and "function  devices" not in out


def test_a_program_that_fails_is_reported_so_far(script, capsys):
    assert main(["explain", script("raise RuntimeError('no more')")]) == 1
    out, err = capsys.readouterr()
    assert "\nlayer: 8 devices, " in out
    assert err.splitlines()[0] == "Traceback (most recent call last):"
    assert 'small.py", line' in err.splitlines()[1] and err.endswith("RuntimeError: no more\n")
    assert "runpy" not in err and "cli" not in err


@pytest.mark.parametrize(("end", "status"), [("sys.exit(7)", 7), ("sys.exit()", 0)])
def test_the_status_is_that_of_the_program(script, capsys, end, status):
    assert main(["explain", "--function", "layer", script(end)]) == status
    assert "\nlayer: 8 devices, " in capsys.readouterr().out


def test_modules(script, capsys):
    script()
    assert main(["explain", "--function", "mean", "-m", "small", "c"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("mean 64.0 64.0 c\n") and "\nmean-2: 8 devices, " in out


WRONG = [
    (["nothing.py"], "there is no file 'nothing.py'."),
    ([], "no program: pass a script.py, or a module with -m."),
    (["-m"], "-m requires a module name."),
    (["--htm", "x", "small.py"], "unknown option '--htm'. Did you mean '--html'?"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_mistakes(script, capsys, words, message):
    script()
    assert main(["explain", *words]) == 2
    assert capsys.readouterr().err.endswith(f"shardwise explain: error: {message}\n")


def test_unknown_machines_are_refused_before_the_program_runs(script, capsys):
    assert main(["explain", "--machine", "h20", script("raise SystemExit(9)")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "unknown machine 'h20'; known machines are " in err and "'h200'" in err


def test_nothing_to_report(script, capsys):
    Path("empty.py").write_text("print('here')\n")
    assert main(["explain", "empty.py"]) == 1
    out, err = capsys.readouterr()
    assert out == "here\n"
    assert err == (
        "shardwise explain: the program compiles no jitted function: it runs operation by "
        "operation. Decorate a function, such as the training step, with `shardwise.jit` to "
        "compile it.\n"
    )
    assert main(["explain", "--function", "main", script()]) == 1
    assert capsys.readouterr().err == (
        "shardwise explain: the program does not compile a function 'main'; it jits "
        "'layer' and 'mean'.\n"
    )


def test_pages_that_cannot_be_written(script, capsys):
    Path("taken").write_text("")
    assert main(["explain", "--html", "taken", script()]) == 1
    assert capsys.readouterr().err.startswith("shardwise explain: [Errno 17] File exists")


def test_programs_are_observed_once_and_only_inside_of_the_block():
    def f(x):
        return x * 2

    with observed() as found:
        for _ in range(3):
            sw.jit(f)(sw.numpy.ones(3))
        sw.jit(f)(sw.numpy.ones(4))
    sw.jit(f)(sw.numpy.ones(5))
    assert [(one.name, one.function) for one in found] == [("f", "f"), ("f-2", "f")]
    assert compilations._listeners == ()


def test_as_a_command(script, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "shardwise", "explain", script()], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=seconds(60),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mean 64.0 64.0\n\nfunction  devices")
