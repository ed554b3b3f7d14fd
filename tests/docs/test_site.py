"""The documentation as a site: links, the reference, search, widths, and that it needs no network.

`make docs ARGS=--check` builds the site and runs these; otherwise they are skipped. Tests for a
browser are also skipped without Chromium (`make browser` installs it).
"""

import html
import importlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import shardwise

SITE = Path(os.environ.get("DOCS_SITE", ""))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
WIDTHS = (390, 1180, 1280, 1340, 1510)
SHOWN = ["index", "tutorials/one_to_many", "migration/pytorch", "api/shardwise.numpy", "options",
         "errors/ShapeError", "design/0034-documentation-site", "processes"]  # fmt: skip

pytestmark = pytest.mark.skipif(
    "DOCS_SITE" not in os.environ, reason="`make docs ARGS=--check` runs it on the site"
)
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium; see `make browser`")


class Page(HTMLParser):
    """The ids, links and loaded resources of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[a] for a in ("id", "name") if attrs.get(a)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if attrs.get("rel") not in ("index", "search", "next", "prev", "canonical"):
            self.loads += [attrs[LOADS[tag]]] if attrs.get(LOADS.get(tag)) else []


@cache
def pages():
    return {path: Page(path) for path in sorted(SITE.rglob("*.html"))}


def led(path, link):
    """The file that a link leads to, and the anchor in it."""
    place, _, anchor = unquote(link).partition("#")
    return ((path.parent / place).resolve() if place else path), anchor


def test_no_link_inside_is_broken():
    assert len(pages()) > 200
    broken = []
    for path, page in pages().items():
        for link in page.links:
            if re.match(r"\w+:", link):
                continue
            target, anchor = led(path, link)
            found = pages().get(target)
            fits = not anchor or (found is not None and anchor in found.ids)
            if not (target.exists() and fits):
                broken.append(f"{path.relative_to(SITE)}: {link}")
    assert not broken


def test_nothing_is_loaded_from_elsewhere():
    for path, page in pages().items():
        for loaded in page.loads:
            assert not re.match(r"\w+:|//", loaded) or loaded.startswith("data:"), path
            assert led(path, loaded.partition("?")[0])[0].exists(), (path, loaded)
    for path in SITE.rglob("*.css"):
        text = path.read_text()
        assert not re.search(r"@import[^;]*//|url\(\s*['\"]?(?:\w+:)?//", text), path


def public_modules():
    found = [shardwise]
    for module in found:
        for info in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{module.__name__}."):
            if "._" not in info.name:
                found.append(importlib.import_module(info.name))
    return found


def test_every_public_name_is_in_the_reference():
    count = 0
    for module in public_modules():
        page = pages()[SITE / "api" / f"{module.__name__}.html"]
        for name in dir(module):
            qualified = f"{module.__name__}.{name}"
            if name.startswith("_") or isinstance(getattr(module, name), type(shardwise)):
                continue
            assert qualified in page.ids, qualified
            count += 1
    assert count > 2000


def test_messages_of_errors_are_marked_as_prose():
    for path in (SITE / "errors").glob("*.html"):
        text = path.read_text()
        for block in re.findall(r'<div class="([^"]*)"><div class="highlight"><pre>(.*)', text):
            begins = re.match(r"(<span></span>)?\w+(Error|Failure): ", block[1]) is not None
            assert ("message" in block[0].split()) == begins, (path, block)
    assert 'class="message highlight-text ' in (SITE / "errors/ShapeError.html").read_text()


def test_what_the_sidebar_lists():
    text = (SITE / "index.html").read_text()
    assert re.search(r'href="api/shardwise.checkpoints.html">checkpoints</a>', text)
    assert "Copyright" not in text
    order = ["one_to_many", "uneven", "named_axes", "derivatives", "debugging"]  # of its index
    found = re.findall(r'class="reference internal" href="tutorials/(\w+).html"', text)
    assert list(dict.fromkeys(found)) == ["index", *order]


def test_every_document_is_a_page():
    root = Path(__file__).resolve().parents[2]
    for path in (root / "docs").rglob("*.md"):
        inner = path.relative_to(root / "docs")
        place = inner.with_name("index.html") if path.stem == "README" else inner
        assert (SITE / place.with_suffix(".html")).exists(), path


def in_browser(address, folder, width=1300):
    """The document at an address, after its scripts have run."""
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900",
         "--allow-file-access-from-files", "--virtual-time-budget=20000", "--dump-dom", address],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@in_a_browser
@pytest.mark.parametrize(
    "word, page",
    [
        ("einsum", "api/shardwise.numpy.html"),
        ("FullyShardedDataParallel", "migration/pytorch.html"),
        ("rechunking", "migration/dask.html"),
        ("heartbeat", "processes.html"),
        ("ShardingTypeError", "errors/ShardingTypeError.html"),
    ],
)
def test_search_finds(word, page, tmp_path):
    shown = in_browser(f"file://{SITE}/search.html?q={word}", tmp_path)
    results = shown[shown.index('id="search-results"') :]
    assert page in re.findall(r'href="([^"#?]+)', results)


MEASURE = """
addEventListener('load', () => {
  const out = [...document.querySelectorAll('iframe')].map(f => {
    const root = f.contentDocument.documentElement;
    return {page: f.dataset.page, room: f.clientWidth, wide: root.scrollWidth,
            text: root.innerText.length,
            loaded: f.contentWindow.performance.getEntriesByType('resource').map(e => e.name)};
  });
  document.getElementById('out').textContent = JSON.stringify(out);
});
"""


LONG = "tutorials/one_to_many"


@in_a_browser
@pytest.mark.parametrize("width, room", [(1280, 100), (1600, 100), (1100, 80)])
def test_lines_of_code_fit(width, room, tmp_path):
    """room: columns of code that are visible without scrolling."""
    measure = """
addEventListener('load', () => {
  const inner = document.querySelector('iframe').contentDocument;
  const pre = inner.querySelector('div.highlight pre'), probe = inner.createElement('span');
  probe.textContent = 'x'.repeat(100);
  pre.append(probe);
  const style = getComputedStyle(pre);
  const inside = pre.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const columns = inside / probe.getBoundingClientRect().width * 100;
  document.getElementById('out').textContent = JSON.stringify(columns);
});
"""
    page = tmp_path / "frame.html"
    frame = f'<iframe width="{width}" height="900" src="file://{SITE}/{LONG}.html"></iframe>'
    page.write_text(f'<script>{measure}</script><pre id="out"></pre>{frame}')
    shown = in_browser(f"file://{page}", tmp_path, width=1700)
    assert float(re.findall(r'<pre id="out">(.+?)</pre>', shown)[-1]) >= room


@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_their_width_and_load_files_alone(width, tmp_path):
    frames = [f'<iframe width="{width}" height="900" style="border:0" data-page="{name}" '
              f'src="file://{SITE}/{name}.html"></iframe>' for name in SHOWN]  # fmt: skip
    page = tmp_path / "frames.html"
    page.write_text(f'<script>{MEASURE}</script><pre id="out"></pre>{"".join(frames)}')
    shown = in_browser(f"file://{page}", tmp_path, width=1400)
    found = json.loads(html.unescape(re.findall(r'<pre id="out">(.+?)</pre>', shown)[-1]))
    assert len(found) == len(SHOWN)
    for one in found:
        assert one["text"] > 500, one
        assert one["wide"] <= one["room"] == width, one
        assert all(name.startswith("file:") for name in one["loaded"]), one
