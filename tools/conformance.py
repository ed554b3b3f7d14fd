"""Runs JAX's own tests on this library, and keeps the results in docs/conformance.md.

    make conformance CONFORMANCE=FOLDER                    # Python 3.12 with jaxlib 0.11
    make conformance CONFORMANCE=FOLDER ARGS=--python=3.11 # with jaxlib 0.10

FOLDER has the runners: `run_jax_tests.py` for the tests of today, `run_history_tests.py` for those
of 2022 to 2024, and for each the tests that pass with jax. They take the tests from a snapshot of
JAX's repository, whose folder the variable CONFORMANCE_MIRROR names. Nothing of it is kept.

An area is a row: how many tests pass with jax, how many of those pass here, how many fail only
since an error has other words than JAX's, how many are declined (docs/conformance.md says why), and
how many are left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.test_matrix import MATRIX, ROOT, Pair, find_python, prepare

PAGE = ROOT / "docs/conformance.md"
# runner → the tests that pass with jax, and the title of its table
RUNNERS = {
    "run_jax_tests.py": ("baseline_open.json", "Today's tests"),
    "run_history_tests.py": ("baseline_history_open.json", "Tests of 2022 to 2024"),
}
APART = "gda"  # an area of tests that were only run with a mixture of two releases of jax
PACKAGES = [
    *("pytest", "pytest-json-report", "absl-py", "hypothesis", "scipy", "flatbuffers"),
    *("opt_einsum", "psutil", "rich", "cloudpickle"),
]
# An error of the right class, in other words than JAX's.
OTHER_WORDS = re.compile(r'AssertionError: ".*" does not match ".*', re.DOTALL)
COLUMNS = ("tests", "passed", "in other words", "declined", "left")


class Environment(Pair):
    """A supported pair with what JAX's tests import, except jax."""

    @property
    def environment(self) -> Path:
        return ROOT / f".venv-{self.python}-jaxlib{self.jaxlib}-conformance"

    @property
    def packages(self) -> list[str]:
        return [f"jaxlib=={self.exact}", *PACKAGES]


def listed(page: str, heading: str) -> dict[str, list[str]]:
    """Patterns of tests in a section, by file: `- `Class::test_*`, …: why` below `### file.py`."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    section = f"{page}\n## ".partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in section.replace("\n  ", " ").splitlines():
        if line.startswith("#"):
            names = found.setdefault(line.removeprefix("### "), [])
        elif line.startswith("- `"):
            names += re.findall(r"`([^`]+)`", line.partition("`: ")[0] + "`")
    return {name: patterns for name, patterns in found.items() if patterns}


def rows(result: dict[str, Any], baseline: dict[str, Any], page: str) -> Iterator[tuple]:
    """(area, counts) of a run. page: the text of docs/conformance.md."""
    areas: dict[str, Counter[str]] = {}
    declined, of_words = listed(page, "Declined tests"), listed(page, "Tests of words")

    def is_in(patterns: dict[str, list[str]], test: str) -> bool:
        module, _, function = test.partition("::")
        return any(fnmatchcase(function, p) for p in patterns.get(module.rpartition("/")[2], ()))

    for name, file in result["files"].items():
        of_jax = {*baseline["files"].get(name, {}).get("passed", ())}
        counts = areas.setdefault(file["area"], Counter())
        failed = file["denominator"] - file["got"]
        other = refused = 0
        for test, (_, message) in file["not_passed"].items():
            if test not in of_jax:
                continue
            if is_in(declined, test):
                refused += 1
            elif OTHER_WORDS.match(message or "") or is_in(of_words, test):
                other += 1
        refused = min(refused, failed)
        other = min(other, failed - refused)
        found = (file["denominator"], file["got"], other, refused, failed - other - refused)
        counts.update(dict(zip(COLUMNS, found, strict=True)))
    yield from areas.items()


def table(found: Iterable[tuple[str, Counter[str]]]) -> str:
    """The rows and their sum as a table of Markdown."""
    lines = [f"| area | {' | '.join(COLUMNS)} | passed | answered |", "|---|" + "---:|" * 7]
    total: Counter[str] = Counter()
    for area, counts in [*found, ("all", total)]:
        total.update(counts if counts is not total else {})
        n = counts["tests"] or 1
        passed = 100 * (counts["passed"] + counts["in other words"]) / n
        answered = 100 * (n - counts["left"]) / n
        numbers = " | ".join(str(counts[c]) for c in COLUMNS)
        lines.append(f"| {area} | {numbers} | {passed:.1f} % | {answered:.1f} % |")
    return "\n".join(lines)


def with_results(page: str, heading: str, text: str) -> str:
    """The page with the section `### heading` of its results replaced, or added as the last one."""
    start, end = page.index("## Results"), page.index("\n## ", page.index("## Results") + 1)
    head, *sections = re.split(r"(?m)^### ", page[start:end])
    others = [s.strip() for s in sections if s.partition("\n")[0] != heading]
    added = [*others, f"{heading}\n\n{text}"]
    parts = "\n\n".join(f"### {s}" for s in sorted(added))
    return f"{page[:start]}{head.strip()}\n\n{parts}\n{page[end:]}"


def run(folder: Path, pair: Pair, arguments: list[str]) -> int:
    """Runs both runners; writes the page."""
    interpreter = find_python(pair.python)
    if interpreter is None:
        print(f"There is no Python {pair.python} on PATH or under pyenv.")
        return 1
    prepare(pair, interpreter)
    python, page = pair.environment / "bin/python", PAGE.read_text()
    tables = []
    for runner, (baseline, title) in RUNNERS.items():
        out = pair.environment / f"{runner}.json"
        out.unlink(missing_ok=True)
        command = [python, runner, "--module", "shardwise", "--module-path", ROOT, "--json", out]
        subprocess.run([*command, *arguments], cwd=folder, check=True)
        of_jax, result = (json.loads(file.read_text()) for file in (folder / baseline, out))
        found = [row for row in rows(result, of_jax, page) if row[0] != APART]
        tables.append(f"{title}:\n\n{table(found)}")
    text = "\n\n".join(tables)
    PAGE.write_text(with_results(page, str(pair), text))
    print(f"\n{pair}\n\n{text}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.12", choices=[pair.python for pair in MATRIX])
    given, arguments = parser.parse_known_args()
    folder = os.environ.get("CONFORMANCE", "")
    if not folder or not (Path(folder) / "run_jax_tests.py").exists():
        print(
            f"CONFORMANCE is {folder!r}: it must name a folder with run_jax_tests.py and "
            "run_history_tests.py. Pass it: make conformance CONFORMANCE=FOLDER"
        )
        return 1
    (pair,) = [p for p in MATRIX if p.python == given.python]
    environment = Environment(pair.python, pair.jaxlib, pair.requirement, pair.exact, pair.libtpu)
    return run(Path(folder).resolve(), environment, arguments)


if __name__ == "__main__":
    sys.exit(main())
