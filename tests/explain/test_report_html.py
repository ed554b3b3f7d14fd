"""Reports as HTML: contents of figures and pages, escaped; bounds; written and unwritten files."""

import dataclasses
import os
import re
import stat
from html.parser import HTMLParser

import pytest

from shardwise._src.explain.rendering import report_page
from shardwise._src.explain.rendering.report_html import BUFFERS, LETTERS, ROWS, figure
from shardwise._src.explain.rendering.report_page import HLO, page
from tests.helpers.errors import message
from tests.helpers.reports import SOURCE
from tests.helpers.reports import report as made

VOID = {"meta", "link", "br"}


class Reader(HTMLParser):
    """Elements with their attributes, texts by the section they are in; checks the nesting."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    def all(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag
                and all([a.get(k.replace("_", "-")) == v for k, v in wanted.items()])]  # fmt: skip

    @property
    def words(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture
def report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return made(tmp_path)


SAID = (
    "estimated time: at least 1.2 ms, mostly communication",
    "communication: 11+ collectives, 160.3 KiB per device",
    "all-gather f32", "data, model", "10+", "1*", "160.0 KiB", "train<b>.py:2", "h = x @ w",
    "return h.sum(0) < 4", "'data' shards dimension 0 of operand 1, which is added over",
    "in mlp/up", "reduce_sum(f32[32@data,64]) → f32[64]", "collective-permute pred,s32",
    "* runs as part of a collective that another row counts",
    "memory per device: 32.3 KiB at its peak, under 0.1 % of 1.0 GiB", "params['<i>&']['w']",
    "temporary ×2", "products of bf16", "2.62 Mflop", "48.8 KiB",
    "not counted: the FFI calls 'ours.fft'",
)  # fmt: skip


@pytest.mark.parametrize("make", [figure, page], ids=["figure", "page"])
def test_all_is_said_and_escaped(report, make):
    read = Reader(make(report))
    for said in SAID:
        assert said in read.words, said
    assert not read.all("b", class_="x") and "<i>&" in read.words
    assert len(read.all("script")) == (make is page)
    assert {a["data-bar"] for _, a in read.elements if "data-bar" in a} == {
        "compute", "memory", "communication", "arguments", "results", "temporaries", "donated",
        "argument", "temporary", "result",
    }  # fmt: skip


def test_notebooks_show_the_figure(report):
    assert report._repr_html_() == figure(report)
    assert figure(report).startswith("<figure") and figure(report).count("<figure") == 1


def test_figures_are_bounded(report):
    row = dataclasses.replace(report.communication[1], call="f" * 10_000, why="w" * 10_000)
    rows = [dataclasses.replace(row, shared=0, op=str(i)) for i in range(2000)]
    buffers = [dataclasses.replace(report.buffers[0], what=str(i)) for i in range(2000)]
    text = figure(dataclasses.replace(report, communication=tuple(rows), buffers=tuple(buffers)))
    assert len(text) < 60_000
    assert "f" * (LETTERS - 1) + "…" in text and "f" * LETTERS not in text
    assert f"{2000 - ROWS} more" in text and f"{2000 - BUFFERS} more" in text


def test_pages_ask_nothing_of_others(report):
    text = page(report)
    read = Reader(text)
    assert text.startswith("<!doctype html>\n")
    assert not re.findall(r"https?:|url\(|@import|\bsrc=", text)
    assert [a["href"] for a in read.all("link")] == ["data:,"]
    assert all([a["href"].startswith("#line-") for a in read.all("a")])
    (policy,) = read.all("meta", http_equiv="Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'; ")


def test_rows_lines_and_equations_have_the_number_of_their_line(report):
    read = Reader(page(report))
    parts = [(t, a["data-at"], a.get("data-op")) for t, a in read.elements if "data-at" in a]
    two, three = "1", "2"
    assert sorted(parts, key=str) == sorted([
        ("tr", two, "dot_general"), ("tr", three, "reduce_sum"),  # communication
        ("tr", two, None), ("tr", three, None),  # buffers
        ("li", two, None), ("li", three, None),  # source
        ("li", two, "dot_general"), ("li", three, "reduce_sum"), ("li", three, "lt"),  # program
    ], key=str)  # fmt: skip
    assert {a["id"] for a in read.all("li") if "id" in a} == {"line-1", "line-2"}
    assert {a["href"] for a in read.all("a")} == {"#line-1", "#line-2"}
    assert "1 def step(w, x):" in read.words  # next to the named lines


def test_a_file_that_has_changed_is_not_shown(report, tmp_path):
    (tmp_path / "train<b>.py").write_text("# now\n# another\n# program\nsecret = 1\n")
    read = Reader(page(report))
    assert "the file has changed: these are the lines recorded in the report" in read.words
    assert "2 h = x @ w" in read.words and "secret" not in read.words
    (tmp_path / "train<b>.py").unlink()
    assert "2 h = x @ w" in Reader(page(report)).words


def test_other_files_are_not_read(report, monkeypatch):
    read = []
    getlines = report_page.linecache.getlines
    monkeypatch.setattr(
        report_page.linecache, "getlines", lambda name: (read.append(name), getlines(name))[1]
    )
    page(report)
    assert [os.path.basename(name) for name in read] == ["train<b>.py"]


def test_tabs_and_what_cannot_be_printed(report, tmp_path):
    source = SOURCE.replace("    h = x", "\th = x").replace("4", "4  # \x07")
    (tmp_path / "train<b>.py").write_text(source)
    lines = {line: text.replace("4", "4  # \x07") for line, text in report.lines.items()}
    words = page(dataclasses.replace(report, lines=lines))
    assert "        h = x @ w" in words and "4  # \N{REPLACEMENT CHARACTER}" in words


def test_hlo_is_cut_and_says_so(report):
    read = Reader(page(report))
    assert "The compiled program of each device, in HLO: 50 characters" in read.words
    assert "// <script>" in read.words
    long = page(dataclasses.replace(report, hlo="x" * (HLO + 5)))
    assert f"HLO: {HLO + 5:,} characters, the first {HLO:,} of which follow<" in long
    assert len(long) < HLO + 60_000


# ---- files ---------------------------------------------------------------------------------------


def test_save_gives_the_path(report, tmp_path):
    before = sorted(os.listdir(tmp_path))
    for path in (tmp_path / "a.html", str(tmp_path / "b.html"), "c.html"):
        assert os.path.samefile(report.save(path), path)
        with open(path, encoding="utf-8") as file:
            assert file.read() == page(report)
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "a.html", "b.html", "c.html"])
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(os.stat("a.html").st_mode) == 0o666 & ~mask


def test_save_refuses_a_folder(report, tmp_path):
    assert message(IsADirectoryError, report.save, tmp_path) == (
        f"save: {tmp_path} is a folder; pass the name of a file, such as {tmp_path}/step.html."
    )


def test_save_where_nothing_can_be_written(report, tmp_path):
    path = tmp_path / "none" / "a.html"
    assert message(FileNotFoundError, report.save, path) == (
        f"save: the report cannot be written to {path}: No such file or directory. There is no "
        f"folder {path.parent}. Nothing was written."
    )


def test_a_page_that_fails_to_be_written_leaves_the_old_one(report, tmp_path, monkeypatch):
    path = report.save(tmp_path / "a.html")
    old = path.read_text()

    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full)
    assert message(OSError, lambda: dataclasses.replace(report, name="other").save(path)) == (
        f"save: the report cannot be written to {path}: No space left on device. Nothing was "
        "written."
    )
    assert path.read_text() == old and sorted(os.listdir(tmp_path)) == ["a.html", "train<b>.py"]
