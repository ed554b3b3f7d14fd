"""CHANGELOG.md parses as Keep a Changelog: titles, their order, dates."""

import datetime
import re
from pathlib import Path

from shardwise._version import __version__

TEXT = (Path(__file__).parents[1] / "CHANGELOG.md").read_text()
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
RELEASE = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)")


def problems(text):
    lines = text.splitlines()
    if lines[0] != "# Changelog":
        yield "title"
    titles = [line[3:] for line in lines if line.startswith("## ")]
    releases = [RELEASE.fullmatch(t) for t in titles if t != "[Unreleased]"]
    if not titles or "[Unreleased]" in titles[1:] or None in releases:
        yield "releases"
        return
    found = [r.groups() for r in releases]
    versions = [tuple(map(int, numbers)) for *numbers, _ in found]
    dates = [datetime.date.fromisoformat(date) for *_, date in found]
    if versions != sorted(set(versions), reverse=True) or dates != sorted(dates, reverse=True):
        yield "order"
    for part in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", part, re.MULTILINE)
        if not kinds or kinds != [kind for kind in KINDS if kind in kinds]:
            yield f"kinds {kinds}"


def test_the_file_is_in_the_format():
    assert list(problems(TEXT)) == []
    newest = next(iter(RELEASE.findall(TEXT)), None)
    assert newest is None or ".".join(newest[:3]) == __version__


def test_mistakes_are_found():
    part = "### Added\n\n- x\n"
    good = f"# Changelog\n\n## [0.2.0] - 2026-02-01\n{part}## [0.1.0] - 2026-01-01\n{part}"
    assert list(problems(good)) == []
    assert list(problems(good.replace("[0.1.0]", "[0.3.0]"))) == ["order"]
    assert list(problems(good.replace("2026-01", "2026-03"))) == ["order"]
    assert list(problems(good.replace("## [0.1.0] - 2026-01-01", "## 0.1.0"))) == ["releases"]
    assert list(problems(good + "## [Unreleased]\n" + part)) == ["releases"]
    assert list(problems(good + "### News\n")) == ["kinds ['Added', 'News']"]
