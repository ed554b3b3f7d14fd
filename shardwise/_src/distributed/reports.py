"""How processes of a launch ended, and which of them the others ended because of."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardwise._src.distributed.watch import EXIT_STATUS

_CRASHES = (  # signals that a process gives itself
    signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP,
)
SHOWN = 20  # last lines of a process that wrote no traceback
_TRACEBACK = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FAILURE = "ProcessFailureError: "
_NAMED = re.compile(r"process (\d+) \(host ")


@dataclass(frozen=True)
class Report:
    """A process that failed.

    rank:   -1 for a launcher that is gone. status: what the launcher ends with because of it.
    named:  the processes that it says are lost, or why it cannot go on.
    second: whether it failed because of another one, or at least after it.
    lost:   whether it was killed from outside, and did not crash by itself.
    tail:   the last lines of its errors.
    """

    rank: int
    about: str
    how: str
    status: int
    second: bool = False
    named: tuple[int, ...] = ()
    tail: tuple[str, ...] = ()
    lost: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Report:
        named, tail = tuple(map(int, facts["named"])), tuple(map(str, facts["tail"]))
        return cls(
            int(facts["rank"]), str(facts["about"]), str(facts["how"]), int(facts["status"]),
            bool(facts["second"]), named, tail, bool(facts["lost"]),
        )


def report(rank: int, about: str, returncode: int, errors: Sequence[bytes]) -> Report:
    """What is to be said of a process that ended with a status other than 0.

    returncode: as `subprocess` gives it. errors: the last lines of its standard error.
    """
    lines = [line.decode(errors="replace").rstrip("\n")[:2000] for line in errors]
    said = [line for line in lines if _FAILURE in line or line.startswith("shardwise: ")]
    told = [line for line in said if not line.startswith("shardwise: waiting ")]
    named = {int(n) for line in told for n in _NAMED.findall(line)} - {rank}
    second = bool(named) or returncode == EXIT_STATUS
    second = second or any(_FAILURE in line for line in lines[-3:])
    status = returncode if returncode >= 0 else 128 - returncode
    return Report(
        rank, about, ending(returncode), status, second, tuple(sorted(named)),
        tuple(last_words(lines)), not second and _is_from_outside(returncode),
    )


def _is_from_outside(returncode: int) -> bool:
    """Whether a process was killed by a signal, other than those of its own crashes."""
    return returncode < 0 and -returncode not in _CRASHES


def ending(returncode: int) -> str:
    if returncode >= 0:
        return f"failed with exit status {returncode}"
    name = signal_name(-returncode)
    hint = " (the kernel does so when memory is short)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(lines: Sequence[str]) -> list[str]:
    """The last traceback with those that led to it, and what follows; or the last lines."""
    begins = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if not begins:
        return list(lines[-SHOWN:])
    begin = begins.pop()
    while begins and any(line.strip() in _CHAIN for line in lines[begins[-1] : begin]):
        begin = begins.pop()
    return list(lines[begin:])


def first(reports: Sequence[Report]) -> Report:
    """The one that failed by itself, of those in the order in which they ended.

    If all say that it is because of another, it is one that they name, or the first of them.
    """
    own = [r for r in reports if not r.second]
    named = [r for r in reports if any(r.rank in other.named for other in reports)]
    return (own or named or list(reports))[0]


def verdict(reports: Sequence[Report]) -> tuple[int, str]:
    """What a launch ends with, and what it says last."""
    worst = first(reports)
    failed = {r.rank for r in reports}
    because = [n for n in worst.named if n not in failed]
    names = ""
    if because:
        word = "process" if len(because) == 1 else "processes"
        names = f", because of {word} {', '.join(map(str, because))}"
    head = f"{worst.about} {worst.how}{names}"
    if not worst.tail:
        return worst.status, f"{head}. It wrote no error."
    words = "\n".join([f"[{worst.rank}] {line}".rstrip() for line in worst.tail])
    return worst.status, f"{head}. The last that it wrote:\n{words}"
