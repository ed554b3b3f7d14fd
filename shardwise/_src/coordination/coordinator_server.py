"""The message server of a coordinator (`coordinator`): one connection to each process.

Processes meet here: at the start, before the first launch of a program, at barriers. Their actions
are compared, so that a diverging process is reported before any other waits for it.

Messages are lines of JSON; no received data is executed or unpickled.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import time
from contextlib import suppress

from shardwise._src.coordination.arrival import ALONE, Arrival
from shardwise._src.coordination.certificates import is_of
from shardwise._src.coordination.failure_detector import (
    ENDED,
    MALFORMED,
    Arrived,
    Meeting,
    Peer,
    ranks_of,
)
from shardwise._src.coordination.shutdown_barrier import ShutdownBarrier

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from typing import Any

LINE = 1 << 22  # bytes of a message at most
FIRST_LINE = 1 << 12  # bytes of a "join" message at most
STRANGER = 20.0  # seconds within which a new connection must join
WINDOW = 4096  # launches that are stored for each set of processes
ORDER = 128  # launches that are stored for each process: more than it can have in flight
TICK = 0.25  # seconds
BACKLOG = 1024  # connections that are not accepted yet
PAUSED = 2.0  # seconds after which this process is assumed to have been suspended


OPS = (  # operations that processes send
    "join",
    "beat",
    "era",
    "broken",
    "meet",
    "withdraw",
    "census",
    "leave",
    "settled",
    "stacks",
    "values",
)


@functools.lru_cache(256)
def _members(text: str, count: int) -> frozenset[int]:
    ranks = ranks_of(text)
    if list(ranks) != sorted({*ranks}) or not (ranks[0] >= 0 and ranks[-1] < count):
        raise ValueError("not a set of the processes")
    return frozenset(ranks)


def _print(text: str) -> None:
    with suppress(OSError, ValueError):  # no reader
        print(f"shardwise: {text}", file=sys.stderr, flush=True)


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Connection(asyncio.Protocol):
    """Passes the messages of a process to the server."""

    peer: Peer

    def __init__(self, server: CoordinatorServer):
        self._server = server
        self._incoming = b""

    def connection_made(self, transport: Any) -> None:
        self.peer = Peer(transport)
        self._server.strangers.add(self.peer)
        prefix = (self._server.asked.get("tls") or {}).get("uri_prefix")
        if prefix and not is_of(transport.get_extra_info("ssl_object"), prefix):
            self._server.close(self.peer)

    def data_received(self, data: bytes) -> None:
        self.peer.seen = time.monotonic()
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        try:
            if len(self._incoming) > (FIRST_LINE if self.peer.rank < 0 else LINE):
                raise ValueError("an unterminated message")
            for line in lines:
                if self.peer.connection is not None:
                    self._server.receive(self.peer, json.loads(line))
        except MALFORMED:
            self._server.close(self.peer, "it sent an invalid message")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.close(self.peer)


class CoordinatorServer(Arrival):
    """The connections of all processes, and their pending meetings."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, asked: dict[str, Any]):
        super().__init__(asked)
        self.cannot_accept = False  # and it was reported
        self.orphaned = False
        self._from_parent = b""  # the beginning of a line
        self.empty_since = time.monotonic()
        self.censuses: dict[tuple[str, int], Meeting] = {}
        self.leaves = ShutdownBarrier()

    # ------------------------------------------------------------------ connections

    def run(self, listener: Any, tls: ssl.SSLContext | None, parent: Any) -> None:
        """Serves processes until the parent is gone and all connections are closed."""
        asyncio.run(self._run(listener, tls, parent))

    async def _run(self, listener: Any, tls: ssl.SSLContext | None, parent: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self._on_error)
        self.loop.add_reader(parent, self._read_parent, parent)
        within = None if tls is None else STRANGER
        await self.loop.create_server(
            lambda: Connection(self),
            sock=listener,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=within,
        )
        looked = time.monotonic()
        while not (self.orphaned and self._is_over()):
            await asyncio.sleep(TICK if self.started else ALONE)
            now = time.monotonic()
            if now - looked > PAUSED:
                self._go_on(now, now - looked)
            looked = now
            self._tick(now)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and "socket" in context):
            loop.default_exception_handler(context)
        elif not self.cannot_accept:  # such as too many open files
            self.cannot_accept = True
            _print(
                f"the coordinator cannot accept a connection: {error.strerror}. It will retry; "
                "processes are waiting."
            )

    def _go_on(self, now: float, pause: float) -> None:
        """Resumes after a suspension, as by Ctrl-Z: extends all deadlines by its duration."""
        for peer in self.peers.values():
            peer.seen = min(now, peer.seen + pause)
        for meeting in (*self.meetings.values(), *self.censuses.values()):
            meeting.begin = min(now, meeting.begin + pause)

    def _is_over(self) -> bool:
        """Whether no process is connected any more, except for unreachable ones."""
        now, long_ago = time.monotonic(), 2 * self.asked["heartbeat"]
        peers = [p for p in (*self.peers.values(), *self.strangers) if p.connection is not None]
        if any(not p.gone or now - p.seen < long_ago for p in peers):
            self.empty_since = now
        return now - self.empty_since > 1.0

    def orphan(self, *_: object) -> None:
        """Makes the server end with the last connection. (A signal handler.)"""
        self.orphaned = True

    def _read_parent(self, stream: Any) -> None:
        data = os.read(stream.fileno(), 1 << 12)
        *lines, self._from_parent = (self._from_parent + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.exited[message["rank"]] = message["name"]
        self._check_exited()
        if not data:
            self.loop.remove_reader(stream)
            self.orphaned = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)  # readers of the parent's stderr must not wait for this process
            os.close(nowhere)

    def receive(self, peer: Peer, message: Any) -> None:
        op = message["op"]
        if op not in OPS or (op != "join" and not (self.started and peer.rank >= 0)):
            raise ValueError("not one of ours")
        getattr(self, f"_on_{op}")(peer, message)

    def send(self, peer: Peer, message: dict[str, Any]) -> None:
        self._send_line(peer, encoded(message))

    def _send_line(self, peer: Peer, line: bytes) -> None:
        if peer.connection is not None and not peer.connection.is_closing():
            peer.connection.write(line)

    def close(
        self,
        peer: Peer,
        how: str = "its connection closed: it was killed or crashed, or its machine went down",
    ) -> None:
        if peer.connection is None:
            return
        peer.connection.abort()
        peer.connection = None
        self.strangers.discard(peer)
        if peer.rank < 0 or self.peers.get(peer.rank) is not peer:
            return
        if not self.started:
            del self.peers[peer.rank]  # it may reconnect
        elif not peer.gone:
            self._lost(peer, how)

    # ------------------------------------------------------------------ XLA's service

    def service_is(self, service: Any, port: int) -> None:
        """Sets XLA's service, or the error of its start."""
        self.service, self.service_port = service, port
        if self.started:
            error = str(service) if isinstance(service, BaseException) else ""
            for peer in list(self.peers.values()):
                self.send(peer, {"op": "service", "port": port, "error": error})
        self._start()

    # ------------------------------------------------------------------ while it runs

    def _on_beat(self, peer: Peer, message: dict[str, Any]) -> None:
        peer.line = str(message["line"])[:500] or peer.line
        peer.waiting, peer.since = str(message["waiting"])[:500], float(message["since"])
        peer.kind = str(message["kind"])
        for text, (number, rows) in message["sets"].items():
            key = self._key(peer, text)
            recent = [(int(i), str(digest), str(name), int(turn)) for i, digest, name, turn in rows]
            peer.launched[key] = int(number)
            seen = self.launches.setdefault(key, {})
            peer.order.update({turn: (key, i, name) for i, _, name, turn in recent if i > 0})
            for i, digest, name, _ in recent:
                known = seen.setdefault(i, (digest, peer.rank, name))
                if known[0] == digest:
                    continue
                if known[0].partition(":")[0] == digest.partition(":")[0]:
                    self.values_differ(key, known[1], peer.rank, name, i)
                else:
                    at = f"launch {i}" if i > 0 else f"a different order of launches before {-i}"
                    doing = {known[1]: f"program {known[2]!r}", peer.rank: f"program {name!r}"}
                    self._differ(key, doing, at)
            while len(seen) > WINDOW:
                del seen[next(iter(seen))]
            self._check_passed(key, [peer.rank])
        while len(peer.order) > ORDER:
            del peer.order[next(iter(peer.order))]
        now = time.monotonic()
        if now - peer.answered > min(1.0, self.asked["heartbeat"] / 4):
            peer.answered = now
            self.send(peer, {"op": "heard"})

    def _key(self, peer: Peer, text: Any) -> str:
        """The key of a set of processes that contains this one.

        Raises:
          ValueError: the set does not contain it.
        """
        if peer.rank not in _members(text.partition("#")[0], self.count):
            raise ValueError("not a set of this process")
        return sys.intern(text)  # it is long if there are many processes

    def _on_era(self, peer: Peer, message: dict[str, Any]) -> None:
        """The program continues after a failure: earlier launches and meetings are discarded."""
        era = str(message["era"])
        peer.launched.clear()
        peer.order.clear()
        peer.notified = False
        for key in [k for k in self.meetings if not k[0].endswith(era)]:
            del self.meetings[key]
        for key in [k for k in self.launches if not k.endswith(era)]:
            del self.launches[key]

    def _on_broken(self, peer: Peer, message: dict[str, Any]) -> None:
        """Connections between processes failed; a process may be lost, which is known soon."""
        self.broken.append((peer, str(message["text"]), time.monotonic()))

    def _on_meet(self, peer: Peer, message: dict[str, Any]) -> None:
        key, number = self._key(peer, message["set"]), int(message["k"])
        doing, value, payload = [str(message[name]) for name in ("doing", "value", "payload")]
        about, after = str(message["about"])[:500], int(message["after"])
        meeting = self.meetings.setdefault((key, number), Meeting())
        meeting.arrived[peer.rank] = Arrived(doing, value, payload, about, after)
        meeting.patient |= bool(message["patient"])
        first = next(iter(meeting.arrived))
        if meeting.arrived[first].value != value:
            self._differ_in(key, meeting, (first, peer.rank))
            return
        ranks = ranks_of(key)
        if len(meeting.arrived) == len(ranks):
            del self.meetings[key, number]
            self.reported -= {mark for mark in self.reported if mark[0] is meeting}
            payloads = [meeting.arrived[r].payload for r in ranks]
            self._met(
                ranks, {"set": key, "k": number, "payloads": payloads if any(payloads) else []}
            )
            return
        self._check_absent(key, meeting)
        if first == peer.rank:
            self._check_passed(key, ranks)

    def _met(self, ranks: Sequence[int], about: dict[str, Any]) -> None:
        line = encoded({"op": "met", **about})
        for rank in ranks:
            self._send_line(self.peers[rank], line)

    def _on_withdraw(self, peer: Peer, message: dict[str, Any]) -> None:
        """Removes a process that stops waiting from a meeting, unless all have arrived by now."""
        key, number = message["set"], message["k"]
        meeting = self.meetings.get((key, number))
        if meeting is None or peer.rank not in meeting.arrived:
            return
        missing = [self.peers[r] for r in ranks_of(key) if r not in meeting.arrived]
        del meeting.arrived[peer.rank]
        if not meeting.arrived:
            del self.meetings[key, number]
        late = " ".join(f"{p.name} did not arrive.{p.at()}" for p in missing[:16])
        self.send(peer, {"op": "withdrawn", "set": key, "k": number, "text": late})

    def _on_census(self, peer: Peer, message: dict[str, Any]) -> None:
        key, number, doing = str(message["set"]), int(message["k"]), str(message["doing"])
        _, ranks = key.split(" ")
        self._key(peer, ranks)
        meeting = self.censuses.setdefault((key, number), Meeting())
        meeting.arrived[peer.rank] = Arrived(doing)
        self._check_censuses()

    def _check_censuses(self) -> None:
        """Completes the censuses in which all live processes have arrived."""
        for (key, number), meeting in list(self.censuses.items()):
            alive = [r for r in ranks_of(key.split()[1]) if not self.peers[r].gone]
            if meeting.arrived.keys() >= set(alive):
                del self.censuses[key, number]
                self._met(alive, {"set": key, "k": number, "payloads": alive})
            else:
                self._check_arrivals(meeting, alive, time.monotonic())

    def _on_leave(self, peer: Peer, message: dict[str, Any]) -> None:
        peer.line = str(message["line"])[:500] or peer.line
        if message["how"] == "failed":
            self._lost(peer, f"it failed with {message['text']}")
            return
        if message["how"] not in ENDED:
            raise ValueError("an unknown way to leave")
        limit = float(message.get("limit", 0.0))
        peer.gone = message["how"]  # "finished", or "followed": another's failure
        if peer.gone == "finished" and peer.launched:
            peer.limit = limit
            self.leaves.begin(peer.rank, peer.launched, time.monotonic())
            self._check_leaves_ended()
        else:
            self.send(peer, {"op": "bye"})

    def _on_settled(self, peer: Peer, message: dict[str, Any]) -> None:
        self.leaves.answer(peer.rank, int(message["number"]))
        self._check_leaves_ended()

    def _check_leaves_ended(self) -> None:
        """Lets processes end that no other process needs any more."""
        alive = [rank for rank, peer in self.peers.items() if not peer.gone]
        for rank, question in list(self.leaves.questions(alive)):
            self.send(self.peers[rank], question)
        for rank in () if self.differences else self.leaves.dismissed(alive):
            self.send(self.peers[rank], {"op": "bye"})
        now, patience = time.monotonic(), self.asked["patience"]
        for rank, waited, behind in self.leaves.late(alive, now, patience):
            text = (
                f"process {rank} is about to exit, and has waited for {waited:.0f} s until others "
                f"have the results of programs launched with it: {self._places(behind)}. It waits "
                f"for at most {self.peers[rank].limit:.0f} s in all (`shutdown_timeout_seconds`)."
            )
            self.send(self.peers[rank], {"op": "report", "text": text})

    def _on_stacks(self, peer: Peer, message: dict[str, Any]) -> None:
        stall = self.stalls.get(message["number"])
        if stall is not None:
            stall.stacks[peer.rank] = str(message["text"])

    # ------------------------------------------------------------------ time

    def _tick(self, now: float) -> None:
        for peer in [p for p in self.strangers if now - p.begin > STRANGER]:
            self.close(peer)
        if self.started:
            self._check_censuses()
            if self.leaves.waiting:  # maybe for a lost process
                self._check_leaves_ended()
            self.check_peers(now)
        else:
            self._check_arrival(now)
