"""How the processes of a launch ended, and which of them caused the others to end."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from shardwise._src.distributed.watch import EXIT_STATUS

_CRASHES = (  # signals that a process causes itself
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGTRAP,
)
SHOWN = 20  # last lines of a process that wrote no traceback
_TRACEBACK = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FAILURE = "ProcessFailureError: "
_NAMED = re.compile(r"process (\d+) \(host ")


class Report(NamedTuple):
    """A process that failed.

    rank:   -1 for a launcher that is gone. status: the exit status of the launcher in that case.
    named:  the processes that it reports as lost, or as the cause of its failure.
    second: whether it failed because of another process, or at least after it.
    lost:   whether it was killed externally, and did not crash by itself or end after another one.
    tail:   the last lines of its standard error.
    """

    rank: int
    about: str
    how: str
    status: int
    second: bool = False
    named: tuple[int, ...] = ()
    tail: tuple[str, ...] = ()
    lost: bool = False

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Report:
        named, tail = tuple(map(int, facts["named"])), tuple(map(str, facts["tail"]))
        rank, status = int(facts["rank"]), int(facts["status"])
        about, how = str(facts["about"]), str(facts["how"])
        second, lost = bool(facts["second"]), bool(facts["lost"])
        return cls(rank, about, how, status, second, named, tail, lost)


def report(rank: int, about: str, returncode: int, errors: Sequence[bytes]) -> Report:
    """The report on a process that ended with a status other than 0.

    returncode: that of `subprocess`. errors: the last lines of its standard error.
    """
    lines = [line.decode(errors="replace").rstrip("\n")[:2000] for line in errors]
    said = [line for line in lines if _FAILURE in line or line.startswith("shardwise: ")]
    told = [line for line in said if not line.startswith("shardwise: waiting ")]
    named = {int(n) for line in told for n in _NAMED.findall(line)} - {rank}
    second = bool(named) or returncode == EXIT_STATUS
    second = second or any(_FAILURE in line for line in lines[-3:])
    status = returncode if returncode >= 0 else 128 - returncode
    from_outside = returncode < 0 and -returncode not in _CRASHES
    is_killed = -returncode == signal.SIGKILL  # maybe after it noticed the loss of another one
    lost, tail = from_outside and (not second or is_killed), tuple(last_words(lines))
    how, others = ending(returncode), tuple(sorted(named))
    return Report(rank, about, how, status, second, others, tail, lost)


def ending(returncode: int) -> str:
    if returncode >= 0:
        return f"failed with exit status {returncode}"
    name = signal_name(-returncode)
    hint = " (the kernel does this when memory runs out)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(lines: Sequence[str]) -> list[str]:
    """The last traceback with its causes, and the lines after it; without one, the last lines."""
    begins = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if not begins:
        return list(lines[-SHOWN:])
    begin = begins.pop()
    while begins and any(line.strip() in _CHAIN for line in lines[begins[-1] : begin]):
        begin = begins.pop()
    return list(lines[begin:])


def without_messages(lines: Sequence[str]) -> list[str]:
    """The last lines, with each long exception message reduced to its first line."""
    found: list[str] = []
    more: list[str] = []  # of the message
    part = ""  # of a traceback: "frames", then "message"

    def end() -> None:
        count = len("\n".join(more).rstrip().splitlines())
        if count > 1:
            more[:count] = [f"  ({count} more lines above)"]
        found.extend(more)
        more.clear()

    for line in lines:
        if _TRACEBACK in line or line.strip() in _CHAIN or line.startswith("shardwise: "):
            part = "frames" if _TRACEBACK in line else ""
            end()
        if part == "message":
            more.append(line)
        else:
            found.append(line)
        if part == "frames" and line.strip() and not line[0].isspace() and _TRACEBACK not in line:
            part = "message"
    end()
    return found


def first(reports: Sequence[Report]) -> Report:
    """The first process that failed by itself; reports are in the order in which they ended.

    If all failed because of another one, it is one that they name, or else the first of them.
    """
    own = [r for r in reports if not r.second]
    named = [r for r in reports if any(r.rank in other.named for other in reports)]
    return (own or named or list(reports))[0]


class Verdict(NamedTuple):
    """The result of a launch.

    text: its last message. brief: the same, for when the process's output has already been shown.
    """

    status: int
    text: str = ""
    brief: str = ""
    rank: int = -1

    def shown(self, ranks: Collection[int]) -> str:
        """The last message of the launcher of some ranks."""
        return self.brief if self.rank in ranks else self.text

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Verdict:
        return cls(
            int(facts["status"]), str(facts["text"]), str(facts["brief"]), int(facts["rank"])
        )


def verdict(reports: Sequence[Report]) -> Verdict:
    """The result of a launch, with its last message."""
    worst = first(reports)
    failed = {r.rank for r in reports}
    because = [n for n in worst.named if n not in failed]
    names = ""
    if because:
        word = "process" if len(because) == 1 else "processes"
        names = f", because of {word} {', '.join(map(str, because))}"
    head = f"{worst.about} {worst.how}{names}"
    if not worst.tail:
        text = brief = f"{head}. It printed no error."
    else:
        begin = f"{head}. Its last output:"
        text, brief = (
            "\n".join([begin, *[f"[{worst.rank}] {line}".rstrip() for line in lines]])
            for lines in (worst.tail, without_messages(worst.tail))
        )
    return Verdict(worst.status, text, brief, worst.rank)
