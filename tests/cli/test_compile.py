"""`shardwise compile FILE.py:FUNCTION --for MACHINE`: errors, processes, tables, files."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import shardwise as sw
from shardwise._src.cli import compile_jobs, main
from shardwise._src.cli.compile_jobs import Job, compiled, ended_text
from shardwise._src.cli.step_file import BadStep, function_of, module_of, program_of
from shardwise._src.explain.outcomes import Outcome, compilers_of, reasons_of, table_of
from shardwise._src.explain.rendering.machines_page import save_all
from shardwise._src.runtime import cuda, tpu
from shardwise._src.targets import gpus
from shardwise.explain import Memory, explain
from tests.helpers.errors import message
from tests.helpers.patience import seconds
from tests.helpers.reports import report as made_up
from tests.helpers.targets import needs_cuda, needs_tpu

ROOT = Path(__file__).resolve().parents[2]
STEP = '''\
"""What a model compiles."""

import os

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

print("the file runs")
SIZE = 64


class Model:
    pass


def rows(mesh, *shape):
    return sw.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P("data")))


def step(devices):
    mesh = Mesh(np.array(devices), ("data",))
    return lambda x, scale=1.0: scale * x.sum(0), (rows(mesh, 64, 8),), {"scale": 2.0}


def large(devices):
    mesh = Mesh(np.array(devices), ("data",))
    return lambda x: jnp.sin(x) @ x.T[:, :8], (rows(mesh, 1 << 20, 1 << 16),)


def abstract():
    return jnp.sin, [rows(AbstractMesh((8,), ("data",)), 64, 8)]


def calling(devices):
    return lambda x: sw.pure_callback(np.sin, x, x), (sw.ShapeDtypeStruct((4,), "float32"),)


def mismatched(devices):
    def product(x):
        return x @ x

    return product, (sw.ShapeDtypeStruct((2, 3), "float32"),)


def nothing():
    pass


def ending():
    raise SystemExit(3)


def aborting():
    os.write(2, b"F1 pass.cc:7] Check failed: n > 0\\n*** Check failure stack trace: ***\\n    @ 1\\n")
    os.abort()


def two(devices, batch):
    pass


def named(*, batch):
    pass
'''


@pytest.fixture
def step(tmp_path, monkeypatch):
    """Writes the file in the current folder; returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", sys.path[:])
    Path("model.py").write_text(STEP)
    yield "model.py"
    sys.modules.pop("model", None)


DEFINES = " It defines 'step', 'large', 'calling', 'mismatched' and 'two'."  # those with devices
FORM = "`(f, args)` or `(f, args, kwargs)`: a function, a tuple of its arguments, and keywords"
KINDS = ", ".join(sw.targets.names())
WRONG = [
    ("nothing.py:step --for h100:8", "'nothing.py' is not there; pass FILE.py:FUNCTION, such as train.py:step."),
    (".:step --for h100:8", "'.' is a folder; pass FILE.py:FUNCTION, such as train.py:step."),
    ("other.txt:step --for h100:8", "'other.txt' is not a Python file: its name must end with .py."),
    ("model.py --for h100:8", f"which function of model.py? Pass FILE.py:FUNCTION, such as model.py:step.{DEFINES}"),
    ("empty.py: --for h100:8", "which function of empty.py? Pass FILE.py:FUNCTION. It defines no function that could be meant."),
    ("model.py:stap --for h100:8", "model.py has no function 'stap'. Did you mean 'step'?"),
    ("model.py:train --for h100:8", f"model.py has no function 'train'.{DEFINES}"),
    ("model.py:SIZE --for h100:8", f"'SIZE' of model.py is of type int, not a function.{DEFINES}"),
    ("model.py:Model --for h100:8", f"'Model' of model.py is a class, not a function.{DEFINES}"),
    ("model.py:two --for h100:8", f"two of model.py must take one argument, the list of a machine's devices, or none; it requires 'devices' and 'batch'. It returns what to compile: {FORM}."),
    ("model.py:named --for h100:8", f"named of model.py must take one argument, the list of a machine's devices, or none; it requires 'batch'. It returns what to compile: {FORM}."),
    ("model.py:step", f"for which machines? Pass --for MACHINE, such as --for h100:8. Known are {KINDS}."),
    ("model.py:step --for h10:8", f"unknown machine 'h10'. Did you mean 'h100'? Known are {KINDS}; `shardwise.targets.add` adds a GPU from a description."),
    ("model.py:step --for h100:16", "'h100:16' has 16 GPUs in a host; a host has at most 8 h100. Write hosts × GPUs: 'h100:2x8'."),
    ("model.py:step --for tpu-v5p:3x3", "tpu-v5p cannot have the shape of 'tpu-v5p:3x3': it has at most 8960 chips in a grid a×b×c, whose axes are even or 1, such as 'tpu-v5p:2x2x2'."),
    ("model.py:step --for h100:8 --jobs 3", "argument --jobs: it must be 1 or 2, since each compiler takes gigabytes of memory; got 3."),
    ("model.py:step --for h100:8 --timeout 0", "argument --timeout: it must be a positive number of seconds; got '0'."),
    ("model.py:step --for h100:8 --out taken/x", "--out taken/x: Not a directory."),
]  # fmt: skip


@pytest.mark.parametrize(("words", "text"), WRONG, ids=[words for words, _ in WRONG])
def test_mistakes(step, capsys, words, text):
    for name in ("other.txt", "empty.py", "taken"):
        Path(name).write_text("")
    path = sys.path[:]
    assert main(["compile", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", f"shardwise compile: error: {text}")
    assert sys.path == path


def test_a_file_that_fails(step, capsys):
    Path("failing.py").write_text("def step():\n    return 1 / 0\n\n\nstep()\n")
    assert main(["compile", "failing.py:step", "--for", "h100:8"]) == 1
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('failing.py", line 5, in <module>')
    assert lines[-1] == "ZeroDivisionError: division by zero"
    Path("ending.py").write_text("raise SystemExit('no model')")
    assert main(["compile", "ending.py:step", "--for", "h100:8"]) == 1
    assert capsys.readouterr() == ("", "no model\n")


def f(x):
    return x


RETURNED = [
    (None, "NoneType"),
    (f, "function"),
    ((f,), "a tuple of 1 item"),
    ((f, (1,), {}, 4), "a tuple of 4 items"),
    ((3, (1,)), "a tuple whose first item is int"),
    ((f, 3), "a tuple whose second item is int"),
    ((f, (1,), [2]), "a tuple whose third item is list"),
]


@pytest.mark.parametrize(("returned", "what"), RETURNED, ids=[what for _, what in RETURNED])
def test_functions_that_return_something_else(returned, what):
    found = message(BadStep, program_of, lambda: returned, "step", [])
    assert found == f"step must return {FORM}; it returned {what}."


def test_what_functions_return():
    assert program_of(lambda: (f, (1, 2)), "step", []) == (f, (1, 2), {})
    assert program_of(lambda devices: (f, devices), "step", [1, 2]) == (f, (1, 2), {})
    assert program_of(lambda *a: (f, a, {"x": 3}), "step", ["d"]) == (f, (["d"],), {"x": 3})


# ---- processes -----------------------------------------------------------------------------------

ENDS = """\
import json, os, signal, sys, time
from pathlib import Path

folder = Path(sys.argv[-1])
machine = json.loads((folder / "request").read_text())["machine"]
if machine == "hangs":
    time.sleep(10_000)
if machine == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if machine == "silent":
    os._exit(7)
for line in range(8):
    print(f"line {line}", flush=True)
print("*** SIGSEGV received ***\\n    @     0x7f (unknown)", flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_processes_that_end_or_hang():
    child = [sys.executable, "-c", ENDS]
    job = Job("model.py", "step")
    ended, killed, silent = compiled(job, ["ends", "killed", "silent"], seconds(60), 2, child)
    assert ended == Outcome(
        "ends",
        error=(
            "the process that compiles it ended by SIGSEGV. Its last lines:\n"
            "  line 3\n  line 4\n  line 5\n  line 6\n  line 7"
        ),
    )
    assert killed.error == (
        "the process that compiles it ended by SIGKILL. This machine may have had too little "
        "memory for the compiler."
    )
    assert silent.error == "the process that compiles it ended with status 7."
    (hangs,) = compiled(job, ["hangs"], 0.2, 1, child)
    assert hangs.error == "it was not compiled within 0.2 s. Pass a longer --timeout."
    assert hangs.seconds >= 0.2 and hangs.state == "failed"


def test_a_failed_check_is_the_line_that_counts():
    printed = "W2 slow\nF1 pass.cc:7] Check failed: n > 0 \n*** stack ***\n    @ 0x1 f\nend\n"
    assert ended_text(-6, printed) == (
        "the process that compiles it ended by SIGABRT. Its last lines:\n"
        "  F1 pass.cc:7] Check failed: n > 0"
    )


def test_processes_end_with_the_command(step, tmp_path):
    """An interrupt stops the command, and the process that compiles."""
    Path("hanging.py").write_text(
        "import os, time\n\n\ndef step():\n    open('pid', 'w').write(str(os.getpid()))\n"
        "    os.rename('pid', 'started')\n    time.sleep(10_000)\n"
    )
    code = (
        "import os, signal, sys, threading, time\n"
        "from shardwise._src.cli import main\n"
        "def interrupt():\n"
        "    while not os.path.exists('started'): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "status = main(['compile', 'hanging.py:step', '--for', 'h100:8'])\n"
        "pid = int(open('started').read())\n"
        "try: os.kill(pid, 0)\n"
        "except ProcessLookupError: print('ended', status)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True,
        text=True, timeout=seconds(60),
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("ended 130\n", "")


def test_a_process_that_compiles(step, capsys):
    """With its own interpreter: what it prints is hidden, and its end is an error."""
    assert (
        main(["compile", "model.py:aborting", "--for", "h100:8", "--for", "h100", "--jobs", "2"])
        == 1
    )
    out, err = capsys.readouterr()
    assert err == "the file runs\n"
    assert (
        out
        == """\
machine  devices  fits    memory  collectives  bytes  time  mostly  compiled
h100:8         -  failed       -            -      -     -  -              -
h100:1         -  failed       -            -      -     -  -              -

h100:8 and h100:1:
the process that compiles it ended by SIGABRT. Its last lines:
  F1 pass.cc:7] Check failed: n > 0
"""
    )


def at(text):
    """The number of a line of the file."""
    (number,) = [i for i, line in enumerate(STEP.splitlines(), 1) if text in line]
    return number


def outcome(function, machine):
    """As the process of a machine makes it."""
    return compile_jobs._outcome(Path("model.py"), function, machine)


def test_functions_that_fail(step):
    assert outcome("nothing", "h100:8").error == (
        f"nothing must return {FORM}; it returned NoneType."
    )
    assert outcome("ending", "h100:8").error == "ending ended the program: SystemExit(3)."


def test_compilers_that_are_missing_or_of_another_version(step, monkeypatch):
    monkeypatch.setattr(cuda, "_plugin_path", lambda: None)
    monkeypatch.setattr(tpu, "_library_path", lambda: None)
    assert outcome("step", "a100:3").error == (
        "the CUDA plugin is not installed: pip install 'shardwise[compile-cuda]'."
    )
    assert outcome("abstract", "tpu-v5p:2x4x4").error == (
        "libtpu is not installed: pip install 'shardwise[compile-tpu]'."
    )


# ---- tables and files ----------------------------------------------------------------------------


@pytest.fixture
def several(tmp_path):
    """An outcome of each kind."""
    report = replace(made_up(tmp_path), compiler="cuda 1.2")
    memory, machine = Memory(2**31, 0, 0, 2**30, 3 * 2**30), replace(report.machine, name="ours:1")
    full = replace(report, memory=memory, machine=machine)
    text = "step does not fit 'tpu:2': its temporaries alone take 9.0 GiB."
    return [
        Outcome("ours:8", report, seconds=1.25),
        Outcome("ours:1", full, seconds=70),
        Outcome("tpu:2", None, text, 9 * 2**30, 2**30, 3.0, exhausted=True),
        Outcome("tpu:4", error="out of memory", exhausted=True),
        Outcome("tpu:8", error="libtpu is not installed."),
        Outcome("tpu:16", error="libtpu is not installed."),
    ]


def test_the_table(several):
    assert (
        table_of(several)
        == """\
machine  devices  fits                                   memory  collectives      bytes    time  mostly         compiled
ours:8         8  yes                       32.3 KiB of 1.0 GiB          11+  160.3 KiB  1.2 ms  communication     1.2 s
ours:1         8  no: 2.0 GiB too much       3.0 GiB of 1.0 GiB          11+  160.3 KiB  1.2 ms  communication      70 s
tpu:2          -  no: 8.0 GiB too much  over 9.0 GiB of 1.0 GiB            -          -       -  -                 3.0 s
tpu:4          -  no                                          -            -          -       -  -                     -
tpu:8          -  failed                                      -            -          -       -  -                     -
tpu:16         -  failed                                      -            -          -       -  -                     -"""
    )
    assert compilers_of(several) == ["compiled by cuda 1.2: ours:8 and ours:1"]
    first, *others = reasons_of(several)
    assert first.splitlines()[0] == (
        "step does not fit 'ours:1': it needs 3.0 GiB of a device, and 1.0 GiB are "
        "available: 2.0 GiB too much. Arguments take 2.0 GiB, results 0 B, temporaries 1.0 GiB."
    )
    assert others == [
        "step does not fit 'tpu:2': its temporaries alone take 9.0 GiB.",
        "tpu:4: out of memory",
        "tpu:8 and tpu:16: libtpu is not installed.",
    ]


@pytest.fixture
def answers(several, monkeypatch):
    """Makes the command return these instead of compiling; returns a function that selects."""
    taken = [*several]
    monkeypatch.setattr(compile_jobs, "compiled", lambda *asked: taken)

    def select(*numbers):
        taken[:] = [several[i] for i in numbers]

    return select


def test_json(step, answers, capsys):
    assert main(["compile", "model.py:step", "--for", "h100", "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == "the file runs\n" and (found["format"], found["program"]) == (1, "model.py:step")
    states = [(one["machine"], one["state"], one["excess_bytes"]) for one in found["machines"]]
    assert states == [
        ("ours:8", "fits", 0),
        ("ours:1", "too large", 2**31),
        ("tpu:2", "too large", 2**33),
        ("tpu:4", "too large", 0),
        ("tpu:8", "failed", 0),
        ("tpu:16", "failed", 0),
    ]
    assert found["machines"][0]["report"]["name"] == "step"
    assert found["machines"][4] == {
        "machine": "tpu:8",
        "state": "failed",
        "error": "libtpu is not installed.",
        "memory_bytes": None,
        "available_bytes": None,
        "excess_bytes": 0,
        "compile_seconds": 0.0,
        "report": None,
    }


def test_the_folder(step, answers, several, capsys):
    assert main(["compile", "model.py:step", "--for", "h100", "--out", "new/out"]) == 1
    assert capsys.readouterr().out.endswith("\nsaved new/out/index.html\n")
    found = sorted([path.name for path in Path("new/out").iterdir()])
    assert found == ["index.html", "ours-1.hlo.txt", "ours-1.html", "ours-8.hlo.txt", "ours-8.html"]
    assert Path("new/out/ours-8.hlo.txt").read_text() == several[0].report.hlo
    page = Path("new/out/index.html").read_text()
    assert page.startswith("<!doctype html>") and "http://" not in page and "https://" not in page
    for part in (
        "<h1>model.py:step</h1>",
        '<a href="ours-8.html">ours:8</a>',
        '<a href="ours-8.hlo.txt">ours:8</a>, by cuda 1.2: ',
        "<h2>ours:1: too large</h2>",
        "<h2>tpu:16: failed</h2><pre>libtpu is not installed.</pre>",
        "<h2>ours:8: at least 1.2 ms</h2>",
        "3.0 GiB of 1.0 GiB of memory: 300 %",
    ):
        assert part in page, part


def test_the_status_is_0_if_all_fit(step, answers, capsys):
    answers(0)
    assert main(["compile", "model.py:step", "--for", "h100", "--out", "x", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["machines"][0]["state"] == "fits"
    assert err == "the file runs\n\nsaved x/index.html\n"
    for number in (1, 4):  # one that is too large, one that failed
        answers(0, number)
        assert main(["compile", "model.py:step", "--for", "h100"]) == 1


def test_a_folder_that_cannot_be_written(several, tmp_path):
    (tmp_path / "index.html").mkdir()
    with pytest.raises(OSError):
        save_all("step", several, tmp_path)


def test_an_interrupt(step, monkeypatch):
    def interrupted(*asked):
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_jobs, "compiled", interrupted)
    assert main(["compile", "model.py:step", "--for", "h100"]) == 130


def test_machines_that_the_file_adds(step, monkeypatch):
    Path("adding.py").write_text(
        "import shardwise as sw\n\nsw.targets.add('ours', sw.targets.description('a100'))\n\n\n"
        "def step(devices):\n    pass\n"
    )
    asked = []
    monkeypatch.setattr(compile_jobs, "compiled", lambda *given: asked.append(given) or [])
    words = ["--for", "ours:2x8", "--for", "tpu-v5e:4", "--for", "OURS:2x8"]
    try:
        assert main(["compile", "adding.py:step", *words, "--timeout", "9", "--jobs", "2"]) == 0
    finally:
        gpus.GPUS.pop("ours", None)
    assert asked == [(Job("adding.py", "step"), ["ours:2x8", "tpu-v5e:2x2"], 9.0, 2)]


def test_the_step_of_the_demo(monkeypatch):
    """It compiles for devices that are there, too."""
    path, name = ROOT / "examples" / "gpt.py", "step"
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setitem(sys.modules, "gpt", None)
    found = program_of(function_of(module_of(path), path, name), name, sw.devices()[:8])
    mesh = found.args[0]["parameters"]["head"].sharding.mesh
    assert mesh.shape == {"data": 4, "model": 2}
    assert found.f.lower(*found.args).as_text().count("stablehlo.dot_general") > 20


# ---- with the compilers --------------------------------------------------------------------------


@needs_cuda
@needs_tpu
def test_two_machines_of_which_one_is_too_small(step, capsys):
    words = ["model.py:large", "--for", "h100:4", "--for", "tpu-v5e:4"]
    assert main(["compile", *words, "--out", "out"]) == 1
    _, first, second, by, _, reason, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["h100:4", "4", "yes"]
    size = r"[\d.]+ GiB"
    row = rf"tpu-v5e:2x2 +- +no: ({size}) too much +over ({size}) of ({size}) .*"
    excess, needed, available = re.fullmatch(row, second).groups()
    assert by == f"compiled by {sw.targets.available()['cuda']}: h100:4"
    assert reason.startswith(
        f"<lambda> does not fit 'tpu-v5e:2x2': it needs {needed} of a device, and "
        f"{available} are available: {excess} too much. Its largest value is f32[1048576,65536] "
    )
    assert sorted(os.listdir("out")) == ["h100-4.hlo.txt", "h100-4.html", "index.html"]
    assert Path("out/h100-4.hlo.txt").read_text().startswith("HloModule jit__lambda")


def named_function(name):
    return function_of(module_of(Path("model.py")), Path("model.py"), name)


@needs_cuda
def test_what_gpus_compile(step):
    found = outcome("step", "h100:2x4")
    assert (found.state, found.report.devices, found.report.count("all-reduce")) == ("fits", 8, 1)
    assert found.report.compiler == sw.targets.available()["cuda"]
    f, args, kwargs = program_of(named_function("step"), "step", sw.targets.devices("h100:2x4"))
    assert explain(f)(*args, **kwargs).compiler == found.report.compiler  # by its devices alone
    assert outcome("abstract", "h100:2x4").report.devices == 8
    assert outcome("abstract", "h100:4").error == (
        "the program runs on 8 devices, and 'h100:4' has 4. Choose a larger machine, or a smaller "
        "mesh."
    )
    lines = outcome("mismatched", "h100:4").error.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith(f'model.py", line {at("return x @ x")}, in product')
    assert lines[-2].startswith("shardwise.errors.ShapeError: matmul: dimension 1 of the first ")


@needs_tpu
def test_callbacks_on_tpus(step):
    text, _, line = outcome("calling", "tpu-v5e:4").error.partition("\n")
    assert text == (
        "NotImplementedError: programs on tpu cannot call host functions (callbacks, "
        "`shardwise.debug.print`). Run this part on a CPU device: `shardwise.device_put(x, "
        "shardwise.devices('cpu')[0])`."
    )
    assert re.fullmatch(r"The op was called at .*model\.py:\d+ \(<lambda>\)", line)
