"""The launcher of node 0, which decides: `Leader`. On one machine it is the only one."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Sequence

from shardwise._src.coordination import coordinator
from shardwise._src.distributed.channel import Channel
from shardwise._src.distributed.cluster import at
from shardwise._src.distributed.start import listen_host, start_coordinator, warn_of_strangers
from shardwise._src.launch.local_agent import Event, LocalAgent, Stopped, tls_of_flags
from shardwise._src.launch.nodes import Nodes, Problem
from shardwise._src.launch.rank_assignment import Shares, with_processes
from shardwise._src.launch.status_relay import StatusRelay
from shardwise._src.launch.worker_output import say
from shardwise._src.launch.worker_reports import Report, Verdict, first, signal_name, verdict
from shardwise._src.launch.workers import Crew
from shardwise._src.runtime import processes

SETTLING = 1.0  # seconds to wait for the first of several failures
LOSSES = 0.3  # seconds to wait for other processes that were killed together with one
LATE = 0.05  # seconds between checks whether the end of each ended process was reported
PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds before a restart: doubled with each
REPLY = 10.0  # seconds beyond the grace period for other nodes to stop


class Leader:
    """The launcher that decides."""

    def __init__(self, here: LocalAgent):
        self._here, self._plan, self._events = here, here.plan, here.events
        self._nodes = Nodes(here.plan, lambda said: here.events.post("said", said))
        self._mirror: StatusRelay | None = None
        self._tls = tls_of_flags()
        self._done: set[int] = set()  # local ranks, and -k for node k, that succeeded
        self._coordinator: processes.Coordinator | None = None  # of this generation
        self._others: dict[Channel, int] = {}  # the launchers of this generation
        self._shares = Shares(here.plan.count, here.plan.nodes, here.plan.least)

    def run(self) -> int:
        end = Verdict(1, "node 0 has ended")
        try:
            if self._plan.nodes > 1:
                tls = coordinator.tls_context({"tls": self._tls and self._tls._asdict()})
                self._mirror = StatusRelay(self._here.notice, 0, self._nodes.pass_on)
                self._nodes.listen(self._listener(), tls, self._mirror.hear)
            end = self._generations()
        except Stopped as stop:
            text = f"node 0 was stopped by {signal_name(stop.number)}"
            end = Verdict(128 + stop.number, text)
            raise
        except Problem as problem:
            end = Verdict(1, str(problem))
            raise
        finally:
            if self._mirror is not None:
                self._mirror.end()
            self._nodes.tell("end", **end._asdict())
            self._nodes.close()
        if end.text:
            say(end.shown(self._shares.of(0).ranks))
        return end.status

    def _listener(self) -> socket.socket:
        assert self._plan.address is not None
        host, port = self._plan.address
        where = listen_host(host)
        try:
            listener = coordinator.listening(where, port)
        except OSError as error:
            raise Problem(
                f"the launcher cannot listen at {at(where, port)}: {error.strerror or error}. Does "
                "another program use this port, or does the address belong to another machine? "
                "--coordinator must name node 0."
            ) from None
        if self._tls is None:
            warn_of_strangers("the launcher of node 0", where, port)
        return listener

    def _generations(self) -> Verdict:
        for generation in itertools.count():
            self._await_nodes(generation)
            reports = self._generation(generation)
            self._events.check()
            if not reports:
                return Verdict(0)
            end = verdict(reports)
            head = end.text.partition(". ")[0]
            self._here.notice.show(failure=head)
            if generation == self._plan.restarts:
                return end
            self._shrink(reports)
            also = [f", {r.about} {r.how}" for r in reports if r.lost and r != first(reports)]
            say(
                f"{head}{''.join(also)}; generation {generation + 1} starts"
                f"{self._shares.words} (restart {generation + 1} of {self._plan.restarts})"
            )
            self._rest(min(PAUSE * 2**generation, LONGEST_PAUSE))
        raise AssertionError

    def _shrink(self, reports: Sequence[Report]) -> None:
        """Excludes lost processes from the next generation, if allowed."""
        self._shares.lose([report.rank for report in reports if report.lost])
        self._missing()

    def _await_nodes(self, generation: int) -> None:
        """Waits until all nodes have joined, or, at a restart, those that it cannot do without."""
        deadline, total = time.monotonic() + self._plan.arrival, self._shares.total
        while missing := self._missing() if generation else self._nodes.missing():
            left = deadline - time.monotonic()
            if left <= 0:
                word = "node" if len(missing) == 1 else "nodes"
                raise Problem(
                    f"{word} {', '.join(map(str, missing))} of {self._plan.nodes} did not join "
                    f"within {self._plan.arrival:.0f} s (--initialization-timeout). Start the same "
                    "command there, with its own --node-rank."
                )
            self._events.next(left)  # a node has joined or left, or the time is over
        if total != self._shares.total:
            words = with_processes(self._shares.total, 0)
            say(f"generation {generation} starts{words}: nodes joined or left in the meantime")

    def _missing(self) -> list[int]:
        """The nodes to wait for, after excluding absent ones as far as allowed."""
        absent = self._nodes.missing()
        self._shares.take_back(absent)  # with them, more other nodes can be excluded
        self._shares.lose_nodes(absent)
        return [node for node in absent if node not in self._shares.left_out]

    def _rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._events.next(left)

    def _generation(self, generation: int) -> list[Report]:
        """Runs one generation; returns its failures."""
        started = self._coordinator = self._start_coordinator()
        host = self._plan.address[0] if self._plan.address else "127.0.0.1"
        self._done = set()
        try:
            self._others = self._nodes.tell(
                "start", generation=generation, port=started.port, counts=self._shares.counts
            )
            told = {0, *self._others.values()}
            for node, count in enumerate(self._shares.counts):
                if count and node not in told:  # it left a moment ago
                    return [_of_launcher(node)]
            crew = self._here.start(generation, self._shares.of(0), at(host, started.port))
            return self._watch(crew)
        finally:
            self._stop(generation, started.pid)
            started.stop()

    def _start_coordinator(self) -> processes.Coordinator:
        plan = self._plan
        host, port = plan.address or ("127.0.0.1", 0)
        if plan.nodes > 1:
            port = 0  # launchers meet at the given one
        try:
            waits = {"heartbeat": plan.heartbeat, "arrival": plan.arrival}
            return start_coordinator(host, port, None, self._shares.total, self._tls, **waits)
        except RuntimeError as error:
            raise Problem(str(error).removeprefix("initialize: ")) from None

    def _watch(self, crew: Crew) -> list[Report]:
        """Waits until all have ended, or one has failed; returns the failures in order."""
        reports: list[Report] = []
        heard: set[int] = set()  # local ranks whose "ended" event was read
        deadline = None
        counts = self._shares.counts
        wanted = {*crew.share.ranks, *[-k for k in range(1, len(counts)) if counts[k]]}
        while self._done != wanted:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            event = self._events.next(left)
            if event is None and not crew.dead() - heard:
                break
            if event is None:  # one has ended, but its event is still pending
                deadline = time.monotonic() + LATE
                continue
            if event.kind == "ended" and event.facts[0] == crew.generation:
                heard.add(event.facts[1])
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
        """The failure that an event reports, if any."""
        if event.kind == "ended":
            generation, rank = event.facts
            if generation != crew.generation:
                return None
            found = crew.report(rank)
            if found is None:
                self._done.add(rank)
                self._exited(rank, crew.name(rank))
            return found
        (said,) = event.facts
        if said.op == "gone" and said.channel in self._others and self._shares.counts[said.node]:
            return _of_launcher(said.node)
        if said.op == "came" and said.node in self._shares.left_out:
            say(f"node {said.node} is back: it takes part again after the next failure")
        if said.op == "finished" and said.generation == crew.generation:
            self._done.add(-said.node)
        if said.generation != crew.generation:
            return None
        if said.report and said.report.rank not in self._shares.of(said.node).ranks:
            how = f"reports process {said.report.rank}, which is not one of its processes"
            return _of_launcher(said.node, how)
        if said.op == "exited":
            self._exited(said.report.rank, said.report.about)
            return None
        return said.report

    def _exited(self, rank: int, name: str) -> None:
        """Other processes must not wait for one that exited with status 0 before it joined."""
        if self._coordinator is not None:
            self._coordinator.exited(rank, name)

    def _stop(self, generation: int, pid: int) -> None:
        """Ends a generation on all nodes."""
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
                    waiting.pop(said.channel, None)


def _of_launcher(
    node: int, how: str = "is gone: it was stopped, or its machine went down"
) -> Report:
    return Report(-1, f"the launcher of node {node}", how, 1)
