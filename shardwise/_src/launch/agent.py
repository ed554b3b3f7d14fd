"""The launcher of a node other than node 0: `Agent`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from shardwise._src.coordination.failure_detector import MALFORMED
from shardwise._src.distributed.channel import Channel, Refused, connect
from shardwise._src.distributed.cluster import at
from shardwise._src.distributed.tls import tls_context
from shardwise._src.launch.local_agent import LocalAgent, tls_of_flags
from shardwise._src.launch.nodes import LONGEST, Problem, joining
from shardwise._src.launch.rank_assignment import Share, share_of, with_processes
from shardwise._src.launch.status_relay import OPS, StatusRelay
from shardwise._src.launch.worker_output import say
from shardwise._src.launch.worker_reports import Report, Verdict
from shardwise._src.launch.workers import Plan


class Start(NamedTuple):
    """A generation begins."""

    generation: int
    share: Share
    port: int


class Stop(NamedTuple):
    """A generation is to be stopped."""

    generation: int


def _order(message: Any, plan: Plan) -> Start | Stop | Verdict:
    """Parses an instruction from node 0.

    Raises:
      Problem: this launcher may not join.
      MALFORMED: it is not a launcher message.
    """
    op = message["op"]
    if op == "refused":
        raise Problem(str(message["why"]))
    if op == "end":
        return Verdict.from_dict(message)
    generation = int(message["generation"])
    if op == "stop":
        return Stop(generation)
    counts, port = [int(count) for count in message["counts"]], int(message["port"])
    fits = len(counts) == plan.nodes and all(0 <= count <= plan.count for count in counts)
    if op != "start" or not fits or not 0 < port < 1 << 16:
        raise ValueError(f"{op!r} of {counts} processes at port {port}")
    return Start(generation, share_of(counts, plan.node), port)


class Agent:
    """The launcher of a node other than 0, which follows the instructions of node 0's launcher."""

    def __init__(self, here: LocalAgent):
        self._here, self._plan, self._events = here, here.plan, here.events
        self._tls = tls_of_flags()
        self._channel: Channel | None = None
        self._mirror = StatusRelay(here.notice, here.plan.node, self._send)
        self._ranks: Sequence[int] = ()  # of the processes here
        self._left: set[int] = set()  # ranks that have not exited with status 0

    def run(self) -> int:
        threading.Thread(target=self._listen, name="shardwise-follower", daemon=True).start()
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
        """Joins, and forwards the messages of node 0's launcher; runs in a separate thread."""
        try:
            self._hear_all()
        finally:
            self._post(None)

    def _hear_all(self) -> None:
        assert self._plan.address is not None
        host, port = self._plan.address
        deadline = time.monotonic() + self._plan.arrival
        try:
            prefix = self._tls and self._tls.uri_prefix
            self._channel = channel = connect(
                host, port, deadline, tls_context(self._tls), prefix, LONGEST
            )
        except Refused as error:
            self._post({"op": "refused", "why": f"could not join node 0: {error}."})
            return
        except TimeoutError as error:
            why = (
                f"node {self._plan.node} did not reach the launcher of node 0 at {at(host, port)} "
                f"within {self._plan.arrival:.0f} s (--initialization-timeout): {error}. Is it "
                "running there?"
            )
            self._post({"op": "refused", "why": why})
            return
        channel.keep_alive(self._plan.heartbeat)
        channel.send(joining(self._plan))
        with suppress(*MALFORMED, OSError):  # the peer is not a launcher, or this one has ended
            while (messages := channel.read(60.0)) is not None:
                for message in messages:
                    if message["op"] in OPS:
                        self._mirror.hear(0, message)
                    else:
                        self._post(message)

    def _post(self, message: Any) -> None:
        self._events.post("said", message)

    def _send(self, message: dict[str, Any], _: object = None) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _follow(self, message: Any) -> int | None:
        """Carries out an instruction of node 0; returns the exit status at the end."""
        if message is None:
            raise Problem("the launcher of node 0 is gone: it exited, or its machine went down.")
        try:
            order = _order(message, self._plan)
        except MALFORMED as error:
            raise Problem(
                f"the launcher of node 0 sent an invalid message ({type(error).__name__}: "
                f"{error}): is another program using its address?"
            ) from None
        if isinstance(order, Start):
            self._start(order)
        elif isinstance(order, Stop):
            self._here.stop()
            self._events.check()
            self._send({"op": "stopped", "generation": order.generation})
        else:
            if order.text:
                say(order.shown(self._ranks))
            return order.status
        return None

    def _start(self, order: Start) -> None:
        plan, share = self._plan, order.share
        assert plan.address is not None
        if order.generation:
            words = with_processes(share.total, plan.nodes * plan.count)
            say(f"generation {order.generation} starts{words}")
        self._ranks = share.ranks
        self._left = {*share.ranks}
        self._here.start(order.generation, share, at(plan.address[0], order.port))

    def _ended(self, generation: int, rank: int) -> None:
        crew = self._here.crew
        if crew is None or crew.generation != generation:
            return
        found = crew.report(rank)
        ended = found or Report(rank, crew.name(rank), "exited with status 0", 0)
        about = {"generation": generation, "report": ended._asdict()}
        self._send({"op": "failed" if found else "exited", **about})
        if found is None:
            self._left.discard(rank)
            if not self._left:
                self._send({"op": "finished", "generation": generation})
