"""The local side of any launcher: the processes on its machine, and their events.

For example:

    agent.start(0, share, "10.0.0.1:4711")    # a generation
    event = agent.events.next()               # a process has ended, another launcher sent a message
    agent.stop()
"""

from __future__ import annotations

import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from shardwise._src.distributed.status_files import LaunchStatus
from shardwise._src.distributed.tls import Tls, tls_files
from shardwise._src.launch.nodes import Problem
from shardwise._src.launch.rank_assignment import Share
from shardwise._src.launch.workers import Crew, Plan


class Stopped(Exception):
    """The launcher has received a signal to stop."""

    def __init__(self, number: int):
        self.number = number


class Event(NamedTuple):
    """kind: "signal" with its number, "ended" with generation and rank, "said" with a message of
    another launcher: a `Said` at node 0, elsewhere the raw message, or None if it is gone."""

    kind: str
    facts: tuple[Any, ...]


class Events:
    """A queue of events, in order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.stops: list[int] = []  # signals that have arrived

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Turns termination signals into events. Signals ignored before (nohup) stay ignored."""
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
        """The next event; None if no event comes within `seconds`.

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


class LocalAgent:
    """The processes on this machine, over successive generations."""

    def __init__(
        self, plan: Plan, events: Events, mark: str, keep: tuple[int, ...], notice: LaunchStatus
    ):
        self.plan, self.events, self.notice = plan, events, notice
        self._mark, self._keep = mark, keep
        self.crew: Crew | None = None

    def start(self, generation: int, share: Share, address: str) -> Crew:
        def ended(rank: int) -> None:
            self.events.post("ended", generation, rank)
            self._show(crew)

        self.notice.clear()
        self.crew = crew = Crew(self.plan, generation, share, self._mark, self.notice.card_of)
        try:
            crew.start(address, ended, lambda: self.events.stop(signal.SIGPIPE))
        except OSError as error:
            raise Problem(f"could not start a process: {error}.") from None
        self._show(crew)
        return crew

    def _show(self, crew: Crew) -> None:
        if crew is self.crew:
            workers = {
                str(rank): (worker.process.pid, worker.process.returncode)
                for rank, worker in tuple(crew.workers.items())
            }
            self.notice.show(generation=crew.generation, workers=workers, running=crew.share.total)

    def stop(self, *keep: int) -> None:
        """Stops the processes here. A signal that arrives meanwhile skips the grace period."""
        stops = self.events.stops
        known = max(1, len(stops))
        number = signal.SIGINT if stops[:1] == [signal.SIGINT] else signal.SIGTERM
        crew, self.crew = self.crew, None
        if crew is not None:
            crew.stop(number, lambda: len(stops) > known, (*self._keep, *keep))


def tls_of_flags() -> Tls | None:
    """The TLS files from flags, as the processes themselves find them."""
    try:
        return tls_files()
    except (ValueError, RuntimeError) as error:
        raise Problem(str(error).removeprefix("initialize: ")) from None
