"""Visualizations in a browser: geometry, overflow, colors of light and dark pages.

Needs Chromium or Chrome (`make browser` installs it on Debian). One page shows each drawing at two
widths; a script of the page measures it, and the tests read the measurements from its DOM.
"""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import shardwise as sw
from shardwise import plan
from shardwise._src.visualize import mesh_html, sharding_html
from shardwise._src.visualize.svg import SLOT, THINNEST
from shardwise.explain import tree
from shardwise.sharding import NamedSharding
from tests.helpers.layouts import P, mesh, meshes, shardings

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
WIDTHS = (400, 1200)
NEAR = 0.6  # pixels

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is installed; see `make browser`"
)

MEASURE = """
const box = e => { const r = e.getBoundingClientRect(), y = window.scrollY;
                   return [r.left, r.top + y, r.right, r.bottom + y]; };
const chipTitle = e => {
  e.scrollIntoView({block: 'center'});
  const r = e.getBoundingClientRect();
  const hit = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
  const title = hit && hit.closest('g') && hit.closest('g').querySelector('title');
  return title ? title.textContent : null; };
const svg = s => ({
  box: box(s),
  scale: (box(s)[2] - box(s)[0]) / s.viewBox.baseVal.width,
  label: s.getAttribute('aria-label'),
  blocks: [...s.querySelectorAll('[data-block]')].map(e => [e.dataset.block, ...box(e)]),
  chips: [...s.querySelectorAll('[data-device]')].map(e => [e.dataset.device, ...box(e)]),
  hover: [...s.querySelectorAll('[data-device]')].slice(0, 3).map(chipTitle),
  texts: [...s.querySelectorAll('text')].map(e => [e.dataset.text, ...box(e)]),
  ink: getComputedStyle(s.querySelector('rect')).stroke,
});
const figures = [...document.querySelectorAll('figure')].map(f => ({
  page: f.parentElement.dataset.page, name: f.parentElement.dataset.name,
  room: box(f.parentElement), box: box(f),
  svgs: [...f.querySelectorAll('svg')].map(svg),
  cells: f.querySelectorAll('td, th').length,
  letters: f.querySelector('td') ? getComputedStyle(f.querySelector('td')).fontSize : '',
}));
const out = {figures, title: document.title, scripts: document.scripts.length,
             wide: document.documentElement.scrollWidth};
document.body.insertAdjacentHTML('beforeend', '<pre id="out"></pre>');
document.getElementById('out').textContent = JSON.stringify(out);
"""

PAGES = {"light": ("#fff", "rgb(17, 17, 17)"), "dark": ("#111", "rgb(238, 238, 238)")}


def pictures():
    drawn = {f"sharding: {n}": sharding_html(s, shape) for n, (shape, s) in shardings().items()}
    drawn |= {f"mesh: {name}": mesh_html(m) for name, m in meshes().items()}
    x = sw.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh(4, 2), P("data", "model")))
    return {**drawn, "array": x._repr_html_(), **tables(x)}


def tables(x):
    """Objects without a drawing: a table of a pytree, and plans."""
    layers = [{"weights": x, "a name that is rather long": x[0], "<b>": 3} for _ in range(40)]
    target = NamedSharding(mesh(4, 2), P("model"))
    return {
        "tree": tree(layers)._repr_html_(),
        "plan": plan(x, target)._repr_html_(),
        "plan of a tree": plan([x] * 40, target)._repr_html_(),
    }


def page():
    parts = ["<!doctype html><meta charset=utf-8><title>pictures</title><body style='margin:0'>"]
    for name, picture in pictures().items():
        for width in WIDTHS:
            theme = "light" if width == WIDTHS[0] else "dark"
            paper, ink = PAGES[theme]
            parts.append(
                f'<div data-name="{html.escape(name)}" data-page="{theme}" style="width:{width}px;'
                f'background:{paper};color:{ink}">{picture}</div>'
            )
    return "".join([*parts, f"<script>{MEASURE}</script>"])


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    (folder / "page.html").write_text(page())
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", f"--user-data-dir={folder / 'profile'}", "--window-size=1300,1000",
         "--dump-dom", f"file://{folder / 'page.html'}"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    found = re.findall(r'<pre id="out">(.+?)</pre>', done.stdout)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found[-1]))


@pytest.fixture(scope="module")
def svgs(measured):
    """(name with page, measurements), for every drawing."""
    found = [(f"{f['name']} ({f['page']})", s) for f in measured["figures"] for s in f["svgs"]]
    assert len(found) > 2 * len(pictures())
    return found


def inside(inner, outer, near=NEAR):
    low = all(a >= b - near for a, b in zip(inner[:2], outer[:2], strict=True))
    return low and all(a <= b + near for a, b in zip(inner[2:], outer[2:], strict=True))


def overlapping(boxes, near=NEAR):
    """Pairs of boxes that share more than an edge."""
    b = np.array(boxes, float).reshape(-1, 4)
    apart = (b[:, None, 2:] - near <= b[None, :, :2]).any(-1)
    clash = ~(apart | apart.T)
    np.fill_diagonal(clash, False)
    return np.argwhere(np.triu(clash)).tolist()


def test_nothing_ran_and_nothing_overflows(measured):
    assert measured["title"] == "pictures" and measured["scripts"] == 1
    assert measured["wide"] <= 1300
    for figure in measured["figures"]:
        assert inside(figure["box"], figure["room"]), figure["name"]
        for svg in figure["svgs"]:
            assert inside(svg["box"], figure["room"]), (figure["name"], figure["page"])


def test_tables_have_all_their_rows(measured):
    found = {(f["name"], f["page"]): f for f in measured["figures"] if f["cells"]}
    for page in PAGES:
        assert found["tree", page]["cells"] == 7 * (1 + 3 + 1)
        assert found["plan of a tree", page]["cells"] == 5 * (1 + 1)
        assert found["tree", page]["letters"] == "13px"


def test_lines_take_the_colour_of_the_page(measured):
    for figure in measured["figures"]:
        for svg in figure["svgs"]:
            assert svg["ink"] == PAGES[figure["page"]][1]


def test_blocks_tile_the_picture(svgs):
    for name, svg in svgs:
        boxes = np.array([b[1:] for b in svg["blocks"]])
        assert not overlapping(boxes), name
        lows, highs = np.unique(boxes[:, 0].round(1)), np.unique(boxes[:, 1].round(1))
        assert len(boxes) == len(lows) * len(highs), name  # a full grid, except for omitted cells
        gaps = "…" in str(name) or any(kind == "gap" for kind, *_ in svg["texts"])
        area = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum()
        whole = np.prod(boxes[:, 2:].max(0) - boxes[:, :2].min(0))
        assert gaps or abs(area - whole) < 0.02 * whole + 2, name


def test_lengths_are_in_proportion_to_sizes(svgs):
    checked = 0
    for name, svg in svgs:
        if not name.startswith("sharding"):
            continue
        for axis, lengths in enumerate(sizes_and_lengths(svg)):
            per_element = [
                length / size for size, length in lengths if size and length > 1.5 * THINNEST
            ]
            if len(per_element) > 1:
                assert max(per_element) < 1.05 * min(per_element), (name, axis, lengths)
                checked += 1
            empty = [length for size, length in lengths if not size]
            assert all(length >= SLOT * svg["scale"] - NEAR for length in empty), (name, axis)
    assert checked > 30


def sizes_and_lengths(svg):
    """For rows and columns: (size, length) of each block."""
    found = [[], []]
    for index, left, top, right, bottom in svg["blocks"]:
        parts = [tuple(map(int, part.split(":"))) for part in index.strip("[]").split(", ") if part]
        down, along = drawn(parts, svg)
        for at, dim, length in ((0, down, bottom - top), (1, along, right - left)):
            if dim is not None:
                found[at].append((parts[dim][1] - parts[dim][0], length))
    return found


def drawn(parts, svg):
    """The dimensions that are rows and columns, from the heading in the label."""
    heading = re.search(r"\[([^]]*(?:rows|columns)[^]]*)\]$", svg["label"])
    if heading:
        names = heading[1].split(", ")
        return names.index("rows"), names.index("columns")
    return ([None, None, *range(len(parts))])[-2:]


def test_chips_are_inside_blocks_and_apart(svgs):
    for name, svg in svgs:
        blocks = np.array([b[1:] for b in svg["blocks"]])
        assert not overlapping([chip[1:] for chip in svg["chips"]]), name
        for _, *chip in svg["chips"]:
            low, high = blocks[:, :2] - NEAR <= chip[:2], blocks[:, 2:] + NEAR >= chip[2:]
            assert (low.all(1) & high.all(1)).any(), name


def test_texts_fit(svgs):
    for name, svg in svgs:
        texts = [text[1:] for text in svg["texts"]]
        assert all(inside(text, svg["box"], 1.0) for text in texts), name
        assert not overlapping(texts, 1.0), name
        chips = np.array([chip[1:] for chip in svg["chips"]])
        for kind, left, top, right, bottom in svg["texts"]:
            if kind == "device":  # in height, a line of text has room to spare
                middle = (top + bottom) / 2
                fits = (chips[:, 0] <= left + NEAR) & (chips[:, 2] >= right - NEAR)
                fits &= (chips[:, 1] < middle) & (chips[:, 3] > middle)
                assert fits.any(), name


def test_labels_stand_beside_what_they_name(svgs):
    for name, svg in svgs:
        blocks = np.array([b[1:] for b in svg["blocks"]])
        for kind, _, _, right, bottom in svg["texts"]:
            if kind == "label":
                outside = right <= blocks[:, 0].min() + NEAR or (
                    bottom <= blocks[:, 1].min() + 3  # a line of text has room to spare
                )
                assert outside, name


def test_hovering_over_a_chip_says_what_it_holds(svgs):
    for name, svg in svgs:
        for title, (device, *_) in zip(svg["hover"], svg["chips"], strict=False):
            assert title and (not device or re.match(rf"\w+ {device}: ", title)), name
