"""Sweeps: runs all cases of all tests, in shards that are recorded per commit.

        python -m tools.sweep run                        all missing shards of the commit, in order
    python -m tools.sweep run --shard 3/16           one shard
    python -m tools.sweep run --only tests/saving    all cases of a folder or file
        python -m tools.sweep changed --seconds 900      cases affected by the last commits
        python -m tools.sweep report                     coverage of the current commit
    python -m tools.sweep durations                  stores costs in tests/durations.json

A run appends a line to build/sweep.jsonl when a shard is complete: commit, counts, failures, CPU
and wall seconds, and the counts per folder. Results of individual tests are appended to a journal
in build/sweep/; an interrupted run resumes after them. With uncommitted changes, the commit has a
`+` suffix, and nothing is skipped.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.helpers.costs import folder
from tests.helpers.shards import DURATIONS, UNKNOWN, function
from tests.sweeps import covered_by

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "build/sweep.jsonl"
JOURNALS = ROOT / "build/sweep"
SHARDS = 64  # if the number is not specified
LAST_COMMITS = 10
NOTHING_RAN = 5  # pytest's exit status


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit() -> str:
    """The current commit, with a `+` suffix if files differ from it."""
    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")


def records() -> list[dict[str, Any]]:
    """The lines of build/sweep.jsonl, oldest first."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


# ---- running -------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Runs one shard, or each shard that the records of this commit lack."""
    if options.shard or options.only:
        return sweep(options.workers, options.shard, options.only)
    at = commit()
    done = {r["shard"] for r in records() if r["commit"] == at and not r["only"]}
    statuses = []
    for number in range(1, SHARDS + 1):
        shard = f"{number}/{SHARDS}"
        if shard in done:
            print(f"shard {shard} is recorded for {at[:9]}: skipped", flush=True)
        else:
            statuses.append(sweep(options.workers, shard, None))
    return max(statuses, default=0)


def sweep(workers: int, shard: str | None, only: str | None, more: tuple[str, ...] = ()) -> int:
    """Runs a shard to its end, records it, and returns pytest's status."""
    at, begun = commit(), time.time()
    part = "-".join(filter(None, [only, shard])).replace("/", ".") if not more else "changed"
    journal = JOURNALS / f"{at}-{part}.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    if at.endswith("+") or more:
        journal.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "worksteal"]
    command += ["--sweep", "--journal", str(journal), *more]
    command += [f"--shard={shard}"] if shard else []
    command += only.split() if only else []
    status = subprocess.run(command, cwd=ROOT).returncode
    if status not in (0, 1, NOTHING_RAN):
        print(f"stopped; the same command goes on behind the results in {journal}", file=sys.stderr)
        return status
    record(at, shard, only, time.time() - begun, journal)
    return 0 if status == NOTHING_RAN else status


def record(at: str, shard: str | None, only: str | None, seconds: float, journal: Path) -> None:
    lines = journal.read_text().splitlines() if journal.exists() else []
    results = [json.loads(line) for line in lines]
    counts: dict[str, int] = defaultdict(int)
    folders: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for result in results:
        counts[result["outcome"]] += 1
        sums = folders[folder(result["test"])]
        sums[0] += 1
        sums[1] += result["outcome"] == "failed"
        sums[2] = round(sums[2] + result["cpu"], 2)
    line = {
        "commit": at, "shard": shard, "only": only, "count": len(results),
        "passed": counts["passed"], "failed": counts["failed"], "skipped": counts["skipped"],
        "failures": [r["test"] for r in results if r["outcome"] == "failed"],
        "cpu_seconds": round(sum(r["cpu"] for r in results), 1), "wall_seconds": round(seconds, 1),
        "python": platform.python_version(), "jaxlib": version("jaxlib"),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "folders": folders,
    }  # fmt: skip
    with RECORDS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"recorded in {RECORDS.relative_to(ROOT)}: " + describe(line), flush=True)


def describe(line: dict[str, Any]) -> str:
    part = " ".join(filter(None, [line["only"], line["shard"] and f"shard {line['shard']}"]))
    return (
        f"{part or 'everything'} at {line['commit'][:9]}: {line['passed']} passed, "
        f"{line['failed']} failed, {line['skipped']} skipped, {line['cpu_seconds']} s of CPU"
    )


def changed(options: argparse.Namespace) -> int:
    """Sweeps cases that cover the files of the last commits, up to `--seconds` of CPU.

    The selection only depends on the commit and the stored durations.
    """
    last = git("rev-list", f"--max-count={LAST_COMMITS + 1}", "--first-parent", "HEAD").split()
    files = git("diff", "--name-only", last[-1], "HEAD").splitlines()
    tests = covered_by(files)
    print(f"the last {len(last) - 1} commits changed: {' '.join(tests) or 'nothing'}", flush=True)
    if not tests:
        return 0
    choice = (f"--seconds={options.seconds}", f"--of={git('rev-parse', 'HEAD')}")
    return sweep(options.workers, None, " ".join(tests), choice)


# ---- reading -------------------------------------------------------------------------------------


def report(options: argparse.Namespace) -> int:
    """Prints, for each folder of tests, the last complete sweep and its failures."""
    head = git("rev-parse", "HEAD")
    found = records()
    for line in found:
        if line["commit"] == head:
            print(describe(line))
            for name in line["failures"]:
                print(f"  failed: {name}")
    history = git("rev-list", "--first-parent", "HEAD").split()
    folders = sorted({f for line in found for f in line["folders"]})
    print(f"\n{'tests':28}{'swept whole at':16}{'cases':>7}{'failed':>8}{'CPU s':>9}")
    for name in folders:
        whole = newest(name, found, history)
        if whole is None:
            print(f"{name:28}in part")
        else:
            at, (count, failed, cpu) = whole
            behind = history.index(at)
            where = "HEAD" if not behind else f"HEAD~{behind}"
            print(f"{name:28}{where:16}{count:7}{failed:8}{cpu:9.0f}{_since(name, at, behind)}")
    if not folders:
        print("nothing is recorded")
    return 0


def newest(name: str, found: list[dict[str, Any]], history: list[str]) -> Any:
    """(commit, [cases, failed, CPU seconds]) of the last complete sweep of a folder."""
    for at in history:
        lines = [line for line in found if line["commit"] == at and name in line["folders"]]
        for line in reversed(lines):
            if line["shard"] is None and line["only"] in (None, name):
                return at, line["folders"][name]
        parts = {r["shard"]: r for r in found if r["commit"] == at and not r["only"]}
        for count in {int(shard.partition("/")[2]) for shard in parts if shard}:
            of = [parts.get(f"{k}/{count}") for k in range(1, count + 1)]
            if all(of):
                each = [line["folders"].get(name, (0, 0, 0)) for line in of if line]
                return at, [sum(column) for column in zip(*each, strict=True)]
    return None


def _since(name: str, at: str, behind: int) -> str:
    """The changes since a sweep of this folder."""
    if not behind:
        return ""
    files = git("diff", "--name-only", at, "HEAD").splitlines()
    touched = [file for file in files if name in covered_by([file])]
    return f"   {len(touched)} files changed since" if touched else "   unchanged since"


def durations(options: argparse.Namespace) -> int:
    """Stores the mean cost of the cases of each test, from all journals and build/costs.json."""
    costs: dict[str, list[float]] = defaultdict(list)
    everyday = ROOT / "build/costs.json"
    if everyday.exists():
        for name, cost in json.loads(everyday.read_text()).items():
            costs[function(name)].append(cost)
    for journal in JOURNALS.glob("*.jsonl"):
        for line in journal.read_text().splitlines():
            result = json.loads(line)
            costs[function(result["test"])].append(result["cpu"])
    stored = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    stored |= {name: round(sum(each) / len(each), 2) for name, each in costs.items()}
    stored = {name: cost for name, cost in stored.items() if cost > UNKNOWN}
    DURATIONS.write_text(json.dumps(stored, indent=0, sort_keys=True) + "\n")
    print(f"{len(stored)} tests cost more than {UNKNOWN} s of CPU a case")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    commands = parser.add_subparsers(required=True)
    for command in (run, changed, report, durations):
        summary = (command.__doc__ or "").partition("\n")[0]
        each = commands.add_parser(command.__name__, help=summary)
        each.set_defaults(command=command)
        if command in (run, changed):
            each.add_argument("--workers", default="2", help="processes that run tests")
        if command is run:
            each.add_argument("--shard", metavar="K/N")
            each.add_argument("--only", metavar="TESTS", help="a folder or file of tests")
        if command is changed:
            each.add_argument("--seconds", type=float, default=200, help="of CPU, as stored")
    options = parser.parse_args()
    return options.command(options)


if __name__ == "__main__":
    sys.exit(main())
