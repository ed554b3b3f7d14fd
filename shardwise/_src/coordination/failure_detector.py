"""The failure detector of a coordinator (`coordinator_server`).

A dead process is detected immediately by its closed connection, a stopped one by its silence. A
diverging process is detected by its launches and meetings, before others wait for it forever. A
process that does not arrive is first reported, with the stacks of all processes, and finally
failed. A failure caused by another process is not reported as a separate failure.
"""

from __future__ import annotations

import functools
import time

from shardwise._src.coordination import launch_order
from shardwise._src.coordination.value_differences import ANSWERED_WITHIN, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

ENDED = ("finished", "followed")  # lost processes were already reported
MISSED = (
    " All processes must do this: look for an `if` on process_index() around it, for an early "
    "exit, or for data of different length."
)
# Exceptions raised by reading malformed messages, infinite numbers or deeply nested lists.
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
LONGER = 10  # times until waits are reported that have a timeout: writing files takes long
GATHERING = 2.0  # seconds to wait for the stacks of all processes, or why connections broke


class Peer:
    """One connection, and the known facts about its process."""

    def __init__(self, connection: Any):
        self.connection = connection  # a transport of asyncio; None once it is closed
        self.rank = -1  # until it joins
        self.about: dict[str, Any] = {}  # host, pid, its address
        self.begin = self.seen = time.monotonic()
        self.timeout = self.left = 0.0  # seconds that it waits for others: total, remaining
        self.line = ""  # the last known line of the user's program
        self.waiting = ""  # a description of its wait
        self.kind = ""  # of wait: for a "launch", in a "meet"
        self.since = 0.0  # seconds that it has waited
        self.launched: dict[str, int] = {}  # by set of processes
        self.order: dict[int, tuple[str, int, str]] = {}  # by turn: set, number, program
        self.limit = 0.0  # seconds that it waits at its end until others have its results
        self.gone: str = ""  # how it left: "finished", "lost", "followed" (another's failure)
        self.answered = 0.0  # when it was last sent "heard"
        self.notified = False  # whether a failure was reported to it, which may end it too

    @property
    def name(self) -> str:
        host, pid = self.about.get("host", "?"), self.about.get("pid", "?")
        return f"process {self.rank} (host {host}, pid {pid})"

    def at(self) -> str:
        return f" Its last known line: {self.line}." if self.line else ""


class Arrived:
    """A process in a meeting. about: of a program: its types; after: how many launches."""

    def __init__(
        self, doing: str, value: str = "", payload: str = "", about: str = "", after: int = 0
    ):
        self.doing, self.value, self.payload = doing, value, payload
        self.about, self.after = about, after


class Meeting:
    """The next step of the processes of a set, as sent by those that have arrived, by rank."""

    def __init__(self) -> None:
        self.arrived: dict[int, Arrived] = {}
        self.patient = False  # whether waiting processes have their own timeout
        self.begin = time.monotonic()

    @property
    def doing(self) -> str:
        return next(iter(self.arrived.values())).doing


class Stall:
    """A long wait, for which the stacks of all processes are gathered once."""

    def __init__(self, ranks: set[int], missing: list[int], head: str):
        self.ranks, self.head = ranks, head  # processes to notify; the message
        self.missing = missing  # processes that are waited for
        self.begin = time.monotonic()
        self.stacks: dict[int, str] = {}


def ranks_of(key: str) -> tuple[int, ...]:
    """The ranks in a set's key, which may also have a name and the era of the program."""
    return _ranks(key.partition("#")[0])


@functools.lru_cache(256)
def _ranks(text: str) -> tuple[int, ...]:
    return tuple([int(r) for r in text.split(",")])


def counted(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (", …" if len(ranks) > 16 else "")
    return f"process {shown}" if len(ranks) == 1 else f"processes {shown}"


class FailureDetector:
    """Monitors peers, meetings and launches, and notifies processes of failures."""

    def __init__(self, asked: dict[str, Any]):
        self.asked = asked
        self.peers: dict[int, Peer] = {}
        self.meetings: dict[tuple[str, int], Meeting] = {}
        self.launches: dict[str, dict[int, tuple[str, int, str]]] = {}
        self.broken: list[tuple[Peer, str, float]] = []  # who lost connections, when
        self.stalls: dict[int, Stall] = {}
        self.reported: set[tuple[Any, ...]] = set()  # failures and waits that were reported
        self.next_stall = 0
        self.differences: dict[str, Difference] = {}  # being queried from processes, by set

    def send(self, peer: Peer, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def check_peers(self, now: float) -> None:
        """Checks for new failures."""
        for peer in list(self.peers.values()):
            self._check_silence(peer, now - peer.seen)
        for (key, _), meeting in list(self.meetings.items()):
            self._check_absent(key, meeting)
            self._check_arrivals(meeting, ranks_of(key), now)
        for key in list(self.launches):
            self._check_launches(key)
        for number, stall in list(self.stalls.items()):
            self._check_stall(number, stall, now)
        self._check_broken(now)
        self._check_differences(now)

    def _is_first(self, *mark: Any) -> bool:
        """Whether something was not reported yet; it counts as reported from now on."""
        if mark in self.reported:
            return False
        self.reported.add(mark)
        return True

    def _check_silence(self, peer: Peer, silent: float) -> None:
        if not peer.gone and silent > self.asked["heartbeat"]:
            self._lost(
                peer,
                f"there was no heartbeat from it for {silent:.0f} s: it is stopped, "
                "or its machine or network is down",
            )
            self.send(peer, {"op": "dropped", "why": "which sent no heartbeat"})

    def _fail(self, ranks: Sequence[int], kind: str, culprits: list[int], text: str) -> None:
        for rank in ranks:
            peer = self.peers.get(rank)
            leaves = peer is not None and peer.connection is not None and kind == "differ"
            if peer is not None and (leaves or not peer.gone):
                peer.notified = True
                self.send(peer, {"op": "fail", "kind": kind, "ranks": culprits, "text": text})

    def _lost(self, peer: Peer, how: str) -> None:
        if peer.gone:
            return
        kind = peer.gone = "followed" if peer.notified else "lost"
        others = [r for r in self.peers if r != peer.rank]
        said = how if how.endswith(".") else f"{how}."
        self._fail(others, kind, [peer.rank], f"{peer.name} is lost: {said}{peer.at()}")

    def _differ_in(self, key: str, meeting: Meeting, ranks: tuple[int, int]) -> None:
        """Reports two processes that arrived at a meeting with different values."""
        come = {r: meeting.arrived[r] for r in ranks}
        first, second = come.values()
        doing, why = {r: one.doing for r, one in come.items()}, ""
        if first.about != second.about:
            doing = {r: f"{one.doing}, of type {one.about or '?'}" for r, one in come.items()}
        elif first.after != second.after:
            doing = {r: f"{one.doing} after {one.after} launches" for r, one in come.items()}
        elif first.about and first.doing == second.doing:
            why = (
                f" Both are of type {first.about}: constants, static arguments, options or the "
                "order of devices differ."
            )
        self._differ(key, doing, "", why)

    def _differ(self, key: str, doing: dict[int, str], where: str, why: str = "") -> None:
        if not self._is_first(key, "differ"):
            return
        (a, first), (b, second) = sorted(doing.items())
        at = f" ({where})" if where else ""
        text = (
            f"the processes do not run the same program{at}: {self.peers[a].name} reaches {first}; "
            f"{self.peers[b].name} reaches {second}.{why} All processes must launch the same "
            "programs over the same devices in the same order: look for an `if` on "
            "process_index(), threads, sets or dicts in a different order, or different data or "
            "flags."
        )
        self._fail(ranks_of(key), "differ", [a, b], text)

    def values_differ(self, key: str, a: int, b: int, name: str, number: int) -> None:
        """Queries two processes that put different host values before a launch for these values."""
        if not self._is_first(key, "differ"):
            return
        names = {rank: self.peers[rank].name for rank in (a, b)}
        self.differences[key] = Difference(key, number, name, names)
        self._ask_values(self.differences[key])

    def _ask_values(self, difference: Difference) -> None:
        for rank in difference.ranks:
            self.send(self.peers[rank], difference.question())

    def _on_values(self, peer: Peer, message: dict[str, Any]) -> None:
        difference = self.differences.get(message["set"])
        if difference is None or peer.rank not in difference.names:
            return  # the answer is late
        what = difference.answer(peer.rank, message)
        if what is not None:
            self._tell_difference(difference, what)
        elif difference.is_to_be_asked:
            self._ask_values(difference)

    def _check_differences(self, now: float) -> None:
        for difference in list(self.differences.values()):
            if now - difference.begin > ANSWERED_WITHIN:
                self._tell_difference(difference, difference.unknown())

    def _tell_difference(self, difference: Difference, what: str) -> None:
        del self.differences[difference.key]
        text = (
            f"the processes put different values before program {difference.program!r} (launch "
            f"{difference.number}): {what}. A host value must be the same in all processes: look "
            "for random numbers without a seed, an index or a file that depends on "
            "process_index(), or a value that only one process puts. "
            "`shardwise.experimental.multihost_utils.broadcast_one_to_all` sends the value of one "
            "process to all, `shardwise.make_array_from_process_local_data` makes a global array "
            "of process-local parts, and the option `check_replicas` raises at the line."
        )
        self._fail(ranks_of(difference.key), "differ", difference.ranks, text)

    def _check_passed(self, key: str, ranks: Sequence[int]) -> None:
        """Fails a meeting that one of `ranks` has passed: it has launched another program since."""
        for (other, _), meeting in list(self.meetings.items()):
            if other != key:
                continue
            after = max(one.after for one in meeting.arrived.values())
            passed = [
                p
                for p in map(self.peers.__getitem__, ranks)
                if p.rank not in meeting.arrived and p.launched.get(key, 0) > after
            ]
            if passed:
                peer, number = passed[0], after + 1
                name = self.launches.get(key, {}).get(number, ("", 0, "?"))[2]
                here = {peer.rank: f"program {name!r}", next(iter(meeting.arrived)): meeting.doing}
                self._differ(key, here, f"launch {number}")

    def _check_absent(self, key: str, meeting: Meeting) -> None:
        """Fails a meeting that waits for a process that has left."""
        gone = [
            r for r in ranks_of(key) if r not in meeting.arrived and self.peers[r].gone in ENDED
        ]
        waiters = [r for r in meeting.arrived if (meeting, "absent", r) not in self.reported]
        if not gone or not waiters:
            return
        self.reported.update([(meeting, "absent", r) for r in waiters])
        self._fail_absent(waiters, gone, f"reached {meeting.doing}")

    def _fail_absent(self, waiters: Sequence[int], gone: list[int], what: str) -> None:
        """Notifies processes that wait for others which have ended."""
        peer = self.peers[gone[0]]
        text = f"{peer.name} has ended, and never {what}.{peer.at()}"
        follows = peer.gone == "followed"
        kind, text = ("followed", text) if follows else ("absent", text + MISSED)
        self._fail(waiters, kind, gone, text)

    def _check_broken(self, now: float) -> None:
        """Reports failed connections between processes that are all alive."""
        for entry in list(self.broken):
            peer, text, since = entry
            for key, number in peer.launched.items():
                others = [self.peers[r] for r in ranks_of(key)]
                ended = [p for p in others if p.gone in ENDED and p.launched.get(key, 0) < number]
                if ended:
                    name = self.launches.get(key, {}).get(number, ("", 0, "?"))[2]
                    self._tell_ended(key, ended, f"program {name!r}")
            if peer.gone or peer.notified:
                self.broken.remove(entry)
            elif now - since > GATHERING:
                found = sorted({p.rank for p, _, _ in self.broken})
                names = ", ".join(self.peers[r].name for r in found[:16])
                whose = "their connections" if len(found) > 1 else "its connections"
                self._fail(
                    list(self.peers),
                    "broken",
                    found,
                    f"{names} lost {whose} to other processes, all of which are alive: the network "
                    f"between them failed ({text}).{peer.at()}",
                )

    def _check_arrivals(self, meeting: Meeting, ranks: Sequence[int], now: float) -> None:
        missing = [r for r in ranks if r not in meeting.arrived and not self.peers[r].gone]
        waited = now - meeting.begin
        self._check_wait(
            list(meeting.arrived), missing, waited, meeting.doing, meeting, meeting.patient
        )

    def _check_launches(self, key: str) -> None:
        """Checks for processes that wait for programs that others have not launched."""
        peers = [self.peers[r] for r in ranks_of(key)]
        here = [p for p in peers if not p.gone]
        waiting = [p for p in here if p.kind == "launch" and p.launched.get(key, 0)]
        if not waiting:
            return
        ahead = max(waiting, key=lambda p: p.launched[key])
        number = ahead.launched[key]
        behind = [p for p in peers if p.launched.get(key, 0) < number and p.kind != "launch"]
        doing = ahead.waiting
        ended = [p for p in behind if p.gone in ENDED]
        if ended:
            self._tell_ended(key, ended, doing)
            return
        missing = [p.rank for p in behind if not p.gone]
        waiters = [p.rank for p in waiting]
        if missing:
            self._check_wait(waiters, missing, ahead.since, doing, (key, number))
        elif ahead.since > self.asked["patience"] and self._is_first(key, doing, "long"):
            late = [p.rank for p in here if p.launched.get(key, 0) < number]
            self._check_long(waiters, doing, ahead.since, late)

    def _later(self, peer: Peer) -> list[launch_order.Launch]:
        """Launches by others that also need this process, and that it has not made."""
        return [
            (key, number, name)
            for key, seen in self.launches.items()
            if peer.rank in ranks_of(key)
            for number, (_, _, name) in seen.items()
            if number > peer.launched.get(key, 0)
        ]

    def _check_long(self, waiters: list[int], doing: str, since: float, behind: list[int]) -> None:
        """Reports a long wait for which no process is missing, or why it cannot end.

        behind: processes that wait for another program before they reach this one.
        """
        later = {p.rank: self._later(p) for p in self.peers.values() if p.kind == "launch"}
        launched = {p.rank: p.order for p in self.peers.values()}
        contradiction = launch_order.contradiction(launched, later)
        if not contradiction:
            why = "all processes have launched it"
            if behind:
                why = f"{counted(behind)} will reach it after other programs"
            self._gather({*waiters}, waiters, f"{doing} has waited for {since:.0f} s; {why}.")
            return
        if not self._is_first("orders", *sorted(contradiction)):
            return
        said = "; ".join(
            f"{self.peers[rank].name} launches {first} before {second}"
            for rank, first, second in contradiction
        )
        everyone = sorted(self.peers)
        self._fail(
            everyone,
            "differ",
            sorted({rank for rank, _, _ in contradiction}),
            f"the processes wait for each other: {said}. All processes must launch their common "
            "programs in the same order: look for an `if` on process_index(), threads, or sets or "
            "dicts in a different order.",
        )

    def _tell_ended(self, key: str, ended: list[Peer], doing: str) -> None:
        """Notifies processes that have launched a program of one that has ended without it."""
        number = ended[0].launched.get(key, 0)
        ahead = [r for r in ranks_of(key) if self.peers[r].launched.get(key, 0) > number]
        ahead = [r for r in ahead if ((key, r), "ended") not in self.reported]
        self.reported.update([((key, r), "ended") for r in ahead])
        self._fail_absent(ahead, [p.rank for p in ended], f"launched {doing}")

    def _places(self, ranks: list[int]) -> str:
        """A message with the last known lines of processes."""
        shown = [f"{self.peers[r].name} is at {self.peers[r].line or '?'}" for r in ranks[:16]]
        return "; ".join(shown + ([f"and {len(ranks) - 16} more"] if len(ranks) > 16 else []))

    def _check_wait(
        self,
        waiters: list[int],
        missing: list[int],
        waited: float,
        doing: str,
        what: Any,
        patient: bool = False,
    ) -> None:
        if not missing:
            return
        patience = self.asked["patience"] * (LONGER if patient else 1)
        if waited > patience and self._is_first(what, "slow"):
            where = self._places(missing)
            head = f"{doing} has waited for {waited:.0f} s; missing: {where}."
            self._gather({*waiters}, missing, head)
        late = waited > self.asked["deadline"] and not patient
        if late and self._is_first(what, "late"):
            names = ", ".join(self.peers[r].name for r in missing[:16])
            at = self.peers[missing[0]].at() if len(missing) == 1 else ""
            text = f"{names} did not reach {doing} within {waited:.0f} s (`wait_timeout_secs`).{at}"
            self._fail(waiters, "timeout", missing, text)
            for rank in missing:
                self.peers[rank].notified = True
                why = f"which did not reach {doing} within {waited:.0f} s"
                self.send(self.peers[rank], {"op": "dropped", "why": why})

    def _gather(self, ranks: set[int], missing: list[int], head: str) -> None:
        self.next_stall += 1
        self.stalls[self.next_stall] = Stall(ranks, missing, head)
        for peer in self.peers.values():
            if not peer.gone:
                self.send(peer, {"op": "stacks", "number": self.next_stall})

    def _check_stall(self, number: int, stall: Stall, now: float) -> None:
        wanted = [p.rank for p in self.peers.values() if not p.gone]
        if len(stall.stacks) < len(wanted) and now - stall.begin < GATHERING:
            return
        del self.stalls[number]
        if all(self.peers[rank].gone for rank in stall.missing):
            return  # which was reported
        shown = {r: stall.stacks.get(r, "  it does not answer\n") for r in sorted(self.peers)}
        parts = [f"{self.peers[rank].name}:\n{text}" for rank, text in shown.items()]
        text = "\n".join([stall.head, *parts])
        for rank in stall.ranks:
            if not self.peers[rank].gone:
                self.send(self.peers[rank], {"op": "report", "text": text})
