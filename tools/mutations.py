"""Breaks rules of the library, one at a time, and checks whether everyday tests fail.

    python -m tools.mutations                  all of tests/mutations.toml
    python -m tools.mutations sin scan         those whose names contain one of these
    python -m tools.mutations --whole sin      with all everyday tests, not those of the entry

Each entry has a string that occurs exactly once in a file, its replacement, and the tests that
should fail. They run in a copy of the checkout, with no other change; a mutation is caught if one
of them fails. The results are in build/mutations.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutations.toml"
COPY = ROOT / "build/mutated"
RESULTS = ROOT / "build/mutations.json"


def mutations() -> list[dict[str, str]]:
    return tomllib.loads(LIST.read_text())["mutation"]


def problem(mutation: dict[str, str]) -> str | None:
    """The reason why an entry is invalid, if it is."""
    file = ROOT / mutation["file"]
    if not file.exists():
        return f"{mutation['file']} does not exist"
    count = file.read_text().count(mutation["old"])
    if count != 1:
        return f"its text occurs {count} times in {mutation['file']}, where once is required"
    tests = mutation["tests"].split()
    if missing := [test for test in tests if not (ROOT / test.partition("::")[0]).exists()]:
        return f"missing tests: {' '.join(missing)}"
    return None


def copied() -> None:
    """Copies the checkout without build products, but with the bytecode, which stays valid."""
    shutil.rmtree(COPY, ignore_errors=True)
    ignored = shutil.ignore_patterns(".git", ".venv*", "build", "runs", ".*_cache")
    shutil.copytree(ROOT, COPY, ignore=ignored)


def caught(mutation: dict[str, str], tests: list[str], workers: int) -> tuple[bool, str]:
    """Whether a test fails with the mutation, and the last line of pytest's output."""
    file = COPY / mutation["file"]
    before = file.read_text()
    file.write_text(before.replace(mutation["old"], mutation["new"]))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    command += ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
    environment = {**os.environ, "PYTHONPATH": str(COPY), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True)
    finally:
        file.write_text(before)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = (lines or done.stdout.strip().splitlines() or [done.stderr[-200:]])[-1]
    return done.returncode not in (0, 5), last


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of mutations")
    parser.add_argument("--whole", action="store_true", help="run the whole everyday set for each")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    chosen = [m for m in mutations()
              if not options.names or any(n in m["name"] for n in options.names)]  # fmt: skip
    copied()
    results: dict[str, dict[str, object]] = {}
    for mutation in chosen:
        if reason := problem(mutation):
            results[mutation["name"]] = {"caught": False, "by": reason}
        else:
            tests = [] if options.whole else mutation["tests"].split()
            found, line = caught(mutation, tests, options.workers)
            results[mutation["name"]] = {"caught": found, "by": line}
        result = results[mutation["name"]]
        print(f"{'caught' if result['caught'] else 'MISSED'}  {mutation['name']}: {result['by']}",
              flush=True)  # fmt: skip
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(stored | results, indent=1))
    missed = [name for name, result in results.items() if not result["caught"]]
    print(f"{len(results) - len(missed)} of {len(results)} caught")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
