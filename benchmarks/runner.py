"""Rows, and how they are timed.

A `Row` holds a `setup` function that takes a `Lib` and returns a callable. What the runner does
with the callable depends on the row's kind:

- repeat: call it many times in a batch; the sample is the time of the batch per call.
- fresh:  call it, untimed, for a thunk; the sample is the time of that thunk, called once.
          The thunk blocks on its own results. For work that caches would hide.
- value:  the callable measures by itself and returns the sample (child processes, bytes).

The two libraries alternate, one sample each per round, and every round swaps the order, so that
drift of the machine affects both equally. The report has each library's median, and the median of the
ratios of all rounds: a machine may run at half its speed for some of them.
"""

from __future__ import annotations

import fnmatch
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.libs import Lib

Clock = Callable[[], float]
Fresh = Callable[[], Callable[[], Any]]  # what the setup of a fresh row returns
CLOCKS: Mapping[str, Clock] = {
    "cpu": time.process_time,  # front-end work: excludes other processes
    "thread": time.thread_time,  # of the calling thread alone
    "wall": time.perf_counter,  # device work, which includes waiting
}


@dataclass(frozen=True)
class Case:
    """A setup may return this instead of a callable: facts that must be equal for both libraries."""

    call: Callable[[], Any]
    facts: Mapping[str, int]


@dataclass(frozen=True)
class Row:
    """One line of the report.

    Attributes:
      name: `group.what`, for `--rows`.
      goal: the largest ratio, second library over first, that counts as ok.
      setup: takes a Lib, does everything untimed, returns a callable or a Case.
      kind: what the callable does; see the module's docstring.
      clock: "cpu", "thread" or "wall"; child processes report the clock they used.
      per: operations per call; values are divided by it.
      unit: "s" or "B".
      rounds: upper bound on the rounds, for slow rows.
      blocked: whether `repeat` blocks on the results of each call, not only of the last.
    """

    name: str
    goal: float
    setup: Callable[[Lib], Callable[[], Any] | Case]
    kind: Literal["repeat", "fresh", "value"] = "repeat"
    clock: Literal["cpu", "thread", "wall"] = "cpu"
    per: int = 1
    unit: Literal["s", "B"] = "s"
    rounds: int | None = None
    blocked: bool = False


@dataclass(frozen=True)
class Effort:
    """How long to measure: `rounds`, fewer (but `least`) when `budget` seconds run out."""

    rounds: int = 150
    batch: float = 0.01
    budget: float = 6.0
    least: int = 3


QUICK = Effort(rounds=40, batch=0.003, budget=1.0)


@dataclass(frozen=True)
class Result:
    """The result of a row: a median per library (None if it failed) and their comparison."""

    name: str
    goal: float
    unit: str
    values: tuple[float | None, float | None]
    errors: tuple[str | None, str | None] = (None, None)
    note: str = ""
    samples: tuple[Sequence[float], Sequence[float]] = field(default=((), ()), repr=False)

    @property
    def ratio(self) -> float | None:
        return paired_ratio(self.values, self.samples)

    @property
    def status(self) -> str:
        """ok, over (too slow), differs (facts disagree) or error."""
        if self.ratio is None:
            return "error"
        if self.note:
            return "differs"
        return "ok" if self.ratio <= self.goal else "over"


def paired_ratio(
    values: tuple[float | None, float | None],
    samples: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> float | None:
    """The median of second / first over the rounds; of the values, without samples of rounds."""
    first, second = values
    if not first or second is None:
        return None
    ratios = [b / a for a, b in zip(*samples, strict=True) if a]
    return statistics.median(ratios) if ratios else second / first


class Contestant:
    """One library in one row: set up once, sampled many times, silent after its first error."""

    def __init__(self, row: Row, lib: Lib, clock: Clock):
        self.row, self.lib, self.clock = row, lib, clock
        self.call: Callable[[], Any] | None = None
        self.facts: Mapping[str, int] = {}
        self.calls = 1
        self.samples: list[float] = []
        self.error: str | None = None

    def attempt(self, step: Callable[..., None], *args: Any) -> None:
        if self.error is not None:
            return
        try:
            step(*args)
        except Exception as error:  # every error of a library is shown in its cell
            self.error = first_line(error)

    def prepare(self, batch: float) -> None:
        """Sets the row up, warms it up, and determines the number of calls per batch."""
        case = self.row.setup(self.lib)
        if isinstance(case, Case):
            self.call, self.facts = case.call, case.facts
        else:
            self.call = case
        if self.row.kind == "value":
            return  # each sample is a separate process: nothing to warm up
        self.measure()
        if self.row.kind == "fresh":
            return
        spent = self.measure() * self.row.per
        while spent < batch and self.calls < 1 << 20:
            grow = 2 if spent <= 0 else min(10.0, max(1.3, batch / spent))
            self.calls = int(self.calls * grow) + 1
            spent = self.measure() * self.row.per * self.calls

    def measure(self) -> float:
        call, clock, per = self.call, self.clock, self.row.per
        assert call is not None
        if self.row.kind == "value":
            return call() / per
        if self.row.kind == "fresh":
            thunk = call()
            start = clock()
            thunk()
            return (clock() - start) / per
        block = self.lib.root.block_until_ready
        calls = range(self.calls)
        out = None
        start = clock()
        if self.row.blocked:
            for _ in calls:
                block(call())
        else:
            for _ in calls:
                out = call()
            block(out)
        return (clock() - start) / (self.calls * per)

    def sample(self) -> None:
        self.samples.append(self.measure())

    @property
    def value(self) -> float | None:
        return None if self.error or not self.samples else statistics.median(self.samples)


def select(patterns: str, rows: Sequence[Row]) -> list[Row]:
    """Rows whose name matches one of the globs; a bare group name selects the group."""
    globs = [glob.strip() for glob in patterns.split(",")]
    globs += [f"{glob}.*" for glob in globs]
    return [row for row in rows if any(fnmatch.fnmatchcase(row.name, g) for g in globs)]


def run_row(
    row: Row, pair: tuple[Lib, Lib], effort: Effort, clocks: Mapping[str, Clock] = CLOCKS
) -> Result:
    """Measures one row for both libraries, alternately."""
    both = tuple(Contestant(row, lib, clocks[row.clock]) for lib in pair)
    for contestant in both:
        contestant.attempt(contestant.prepare, effort.batch)
    gc.collect()
    gc.freeze()  # otherwise each library pays for collections that traverse the other's objects
    try:
        take_turns(both, limited(effort, row), clocks["wall"])
    finally:
        gc.unfreeze()
    first, second = both
    return Result(
        name=row.name,
        goal=row.goal,
        unit=row.unit,
        values=(first.value, second.value),
        errors=(first.error, second.error),
        note=compare_facts(first, second),
        samples=(tuple(first.samples), tuple(second.samples)),
    )


def limited(effort: Effort, row: Row) -> Effort:
    return replace(effort, rounds=min(effort.rounds, row.rounds or effort.rounds))


def take_turns(both: Sequence[Any], effort: Effort, clock: Clock) -> None:
    """One sample each per round, in alternating order; the clock measures the budget."""
    began = clock()
    for number in range(effort.rounds):
        for contestant in both if number % 2 == 0 else reversed(both):
            contestant.attempt(contestant.sample)
        if number + 1 >= effort.least and clock() - began > effort.budget:
            return


def compare_facts(first: Contestant, second: Contestant) -> str:
    """Empty if the facts agree (or one side failed), otherwise the differences."""
    if first.error or second.error or first.facts == second.facts:
        return ""
    keys = sorted(set(first.facts) | set(second.facts))
    counts = ((key, first.facts.get(key, 0), second.facts.get(key, 0)) for key in keys)
    return "; ".join(f"{key}: {a} against {b}" for key, a, b in counts if a != b)


def first_line(error: BaseException) -> str:
    """`TypeError: its message`, without the following lines."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
