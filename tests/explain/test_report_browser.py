"""Pages of reports in a browser: sorting, linked entries, widths, colors, no network.

Needs Chromium or Chrome (`make browser` installs it on Debian). The page is opened once for each
width and theme, with a script at its end that acts as a user does and records what it sees.
"""

import dataclasses
import html
import json
import re
import subprocess

import pytest

from shardwise._src.explain.rendering.report_page import page
from tests.explain.test_browser import BROWSER
from tests.helpers.reports import report as made

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser; see `make browser`")

BEFORE = """<script>
window.wrong = [];
addEventListener("error", e => wrong.push("error: " + e.message));
addEventListener("securitypolicyviolation", e => wrong.push("policy: " + e.blockedURI));
for (const kind of ["error", "warn"]) console[kind] = (...words) => wrong.push(words.join(" "));
</script>"""
AFTER = """
<script>
const table = document.querySelector("table.sorted");
const column = i => [...table.tBodies[0].rows].map(row => row.cells[i].textContent);
const marks = kind => all("." + kind).map(e => [e.tagName, e.dataset.at, e.dataset.op ?? ""]);
const all = (q, of = document) => [...of.querySelectorAll(q)];
const sort = i => { all("th button", table)[i].click();
  return [all("th", table)[i].getAttribute("aria-sort"), column(0), column(3)]; };
const point = e => e.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
const seen = {wide: document.documentElement.scrollWidth, inner: innerWidth};
const style = getComputedStyle(document.body);
seen.paper = style.backgroundColor; seen.ink = style.color;
seen.first = column(0);
seen.sorted = [sort(3), sort(3), sort(0), sort(4)];
seen.focusable = all("th button", table)[0].tabIndex;
const [gather, reduce] = ["dot_general", "reduce_sum"].map(
  op => table.querySelector(`tr[data-op=${op}]`));
point(reduce); seen.hover = [marks("strong"), marks("marked")];
point(document.body); seen.left = [marks("strong"), marks("marked")];
gather.cells[0].click(); point(document.body); seen.clicked = [marks("strong"), marks("marked")];
seen.shown = all(".pane").map(pane => {
  const line = pane.querySelector("li.strong").getBoundingClientRect();
  const box = pane.getBoundingClientRect();
  return line.top >= box.top && line.bottom <= box.bottom; });
gather.cells[0].click(); point(document.body); seen.again = marks("strong");
point(all(".pane li[data-op=lt]")[0]); seen.equation = marks("strong");
reduce.querySelector("a").focus(); seen.focus = marks("strong");
const [one, other] = all("table.buffers tbody tr").filter(row => row.dataset.at === "2");
point(one); seen.beside = [one.className, other.className];
seen.outside = all("body *").filter(e => !e.closest(".pane, details, script")
  && e.getBoundingClientRect().right > innerWidth + 0.6).map(e => e.tagName + e.textContent);
seen.cut = all("td, th").filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent);
seen.requests = performance.getEntriesByType("resource").map(e => e.name);
seen.wrong = wrong;
seen.scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
parent.postMessage(JSON.stringify(seen), "*");
</script>"""
# Windows are at least 500 pixels wide; frames have the requested width.
FRAME = """<!doctype html><body><script>
addEventListener("message", event => {{
  const out = document.createElement("pre");
  out.id = "out"; out.textContent = event.data; document.body.append(out);
}});
</script><iframe src="page.html" style="border:0;width:{}px;height:900px"></iframe></body>"""
THEMES = {"light": "1", "dark": "0"}


WINDOWS = [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]


@pytest.fixture(scope="module", params=WINDOWS, ids=lambda p: f"{p[0]}-{p[1]}")
def seen(request, tmp_path_factory):
    """The records of the script; width and theme: of the window."""
    width, theme = request.param
    folder = tmp_path_factory.mktemp("page")
    text = page(long(made(folder))).replace("<style>", f"{BEFORE}<style>", 1)
    (folder / "page.html").write_text(text.replace("</body>", f"{AFTER}</body>"))
    (folder / "frame.html").write_text(FRAME.format(width))
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000",
         f"--blink-settings=preferredColorScheme={THEMES[theme]}", "--enable-logging=stderr",
         "--virtual-time-budget=3000", "--dump-dom", f"file://{folder / 'frame.html'}"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    found = re.findall(r'<pre id="out">(.+?)</pre>', done.stdout)
    assert found, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr, done.stderr
    return {**json.loads(html.unescape(found[-1])), "asked": (width, theme)}


def long(report):
    """A program with so many leading equations that panes have to scroll; two buffers on a line."""
    head, *lines = report.program.splitlines()
    filler = [f"    v{i}:f32[64] = sin v{i}" for i in range(200)]
    text = "\n".join([head, *filler, *lines])
    last = dataclasses.replace(report.buffers[-1], kind="temporary")
    return dataclasses.replace(report, program=text, buffers=(*report.buffers, last))


GATHER, REDUCE, PERMUTE = "all-gather f32", "all-reduce f32", "collective-permute pred,s32"
OF_TWO = [["LI", "1", ""], ["LI", "1", "dot_general"], ["TR", "1", ""], ["TR", "1", "dot_general"]]
OF_THREE = [["LI", "2", ""], ["LI", "2", "reduce_sum"], ["TR", "2", ""], ["TR", "2", ""],
            ["TR", "2", "reduce_sum"]]  # fmt: skip


def test_tables_are_sorted(seen):
    down, up, names, times = seen["sorted"]
    assert seen["first"] == [GATHER, REDUCE, PERMUTE]
    assert down == ["descending", [GATHER, REDUCE, PERMUTE], ["160.0 KiB", "256 B", "16 B"]]
    assert up == ["ascending", [PERMUTE, REDUCE, GATHER], ["16 B", "256 B", "160.0 KiB"]]
    assert names[:2] == ["ascending", [GATHER, REDUCE, PERMUTE]]
    assert times[:2] == ["descending", [GATHER, REDUCE, PERMUTE]]
    assert seen["focusable"] == 0


def test_what_belongs_together_is_shown_together(seen):
    strong, marked = seen["hover"]
    assert sorted(strong) == OF_THREE and marked == [["LI", "2", "lt"]]
    assert seen["left"] == [[], []]
    strong, marked = seen["clicked"]
    assert sorted(strong) == OF_TWO and marked == []
    assert seen["shown"] == [True, True]
    assert seen["again"] == []
    two = [["TR", "2", ""]] * 2
    assert sorted(seen["equation"]) == [["LI", "2", ""], ["LI", "2", "lt"], *two]
    assert sorted(seen["focus"]) == OF_THREE
    assert seen["beside"] == ["strong", "marked"]  # another row of that line


def test_nothing_is_asked_for_and_nothing_goes_wrong(seen):
    assert (seen["requests"], seen["wrong"]) == ([], [])


def test_all_fits_the_window(seen):
    assert seen["wide"] <= seen["inner"] == seen["asked"][0]
    assert (seen["outside"], seen["cut"]) == ([], [])


def test_colors_are_those_of_the_theme(seen):
    assert seen["scheme"] == seen["asked"][1]
    dark = seen["asked"][1] == "dark"
    assert seen["paper"] == ("rgb(21, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert seen["ink"] == ("rgb(227, 229, 233)" if dark else "rgb(27, 30, 35)")
