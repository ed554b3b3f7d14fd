"""How processes join their coordinator (`coordinator_server`) when a program begins.

No process continues before all have joined, with consistent ranks, counts and versions. The waiting
processes are notified of any that does not join in time, or that ended without having joined.
"""

from __future__ import annotations

import time

from shardwise._src.coordination.failure_detector import FailureDetector, Peer, counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

ALONE = 0.05  # seconds after which XLA's service is started even if not all processes have joined


def _nothing() -> None:
    """Starts no service."""


class Arrival(FailureDetector):
    """Lets the processes of a program start once all of them have joined."""

    def __init__(self, asked: dict[str, Any]):
        super().__init__(asked)
        self.count: int = asked["count"]
        self.strangers: set[Peer] = set()
        self.service: Any = None  # of XLA, once available, or its error
        self.start_service: Callable[[], None] = _nothing
        self.service_port = 0
        self.started = False
        self.rejection = ""  # why all joining processes are rejected
        self.absent: list[int] = []  # the processes that cause it
        self.exited: dict[int, str] = {}  # by rank: the names of processes that ended with status 0
        self.turned_away: list[str] = []  # messages: which process could not join, and why
        self.begin = time.monotonic()
        self.first_arrival = 0.0
        self.impatient: dict[int, str] = {}  # processes that joined, and then stopped waiting

    def _on_join(self, peer: Peer, message: dict[str, Any]) -> None:
        rank, count = int(message["rank"]), message["count"]
        peer.left, peer.timeout = float(message["left"]), float(message["timeout"])
        if peer.rank >= 0:
            raise ValueError("it has joined already")
        peer.about = {k: str(message[k])[:200] for k in ("host", "pid", "versions")}
        address = peer.connection.get_extra_info("peername")[0]
        peer.about["address"] = address.removeprefix("::ffff:")
        peer.rank, versions = rank, peer.about["versions"]
        other = self.peers.get(rank)
        if count != self.count:
            why = f"it expects {count} processes, but the coordinator expects {self.count}"
        elif not 0 <= rank < self.count:
            why = f"its process_id must be from 0 to {self.count - 1}"
        elif other is not None:
            why = (
                f"{other.name} has already joined as process {rank}. Child processes inherit "
                "environment variables: to run a separate program, unset "
                "SHARDWISE_COORDINATOR_ADDRESS"
            )
        elif self.started:
            why = "the program has started without it"
        elif self.rejection:
            why = f"the others have stopped waiting: {self.rejection.removesuffix('.')}"
        elif odd := [p for p in self.peers.values() if p.about["versions"] != versions]:
            why = (
                f"it runs {versions}, but {odd[0].name} runs {odd[0].about['versions']}: all "
                "processes must run the same versions"
            )
        else:
            self.strangers.discard(peer)
            self.first_arrival = self.first_arrival or time.monotonic()
            self.peers[rank] = peer
            self._start()
            self._check_exited()
            return
        why = f"{peer.name} cannot join: {why}."
        self.turned_away = [*self.turned_away[-3:], why]
        self._turn_away(peer, why)

    def _check_exited(self) -> None:
        """Ends the waits for a process that ended with status 0 before it joined."""
        gone = [rank for rank in sorted(self.exited) if rank not in self.peers]
        if gone and self.peers and not self.started and not self.rejection:
            names = ", ".join([self.exited[rank] for rank in gone[:16]])
            self._reject(
                f"{names} exited with status 0 before {'they' if gone[1:] else 'it'} joined the "
                "others. All processes of a launch must join: look for an early exit of the "
                "program, or an `if` on the process's number, before the first use of a device or "
                "before `shardwise.distributed.initialize()`.",
                gone,
            )

    def _turn_away(self, peer: Peer, why: str) -> None:
        peer.rank = -1  # a stranger again
        self.strangers.add(peer)
        self.send(peer, {"op": "refused", "why": why, "ranks": self.absent})

    def _start(self) -> None:
        """Lets all processes continue once they have joined. XLA's service may start later."""
        if self.started or self.rejection or len(self.peers) < self.count:
            return
        if isinstance(self.service, BaseException):
            self._reject(f"XLA's coordination service failed to start: {self.service}")
            return
        self.started = True
        self._start_service()
        members = [self.peers[r].about for r in range(self.count)]
        go = {"op": "go", "port": self.service_port, "members": members}
        for peer in self.peers.values():
            peer.seen = time.monotonic()
            self.send(peer, {**go, "heartbeat": self.asked["heartbeat"]})

    def _start_service(self) -> None:
        """Starts XLA's service in a thread, since it takes a moment and slows down everything."""
        start, self.start_service = self.start_service, _nothing
        start()

    def _reject(self, why: str, absent: Sequence[int] = ()) -> None:
        self.rejection, self.absent = why, list(absent)
        for peer in list(self.peers.values()):
            self.send(peer, {"op": "refused", "why": why, "ranks": self.absent})

    def _check_arrival(self, now: float) -> None:
        self._start()
        if now - self.begin > ALONE:
            self._start_service()
        if self.started or self.rejection:
            return
        if self.first_arrival and now - self.first_arrival > self.asked["arrival"]:
            self._reject(self._who_is_missing(self.asked["arrival"]))
            return
        for peer in [p for p in self.peers.values() if now - p.begin > p.left + 1]:
            why = self._who_is_missing(peer.timeout)
            self.impatient[peer.rank] = peer.name
            del self.peers[peer.rank]  # others may wait longer
            self._turn_away(peer, why)

    def _who_is_missing(self, seconds: float) -> str:
        came = {**self.impatient, **{rank: peer.name for rank, peer in self.peers.items()}}
        known = came if len(came) < self.count else self.peers
        missing = [r for r in range(self.count) if r not in known]
        here = ", ".join(name for _, name in sorted(came.items())[:16])
        return (
            f"{counted(missing)} of {self.count} did not join within {seconds:.0f} s "
            f"(`initialization_timeout`). Joined: {here}."
            + "".join([f" But {why}" for why in self.turned_away])
        )
