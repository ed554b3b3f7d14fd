"""Reports the state of this process to the coordinator, and handles failures of other processes.

Each launch of a program over several processes, and each wait for a result, goes through a `Watch`.
The first launch of a program is a *meeting*: all processes of its devices join it with the program
that they are about to run, and continue if all are the same. A thread sends heartbeats with the
current location of this process.

When a process has failed, the thread prints the known facts about it. Waits that can no longer
complete raise a `ProcessFailureError`: immediately in a meeting; in XLA, by breaking the
connections of its transport. If that does not help either, the thread ends the process.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from shardwise._src.base.config import thread_guard
from shardwise._src.base.errors import ProcessFailureError
from shardwise._src.distributed.channel import Channel
from shardwise._src.distributed.log import flush, say
from shardwise._src.distributed.program_differences import program_text, program_types
from shardwise._src.distributed.put_values import Put, Values, value_of
from shardwise._src.distributed.quiesce import answer
from shardwise._src.distributed.recorder import Recorder, record_of
from shardwise._src.distributed.records import Failure, Launches, Meeting, Wait
from shardwise._src.distributed.stacks import THREAD, stacks, user_line
from shardwise._src.distributed.status_files import board
from shardwise._src.messages.source import Site, describe, user_site
from shardwise._src.runtime import threads
from shardwise._src.runtime.compiler.callback_targets import CallbackError
from shardwise._src.runtime.processes import RuntimeFailure, break_connections, is_about_peers

BEAT = 0.25  # seconds
OWN_FRAMES = 3  # at least, between the user's line and `Watch.launch`
WORTH_TELLING = 1e-3  # seconds of a wait for a result from which it is recorded
CROWD = 64  # processes; if there are more, heartbeats are sent once a second
MARK = 64  # launches after which their order is reported as one number
PAUSED = 2.0  # seconds after which this process is assumed to have been suspended
GRACE = 1.0  # seconds for a wait to end by itself after a failure
LAST_RESORT = 20.0  # seconds after which the process is ended
EXIT_STATUS = 75  # of a process ended that way: a temporary failure (EX_TEMPFAIL of sysexits.h)
EXPLAINED_WITHIN = 8.0  # seconds to learn why a program failed
DISMISSED_WITHIN = 2.0  # seconds for the coordinator to answer a "leave" message


class Watch:
    """The gate (`runtime.processes.Gate`) of a process, and its link to the coordinator.

    compare: whether programs are compared before their first launch, and host values.
    silence: seconds without a message of the coordinator after which it counts as lost.
    """

    def __init__(
        self, channel: Channel, index: int, count: int, compare: bool, host: str, silence: float
    ):
        self.index, self.count = index, count
        self.compare = compare
        self.failures: list[Failure] = []
        self.recorder = Recorder(index, count, host)
        self._raised = 0  # how many of them were raised in the user's code
        self._past: list[Failure] = []  # failures after which the program has continued
        self._eras, self._era = 0, ""  # their number; the suffix of set keys
        self._silence = silence
        self._heard = time.monotonic()
        self._beat_every = BEAT if count <= CROWD else 1.0
        self.service: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()  # of XLA
        self._channel = channel
        self._sets: dict[tuple[int, ...], Launches] = {}
        self._order = threading.RLock()  # of launches
        self._turn = 0  # launches of all sets
        self._values = Values()  # put by this process
        self._waits: dict[int, Wait] = {}  # by thread
        self._meetings: dict[tuple[str, int], Meeting] = {}
        self._censuses: dict[str, int] = {}  # number of censuses, by set
        self._lock = threading.Lock()
        self._main = threading.main_thread().ident
        self._site: Site | None = None  # of the last launch
        self._compared: Any = None  # the module being compared in a meeting
        self._ended = False
        self._leaving = False
        self._dismissed = threading.Event()  # the coordinator has confirmed the end of this process
        self._known = threading.Condition()
        self._broken = 0.0  # when connections were broken
        board.beats = True
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ launches and waits

    def launch(
        self, module: Any, run: Callable[[Sequence[Any]], Any], buffers: Sequence[Any]
    ) -> Any:
        """Launches a module over several processes, by `run(buffers)`, in order with others."""
        if thread_guard.owner not in (None, threading.get_ident()):
            self._reject_thread(module.name)
        with self._order:
            span = module.span
            here = self._sets.get(span) or self._set(span)
            if self.failures or self._past:
                self._raise_if_failed(here.ranks)
            digest = module.digest
            number = here.known.get(digest) or self._first_launch(span, here, module)
            count = here.count = here.count + 1
            here.order = (here.order * 31 + number) & 0xFFFFFFFFFFFF
            turn = self._turn = self._turn + 1
            if here.put.checksum:
                digest = f"{digest}:{here.put.checksum:x}"
                self._values.add(self._key(span), count, here.put)
                here.put = Put()
            here.recent.append((count, digest, module.name, turn))
            if count % MARK == 0:
                here.recent.append((-count, str(here.order), module.name, turn))
            site = self._site = user_site(OWN_FRAMES)
            now = time.monotonic()
            self.recorder.add((now, "launch", module.name, count, span, site, 0.0))
            # A process with a single device runs the program here, and waits for other processes.
            waits, thread = self._waits, threading.get_ident()
            waits[thread] = (now, "launch", "")
            try:
                return run(buffers)
            finally:
                waits.pop(thread, None)

    def note(self, span: tuple[int, ...], value: Any) -> None:
        """Compares a host value, a NumPy array, that all processes of a set put on devices.

        Its checksum is sent with their next launch, which the next heartbeat reports.
        """
        if self.compare:
            with self._order:
                self._set(span).put.add(value_of(value, user_site(OWN_FRAMES)))

    def _first_launch(self, span: tuple[int, ...], here: Launches, module: Any) -> int:
        """Compares a program with those of the other processes; returns its number."""
        if self.compare:
            self._compared, about = module, program_types(module.text)
            try:
                self._meet(span, here, module.digest, f"program {module.name!r}", about=about)
            finally:
                self._compared = None
        number = here.known[module.digest] = zlib.crc32(module.digest.encode()) or 1
        return number

    def _reject_thread(self, name: str) -> NoReturn:
        raise RuntimeError(
            f"{name}: a program over several processes is launched by thread "
            f"{threading.current_thread().name!r}, while `thread_guard` is set by another one. All "
            "processes must launch the same programs in the same order, which threads do not "
            "guarantee. Launch it from the thread that set the guard, or after the guard ends."
        )

    def _set(self, span: tuple[int, ...]) -> Launches:
        found = self._sets.get(span)
        if found is None:
            found = self._sets[span] = Launches(span)
        return found

    def _key(self, span: Sequence[int]) -> str:
        return ",".join(map(str, span)) + self._era

    def _raise_if_failed(
        self, ranks: frozenset[int], failures: Sequence[Failure] | None = None, *, seen: bool = True
    ) -> None:
        """seen: whether the error is raised to user code, not in a thread of the library."""
        for failure in (*self.failures, *self._past) if failures is None else failures:
            if not ranks.isdisjoint(failure.ranks):
                if seen:
                    self._raised = len(self.failures)
                raise ProcessFailureError(failure.text, failure.ranks)

    def _raise_if_over(self, doing: str, era: str) -> None:
        """Raises in a wait that cannot end, as this process has left, or its program continued."""
        if self._ended:
            raise RuntimeError(
                f"{doing}: this process has left the others "
                "(`shardwise.distributed.shutdown`), and no longer waits for them."
            )
        if self._era != era:
            raise ProcessFailureError(self._past[-1].text, self._past[-1].ranks)

    def meet(
        self,
        name: str,
        value: str = "",
        span: Sequence[int] | None = None,
        *,
        payload: str = "",
        timeout: float | None = None,
    ) -> list[str]:
        """Waits until all processes of a set have arrived, with the same name and value.

        Returns their payloads, which may differ, in the order of the ranks; an empty list if no
        process has any.

        Raises:
          ProcessFailureError: another process arrives at a different meeting, or not at all.
          TimeoutError: some do not arrive within `timeout` seconds; it names them. They and this
            process may meet again.
        """
        ranks = tuple(range(self.count)) if span is None else tuple(sorted(span))
        with self._order:
            here = self._set(ranks)
            self._raise_if_failed(here.ranks)
            return self._meet(ranks, here, f"{name} {value}", name, payload, timeout)

    def _meet(
        self,
        span: tuple[int, ...],
        here: Launches,
        value: str,
        doing: str,
        payload: str = "",
        timeout: float | None = None,
        about: str = "",
    ) -> list[str]:
        key, number = self._key(span), here.meetings
        here.meetings += 1
        message = {
            "op": "meet",
            "value": f"{value} after {here.count}",
            "after": here.count,
            "payload": payload,
            "about": about,
        }
        reject = functools.partial(self._raise_if_failed, here.ranks)
        try:
            return self._come(key, number, message, doing, reject, timeout)
        except TimeoutError:
            here.meetings -= 1  # this meeting is still pending
            raise

    def gather(
        self, name: str, payload: str, timeout: float, span: Sequence[int] | None = None
    ) -> list[str]:
        """Waits until all processes of a set have arrived at a name, which is used only once;
        returns their payloads, in the order of the ranks.

        Any thread may call it, in any order relative to launches and meetings.

        Raises:
          ProcessFailureError: one will not arrive.
          TimeoutError: some do not arrive within `timeout` seconds; it names them.
        """
        ranks = tuple(range(self.count)) if span is None else tuple(sorted(span))
        in_main = threading.get_ident() == self._main
        reject = functools.partial(self._raise_if_failed, frozenset(ranks), seen=in_main)
        reject()
        key = f"{','.join(map(str, ranks))}#{name}{self._era}"
        message = {"op": "meet", "value": "", "after": 0, "payload": payload, "about": ""}
        return self._come(key, 0, message, name, reject, timeout) or [""] * len(ranks)

    def census(self, span: Sequence[int], doing: str) -> list[int]:
        """Waits until all live processes of a set have arrived, and returns them."""
        ranks = tuple(sorted(span))
        key = ",".join(map(str, ranks))
        with self._order:
            number = self._censuses[key] = self._censuses.get(key, 0) + 1
            begin, everyone = time.monotonic(), frozenset(ranks)

            def reject() -> None:  # if a live process does not arrive
                late = [f for f in self.failures if f.kind == "timeout" and f.at > begin]
                self._raise_if_failed(everyone, late)

            return self._come(f"alive {key}", number, {"op": "census"}, doing, reject, None)

    def _come(
        self,
        key: str,
        number: int,
        message: dict[str, Any],
        doing: str,
        reject: Callable[[], None],
        timeout: float | None,
    ) -> list[Any]:
        """Waits in a meeting; returns the payloads, by rank.

        reject: raises if the meeting can no longer complete.
        """
        meeting, era = Meeting(), self._era
        self._meetings[key, number] = meeting
        line = user_line(threading.get_ident())  # "" in a thread of the library
        doing += f" at {line}" if line else ""
        patient = timeout is not None
        about = {"set": key, "k": number, "doing": doing, "patient": patient}
        self._channel.send({**message, **about})
        before, begin = self._begin_wait("meet", doing)
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = 0.5 if end is None else min(0.5, max(0.0, end - time.monotonic()))
                if meeting.lock.acquire(timeout=left):
                    break
                reject()
                self._raise_if_over(doing, era)
                if end is not None and time.monotonic() >= end:
                    end = None  # the coordinator decides: all may have arrived by now
                    self._channel.send({"op": "withdraw", "set": key, "k": number})
        finally:
            self._end_wait(before)
            lasted = time.monotonic() - begin
            self.recorder.add((begin, "meeting", doing, number, (), None, lasted))
            del self._meetings[key, number]
        if meeting.withdrawn:
            raise TimeoutError(meeting.withdrawn)
        return meeting.payloads

    def wait(self, raw: Any) -> None:
        """Waits until a raw buffer is computed."""
        before, begin = self._begin_wait("launch", "")
        try:
            raw.block_until_ready()
        except RuntimeFailure as error:
            raise self.explain(error) from None
        finally:
            self._end_wait(before)
            lasted = time.monotonic() - begin
            if lasted > WORTH_TELLING:
                self.recorder.add((begin, "wait", "for a result", 0, (), user_site(), lasted))

    def _begin_wait(self, kind: str, doing: str) -> tuple[Wait | None, float]:
        """Returns the enclosing wait, if any, and the time."""
        now, thread = time.monotonic(), threading.get_ident()
        before, self._waits[thread] = self._waits.get(thread), (now, kind, doing)
        return before, now

    def _end_wait(self, before: Wait | None) -> None:
        if before is None:
            self._waits.pop(threading.get_ident(), None)
        else:
            self._waits[threading.get_ident()] = before

    def waiting(self) -> list[Wait]:
        """The current wait of each waiting thread."""
        return list(self._waits.values())

    def explain(self, error: BaseException) -> BaseException:
        """The cause of a runtime failure: the failure of another process, or the error itself."""
        own = not isinstance(error, RuntimeFailure) or isinstance(error, CallbackError)
        if own or not is_about_peers(error):
            return error
        if not self.failures:
            line = str(error).partition("\n")[0]
            self._channel.send({"op": "broken", "text": line[:300]})
        with self._known:
            self._known.wait_for(lambda: self.failures, EXPLAINED_WITHIN)
        if not self.failures:
            return error
        self._raised = len(self.failures)
        first = self.failures[0]
        return ProcessFailureError(first.text, first.ranks)

    def go_on_without(self, lost: Sequence[int]) -> None:
        """Marks failures as past: only launches over lost processes are rejected from now on.

        All surviving processes call it at the same point of their programs.
        """
        with self._order:
            told = {r for failure in (*self.failures, *self._past) for r in failure.ranks}
            text = self.failures[0].text if self.failures else "it is lost"
            gone = tuple([r for r in lost if r not in told])
            kept = [f._replace(ranks=tuple(set(f.ranks) & set(lost))) for f in self.failures]
            self._past += [*kept, Failure("lost", gone, text, time.monotonic())]
            self.failures.clear()
            self._raised = 0
            self._sets.clear()
            self._eras += 1
            self._era = f"#{self._eras}"
            self._channel.send({"op": "era", "era": self._era})

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # failures would no longer be reported
            self.end_process(f"its watch thread failed: {type(error).__name__}: {error}")

    def _watch(self) -> None:
        beat, looked = 0.0, time.monotonic()
        while not self._ended:
            messages = self._channel.read(max(0.0, min(BEAT, beat - time.monotonic())))
            if messages is None:
                self._coordinator_lost()
                return
            now = time.monotonic()
            if messages:
                self._heard = now
            for message in messages:
                getattr(self, f"_on_{message['op']}")(message)
            if now - looked > PAUSED:  # maybe the coordinator, too: allow it the same time
                self._heard = min(now, self._heard + now - looked)
            looked = now
            if now >= beat:
                if beat and now - beat > 60:
                    say(
                        f"process {self.index} was inactive for {now - beat:.0f} s: was it stopped?"
                    )
                beat = now + self._beat_every
                self._beat(now)
            self._check_failures(now)

    def _beat(self, now: float) -> None:
        waits = [(now - since, kind, doing) for since, kind, doing in tuple(self._waits.values())]
        # A launch that is stuck must be known, whatever other threads wait for.
        order = max(waits, key=lambda wait: (wait[1] == "launch", wait), default=(0.0, "", ""))
        since, kind, doing = order
        sets = {}
        for span, here in tuple(self._sets.items()):
            recent = tuple(here.recent)
            if here.sent != here.count:
                sets[self._key(span)] = here.count, recent
                here.sent = here.count
            elif kind != "launch":
                continue
            doing = doing or (f"program {recent[-1][2]!r}" if recent else "")
        line = user_line(self._main)
        about = {"line": line, "waiting": doing, "kind": kind, "since": since}
        self._channel.send({"op": "beat", **about, "sets": sets})
        board.show(about)

    def _on_met(self, message: dict[str, Any]) -> None:
        meeting = self._meetings.get((message["set"], message["k"]))
        if meeting is not None:
            meeting.payloads = message.get("payloads", [])
            meeting.withdrawn = message.get("text", "")
            meeting.lock.release()

    _on_withdrawn = _on_met  # with a text

    def _on_bye(self, message: dict[str, Any]) -> None:
        self._dismissed.set()

    def _on_leaving(self, message: dict[str, Any]) -> None:
        threads.start(functools.partial(answer, self, message), "watch")  # as `THREAD`

    def launched(self) -> dict[str, int]:
        """The number of launches, by set."""
        return {self._key(span): here.count for span, here in tuple(self._sets.items())}

    def goes_on(self) -> bool:
        return not (self._ended or self.failures)

    def settled(self, number: int) -> None:
        """Confirms that the leave with this number may proceed."""
        if not self._ended:
            self._beat(time.monotonic())  # with the last launches
            self._channel.send({"op": "settled", "number": number})

    def _on_heard(self, message: dict[str, Any]) -> None:
        """The coordinator is alive."""

    def _on_fail(self, message: dict[str, Any]) -> None:
        self._failed(message["kind"], tuple(message["ranks"]), message["text"])

    def _failed(self, kind: str, ranks: tuple[int, ...], text: str) -> None:
        self.recorder.note("failure", text)
        if kind != "followed" or not self.failures:  # else its cause was already reported
            record = f"\nThe last launches and waits of this process: {self.write_record()}"
            module = self._compared if kind == "differ" else None
            if module is not None:
                path = self.recorder.write(program_text(module), "program")
                record += f"\nIts program, to compare with that of the other process: {path}"
            say(text + record)
        with self._known:
            self.failures.append(Failure(kind, ranks, text, time.monotonic()))
            self._known.notify_all()

    def write_record(self) -> str:
        """Writes the flight record; returns its path."""
        return self.recorder.write(record_of(self))

    def _on_service(self, message: dict[str, Any]) -> None:
        self.service.put(message)

    def service_port(self, seconds: float) -> int:
        """The port of XLA's coordination service, once it is available."""
        try:
            message = self.service.get(timeout=seconds)
        except queue.Empty:
            raise RuntimeError(
                f"XLA's coordination service did not start within {seconds:.0f} s."
            ) from None
        if message.get("error"):
            raise RuntimeError(f"XLA's coordination service failed to start: {message['error']}")
        return message["port"]

    def _on_values(self, message: dict[str, Any]) -> None:
        key, number, place = message["set"], message["number"], message["place"]
        answer = self._values.answer(key, number, place)
        self._channel.send({"op": "values", "set": key, "number": number, **answer})

    def _on_report(self, message: dict[str, Any]) -> None:
        self.recorder.note("report", message["text"].partition("\n")[0])
        say(message["text"])

    def _on_stacks(self, message: dict[str, Any]) -> None:
        text = stacks(self._main)
        self._channel.send({"op": "stacks", "number": message["number"], "text": text})

    def _on_dropped(self, message: dict[str, Any]) -> None:
        self.end_process(f"the other processes have continued without this one, {message['why']}")

    def _coordinator_lost(self) -> None:
        if self._leaving:
            self._dismissed.set()
        elif not self._ended:
            self.end_process(
                "its connection to the coordinator closed: the coordinator was killed, or its "
                "machine or the network is down"
            )

    def _check_failures(self, now: float) -> None:
        """Ends waits that can no longer complete."""
        if now - self._heard > self._silence and not self.failures:
            self._failed(
                "coordinator",
                tuple(range(self.count)),
                f"there was no heartbeat from the coordinator for {now - self._heard:.0f} s: it is "
                "stopped, or its machine or the network is down.",
            )
        if not self.failures:
            return
        begun = self.failures[0].at
        stuck = [since for since, kind, _ in self.waiting() if kind == "launch"]
        late = [since for since in stuck if now - max(since, begun) > GRACE]
        if [since for since in late if now - max(since, begun) > LAST_RESORT]:
            self.end_process("it is stuck waiting for a result that will never arrive")
        if late and now - self._broken > GRACE:  # again: programs in flight may open new ones
            break_connections()
            self._broken = time.monotonic()

    def end_process(self, why: str) -> None:
        """Ends the process immediately, with EXIT_STATUS."""
        if self._ended:
            return
        self.recorder.note("failure", why)
        say(
            f"process {self.index} exits with status {EXIT_STATUS}: {why}.\n{stacks(self._main)}"
            f"The last launches and waits of this process: {self.write_record()}"
        )
        flush()
        os._exit(EXIT_STATUS)

    # ------------------------------------------------------------------ the end

    def announce(self, failed: str, line: str, consequence: bool) -> None:
        """Notifies the others that this process is failing, before it ends."""
        how = "followed" if consequence else "failed"
        self._beat(time.monotonic())  # with the last launches
        self._channel.send({"op": "leave", "how": how, "text": failed, "line": line})
        with self._known:  # for exit handlers, whose meetings can no longer complete
            text = f"this process failed with {failed}, and the others exit without it."
            everyone = tuple(range(self.count))
            self.failures.append(Failure("lost", everyone, text, time.monotonic()))
            self._known.notify_all()

    def leave(self, failed: bool, unfinished: bool = False, patience: float = 0.0) -> None:
        """Leaves the other processes, unless `announce` has already reported a failure.

        Waits until the others have the results of programs launched with this process, for at most
        `patience` seconds. The coordinator reports long waits.

        Ends the process if its last launches differ from those of the others, or, if `unfinished`,
        because a program that was not waited for has failed.
        """
        if not failed:
            before = len(self.failures)
            line = user_line(self._main) or (describe(self._site) if self._site else "")
            self._leaving = True
            self._beat(time.monotonic())  # with the last launches
            limit = max(DISMISSED_WITHIN, patience)
            self._channel.send(
                {"op": "leave", "how": "finished", "text": "", "line": line, "limit": limit}
            )
            end = time.monotonic() + limit
            while not self._dismissed.wait(2 * BEAT) and time.monotonic() < end:
                if len(self.failures) > before:
                    break
            if any(failure.kind == "differ" for failure in self.failures[self._raised :]):
                self.end_process("its last results may be wrong")
            if unfinished:
                self.end_process("a program that it launched and did not wait for has failed")
        self._ended, board.beats = True, False
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * BEAT)
        self._channel.close()
