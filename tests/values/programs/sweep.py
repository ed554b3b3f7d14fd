"""Runs and counts many programs in order; reduces and prints the failing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

import shardwise as sw
from tests.values.programs.placements import allowed, placements, script
from tests.values.programs.shrink import shrunk
from tests.values.programs.table import program as of_seed
from tests.values.programs.worker import Answer, Task, Worker


@dataclass
class Report:
    programs: int = 0
    shardings: int = 0
    refused: int = 0
    deaths: int = 0
    failures: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """The counts, human-readable."""
        return {
            "programs": self.programs, "shardings": self.shardings,
            "lines refused in explicit mode": self.refused, "deaths": self.deaths,
            "failures": len(self.failures),
        }  # fmt: skip

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counts().items())


def sweep(
    seeds: Iterable[int],
    places: int = 3,
    *,
    shrink: float = 0,
    tell: Callable[[str], object] = lambda text: None,
) -> Report:
    """Runs the programs of these seeds; the report has a text for each that failed.

    shrink: the number of seconds to reduce each of these.
    """
    report = Report()
    with Worker() as worker:
        for seed in seeds:
            answer = worker.ask(Task(seed, places))
            report.programs += 1
            report.shardings += answer.ran
            report.refused += answer.refused
            report.deaths += bool(answer.died)
            if report.programs % 50 == 0:
                tell(f"… {report}")
            if answer.faults:
                report.failures.append(_text(worker, seed, places, answer, shrink))
                tell(report.failures[-1])
    return report


def _text(worker: Worker, seed: int, places: int, answer: Answer, shrink: float) -> str:
    at, wrong = answer.faults[0]
    head = f"seed {seed}, place {at}: {wrong}"
    if not shrink:
        return head
    program = of_seed(seed)
    if at < 0:
        return f"{head}\n{script(program, None)}"
    place = placements(program, seed, ranks(seed), places)[at]
    small, place, wrong = shrunk(worker, allowed(program, place), place, wrong, shrink)
    return f"{head}\ncut down: {wrong}\n{script(small, place)}\n"


def ranks(seed: int) -> tuple[int, ...]:
    """Facts about the results of a program, derived without running it."""
    program = of_seed(seed)
    types = [sw.ShapeDtypeStruct(np.shape(v), v.dtype) for v in program.inputs.values()]
    return tuple(len(t.shape) for t in sw.eval_shape(program.function(), *types))


def show(seed: int, place: int = 0, places: int = 3) -> str:
    program = of_seed(seed)
    return script(program, placements(program, seed, ranks(seed), places)[place])
