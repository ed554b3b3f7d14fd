"""Runs the code in the documents.

The Python blocks of a Markdown file are one program, run from top to bottom in a separate process
with eight devices. A text block right after one is its output. A block `python in 2 processes` is a
separate program, which runs in two processes; the text after it is the output of process 0.
Blocks `python needs cuda tpu` run only if the compilers of these platforms are installed
(`shardwise.targets`). Blocks `python skip` do not run, such as code for other libraries.
"""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shardwise as sw
from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
ERRORS = ROOT / "docs" / "errors"  # run by test_error_pages.py
BLOCK = re.compile(r"^```(python|text)(?: needs ([\w ]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_PROCESSES = re.compile(
    r"^```python in (\d) processes\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
TAGS = re.compile(r"</\w+>")  # these close a table with two programs side by side
MARK = "\x1e"  # printed after each block
LINK = re.compile(r"\[[^]]*\]\(([^)#:]+)(?:#[^)]*)?\)")
RUN = "import sys; exec(compile(sys.stdin.read(), sys.argv[1], 'exec'), {'__name__': '__main__'})"


def execute(source, name):
    """The output of a program, in a separate process."""
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, name],
        input=source, capture_output=True, text=True, timeout=100,
        env={**os.environ, "XLA_FLAGS": flags, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def program_of(text, installed=()):
    """The Python blocks at their lines, each with its expected output (None: anything).

    installed: the platforms whose compilers are there, for blocks that need some.
    """
    lines = [""] * (text.count("\n") + 1)
    expected, behind = [], -1
    for block in BLOCK.finditer(text):
        if block[1] == "text":
            if behind >= 0 and not TAGS.sub("", text[behind : block.start()]).strip():
                expected[-1] = block[3]
            continue
        if not {*(block[2] or "").split()} <= {*installed}:
            behind = -1
            continue
        first = text.count("\n", 0, block.start()) + 1
        body = block[3].splitlines()
        lines[first : first + len(body)] = body
        lines[first + len(body)] = f"print({MARK!r}, end='')"
        expected.append(None)
        behind = block.end()
    return "\n".join(lines), expected


def test_blocks_keep_their_lines_and_know_their_output():
    text = "a\n```python\nx = 1\nprint(x)\n```\n\n```text\n1\n```\n\nb\n```python\ny\n```\nc\n"
    source, expected = program_of(text)
    assert source.splitlines()[2:5] == ["x = 1", "print(x)", "print('\\x1e', end='')"]
    assert source.splitlines()[12] == "y"
    assert expected == ["1\n", None]


def test_blocks_that_need_a_compiler():
    text = "```python needs cuda tpu\nx\n```\n```text\n1\n```\n```python\ny\n```\n"
    for installed in ((), ("cuda",), ("cuda", "tpu")):
        source, expected = program_of(text, installed)
        assert expected == ["1\n", None][2 - max(len(installed), 1) :]
        assert source.splitlines()[1] == ("x" if len(installed) == 2 else "")


@pytest.mark.parametrize(
    "path",
    everyday(
        [
            p
            for p in DOCUMENTS
            if program_of(p.read_text(), ("cuda", "tpu"))[1] and p.parent != ERRORS
        ],
        1,
        by=lambda p: p.name,
    ),
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_the_code_of_a_document_runs(path):
    source, expected = program_of(path.read_text(), sw.targets.available())
    printed = execute(source, str(path)).split(MARK)[:-1]
    for got, wanted in zip(printed, expected, strict=True):
        if wanted is not None:
            assert [line.rstrip() for line in got.splitlines()] == wanted.splitlines()


PROGRAMS = [
    (path, int(count))
    for path in DOCUMENTS
    if path.parent != ERRORS
    for count in sorted({found[1] for found in IN_PROCESSES.finditer(path.read_text())})
]


@pytest.mark.parametrize(
    "path, count", PROGRAMS, ids=[f"{p.relative_to(ROOT)}-{n}" for p, n in PROGRAMS]
)
def test_the_code_of_a_document_runs_in_processes(path, count):
    found = [f for f in IN_PROCESSES.finditer(path.read_text()) if int(f[1]) == count]
    source = "".join([f"{f[2]}\nprint({MARK!r}, end='', flush=True)\n" for f in found])
    printed = run_processes(source, count, devices=8 // count, timeout=110)[0].out.split(MARK)
    for got, block in zip(printed, found, strict=False):
        if block[3] is not None:
            assert [line.rstrip() for line in got.splitlines()] == block[3].splitlines()


def test_the_tour_of_the_core():
    path = ROOT / "docs" / "core_in_one_sitting.py"
    assert execute(path.read_text(), str(path)) == "every assertion of the tour holds\n"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing


FENCED = re.compile(r"^ {0,3}```.*?^ {0,3}```$", re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r"\[[^]]*\]\(([^)#:\s]*)#([^)\s]+)\)")


def anchors(text):
    """The anchors of headings, as GitHub and the site name them."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return found


def test_anchors_of_headings():
    text = "# A `b`: c, d\n```python\n# no\n```\n## [E](f.md) g_h\n"
    assert anchors(text) == ["a-b-c-d", "e-g_h"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_anchors_lead_to_headings(path):
    for place, anchor in ANCHOR.findall(FENCED.sub("", path.read_text())):
        target = path.parent / place if place else path
        if target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{place}#{anchor}"


def test_examples_in_docstrings():
    for path in sorted((ROOT / "shardwise").rglob("*.py")):
        if ">>> " in path.read_text():
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            failed, _ = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
            assert not failed, name
