"""Builds the wheel and the source archive as a release does, and checks them.

    python tools/release_check.py            # of the commit that a release is tagged at
    python tools/release_check.py --draft    # before: accepts uncommitted changes and a changelog
                                             # whose newest section is still [Unreleased]

The changelog must have a section for the version. Both archives must contain exactly the tracked
files that belong in them: the library, its examples and its pages on errors, and no tests or tools.
Each is installed into a new environment outside of the checkout, and used there from an empty
folder. The exit status is 1 if there is a problem; every problem is printed. RELEASING.md has the
steps before and after.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Where the files of a folder of the checkout are in a wheel.
WHEEL = {"shardwise": "shardwise", "examples": "shardwise/examples",
         "docs/errors": "shardwise/docs/errors"}  # fmt: skip
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
SDIST = ("shardwise", "examples", "docs/errors", "CHANGELOG.md", "LICENSE", "README.md",
         "pyproject.toml")  # fmt: skip
ADDED_BY_BUILD = {"PKG-INFO", ".gitignore"}  # hatchling's
SHOWN = 5  # of the names in one message
SMOKE = """
import importlib.metadata, importlib.util, pathlib, sys
import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import NamedSharding, PartitionSpec

package = pathlib.Path(sw.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not in {sys.prefix}"
version = importlib.metadata.version("shardwise")
assert sw.__version__ == version, (sw.__version__, version)
assert importlib.util.find_spec("jax") is None, "jax is installed"
assert (package / "py.typed").is_file(), "py.typed is missing"

sw.config.update("num_cpu_devices", 8)
mesh = sw.make_mesh((8,), ("data",))
x = sw.device_put(jnp.arange(16.0), NamedSharding(mesh, PartitionSpec("data")))
loss = sw.jit(sw.grad(lambda x: (x * x).sum()))(x)
assert len(loss.sharding.device_set) == 8, loss.sharding
assert loss.tolist() == [2.0 * i for i in range(16)], loss
print(version)
"""


def changelog_problems(text: str, version: str, draft: bool) -> Iterator[str]:
    """The first section must be the version's, with a date; for a draft, it may be Unreleased."""
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    first = titles[0] if titles else "no section"
    if draft and first == "[Unreleased]":
        return
    if not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}", first):
        yield f"CHANGELOG.md begins with {first}; expected [{version}] - YYYY-MM-DD"


def wheel_files(tracked: Iterable[str], version: str) -> set[str]:
    """The names that a wheel must contain."""
    info = f"shardwise-{version}.dist-info"
    inside = {
        f"{target}{name[len(folder):]}"
        for name in tracked for folder, target in WHEEL.items() if name.startswith(f"{folder}/")
    }  # fmt: skip
    return inside | {f"{info}/{name}" for name in METADATA}


def sdist_files(tracked: Iterable[str]) -> set[str]:
    """The names that a source archive must contain, below its folder."""
    return {n for n in tracked if any(n == s or n.startswith(f"{s}/") for s in SDIST)}


def difference(archive: str, names: set[str], expected: set[str]) -> Iterator[str]:
    """Messages for missing files, and for files that are in an archive by mistake."""
    for text, found in (("lacks", expected - names), ("contains by mistake", names - expected)):
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            yield f"{archive} {text} {', '.join(sorted(found)[:SHOWN])}{more}"


def archive_problems(folder: Path, version: str, tracked: Sequence[str]) -> Iterator[str]:
    """Problems with the contents of the wheel and of the source archive in a folder."""
    wheel = folder / f"shardwise-{version}-py3-none-any.whl"
    sdist = folder / f"shardwise-{version}.tar.gz"
    built = {path.name for path in folder.iterdir()}
    if built != {wheel.name, sdist.name}:
        yield f"expected {wheel.name} and {sdist.name}; built {', '.join(sorted(built))}"
        return
    with zipfile.ZipFile(wheel) as archive:
        yield from difference(wheel.name, {*archive.namelist()}, wheel_files(tracked, version))
    with tarfile.open(sdist) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    yield from difference(sdist.name, names - ADDED_BY_BUILD, sdist_files(tracked))


def failure(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, expected: str = ""
) -> str | None:
    """Runs a program; returns how it failed, or that its output lacks a text; None on success."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        return f"ended with {done.returncode}:\n{(done.stderr or done.stdout).rstrip()}"
    if expected not in done.stdout:
        return f"printed no {expected!r}:\n{done.stdout.rstrip()}"
    return None


def doctor_failure(text: str, version: str) -> str | None:
    """The problem with the output of `shardwise doctor --json`, if any. Problems that it reports
    about this machine do not count."""
    try:
        found = json.loads(text)["shardwise"]
    except (ValueError, KeyError, TypeError):
        return f"printed no record:\n{text.rstrip()}"
    return None if found == version else f"is of version {found}"


def use(python: Path, folder: Path, version: str) -> Iterator[str]:
    """Uses an installed library from an empty folder: a program, and the command."""
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder)}
    command = str(python.parent / "shardwise")
    steps = {
        "the smoke program": ([str(python), "-W", "error", "-c", SMOKE], version),
        "shardwise --version": ([command, "--version"], f"shardwise {version}"),
        "shardwise explain-error": ([command, "explain-error"], "BroadcastError"),
        "shardwise demo --help": ([command, "demo", "--help"], "--mesh"),
    }
    for name, (line, expected) in steps.items():
        if problem := failure(line, folder, env, expected):
            yield f"{name} {problem}"
    line = [command, "doctor", "--quick", "--json"]
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True)
    if problem := doctor_failure(done.stdout or done.stderr, version):
        yield f"shardwise doctor {problem}"


def install_problems(archive: Path, version: str) -> Iterator[str]:
    """Installs an archive into a new environment and uses it there."""
    with tempfile.TemporaryDirectory(prefix="shardwise-release-") as parent:
        environment, empty = Path(parent, "environment"), Path(parent, "empty")
        empty.mkdir()
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(archive)]
        if problem := failure([str(python), *pip], empty):
            yield f"{archive.name}: pip {problem}"
            return
        yield from (f"{archive.name}: {problem}" for problem in use(python, empty, version))


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def current_version() -> str:
    found = re.search(r'^__version__ = "(.*)"$', (ROOT / "shardwise/_version.py").read_text(), re.M)
    assert found is not None
    return found[1]


def problems(draft: bool) -> Iterator[str]:
    """All checks, in the order of the steps of a release."""
    version = current_version()
    if not draft and git("status", "--porcelain"):
        yield "the checkout has uncommitted changes: a release is built from a commit"
    yield from changelog_problems((ROOT / "CHANGELOG.md").read_text(), version, draft)
    with tempfile.TemporaryDirectory(prefix="shardwise-release-") as parent:
        dist = Path(parent, "dist")
        print(f"building {version}", flush=True)
        # The wheel is built from the source archive, which shows that this one is complete.
        build = [sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)]
        if problem := failure(build, Path(parent)):
            yield f"the build {problem}"
            return
        yield from archive_problems(dist, version, git("ls-files"))
        for archive in sorted(dist.iterdir()):
            print(f"installing {archive.name} and using it", flush=True)
            yield from install_problems(archive, version)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("release_check", description="Checks what a release ships.")
    parser.add_argument(
        "--draft", action="store_true",
        help="accept uncommitted changes, and [Unreleased] in place of the version's section",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("build") is None:
        parser.error("the package `build` is missing: `make dev` installs it")
    found = list(problems(options.draft))
    print("\n".join(f"PROBLEM: {problem}" for problem in found) or "ready to be released")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
