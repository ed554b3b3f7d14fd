"""What this process tells the coordinator, and what it does when another one fails.

Each launch of a program over several processes, and each wait for a result, passes a `Watch`. The
first launch of a program is a *meeting*: all processes of its devices come to it with what they are
about to run, and go on if that is the same. Once a second a thread sends where this process is.

When a process has failed, the thread prints what is known of it. Whoever waits for something that
cannot come any more gets a `ProcessFailureError`: in a meeting at once, in XLA by breaking the
connections of its transport. If that does not help either, the thread ends the process.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardwise._src.base.errors import ProcessFailureError
from shardwise._src.distributed.channel import Channel
from shardwise._src.messages.source import is_own
from shardwise._src.runtime.processes import RuntimeFailure, break_connections

BEAT = 1.0  # seconds
RECENT = 40  # launches that a beat tells of: more than may be in flight
GRACE = 2.0  # seconds that a wait has to end by itself after a failure
LAST_RESORT = 20.0  # seconds after which the process is ended
EXIT_STATUS = 75  # of a process that was ended so: what sysexits.h calls a temporary failure
EXPLAINED_WITHIN = 8.0  # seconds to learn why a program failed


class Failure(NamedTuple):
    """What the coordinator says of a failure. kind: lost, differ, absent or timeout."""

    kind: str
    ranks: tuple[int, ...]
    text: str
    at: float


class Meeting:
    """A wait of this process for others of a set."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.met = False
        self.payloads: list[Any] = []  # what all came with, by rank
        self.withdrawn = ""  # who did not come in time, in words


class Launches:
    """The launches over one set of processes."""

    def __init__(self, ranks: Sequence[int]):
        self.ranks = frozenset(ranks)
        self.count = 0  # of launches
        self.meetings = 0
        self.known: set[str] = set()  # digests of programs that all have launched
        self.recent: deque[tuple[int, str, str]] = deque(maxlen=RECENT)
        self.sent = 0


class Watch:
    """The gate (`runtime.processes.Gate`) of a process, and its voice.

    compare: whether programs are compared before their first launch.
    """

    def __init__(self, channel: Channel, index: int, count: int, compare: bool):
        self.index, self.count = index, count
        self.compare = compare
        self.failures: list[Failure] = []
        self.guarded: int | None = None  # the one thread that may launch, if it is one
        self._channel = channel
        self._sets: dict[tuple[int, ...], Launches] = {}
        self._order = threading.RLock()  # of launches
        self._waits: dict[int, tuple[float, str, str]] = {}  # by thread: since, kind, for what
        self._meetings: dict[tuple[str, int], Meeting] = {}
        self._censuses: dict[str, int] = {}  # how many there were, by set
        self._lock = threading.Lock()
        self._main = threading.main_thread().ident
        self._ended = False
        self._known = threading.Condition()
        self._gloo_broken = False
        self._thread = threading.Thread(target=self._run, name="shardwise-watch", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ launches and waits

    def launch(self, module: Any, run: Callable[[], Any]) -> Any:
        """Runs `run`, which launches a module over several processes, in its turn."""
        me = threading.get_ident()
        if self.guarded is not None and self.guarded != me:
            raise RuntimeError(
                f"{module.name}: a program over several processes is launched by thread "
                f"{threading.current_thread().name!r}, while `thread_guard` holds in another one. "
                "All processes must launch the same programs in the same order, which threads do "
                "not guarantee. Launch it from the thread of the guard, or after it."
            )
        with self._order:
            here = self._set(module.span)
            self._refuse_failed(here.ranks)
            doing = f"program {module.name!r}"
            if self.compare and module.digest not in here.known:
                self._meet(module.span, here, module.digest, doing)
                here.known.add(module.digest)
            here.count += 1
            here.recent.append((here.count, module.digest, doing))
            return run()

    def _set(self, span: tuple[int, ...]) -> Launches:
        found = self._sets.get(span)
        if found is None:
            found = self._sets[span] = Launches(span)
        return found

    def _refuse_failed(
        self, ranks: frozenset[int], failures: Sequence[Failure] | None = None
    ) -> None:
        for failure in self.failures if failures is None else failures:
            if not ranks.isdisjoint(failure.ranks):
                raise ProcessFailureError(failure.text, failure.ranks)

    def meet(
        self, name: str, value: str = "", span: Sequence[int] | None = None, *,
        payload: str = "", timeout: float | None = None,
    ) -> list[str]:
        """Waits until all processes of a set are here, with the same name and value, too.

        Gives the payloads that they came with, which may differ, in the order of the ranks; an
        empty list if nobody has any.

        Raises:
          ProcessFailureError: another process comes to something else, or not at all.
          TimeoutError: some are not here within `timeout` seconds; it names them. They and this
            process may meet again.
        """
        ranks = tuple(range(self.count)) if span is None else tuple(sorted(span))
        with self._order:
            here = self._set(ranks)
            self._refuse_failed(here.ranks)
            return self._meet(ranks, here, f"{name} {value}", name, payload, timeout)

    def _meet(
        self, span: tuple[int, ...], here: Launches, value: str, doing: str, payload: str = "",
        timeout: float | None = None,
    ) -> list[str]:
        key, number = ",".join(map(str, span)), here.meetings
        here.meetings += 1
        message = {"op": "meet", "value": f"{value} after {here.count}", "payload": payload}
        refuse = functools.partial(self._refuse_failed, here.ranks)
        meeting = self._come(key, number, message, doing, refuse, timeout)
        if meeting.withdrawn:
            here.meetings -= 1  # it is still to be met
            raise TimeoutError(meeting.withdrawn)
        if not meeting.met:
            self._refuse_failed(here.ranks)
        return meeting.payloads

    def census(self, span: Sequence[int], doing: str) -> list[int]:
        """Waits until all processes of a set that are alive are here, and gives these."""
        ranks = tuple(sorted(span))
        key = ",".join(map(str, ranks))
        with self._order:
            number = self._censuses[key] = self._censuses.get(key, 0) + 1
            begin, everyone = time.monotonic(), frozenset(ranks)

            def refuse() -> None:  # for somebody who is alive and does not come
                late = [f for f in self.failures if f.kind == "timeout" and f.at > begin]
                self._refuse_failed(everyone, late)

            found = self._come(f"alive {key}", number, {"op": "census"}, doing, refuse, None)
            return found.payloads

    def _come(
        self, key: str, number: int, message: dict[str, Any], doing: str,
        refuse: Callable[[], None], timeout: float | None,
    ) -> Meeting:
        """Waits in a meeting. refuse: raises when there is nobody to wait for any more."""
        meeting = self._meetings[key, number] = Meeting()
        doing = f"{doing} at {user_line(threading.get_ident())}"
        self._channel.send({**message, "set": key, "k": number, "doing": doing})
        self._begin_wait("meet", doing)
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = 0.5 if end is None else min(0.5, max(0.0, end - time.monotonic()))
                if meeting.lock.acquire(timeout=left):
                    return meeting
                refuse()
                if end is not None and time.monotonic() >= end:
                    end = None  # the coordinator has the last word: all may be there by now
                    self._channel.send({"op": "withdraw", "set": key, "k": number})
        finally:
            self._end_wait()
            del self._meetings[key, number]

    def wait(self, raw: Any) -> None:
        """Waits until a raw buffer is computed."""
        if raw.is_deleted():
            raw.block_until_ready()  # it raises what it should
        self._begin_wait("launch", "")
        try:
            raw.block_until_ready()
        except RuntimeFailure as error:
            raise self.explain(error) from None
        finally:
            self._end_wait()

    def _begin_wait(self, kind: str, doing: str) -> None:
        self._waits[threading.get_ident()] = (time.monotonic(), kind, doing)

    def _end_wait(self) -> None:
        self._waits.pop(threading.get_ident(), None)

    def explain(self, error: BaseException) -> BaseException:
        """What a failure of the runtime was about: another process, or the error itself."""
        if not is_about_peers(error):
            return error
        with self._known:
            self._known.wait_for(lambda: self.failures, EXPLAINED_WITHIN)
        if not self.failures:
            return error
        last = self.failures[0]
        return ProcessFailureError(last.text, last.ranks)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        beat = 0.0
        while not self._ended:
            messages = self._channel.read(max(0.0, min(BEAT, beat - time.monotonic())))
            if messages is None:
                self._coordinator_lost()
                return
            for message in messages:
                getattr(self, f"_on_{message['op']}")(message)
            now = time.monotonic()
            if now >= beat:
                if beat and now - beat > 60:
                    self._note_pause(now - beat)
                beat = now + BEAT
                self._beat(now)
            self._mind_failures(now)

    def _beat(self, now: float) -> None:
        waits = [(now - since, kind, doing) for since, kind, doing in tuple(self._waits.values())]
        since, kind, doing = max(waits, default=(0.0, "", ""))
        sets = {}
        for span, here in tuple(self._sets.items()):
            if here.sent != here.count:
                recent = tuple(here.recent)
                sets[",".join(map(str, span))] = here.count, recent
                here.sent = here.count
                doing = doing or (recent[-1][2] if recent else "")
            elif kind == "launch" and here.recent:
                doing = doing or here.recent[-1][2]
        line = user_line(self._main)
        self._channel.send(
            {"op": "beat", "line": line, "waiting": doing, "kind": kind, "since": since,
             "sets": sets}
        )

    def _on_met(self, message: dict[str, Any]) -> None:
        meeting = self._meetings.get((message["set"], message["k"]))
        if meeting is not None:
            meeting.met = True
            meeting.payloads = message.get("payloads", [])
            meeting.lock.release()

    def _on_withdrawn(self, message: dict[str, Any]) -> None:
        meeting = self._meetings.get((message["set"], message["k"]))
        if meeting is not None:
            meeting.withdrawn = message["text"]
            meeting.lock.release()

    def _on_fail(self, message: dict[str, Any]) -> None:
        ranks = tuple(message["ranks"])
        failure = Failure(message["kind"], ranks, message["text"], time.monotonic())
        say(failure.text)
        with self._known:
            self.failures.append(failure)
            self._known.notify_all()

    def _on_report(self, message: dict[str, Any]) -> None:
        say(message["text"])

    def _on_stacks(self, message: dict[str, Any]) -> None:
        text = stacks(self._main)
        self._channel.send({"op": "stacks", "number": message["number"], "text": text})

    def _on_dropped(self, message: dict[str, Any]) -> None:
        self._end_process(
            "the other processes have gone on without this one, which gave no sign of life"
        )

    def _note_pause(self, seconds: float) -> None:
        say(f"process {self.index} did nothing for {seconds:.0f} s: was it stopped?")

    def _coordinator_lost(self) -> None:
        if not self._ended:
            self._end_process("the coordinator is gone: its process ended, or its machine did")

    def _mind_failures(self, now: float) -> None:
        """Ends waits for what cannot come any more."""
        if not self.failures:
            return
        begun = self.failures[0].at
        stuck = [since for since, kind, _ in tuple(self._waits.values()) if kind == "launch"]
        late = [since for since in stuck if now - max(since, begun) > GRACE]
        if late and not self._gloo_broken:
            self._gloo_broken = True
            break_connections()
        elif [since for since in late if now - max(since, begun) > LAST_RESORT]:
            self._end_process("a wait for a result that cannot come does not end")

    def _end_process(self, why: str) -> None:
        if self._ended:
            return
        say(f"process {self.index} ends with status {EXIT_STATUS}: {why}.\n{stacks(self._main)}")
        sys.stdout.flush()
        os._exit(EXIT_STATUS)

    # ------------------------------------------------------------------ the end

    def announce(self, failed: str, line: str, consequence: bool) -> None:
        """Tells the others that this process is failing, before its end."""
        how = "followed" if consequence else "failed"
        self._channel.send({"op": "leave", "how": how, "text": failed, "line": line})

    def leave(self, failed: bool) -> None:
        """Says good-bye, if it did not say already that it fails."""
        self._ended = True
        if not failed:
            line = user_line(self._main)
            self._channel.send({"op": "leave", "how": "finished", "text": "", "line": line})
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * BEAT)
        self._channel.close()


def say(text: str) -> None:
    """Prints for people, in one piece."""
    sys.stderr.write(f"\nshardwise: {text}\n")
    sys.stderr.flush()


def is_about_peers(error: BaseException) -> bool:
    """Whether a failure of the runtime may come from a process that is gone."""
    text = str(error)
    return any(word in text for word in ("Gloo", "gloo", "NCCL", "MPI", "onnection", "peer"))


_STDLIB = sysconfig.get_path("stdlib")


def _is_users(file: str) -> bool:
    inside = file.startswith((_STDLIB, "<frozen")) and "site-packages" not in file
    return not (inside or is_own(file))


def user_line(thread: int | None) -> str:
    """The line of the user's program that a thread is at; "" before and after it."""
    frame = sys._current_frames().get(thread or 0)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"


def line_raised(trace: Any) -> str:
    """The innermost line of the user's program in a traceback."""
    entries = [e for e in traceback.extract_tb(trace) if _is_users(e.filename)]
    return f"{entries[-1].filename}:{entries[-1].lineno} ({entries[-1].name})" if entries else ""


def stacks(main: int | None) -> str:
    """The Python stacks of the threads of this process, those of this library's thread left out."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    order = sorted(frames, key=lambda ident: ident != main)
    parts = []
    for ident in order:
        name = names.get(ident, "?")
        if name == "shardwise-watch":
            continue
        entries = traceback.extract_stack(frames[ident])[-30:]
        parts.append(f"  thread {name}:\n" + "".join(traceback.format_list(entries)))
    return "".join(parts)
