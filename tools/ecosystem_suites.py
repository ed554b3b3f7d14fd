"""Runs the libraries' own tests, on this library and on jax: `python tools/ecosystem_suites.py`.

The tests come from the source archives of the versions in pyproject.toml, which are kept in
build/suites, and run in .venv-ecosystem, which `make ecosystem` makes. Tests that fail with jax do
not count. `--update` writes the rows of the suites that ran into the table in docs/ecosystem.md;
`--share 4` runs a quarter of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/ecosystem.md"
PYTHON = ROOT / ".venv-ecosystem/bin/python"
HOME = ROOT / "build/suites"
INDEX = "https://pypi.org/simple"
BEGIN, END = "<!-- suites -->", "<!-- end of suites -->"


@dataclass(frozen=True)
class Suite:
    """name: of the archive. tests: folders. packages: what the tests import in addition.
    share: which part runs by default, 1 of so many. github: the owner of the repository with the
    archive, if the one of the package index contains no tests."""

    name: str
    tests: tuple[str, ...]
    packages: tuple[str, ...] = ()
    share: int = 1
    github: str = ""


SUITES = (
    Suite("chex", ("chex",), ("cloudpickle", "dm-tree")),
    Suite("optax", ("optax",), ("dm-tree",), share=4),
    Suite("dm-haiku", ("haiku",), ("dill", "dm-tree", "mock"), share=4),
    Suite("flax", ("tests",), ("einops", "ml-collections", "cloudpickle"), share=4),
    Suite("numpyro", ("test",), ("dm-tree",), share=20),
    Suite("blackjax", ("tests",), (), share=4),
    Suite("equinox", ("tests",), share=2, github="patrick-kidger"),
    Suite("diffrax", ("test",), share=4, github="patrick-kidger"),
)


def version_of(name: str) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(r.split("==") for r in extras["optional-dependencies"]["ecosystem"])
    return pins[name]


def source(suite: Suite) -> Path:
    """The folder of a library's source archive, which is downloaded if it is missing."""
    folder = HOME / f"{suite.name.replace('-', '_')}-{version_of(suite.name)}"
    if not folder.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        wanted = f"{folder.name}.tar.gz"
        archive, _ = urllib.request.urlretrieve(address(suite, wanted), HOME / wanted)
        with tarfile.open(archive) as tar:
            tar.extractall(HOME, filter="data")
    return folder


def address(suite: Suite, wanted: str) -> str:
    """The URL of the archive of this name."""
    if suite.github:
        tag = f"v{version_of(suite.name)}"
        return f"https://github.com/{suite.github}/{suite.name}/archive/refs/tags/{tag}.tar.gz"
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    request = urllib.request.Request(f"{INDEX}/{suite.name}/", headers=accept)
    with urllib.request.urlopen(request) as response:
        files = json.load(response)["files"]
    (url,) = [f["url"] for f in files if f["filename"] == wanted]
    return url


def outcomes(suite: Suite, module: str, share: int, workers: int) -> dict[str, list[str]]:
    """[outcome, message] of each test that ran, by name."""
    folder, file = source(suite), HOME / f"{suite.name}-{module}.jsonl"
    file.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SUITE_MODULE": module,
        "SUITE_OUTCOMES": str(file),
        "SUITE_SHARE": str(share),
        "JAX_PLATFORMS": "cpu",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [PYTHON, "-m", "pytest", *suite.tests, "-p", "tools.suite_plugin", "-q"]
    command += ["-c", os.devnull, "--rootdir", "."]  # not the configuration of this repository
    command += ["-o", "python_files=*_test.py test_*.py", "-o", "addopts=", "-o", "filterwarnings="]
    command += ["-p", "no:cacheprovider", "-n", str(workers), "--timeout", "300"]
    command += ["--continue-on-collection-errors", "--tb=short", "--no-header"]
    log = HOME / f"{suite.name}-{module}.log"
    with log.open("w") as out:
        subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=out, check=False)
    lines = file.read_text().splitlines() if file.exists() else []
    return {name: rest for name, *rest in map(json.loads, lines)}


@dataclass
class Found:
    """What became of a suite's tests: how many pass with jax, and here; the others by message."""

    suite: Suite
    share: int
    of_jax: int
    here: int
    others: dict[str, str]

    def row(self) -> str:
        part = "all" if self.share == 1 else f"1 of {self.share}"
        percent = 100 * self.here / self.of_jax if self.of_jax else 0.0
        name, version = self.suite.name, version_of(self.suite.name)
        return f"| {name} {version} | {part} | {self.of_jax} | {self.here} | {percent:.1f} % |"


def compare(suite: Suite, share: int, workers: int) -> Found:
    theirs, ours = [outcomes(suite, m, share, workers) for m in ("jax", "shardwise")]
    passed = [name for name, (outcome, _) in theirs.items() if outcome == "passed"]
    missing = ["missing", "did not run"]
    others = {n: ours.get(n, missing)[1] for n in passed if ours.get(n, missing)[0] != "passed"}
    return Found(suite, share, len(passed), len(passed) - len(others), others)


def install(suites: list[Suite]) -> None:
    packages = sorted({p for suite in suites for p in suite.packages})
    install = [PYTHON, "-m", "pip", "install", "-q", "pytest-timeout", "pytest-xdist", "absl-py"]
    subprocess.run([*install, *packages], check=True)


def table(found: list[Found], before: str) -> str:
    """The table with these rows; a suite that did not run keeps its row of the table before."""
    rows = {line.split()[1]: line for line in before.splitlines() if line.startswith("| ")}
    rows.update({each.suite.name: each.row() for each in found})
    head = ["| Suite | part | pass with jax | of those, here | |", "|---|---|---:|---:|---:|"]
    return "\n".join([*head, *(rows[s.name] for s in SUITES if s.name in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="libraries; all by default")
    parser.add_argument("--share", type=int, help="1 of so many tests of each suite")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    suites = [s for s in SUITES if s.name in (given.names or [s.name])]
    install(suites)
    found = []
    for suite in suites:
        found.append(compare(suite, given.share or suite.share, given.workers))
        print(found[-1].row(), flush=True)
        for name, message in found[-1].others.items():
            print(f"    {name}: {' '.join(message.split())[:200]}", flush=True)
    if given.update:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        before, _, rest = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n{table(found, before)}\n{END}{rest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
