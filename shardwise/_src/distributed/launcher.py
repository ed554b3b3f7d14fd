"""Starts the processes of a program on this machine, and as one of many machines: `launch`.

    status = launch(Plan(("train.py", "--steps", "9"), count=4, restarts=3))

What is started at once is a *generation*: a coordinator, and all processes. If one fails, the rest
is stopped, and with it the generation; another one may follow. The launcher of node 0 decides; on
one machine it is the only one. Everything that happens (a process ends, a signal arrives, another
launcher says something) comes as an event to the main thread, which sleeps otherwise.
"""

from __future__ import annotations

import itertools
import os
import queue
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from shardwise._src.distributed.board import Notice
from shardwise._src.distributed.channel import Channel, Refused, connect
from shardwise._src.distributed.cluster import at
from shardwise._src.distributed.guard import Guard
from shardwise._src.distributed.mirror import OPS, Mirror
from shardwise._src.distributed.nodes import NONSENSE, Nodes, Problem, Said, joining
from shardwise._src.distributed.output import write
from shardwise._src.distributed.reports import Report, first, signal_name, verdict
from shardwise._src.distributed.shares import Share, Shares, share_of, with_processes
from shardwise._src.distributed.start import listen_host, start_coordinator, warn_of_strangers
from shardwise._src.distributed.tls import Tls, tls_context, tls_files
from shardwise._src.distributed.workers import Crew, Plan, adopt_orphans, descendants
from shardwise._src.runtime import coordinator, processes

SETTLING = 1.0  # seconds to look for the first of several failures
LOSSES = 0.3  # seconds to look for others that were killed with one
PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds before a restart: doubled with each
REPLY = 10.0  # seconds beyond their grace for other nodes to stop


def launch(plan: Plan) -> int:
    """Runs a program to its end; gives the exit status: that of the process that failed first."""
    events = Events()
    before = [p.pid for p in descendants(os.getpid())]
    adopt_orphans()
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    with events.signals():
        guard = Guard(mark)
        notice = Notice(plan.facts())
        here = Here(plan, events, mark, (*before, guard.pid), notice)
        if notice.why:
            say(notice.why)
        try:
            status = (Lead if plan.node == 0 else Follower)(here).run()
        except Stopped as stop:
            say(f"stopped by {signal_name(stop.number)}")
            status = 128 + stop.number
        except Problem as problem:
            say(str(problem))
            status = 1
        finally:
            notice.remove()
        guard.dismiss()  # after any other exception it looks after what is left
        return status


def say(text: str) -> None:
    try:
        write(2, f"shardwise launch: {text}\n".encode(errors="replace"))
    except OSError:
        return  # nobody listens


# ------------------------------------------------------------------------------- events


class Stopped(Exception):
    """The launcher was told to stop."""

    def __init__(self, number: int):
        self.number = number


class Event(NamedTuple):
    """kind: "signal" with its number, "ended" with generation and rank, "said" with what another
    launcher says: a `Said` at node 0, elsewhere its message, or None if it is gone."""

    kind: str
    facts: tuple[Any, ...]


class Events:
    """What happens, in its order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.stops: list[int] = []  # signals that have arrived

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Signals that end a program are events. What was ignored before, as by nohup, stays so."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
        for number in before:
            signal.signal(number, lambda number, _: self.stop(number))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self, number: int) -> None:
        self.stops.append(number)
        self.post("signal", number)

    def post(self, kind: str, *facts: Any) -> None:
        self._queue.put(Event(kind, facts))

    def check(self) -> None:
        if self.stops:
            raise Stopped(self.stops[0])

    def next(self, seconds: float | None = None) -> Event | None:
        """The next event; None if there is none within some seconds.

        Raises:
          Stopped: it is a signal.
        """
        try:
            event = self._queue.get(timeout=seconds)
        except queue.Empty:
            return None
        if event.kind == "signal":
            raise Stopped(*event.facts)
        return event


class Here:
    """The processes on this machine, of one generation after the other."""

    def __init__(
        self, plan: Plan, events: Events, mark: str, keep: tuple[int, ...], notice: Notice
    ):
        self.plan, self.events, self.notice = plan, events, notice
        self._mark, self._keep = mark, keep
        self.crew: Crew | None = None

    def start(self, generation: int, share: Share, address: str) -> Crew:
        def ended(rank: int) -> None:
            self.events.post("ended", generation, rank)
            self._show(crew)

        def broken() -> None:
            self.events.stop(signal.SIGPIPE)

        self.notice.clear()
        self.crew = crew = Crew(
            self.plan, generation, share, self._mark, self.notice.card_of
        )
        try:
            crew.start(address, ended, broken)
        except OSError as error:
            raise Problem(f"a process cannot be started: {error}.") from None
        self._show(crew)
        return crew

    def _show(self, crew: Crew) -> None:
        if crew is self.crew:
            workers = {
                str(rank): (worker.process.pid, worker.process.returncode)
                for rank, worker in tuple(crew.workers.items())
            }
            self.notice.show(
                generation=crew.generation, workers=workers, running=crew.share.total
            )

    def stop(self, *keep: int) -> None:
        """Ends what runs here. A signal that arrives once it is being stopped makes it quick."""
        stops = self.events.stops
        known = max(1, len(stops))
        number = signal.SIGINT if stops[:1] == [signal.SIGINT] else signal.SIGTERM
        crew, self.crew = self.crew, None
        if crew is not None:
            crew.stop(number, lambda: len(stops) > known, (*self._keep, *keep))


def _tls_files() -> Tls | None:
    """By flags, as the processes themselves find them."""
    try:
        return tls_files()
    except (ValueError, RuntimeError) as error:
        raise Problem(str(error).removeprefix("initialize: ")) from None


# ------------------------------------------------------------------------------- node 0


class Lead:
    """The launcher that decides."""

    def __init__(self, here: Here):
        self._here, self._plan, self._events = here, here.plan, here.events
        self._nodes: Nodes | None = None
        self._mirror: Mirror | None = None
        self._tls = _tls_files()
        self._done: set[int] = set()  # ranks here, and -k for node k, that have ended well
        self._others: set[Channel] = set()  # to the launchers that this generation runs at
        self._shares = Shares(here.plan.count, here.plan.nodes, here.plan.least)

    def run(self) -> int:
        status, text = 1, "node 0 has ended"
        try:
            if self._plan.nodes > 1:
                tls = coordinator.tls_context({"tls": self._tls and self._tls._asdict()})
                self._mirror = Mirror(self._here.notice, 0, self._pass_on)
                self._nodes = Nodes(
                    self._plan, self._listener(), tls, self._said, self._mirror.hear
                )
            status, text = self._generations()
        except Stopped as stop:
            status, text = 128 + stop.number, f"node 0 was stopped by {signal_name(stop.number)}"
            raise
        except Problem as problem:
            text = str(problem)
            raise
        finally:
            if self._mirror is not None:
                self._mirror.end()
            if self._nodes is not None:
                self._nodes.tell("end", status=status, text=text)
                self._nodes.close()
        if text:
            say(text)
        return status

    def _pass_on(self, message: dict[str, Any], nodes: set[int] | None) -> None:
        if self._nodes is not None:
            self._nodes.pass_on(message, nodes)

    def _said(self, said: Said) -> None:
        self._events.post("said", said)

    def _listener(self) -> socket.socket:
        assert self._plan.address is not None
        host, port = self._plan.address
        where = listen_host(host)
        try:
            listener = coordinator.listening(where, port)
        except OSError as error:
            raise Problem(_taken(where, port, error.strerror or str(error))) from None
        if self._tls is None:
            warn_of_strangers("the launcher of node 0", where, port)
        return listener

    def _generations(self) -> tuple[int, str]:
        for generation in itertools.count():
            self._await_nodes()
            reports = self._generation(generation)
            self._events.check()
            if not reports:
                return 0, ""
            status, text = verdict(reports)
            head = text.partition(". ")[0]
            self._here.notice.show(failure=head)
            if generation == self._plan.restarts:
                return status, text
            self._shrink(reports)
            also = [f", {r.about} {r.how}" for r in reports if r.lost and r != first(reports)]
            say(
                f"{head}{''.join(also)}; generation {generation + 1} starts"
                f"{self._shares.words} (restart {generation + 1} of {self._plan.restarts})"
            )
            self._rest(min(PAUSE * 2**generation, LONGEST_PAUSE))
        raise AssertionError

    def _shrink(self, reports: Sequence[Report]) -> None:
        """Has the next generation do without what was lost, if it may."""
        self._shares.lose([report.rank for report in reports if report.lost])
        missing = [] if self._nodes is None else self._nodes.missing()
        self._shares.lose_nodes(missing)
        self._shares.take_back(missing)

    def _await_nodes(self) -> None:
        deadline = time.monotonic() + self._plan.arrival
        while missing := self._missing():
            left = deadline - time.monotonic()
            if left <= 0:
                word = "node" if len(missing) == 1 else "nodes"
                raise Problem(
                    f"{word} {', '.join(map(str, missing))} of {self._plan.nodes} did not come "
                    f"within {self._plan.arrival:.0f} s (--initialization-timeout). The same "
                    "command must be started there, with its --node-rank."
                )
            self._events.next(left)  # one of them has come, or the time is over

    def _missing(self) -> list[int]:
        """The nodes that are to come."""
        missing = [] if self._nodes is None else self._nodes.missing()
        return [node for node in missing if node not in self._shares.left_out]

    def _rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._events.next(left)

    def _generation(self, generation: int) -> list[Report]:
        """Runs one; gives what failed in it."""
        started = self._coordinator()
        host = self._plan.address[0] if self._plan.address else "127.0.0.1"
        self._done = set()
        try:
            if self._nodes is not None:
                self._others = self._nodes.tell(
                    "start", generation=generation, port=started.port, counts=self._shares.counts
                )
            crew = self._here.start(generation, self._shares.of(0), at(host, started.port))
            return self._watch(crew)
        finally:
            self._stop(generation, started.pid)
            started.stop()

    def _coordinator(self) -> processes.Coordinator:
        plan = self._plan
        host, port = plan.address or ("127.0.0.1", 0)
        if plan.nodes > 1:
            port = 0  # launchers meet at the given one
        try:
            return start_coordinator(
                host, port, None, self._shares.total, self._tls, heartbeat=plan.heartbeat,
                arrival=plan.arrival,
            )
        except RuntimeError as error:
            raise Problem(str(error).removeprefix("initialize: ")) from None

    def _watch(self, crew: Crew) -> list[Report]:
        """Waits until all have ended, or one has failed; gives what failed, in its order."""
        reports: list[Report] = []
        deadline = None
        counts = self._shares.counts
        wanted = {*crew.share.ranks, *[-k for k in range(1, len(counts)) if counts[k]]}
        while self._done != wanted:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            event = self._events.next(left)
            if event is None:
                break
            found = self._look(crew, event)
            if found is None:
                continue
            reports.append(found)
            if not found.second and not (found.lost and self._shares.may_shrink):
                break
            now = time.monotonic()
            deadline = min(deadline or now + SETTLING, now + (LOSSES if found.lost else SETTLING))
        return reports

    def _look(self, crew: Crew, event: Event) -> Report | None:
        """What an event says of a failure."""
        if event.kind == "ended":
            generation, rank = event.facts
            if generation != crew.generation:
                return None
            found = crew.report(rank)
            if found is None:
                self._done.add(rank)
            return found
        (said,) = event.facts
        if said.op == "gone" and said.channel in self._others and self._shares.counts[said.node]:
            about = f"the launcher of node {said.node}"
            return Report(-1, about, "is gone: it was stopped, or its machine went down", 1)
        if said.op == "came" and said.node in self._shares.left_out:
            say(f"node {said.node} is there again: it takes part after the next failure")
        if said.op == "finished" and said.generation == crew.generation:
            self._done.add(-said.node)
        return said.report if said.generation == crew.generation else None

    def _stop(self, generation: int, pid: int) -> None:
        """Ends a generation on all nodes."""
        waiting: set[Channel] = set()
        if self._nodes is not None:
            waiting = self._nodes.tell("stop", generation=generation)
        self._here.stop(pid)
        deadline = time.monotonic() + self._plan.grace + REPLY
        while waiting and (left := deadline - time.monotonic()) > 0:
            try:
                event = self._events.next(left)
            except Stopped:
                continue  # it is in `stops`
            if event is not None and event.kind == "said":
                (said,) = event.facts
                if said.op in ("stopped", "gone"):
                    waiting.discard(said.channel)


def _taken(host: str, port: int, why: str) -> str:
    return (
        f"the launcher cannot listen at {at(host, port)}: {why}. Is another program at this "
        "port, or the address not of this machine? --coordinator must name node 0."
    )


# ------------------------------------------------------------------------------- other nodes


class Follower:
    """The launcher of another node, which does what that of node 0 says."""

    def __init__(self, here: Here):
        self._here, self._plan, self._events = here, here.plan, here.events
        self._tls = _tls_files()
        self._channel: Channel | None = None
        self._mirror = Mirror(here.notice, here.plan.node, self._pass_on)
        self._left: set[int] = set()  # ranks that have not ended well

    def run(self) -> int:
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while True:
                event = self._events.next()
                if event is not None and event.kind == "ended":
                    self._ended(*event.facts)
                elif event is not None:
                    end = self._follow(*event.facts)
                    if end is not None:
                        return end
        finally:
            self._mirror.end()
            self._here.stop()
            if self._channel is not None:
                self._channel.close()

    def _listen(self) -> None:
        """Joins, and passes on what the launcher of node 0 says; in a thread of its own."""
        assert self._plan.address is not None
        host, port = self._plan.address
        deadline = time.monotonic() + self._plan.arrival
        try:
            prefix = self._tls and self._tls.uri_prefix
            self._channel = channel = connect(
                host, port, deadline, tls_context(self._tls), prefix
            )
        except Refused as error:
            self._post({"op": "refused", "why": f"node 0 was not joined: {error}."})
            return
        except TimeoutError as error:
            self._post({"op": "refused", "why": (
                f"node {self._plan.node} did not reach the launcher of node 0 at "
                f"{at(host, port)} within {self._plan.arrival:.0f} s "
                f"(--initialization-timeout): {error}. Is it running there?"
            )})
            return
        channel.keep_alive(self._plan.heartbeat)
        channel.send(joining(self._plan))
        with suppress(*NONSENSE, OSError):  # it is no launcher; or this one has ended
            while (messages := channel.read(60.0)) is not None:
                for message in messages:
                    if message["op"] in OPS:
                        self._mirror.hear(0, message)
                    else:
                        self._post(message)
        self._post(None)

    def _post(self, message: Any) -> None:
        self._events.post("said", message)

    def _send(self, op: str, **facts: Any) -> None:
        assert self._channel is not None
        self._channel.send({"op": op, **facts})

    def _pass_on(self, message: dict[str, Any], _: Any) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _follow(self, message: Any) -> int | None:
        """Does what it is told; gives the exit status at the end."""
        if message is None:
            raise Problem("the launcher of node 0 is gone: it ended, or its machine went down.")
        if message["op"] == "refused":
            raise Problem(message["why"])
        if message["op"] == "start":
            assert self._plan.address is not None
            generation, plan = message["generation"], self._plan
            share = share_of(message["counts"], plan.node)
            if generation:
                words = with_processes(share.total, plan.nodes * plan.count)
                say(f"generation {generation} starts{words}")
            self._left = {*share.ranks}
            self._here.start(generation, share, at(self._plan.address[0], message["port"]))
        elif message["op"] == "stop":
            self._here.stop()
            self._events.check()
            self._send("stopped", generation=message["generation"])
        elif message["op"] == "end":
            if message["text"]:
                say(message["text"])
            return message["status"]
        return None

    def _ended(self, generation: int, rank: int) -> None:
        crew = self._here.crew
        if crew is None or crew.generation != generation:
            return
        found = crew.report(rank)
        if found is not None:
            self._send("failed", generation=generation, report=found.to_dict())
            return
        self._left.discard(rank)
        if not self._left:
            self._send("finished", generation=generation)
