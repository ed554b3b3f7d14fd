"""The facts of two programs, compared cell by cell."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The largest number that is equal or better, as a factor of jax's and a constant.
EXACT, MEMORY, TIME = (1.0, 0), (1.01, 4096), (1.01, 0)

# Why a program is larger than jax's, by globs of its name and machine; the first one that matches.
REASONS = (
    (
        "gpt.dp2_tp4",
        "h100*",
        "XLA fuses the derivative of one head's softmax in another way; that of several is smaller",
    ),
    (
        "network.ring",
        "*",
        "which scores are the largest is stored as bool, not float32, so that 18 % less memory is "
        "needed: one more fusion fills that array, or reads it",
    ),
    ("attention.default", "tpu*", "a copy more and two fusions less"),
    ("split.max", "h100*", "devices compare integers, so that NaN is kept; one more kernel"),
    ("draws.gamma", "*", "another form of the rejection loop"),
    ("draws.beta", "*", "another form of the rejection loop, twice"),
    (
        "function.searchsorted",
        "tpu*",
        "the steps of the search are unrolled, which needs more VMEM",
    ),
    (
        "split.searchsorted",
        "*",
        "the sorted vector is gathered once; jax communicates in each step of the search",
    ),
    ("function.ndtri", "*", "another algorithm, with smaller errors in the tails"),
    ("function.associative_scan", "tpu*", "more fusions, in place of copies and slices"),
    (
        "*.cholesky",
        "tpu*",
        "one more check, which makes the factor NaN if the matrix is not positive definite",
    ),
    ("function.logsumexp", "tpu*", "selects for infinities, of the 64 results"),
    ("split.median", "*", "whether there is a NaN is reduced over devices as 128 flags, not one"),
    (
        "split.slices",
        "tpu*",
        "barriers against the partitioner's error shared-reshards; sends 4 bytes, jax 1028",
    ),
)


@dataclass(frozen=True)
class Cell:
    """Two values. text: shardwise's and jax's; status: better, equal or worse."""

    text: str
    status: str
    note: str = ""

    def as_json(self) -> dict[str, str]:
        return {k: v for k, v in asdict(self).items() if v}


CELLS = ("collectives", "sent", "synchronous", "fusions", "kernels", "copies", "calls", "temp", "peak", "time")  # fmt: skip


def cells(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a program; those that a compiler does not report are missing."""
    found = {"collectives": _collectives(ours["collectives"], theirs["collectives"])}
    a, b = ours["counts"], theirs["counts"]
    found["sent"] = _number(a["sent"], b["sent"], EXACT)
    found["synchronous"] = _number(_synchronous(ours), _synchronous(theirs), EXACT)
    for name in ("fusions", "kernels", "copies"):
        found[name] = _number(a[name], b[name], EXACT)
    found["calls"] = _calls(ours["calls"], theirs["calls"])
    for name in ("temp", "peak"):
        if name in ours["memory"] and name in theirs["memory"]:
            found[name] = _number(ours["memory"][name], theirs["memory"][name], MEMORY)
    first, second = ours["seconds"] or 0, theirs["seconds"] or 0
    # Negative: unknown, as of custom calls. One iteration counts, of other loops.
    if first > 0 and second > 0 and ours["loops"] == theirs["loops"]:
        found["time"] = _number(round(1e9 * first), round(1e9 * second), TIME)
    return found


def _synchronous(facts: Mapping[str, Any]) -> int:
    return sum(facts["collectives"].values()) - facts["counts"]["async"]


def _number(ours: int, theirs: int, limit: tuple[float, int]) -> Cell:
    factor, constant = limit
    worse = ours > factor * theirs + constant
    status = "worse" if worse else "better" if ours < theirs else "equal"
    return Cell(f"{_short(ours)}/{_short(theirs)}", status)


def _short(number: int) -> str:
    for scale, name in ((1_000_000, "M"), (10_000, "k")):
        if number >= scale:
            return f"{number / (1_000_000 if name == 'M' else 1000):.4g}{name}"
    return str(number)


def _collectives(ours: Mapping[str, int], theirs: Mapping[str, int]) -> Cell:
    """How many there are; the note lists those that occur a different number of times."""
    rows = [(k, ours.get(k, 0), theirs.get(k, 0)) for k in sorted({*ours, *theirs})]
    note = "; ".join(f"{k}: {a} for {b}" for k, a, b in rows if a != b)
    cell = _number(sum(ours.values()), sum(theirs.values()), EXACT)
    return Cell(cell.text, cell.status, note)


def _calls(ours: Mapping[str, int], theirs: Mapping[str, int]) -> Cell:
    """How many library calls there are. A call of another function may be better or worse."""
    rows = [(k, ours.get(k, 0), theirs.get(k, 0)) for k in sorted({*ours, *theirs})]
    note = "; ".join(f"{k}: {a} for {b}" for k, a, b in rows if a != b)
    return Cell(f"{sum(ours.values())}/{sum(theirs.values())}", "equal", note)


def reason(name: str, machine: str) -> str:
    """Why a program is larger than jax's, if that is known."""
    for names, machines, text in REASONS:
        if fnmatch.fnmatchcase(name, names) and fnmatch.fnmatchcase(machine, machines):
            return text
    return ""
