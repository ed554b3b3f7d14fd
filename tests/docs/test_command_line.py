"""docs/command_line.md: its commands print the output shown there.

A shell runs the lines after `$` in a `console` block, in a folder with the page's programs.
`…` matches anything in a line, and alone on a line it matches any lines.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shardwise as sw
from shardwise._src.cli import COMMANDS
from tests.helpers.everyday import everyday

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command_line.md"
PROGRAM = re.compile(r"^```python (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text):
    """Each command of the page, with its expected output."""
    found = []
    for block in CONSOLE.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def pattern(output):
    """The regular expression of an output with gaps."""
    lines = [
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in output.splitlines()
    ]
    return re.compile("".join(lines))


def test_gaps():
    assert pattern("a … (c)\n…\nd\n").fullmatch("a b (c)\nx\n\ny\nd\n")
    assert pattern("a\n…\n").fullmatch("a\n")
    assert not pattern("a\n…\nd\n").fullmatch("a\nx\n")
    assert not pattern("a…\n").fullmatch("a\nb\n")


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Runs a line in a folder with the page's programs; returns its output."""
    folder = tmp_path_factory.mktemp("page")
    for name, source in PROGRAM.findall(PAGE.read_text()):
        (folder / name).write_text(source)
    own = folder / "bin"
    own.mkdir()
    (own / "shardwise").write_text(f'#!/bin/sh\nexec {sys.executable} -m shardwise "$@"\n')
    (own / "shardwise").chmod(0o755)
    (folder / "run").mkdir(mode=0o700)
    here = ("SHARDWISE_", "JAX_", "SLURM", "XLA_FLAGS")
    env = {k: v for k, v in os.environ.items() if not k.startswith(here)}
    root = str(PAGE.parents[1])
    env |= {
        "PATH": f"{own}:{os.environ['PATH']}",
        "COLUMNS": "80",
        "SHARDWISE_PLATFORMS": "cpu",
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
    }

    def run(line):
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout

    return run


ALL = commands(PAGE.read_text())


@pytest.mark.parametrize(("command", "output"), everyday(ALL, 1))
def test_commands_print_what_stands_there(command, output, shell):
    if "describe" in command or "save.py" in command:
        pytest.importorskip("tensorstore")
    if "compiled by" in output and len(sw.targets.available()) < 2:
        pytest.skip("needs shardwise[compile-cuda] and shardwise[compile-tpu]")
    if "runs/one" in command:
        shell("test -d runs/one || shardwise launch -n 2 --devices-per-process 2 save.py")
    printed = shell(command)
    assert pattern(output).fullmatch(printed), printed


def test_each_command_is_on_the_page():
    for name in COMMANDS:
        assert f"\n## `{name}`: " in PAGE.read_text()
