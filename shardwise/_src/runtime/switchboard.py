"""The switchboard of a coordinator (`coordinator`): one connection to each process.

A process that dies is known by its closed connection at once, one that is stopped by its silence.
Processes meet here: at the start, before the first launch of a program, at barriers. Whatever they
do there is compared, so that one that goes another way is named before anybody waits for it.

Messages are lines of JSON; nothing that arrives is executed or unpickled. Only the standard library
is imported.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import ssl
import time
from typing import Any

from shardwise._src.runtime.certificates import is_of

LINE = 1 << 22  # bytes of a message at most
FIRST_LINE = 1 << 12  # of one with which a process joins
STRANGER = 20.0  # seconds in which who connects must join
WINDOW = 4096  # launches that are remembered of each set of processes
TICK = 0.25  # seconds
GATHERING = 2.0  # seconds to wait for the stacks of all processes


class Peer:
    """One connection, and what is known of the process behind it."""

    def __init__(self, sock: Any, secured: bool):
        self.sock = sock
        self.secured = secured  # False while TLS shakes hands
        self.incoming = b""
        self.outgoing = b""
        self.asked = 0  # whether the selector tells when more can be sent
        self.rank = -1  # until it joins
        self.about: dict[str, Any] = {}  # host, pid, the address that it comes from
        self.begin = self.seen = time.monotonic()
        self.line = ""  # the line of the user's program that it was at
        self.waiting = ""  # for what
        self.kind = ""  # of wait: for a "launch", in a "meet"
        self.since = 0.0  # seconds that it has waited
        self.launched: dict[str, int] = {}  # by set of processes
        self.gone: str = ""  # how it left: "finished", "lost"

    @property
    def name(self) -> str:
        host, pid = self.about.get("host", "?"), self.about.get("pid", "?")
        return f"process {self.rank} (host {host}, pid {pid})"

    def at(self) -> str:
        return f" Its last known line: {self.line}." if self.line else ""


class Meeting:
    """What the processes of a set do next, as those say that have come to it."""

    def __init__(self) -> None:
        self.values: dict[int, str] = {}
        self.doing: dict[int, str] = {}
        self.payloads: dict[int, str] = {}
        self.begin = time.monotonic()


class Stall:
    """A wait that takes long: the stacks of all processes are gathered, once."""

    def __init__(self, ranks: set[int], head: str):
        self.ranks, self.head = ranks, head  # who is told, and what
        self.begin = time.monotonic()
        self.stacks: dict[int, str] = {}


def ranks_of(key: str) -> list[int]:
    return [int(r) for r in key.split(",")]


def counted(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (", …" if len(ranks) > 16 else "")
    return f"process {shown}" if len(ranks) == 1 else f"processes {shown}"


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Switchboard:
    """The connections of all processes, and what they wait for."""

    def __init__(self, asked: dict[str, Any], listener: Any, tls: ssl.SSLContext | None):
        self.asked = asked
        self.count: int = asked["count"]
        self.selector = selectors.DefaultSelector()
        self.listener = listener
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.tls = tls
        self.peers: dict[int, Peer] = {}
        self.strangers: set[Peer] = set()
        self.service: Any = None  # XLA's, once it is there, or the error
        self.service_port = 0
        self.started = False
        self.refusal = ""
        self.orphaned = False
        self.empty_since = time.monotonic()
        self.first_arrival = 0.0
        self.meetings: dict[tuple[str, int], Meeting] = {}
        self.censuses: dict[tuple[str, int], Meeting] = {}
        self.launches: dict[str, dict[int, tuple[str, int, str]]] = {}
        self.stalls: dict[int, Stall] = {}
        self.told: set[tuple[Any, str]] = set()  # what was reported once
        self.next_stall = 0

    # ------------------------------------------------------------------ connections

    def run(self) -> None:
        ticked = 0.0
        while not (self.orphaned and self._is_over()):
            for key, mask in self.selector.select(TICK):
                if key.data is None:
                    self._accept()
                elif key.data == "parent":
                    self._read_parent(key.fileobj)
                else:
                    self._serve(key.data, mask)
            if not self.started or time.monotonic() - ticked > TICK:
                ticked = time.monotonic()
                self._tick()

    def _is_over(self) -> bool:
        open_ones = [p for p in (*self.peers.values(), *self.strangers) if p.sock is not None]
        if open_ones:
            self.empty_since = time.monotonic()
        return time.monotonic() - self.empty_since > 1.0

    def _read_parent(self, stream: Any) -> None:
        if not os.read(stream.fileno(), 1 << 12):
            self.selector.unregister(stream)
            self.orphaned = True

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        peer = Peer(sock, self.tls is None)
        self.strangers.add(peer)
        self.selector.register(sock, selectors.EVENT_READ, peer)

    def _serve(self, peer: Peer, mask: int) -> None:
        try:
            if not peer.secured:
                peer.sock.do_handshake()
                prefix = self.asked["tls"]["uri_prefix"]
                if prefix and not is_of(peer.sock, prefix):
                    raise ValueError("a certificate for something else")
                peer.secured = True
            if mask & selectors.EVENT_READ:
                self._receive(peer)
            if peer.sock is not None and peer.outgoing:
                self._flush(peer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self._closed(peer)  # what it sent is not one of our messages, or it is gone

    def _receive(self, peer: Peer) -> None:
        data = peer.sock.recv(1 << 16)
        while self.tls is not None and peer.sock.pending():
            data += peer.sock.recv(1 << 16)
        if not data:
            self._closed(peer)
            return
        peer.seen = time.monotonic()
        *lines, peer.incoming = (peer.incoming + data).split(b"\n")
        if len(peer.incoming) > (FIRST_LINE if peer.rank < 0 else LINE):
            raise ValueError("a message without end")
        for line in lines:
            message = json.loads(line)
            handler = getattr(self, f"_on_{message.get('op')}", None)
            if handler is None or (peer.rank < 0 and message["op"] != "join"):
                raise ValueError("not one of ours")
            handler(peer, message)
            if peer.sock is None:
                return

    def send(self, peer: Peer, message: dict[str, Any]) -> None:
        self._send_line(peer, encoded(message))

    def _send_line(self, peer: Peer, line: bytes) -> None:
        if peer.sock is None:
            return
        peer.outgoing += line
        try:
            self._flush(peer)
        except (ssl.SSLWantWriteError, BlockingIOError):
            return
        except OSError:
            self._closed(peer)

    def _flush(self, peer: Peer) -> None:
        try:
            while peer.outgoing:
                sent = peer.sock.send(peer.outgoing)
                peer.outgoing = peer.outgoing[sent:]
        finally:
            more = selectors.EVENT_WRITE if peer.outgoing else 0
            if more != peer.asked and peer.sock is not None and peer.sock.fileno() >= 0:
                peer.asked = more
                self.selector.modify(peer.sock, selectors.EVENT_READ | more, peer)

    def _closed(self, peer: Peer) -> None:
        if peer.sock is None:
            return
        self.selector.unregister(peer.sock)
        peer.sock.close()
        peer.sock = None
        self.strangers.discard(peer)
        if peer.rank < 0 or self.peers.get(peer.rank) is not peer:
            return
        if not self.started:
            del self.peers[peer.rank]  # it may come again
        elif not peer.gone:
            self._lost(peer, "its connection closed: it was killed, or its machine went down")

    # ------------------------------------------------------------------ the start

    def _on_join(self, peer: Peer, message: dict[str, Any]) -> None:
        rank, count = int(message["rank"]), message["count"]
        if peer.rank >= 0:
            raise ValueError("it has joined already")
        peer.about = {k: str(message[k])[:200] for k in ("host", "pid", "versions")}
        peer.about["address"] = peer.sock.getpeername()[0].removeprefix("::ffff:")
        peer.rank = rank
        other = self.peers.get(rank)
        if count != self.count:
            why = f"it says that there are {count} processes; the coordinator expects {self.count}"
        elif not 0 <= rank < self.count:
            why = f"its process_id must be from 0 to {self.count - 1}"
        elif other is not None:
            why = f"{other.name} has joined as process {rank} already"
        elif self.started:
            why = "the program has started without it"
        elif odd := self._of_other_versions(peer):
            why = (
                f"it runs {peer.about['versions']}, but {odd[0].name} {odd[0].about['versions']}: "
                "all processes must run the same"
            )
        else:
            self.strangers.discard(peer)
            self.first_arrival = self.first_arrival or time.monotonic()
            self.peers[rank] = peer
            self._start()
            return
        name, peer.rank = peer.name, -1  # it stays a stranger
        self.send(peer, {"op": "refused", "why": f"{name} cannot join: {why}."})

    def _of_other_versions(self, peer: Peer) -> list[Peer]:
        return [p for p in self.peers.values() if p.about["versions"] != peer.about["versions"]]

    def _start(self) -> None:
        """Lets all go on, once they are here and XLA's service is."""
        if self.started or self.refusal or len(self.peers) < self.count:
            return
        if self.service is None:
            return
        if isinstance(self.service, BaseException):
            self._refuse(f"XLA's coordination service does not start: {self.service}")
            return
        self.started = True
        members = [self.peers[r].about for r in range(self.count)]
        for peer in self.peers.values():
            peer.seen = time.monotonic()
            self.send(peer, {"op": "go", "port": self.service_port, "members": members})

    def _refuse(self, why: str) -> None:
        self.refusal = why
        for peer in list(self.peers.values()):
            self.send(peer, {"op": "refused", "why": why})

    # ------------------------------------------------------------------ while it runs

    def _on_beat(self, peer: Peer, message: dict[str, Any]) -> None:
        peer.line = str(message["line"])[:500] or peer.line
        peer.waiting, peer.since = str(message["waiting"])[:500], message["since"]
        peer.kind = message["kind"]
        for key, (number, recent) in message["sets"].items():
            peer.launched[key] = number
            seen = self.launches.setdefault(key, {})
            for i, digest, doing in recent:
                known = seen.setdefault(i, (digest, peer.rank, doing))
                if known[0] != digest:
                    self._differ(key, {known[1]: known[2], peer.rank: doing}, f"launch {i}")
            while len(seen) > WINDOW:
                del seen[next(iter(seen))]

    def _on_meet(self, peer: Peer, message: dict[str, Any]) -> None:
        key, number = message["set"], message["k"]
        meeting = self.meetings.setdefault((key, number), Meeting())
        meeting.values[peer.rank] = message["value"]
        meeting.doing[peer.rank] = message["doing"]
        meeting.payloads[peer.rank] = message["payload"]
        if len(set(meeting.values.values())) > 1:
            first = next(r for r, v in meeting.values.items() if v != message["value"])
            self._differ(key, {first: meeting.doing[first], peer.rank: message["doing"]}, "")
            return
        ranks = ranks_of(key)
        if len(meeting.values) == len(ranks):
            del self.meetings[key, number]
            told = [meeting.payloads[r] for r in ranks]
            self._met(ranks, {"set": key, "k": number, "payloads": told if any(told) else []})
            return
        self._mind_absent(key, meeting)

    def _met(self, ranks: list[int], about: dict[str, Any]) -> None:
        line = encoded({"op": "met", **about})
        for rank in ranks:
            self._send_line(self.peers[rank], line)

    def _on_withdraw(self, peer: Peer, message: dict[str, Any]) -> None:
        """Lets one that does not wait any longer go, unless all are there by now."""
        key, number = message["set"], message["k"]
        meeting = self.meetings.get((key, number))
        if meeting is None or peer.rank not in meeting.values:
            return
        missing = [self.peers[r] for r in ranks_of(key) if r not in meeting.values]
        for held in (meeting.values, meeting.doing, meeting.payloads):
            held.pop(peer.rank)
        if not meeting.values:
            del self.meetings[key, number]
        late = " ".join(f"{p.name} did not come.{p.at()}" for p in missing[:16])
        self.send(peer, {"op": "withdrawn", "set": key, "k": number, "text": late})

    def _on_census(self, peer: Peer, message: dict[str, Any]) -> None:
        meeting = self.censuses.setdefault((message["set"], message["k"]), Meeting())
        meeting.values[peer.rank], meeting.doing[peer.rank] = "", message["doing"]
        self._mind_censuses()

    def _mind_censuses(self) -> None:
        """Lets those go on who have waited for all that are alive."""
        for (key, number), meeting in list(self.censuses.items()):
            alive = [r for r in ranks_of(key.split()[1]) if not self.peers[r].gone]
            if meeting.values.keys() >= set(alive):
                del self.censuses[key, number]
                self._met(alive, {"set": key, "k": number, "payloads": alive})
                continue
            missing = [r for r in alive if r not in meeting.values]
            doing = next(iter(meeting.doing.values()))
            waited = time.monotonic() - meeting.begin
            self._mind_wait(list(meeting.values), missing, waited, doing, id(meeting))

    def _on_leave(self, peer: Peer, message: dict[str, Any]) -> None:
        peer.line = str(message["line"])[:500] or peer.line
        if message["how"] == "failed":
            self._lost(peer, f"it failed with {message['text']}")
        else:
            peer.gone = message["how"]  # "finished", or "followed": another's failure

    def _on_stacks(self, peer: Peer, message: dict[str, Any]) -> None:
        stall = self.stalls.get(message["number"])
        if stall is not None:
            stall.stacks[peer.rank] = str(message["text"])

    # ------------------------------------------------------------------ failures

    def _fail(self, ranks: list[int], kind: str, culprits: list[int], text: str) -> None:
        for rank in ranks:
            peer = self.peers.get(rank)
            if peer is not None and not peer.gone:
                self.send(peer, {"op": "fail", "kind": kind, "ranks": culprits, "text": text})

    def _lost(self, peer: Peer, how: str) -> None:
        if peer.gone:
            return
        peer.gone = "lost"
        others = [r for r in self.peers if r != peer.rank]
        self._fail(others, "lost", [peer.rank], f"{peer.name} is lost: {how}.{peer.at()}")

    def _differ(self, key: str, doing: dict[int, str], where: str) -> None:
        if (key, "differ") in self.told:
            return
        self.told.add((key, "differ"))
        (a, first), (b, second) = sorted(doing.items())
        at = f" ({where})" if where else ""
        text = (
            f"the processes do not run the same program{at}: {self.peers[a].name} comes to "
            f"{first}; {self.peers[b].name} to {second}. All processes must launch the same "
            "programs over the same devices in the same order: look for an `if` on "
            "process_index(), a set or dict in another order, data or flags that differ."
        )
        self._fail(ranks_of(key), "differ", [a, b], text)

    def _mind_absent(self, key: str, meeting: Meeting) -> None:
        """Fails a meeting to which one who has left will not come."""
        ended = ("finished", "followed")  # what is lost was told of
        gone = [
            r for r in ranks_of(key) if r not in meeting.values and self.peers[r].gone in ended
        ]
        if not gone or (id(meeting), "absent") in self.told:
            return
        self.told.add((id(meeting), "absent"))
        peer = self.peers[gone[0]]
        doing = next(iter(meeting.doing.values()))
        text = f"{peer.name} has ended, and never came to {doing}.{peer.at()}"
        self._fail(list(meeting.values), "absent", gone, text)

    def _tick(self) -> None:
        now = time.monotonic()
        for peer in [p for p in self.strangers if now - p.begin > STRANGER]:
            self._closed(peer)
        if not self.started:
            self._mind_arrival(now)
            return
        for peer in list(self.peers.values()):
            silent = now - peer.seen
            if not peer.gone and silent > self.asked["heartbeat"]:
                self._lost(peer, f"there was no sign of life of it for {silent:.0f} s: it is "
                           "stopped, or its machine or network is down")
                self.send(peer, {"op": "dropped"})
        self._mind_censuses()
        for key in {key for key, _ in self.meetings}:
            self._mind_meetings(key, now)
        for key in list(self.launches):
            self._mind_launches(key)
        for number, stall in list(self.stalls.items()):
            self._mind_stall(number, stall, now)

    def _mind_arrival(self, now: float) -> None:
        self._start()
        late = self.first_arrival and now - self.first_arrival > self.asked["arrival"]
        if late and not self.refusal:
            missing = [r for r in range(self.count) if r not in self.peers]
            here = ", ".join(p.name for _, p in sorted(self.peers.items())[:16])
            self._refuse(
                f"{counted(missing)} of {self.count} did not arrive within "
                f"{self.asked['arrival']:.0f} s (`initialization_timeout`). Here are: {here}."
            )

    def _mind_meetings(self, key: str, now: float) -> None:
        for (other, _), meeting in list(self.meetings.items()):
            if other != key:
                continue
            self._mind_absent(key, meeting)
            missing = [r for r in ranks_of(key) if r not in meeting.values]
            waited = now - meeting.begin
            doing = next(iter(meeting.doing.values()))
            self._mind_wait(list(meeting.values), missing, waited, doing, id(meeting))

    def _mind_launches(self, key: str) -> None:
        """Looks for processes that wait for what others have not launched."""
        peers = [self.peers[r] for r in ranks_of(key)]
        here = [p for p in peers if not p.gone]
        waiting = [p for p in here if p.kind == "launch" and p.launched.get(key, 0)]
        if not waiting:
            return
        ahead = max(waiting, key=lambda p: p.launched[key])
        number = ahead.launched[key]
        behind = [p for p in peers if p.launched.get(key, 0) < number and p.kind != "launch"]
        doing = ahead.waiting
        ended = [p for p in behind if p.gone == "finished"]
        if ended and (key, "ended") not in self.told:
            self.told.add((key, "ended"))
            text = f"{ended[0].name} has ended, and never launched {doing}.{ended[0].at()}"
            self._fail([p.rank for p in waiting], "absent", [p.rank for p in ended], text)
        elif behind and not ended:
            missing = [p.rank for p in behind if not p.gone]
            waiters = [p.rank for p in waiting]
            self._mind_wait(waiters, missing, ahead.since, doing, (key, number))

    def _mind_wait(
        self, waiters: list[int], missing: list[int], waited: float, doing: str, what: Any
    ) -> None:
        if not missing:
            return
        if waited > self.asked["patience"] and (what, "slow") not in self.told:
            self.told.add((what, "slow"))
            late = "; ".join(f"{self.peers[r].name} is at {self.peers[r].line or '?'}"
                             for r in missing[:16])
            head = f"waiting for {waited:.0f} s at {doing} for {counted(missing)}: {late}."
            self._gather({*waiters}, head)
        if waited > self.asked["deadline"] and (what, "late") not in self.told:
            self.told.add((what, "late"))
            text = (
                f"{counted(missing)} did not come to {doing} within {waited:.0f} s "
                "(`wait_timeout`). " + " ".join(
                    f"{self.peers[r].name}:{self.peers[r].at()}" for r in missing[:16])
            )
            self._fail(waiters, "timeout", missing, text)

    def _gather(self, ranks: set[int], head: str) -> None:
        self.next_stall += 1
        self.stalls[self.next_stall] = Stall(ranks, head)
        for peer in self.peers.values():
            if not peer.gone:
                self.send(peer, {"op": "stacks", "number": self.next_stall})

    def _mind_stall(self, number: int, stall: Stall, now: float) -> None:
        wanted = [p.rank for p in self.peers.values() if not p.gone]
        if len(stall.stacks) < len(wanted) and now - stall.begin < GATHERING:
            return
        del self.stalls[number]
        parts = [stall.head]
        for rank in sorted(self.peers):
            text = stall.stacks.get(rank, "  it does not answer\n")
            parts.append(f"{self.peers[rank].name}:\n{text}")
        for rank in stall.ranks:
            if not self.peers[rank].gone:
                self.send(self.peers[rank], {"op": "report", "text": "\n".join(parts)})
