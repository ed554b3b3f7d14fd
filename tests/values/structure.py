"""Programs under shardings, in child processes: values must match those on one device.

    report = sweep(PAD.cases)
    assert not report.faults, report.text()

A failed check in XLA ends its process, and some programs crash it. So a child (`structure_child`)
runs the cases, many of one mesh in a module, and reports its progress. If it dies or hangs, the
cases of that module run again, each in a separate child, and those that die are named.

    python -m tests.values.structure pad reshape       # full families, with counts
    python -m tests.values.structure pad --library jax     # is it XLA's, or ours?
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.helpers.flags import xla_flags

ROOT = Path(__file__).resolve().parents[2]
PER_MODULE = 24  # programs: each compilation has an overhead, and a failed module is retried
ZEROS = "zeros"  # the "fault" of a case in which only signs of zeros are lost
SECONDS = 90  # that a child may take without output


@dataclasses.dataclass(frozen=True)
class Input:
    """An argument: what it holds (`structure_child.array`), and how it is split: `x,-`."""

    shape: tuple[int, ...]
    spec: str = ""
    dtype: str = "float32"
    holds: str = "special"

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{self.dtype}[{dims}] {self.holds} at ({self.spec})"


@dataclasses.dataclass(frozen=True)
class Case:
    """A program of `a`, `b`, …, as Python text, over a mesh.

    out: the spec of its results (`;` between those of several), or "?": as the partitioner likes.
    wanted: the same with NumPy, if NumPy has it.
    close: relative tolerance; without one, results are equal (all NaN are one, and both zeros).
    """

    program: str
    inputs: tuple[Input, ...]
    mesh: tuple[int, ...]
    out: str = "?"
    wanted: str = ""
    close: float = 0.0

    def __str__(self) -> str:
        args = "; ".join(f"{n} = {i}" for n, i in zip("abcdefgh", self.inputs, strict=False))
        return f"{self.program} for {args} over {self.mesh} to ({self.out})"

    @property
    def unsharded(self) -> Case:
        bare = tuple(dataclasses.replace(i, spec="") for i in self.inputs)
        return dataclasses.replace(self, inputs=bare, mesh=(1,), out="?")

    @staticmethod
    def read(fields: dict) -> Case:
        inputs = [
            Input(tuple(i["shape"]), i["spec"], i["dtype"], i["holds"]) for i in fields["inputs"]
        ]
        return Case(**{**fields, "inputs": tuple(inputs), "mesh": tuple(fields["mesh"])})


@dataclasses.dataclass
class Report:
    """The outcome of a sweep; `faults` are texts: what happened, and in which case."""

    cases: int = 0
    shardings: int = 0
    modules: int = 0
    zeros: int = 0  # cases in which signs of zeros are lost: docs/values.md
    faults: list[str] = dataclasses.field(default_factory=list)
    kinds: Counter = dataclasses.field(default_factory=Counter)

    def text(self, most: int = 20) -> str:
        more = [f"… and {len(self.faults) - most} more"] if len(self.faults) > most else []
        counts = ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common())
        zeros = f", zeros in {self.zeros}" if self.zeros else ""
        head = (
            f"{self.cases} cases, {self.shardings} shardings, {self.modules} modules{zeros}: "
            f"{counts or 'all right'}"
        )
        return "\n".join([head, *self.faults[:most], *more])

    def add(self, kind: str, text: str) -> None:
        if kind == ZEROS:
            self.zeros += 1
            return
        self.kinds[kind] += 1
        self.faults.append(f"{kind}: {text}")


def sweep(cases: Sequence[Case], library: str = "shardwise") -> Report:
    """Runs all cases in children. Groups go by mesh, and keep the order of the cases."""
    layouts = {(c.mesh, tuple(i.spec for i in c.inputs), c.out) for c in cases}
    groups = list(_groups(cases))
    report = Report(len(cases), len(layouts), len(groups))
    alone: list[list[Case]] = []
    for group, told in _run(groups, library, report):
        if told is None:
            if len(group) == 1:
                continue
            alone += [[case] for case in group]
        else:
            for kind, text in told:
                report.add(kind, text)
    for _group, told in _run(alone, library, report, deaths=True):
        for kind, text in told or []:
            report.add(kind, text)
    return report


def _groups(cases: Iterable[Case]) -> Iterator[list[Case]]:
    by_mesh: dict[tuple[int, ...], list[Case]] = {}
    for case in cases:
        group = by_mesh.setdefault(case.mesh, [])
        group.append(case)
        if len(group) == PER_MODULE:
            yield by_mesh.pop(case.mesh)
    yield from by_mesh.values()


def _run(
    groups: list[list[Case]], library: str, report: Report, deaths: bool = False
) -> Iterator[tuple[list[Case], list[tuple[str, str]] | None]]:
    """Each group with the child's answer; None if the child died.

    A child that died is followed by one that begins at the next group.
    """
    first = 0
    while first < len(groups):
        answers, ending = _child(groups[first:], library)
        yield from zip(groups[first:], answers, strict=False)
        first += len(answers)
        if first < len(groups):
            dead = groups[first]
            if deaths or len(dead) == 1:
                report.add("death", f"{dead[0]}\n  {ending}")
            yield dead, None
            first += 1


def _child(groups: list[list[Case]], library: str) -> tuple[list[list[tuple[str, str]]], str]:
    """The answers of a child, one for each group that it ended, and how it ended itself."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "SHARDWISE_ENABLE_COMPILATION_CACHE": "0",
        "XLA_FLAGS": xla_flags(8, "--xla_backend_optimization_level=0"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    with (
        tempfile.TemporaryFile("w+") as asked,
        tempfile.TemporaryFile("w+") as answers,
        tempfile.TemporaryFile("w+") as errors,
    ):
        json.dump([[dataclasses.asdict(c) for c in group] for group in groups], asked)
        asked.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.values.structure_child", library],
            cwd=ROOT,
            env=environment,
            stdin=asked,
            stdout=answers,
            stderr=errors,
            text=True,
        )
        ending = _ending(child, answers.fileno())
        for file in (answers, errors):
            file.seek(0)
        found = [[tuple(f) for f in json.loads(line)] for line in answers if line.endswith("\n")]
        last = [line.strip() for line in errors if line.strip()]
        checks = [line for line in last if "Check failed" in line] or last[-1:]
        return found, " ".join([ending, *checks])


def _ending(child: subprocess.Popen, answers: int) -> str:
    """Waits for a child as long as it produces output."""
    said, deadline = 0, time.monotonic() + SECONDS
    while True:
        try:
            return f"ended with {child.wait(timeout=5)}"
        except subprocess.TimeoutExpired:
            size, now = os.fstat(answers).st_size, time.monotonic()
            if size > said:
                said, deadline = size, now + SECONDS
            elif now > deadline:
                child.kill()
                child.wait()
                return f"said nothing for {SECONDS} seconds"


def main() -> None:
    import argparse

    from tests.values.structure_families import FAMILIES, MOST, cases_of

    parser = argparse.ArgumentParser(prog="python -m tests.values.structure")
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES])
    parser.add_argument("--library", default="shardwise")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--all", action="store_true", help="not only what tests take")
    parser.add_argument("--most", type=int, default=10, help="faults that are shown")
    parser.add_argument("--only", default="", help="programs that contain this text")
    options = parser.parse_args()
    for name in options.families or FAMILIES:
        cases = [c for c in cases_of(name, None if options.all else MOST) if options.only in str(c)]
        cases = cases[: round(len(cases) * options.share)]
        before, start = os.times(), time.perf_counter()
        report = sweep(cases, options.library)
        cost = sum(os.times()[:4]) - sum(before[:4])
        print(
            f"{name}: {cost:.0f} s of CPU, {time.perf_counter() - start:.0f} s:",
            report.text(options.most),
            flush=True,
        )


if __name__ == "__main__":
    main()
