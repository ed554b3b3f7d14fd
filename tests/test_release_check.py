"""The checks of a release, on small archives; `make release-check` builds the real ones."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from shardwise._version import __version__
from tests.helpers.patience import seconds
from tools import release_check as check

TRACKED = [
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "Makefile",
    ".gitignore",
    "shardwise/__init__.py",
    "shardwise/py.typed",
    "examples/gpt.py",
    "docs/errors/README.md",
    "docs/values.md",
    "tests/test_a.py",
    "tools/size.py",
]
INFO = "shardwise-0.2.0.dist-info"
WHEEL = [
    "shardwise/__init__.py",
    "shardwise/py.typed",
    "shardwise/examples/gpt.py",
    "shardwise/docs/errors/README.md",
    f"{INFO}/METADATA",
    f"{INFO}/RECORD",
    f"{INFO}/WHEEL",
    f"{INFO}/entry_points.txt",
    f"{INFO}/licenses/LICENSE",
]
SDIST = [
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "shardwise/__init__.py",
    "shardwise/py.typed",
    "examples/gpt.py",
    "docs/errors/README.md",
    "PKG-INFO",
    ".gitignore",
]


def archives(folder: Path, wheel: list[str], sdist: list[str]) -> Path:
    with zipfile.ZipFile(folder / "shardwise-0.2.0-py3-none-any.whl", "w") as archive:
        for name in wheel:
            archive.writestr(name, "")
    with tarfile.open(folder / "shardwise-0.2.0.tar.gz", "w:gz") as archive:
        for name in sdist:
            archive.addfile(tarfile.TarInfo(f"shardwise-0.2.0/{name}"), io.BytesIO())
    return folder


def test_archives_with_the_tracked_files_are_right(tmp_path):
    folder = archives(tmp_path, WHEEL, SDIST)
    assert list(check.archive_problems(folder, "0.2.0", TRACKED)) == []


def test_files_that_are_missing_or_there_by_mistake_are_named(tmp_path):
    wheel = [name for name in WHEEL if name != "shardwise/py.typed"]
    folder = archives(tmp_path, [*wheel, "tests/test_a.py"], [*SDIST[1:], "tools/size.py"])
    assert list(check.archive_problems(folder, "0.2.0", TRACKED)) == [
        "shardwise-0.2.0-py3-none-any.whl lacks shardwise/py.typed",
        "shardwise-0.2.0-py3-none-any.whl contains by mistake tests/test_a.py",
        "shardwise-0.2.0.tar.gz lacks pyproject.toml",
        "shardwise-0.2.0.tar.gz contains by mistake tools/size.py",
    ]


def test_long_lists_of_names_are_cut():
    (text,) = check.difference("a.whl", {f"tests/{i}.py" for i in range(8)}, set())
    assert text == (
        "a.whl contains by mistake tests/0.py, tests/1.py, tests/2.py, tests/3.py, tests/4.py and "
        "3 more"
    )


def test_archives_of_another_version_are_a_problem(tmp_path):
    folder = archives(tmp_path, WHEEL, SDIST)
    assert list(check.archive_problems(folder, "0.3.0", TRACKED)) == [
        "expected shardwise-0.3.0-py3-none-any.whl and shardwise-0.3.0.tar.gz; built "
        "shardwise-0.2.0-py3-none-any.whl, shardwise-0.2.0.tar.gz"
    ]


@pytest.mark.parametrize(
    "title, draft, problem",
    [
        ("## [0.2.0] - 2026-12-01", False, False),
        ("## [0.2.0] - 2026-12-01", True, False),
        ("## [Unreleased]", True, False),
        ("## [Unreleased]", False, True),
        ("## [0.2.0]", True, True),
        ("## [0.1.0] - 2026-12-01", False, True),
        ("## [0x2.0] - 2026-12-01", False, True),
    ],
)
def test_the_changelog_has_a_section_for_the_version(title, draft, problem):
    found = check.changelog_problems(f"# Changelog\n\n{title}\n\n## [0.0.1]\n", "0.2.0", draft)
    shown = f"CHANGELOG.md begins with {title[3:]}; expected [0.2.0] - YYYY-MM-DD"
    assert list(found) == [shown] * problem


def test_an_empty_changelog_has_none():
    assert list(check.changelog_problems("# Changelog\n", "0.2.0", True)) == [
        "CHANGELOG.md begins with no section; expected [0.2.0] - YYYY-MM-DD"
    ]


def test_programs_that_fail_or_print_something_else_are_shown(tmp_path):
    def run(code: str) -> str | None:
        return check.failure([sys.executable, "-c", code], tmp_path, expected="fine")

    assert run("print('all fine')") is None
    assert run("print('no')") == "printed no 'fine':\nno"
    assert run("import sys; print('out'); sys.exit('broken')") == "ended with 1:\nbroken"


def test_the_doctor_reports_the_version():
    assert check.doctor_failure(json.dumps({"shardwise": "0.2.0", "problems": 3}), "0.2.0") is None
    assert check.doctor_failure('{"shardwise": "0.1.0"}', "0.2.0") == "is of version 0.1.0"
    assert check.doctor_failure("Traceback: x\n", "0.2.0") == "printed no record:\nTraceback: x"


def test_an_archive_that_cannot_be_installed_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(check.venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(check, "failure", lambda *_, **__: "ended with 1:\nno such file")
    found = list(check.install_problems(tmp_path / "a.whl", "0.2.0"))
    assert found == ["a.whl: pip ended with 1:\nno such file"]


def test_the_version_is_that_of_the_library():
    assert check.current_version() == __version__


def test_build_is_among_the_tools():
    project = tomllib.loads((check.ROOT / "pyproject.toml").read_text())["project"]
    assert any(need.startswith("build>=") for need in project["optional-dependencies"]["dev"])


def test_without_build_a_message_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        check.main([])
    assert "the package `build` is missing: `make dev` installs it" in capsys.readouterr().err


def test_the_exit_status_and_the_problems(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(check, "problems", lambda draft: ["one"] if draft else [])
    assert (check.main(["--draft"]), check.main([])) == (1, 0)
    assert capsys.readouterr().out == "PROBLEM: one\nready to be released\n"


def test_the_smoke_program_runs_as_it_is_written(tmp_path):
    """Apart from where the library is, and of the tools next to it."""
    lines = [line for line in check.SMOKE.splitlines() if "sys.prefix" not in line]
    code = "\n".join(line for line in lines if 'find_spec("jax")' not in line)
    assert len(check.SMOKE.splitlines()) - len(code.splitlines()) == 2
    info = tmp_path / f"shardwise-{__version__}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: shardwise\nVersion: {__version__}\n"
    (info / "METADATA").write_text(metadata)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{check.ROOT}"}
    problem = check.failure(
        [sys.executable, "-W", "error", "-c", code], tmp_path, environment, __version__
    )
    assert problem is None


def test_the_demo_starts_without_the_packages_of_checkpoints(tmp_path):
    """A wheel alone is installed without them."""
    code = (
        "import sys; sys.modules.update(tensorstore=None, crc32c=None)\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n in ('tensorstore', 'crc32c') else find(n, *a)\n"
        "from shardwise._src.cli import main; sys.exit(main(['demo', '--help']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(check.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert (done.returncode, done.stderr) == (0, "") and "--mesh" in done.stdout
