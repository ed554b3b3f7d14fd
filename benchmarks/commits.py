"""Two commits of this library on one machine: rows that became slower.

    python -m benchmarks commits HEAD~1                       # the working tree against a commit
    python -m benchmarks commits v0.9 HEAD --rows "jit.*,eager"
    python -m benchmarks commits HEAD~1 --by 0.1 --json build/commits.json

Each version runs in its own process, with the rows of this checkout; the two take turns, one sample
each, so that drift of the machine affects both equally. A row is listed if its median grew by more
than 5 %, or if it fails in one version only. Rows that start processes of their own are excluded.
This is a report: it ends with 0 whatever it finds.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.libs import Lib, prepare_environment
from benchmarks.rows import ROWS
from benchmarks.runner import (
    CLOCKS,
    QUICK,
    Contestant,
    Effort,
    Row,
    limited,
    paired_ratio,
    select,
    take_turns,
)

ROOT = Path(__file__).parent.parent
VERSION = "shardwise/_version.py"  # written when the package is built; not in the repository
BY = 0.05


@dataclass(frozen=True)
class Compared:
    """A row in both versions. Seconds or bytes; None if it failed.

    change: a fraction: the median over the rounds.
    """

    name: str
    old: float | None
    new: float | None
    change: float | None

    def lost(self, by: float) -> bool:
        """Whether the new version is slower by more than a fraction, or the only one to fail."""
        if self.change is None:
            return self.old is not None and self.new is None
        return self.change > by

    def __str__(self) -> str:
        values = ["failed" if v is None else f"{v:.3g}" for v in (self.old, self.new)]
        change = "" if self.change is None else f"{self.change:+.1%}"
        return f"  {self.name:<32} {values[0]:>9} → {values[1]:<9} {change}"


class Version:
    """A version of the library in a separate process, with the interface of `Contestant`."""

    def __init__(self, folder: Path, quick: bool):
        paths = os.pathsep.join([str(folder), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.commits", "--serve", *["--quick"] * quick],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.samples: list[float] = []
        self.error: str | None = None

    def prepare(self, row: Row) -> None:
        self.samples, self.error = [], None
        self._ask({"prepare": row.name})

    def sample(self) -> None:
        self.samples.append(self._ask({"sample": True}))

    def attempt(self, step: Any, *args: Any) -> None:
        if self.error is None:
            step(*args)

    @property
    def value(self) -> float | None:
        return None if self.error or not self.samples else statistics.median(self.samples)

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of a version ended: exit status {self.process.wait()}")
        answer = json.loads(line)
        self.error = answer.get("error")
        return answer.get("value", 0.0)

    def close(self) -> None:
        self.process.communicate()


def serve(effort: Effort) -> None:
    """A child: prepares rows and measures samples, as requested on its standard input."""
    answers = os.fdopen(os.dup(1), "w")  # what libraries print goes to the standard error
    os.dup2(2, 1)
    prepare_environment()
    lib, rows = Lib("shardwise", itertools.count(1000)), {row.name: row for row in ROWS}
    contestant: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        if name := request.get("prepare"):
            contestant = Contestant(rows[name], lib, CLOCKS[rows[name].clock])
            contestant.attempt(contestant.prepare, effort.batch)
        else:
            contestant.attempt(contestant.sample)
        answer = {"error": contestant.error, "value": (contestant.samples or [0.0])[-1]}
        print(json.dumps(answer), file=answers, flush=True)


def compare(old: Path, new: Path, rows: Sequence[Row], quick: bool = False) -> Iterator[Compared]:
    """The rows in two versions, folders that contain the package `shardwise`."""
    effort = QUICK if quick else Effort()
    with ExitStack() as stack:
        both = [Version(folder, quick) for folder in (old, new)]
        for version in both:
            stack.callback(version.close)
        for row in rows:
            for version in both:
                version.prepare(row)
            take_turns(both, limited(effort, row), CLOCKS["wall"])
            values = both[0].value, both[1].value
            ratio = paired_ratio(values, (both[0].samples, both[1].samples))
            yield Compared(row.name, *values, None if ratio is None else ratio - 1)


@contextmanager
def checked_out(commit: str | None) -> Iterator[Path]:
    """A folder with the package as it is in a commit; None: the working tree."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as made:
        folder = Path(made)
        if commit is None:
            os.symlink(ROOT / "shardwise", folder / "shardwise")
        else:
            line = ["git", "archive", commit, "shardwise"]
            packed = subprocess.run(line, cwd=ROOT, check=True, capture_output=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as files:
                files.extractall(folder, filter="data")
            shutil.copy(ROOT / VERSION, folder / VERSION)
        yield folder


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks commits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", metavar="OLD", help="a commit")
    parser.add_argument("new", metavar="NEW", nargs="?", help="a commit; default: the working tree")
    parser.add_argument("--rows", default="*", metavar="PATTERN", help="as for `benchmarks`")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--by", type=float, default=BY, metavar="FRACTION", help="the least loss")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all rows here")
    options = parser.parse_args(arguments)
    rows = [row for row in select(options.rows, ROWS) if row.kind != "value"]
    found: list[Compared] = []
    with checked_out(options.old) as old, checked_out(options.new) as new:
        for row in compare(old, new, rows, options.quick):
            found.append(row)
            print(row, flush=True)
    lost = sorted((r for r in found if r.lost(options.by)), key=lambda r: -(r.change or 1e9))
    print(f"{len(lost)} of {len(found)} rows lost over {options.by:.0%}:")
    print("\n".join(map(str, lost)) or "  none")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    serve(QUICK if "--quick" in sys.argv else Effort())
