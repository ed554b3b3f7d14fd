"""Checkpoints that are written in the background.

For example:

    manager = GlobalAsyncCheckpointManager()
    manager.serialize_with_paths(arrays, paths, on_commit_callback=rename)   # copies the values
    ...                                                                      # arrays may be donated
    manager.wait_until_finished()
"""

from __future__ import annotations

import abc
import hashlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardwise._src.arrays.array import Array
from shardwise._src.base.monitoring import record_event_duration_secs
from shardwise._src.base.warn import warn
from shardwise._src.placement.device_put import process_index
from shardwise._src.runtime import processes, threads
from shardwise._src.saving.arrays import run, run_deserialization, serialize_all
from shardwise._src.saving.tensorstore_specs import Spec, serialization_spec

WAIT = 3600.0  # timeout in seconds for processes that wait for each other during reads and writes
LONGEST = 10_000  # characters of an error that other processes report
_numbers = itertools.count()  # of commits, in the same order in all processes


class BarrierTimeoutError(Exception):
    """Not all processes have written their shards in time."""


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """Interface of a checkpoint manager; only one checkpoint is in progress at a time."""

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raises any error so far, once; does not wait."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Waits for the checkpoint in progress."""

    @abc.abstractmethod
    def serialize(
        self,
        arrays: Sequence[Any],
        tensorstore_specs: Sequence[Spec],
        *,
        on_commit_callback: Callable[[], None],
    ) -> None:
        """Starts writing arrays."""

    @abc.abstractmethod
    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[Spec],
        global_shapes: Sequence[Any] | None = None,
        dtypes: Sequence[Any] | None = None,
    ) -> Any:
        """Reads arrays."""


class Background:
    """Work in a thread, for which the process waits at its end. Its error is raised once."""

    def __init__(self, work: Callable[[], object], name: str):
        self._error: BaseException | None = None
        self._task = threads.start(lambda: self._run(work), name, daemon=False)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error

    def done(self) -> bool:
        """Whether it has ended, with or without an error."""
        return not self._task.is_alive()

    def _check(self) -> None:
        """Raises any error so far; does not wait."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Waits until it has ended; raises its error."""
        self._task.join()
        self._check()


class AsyncManager:
    """Waits for writes in a background thread, which also synchronizes with other processes.

    timeout_secs: how long a process waits for the other processes to finish writing.
    """

    def __init__(self, timeout_secs: int = 300):
        self._timeout = timeout_secs
        self._commit: Background | None = None
        self._futures: Sequence[Any] = ()

    def __del__(self) -> None:
        commit = getattr(self, "_commit", None)
        if commit is not None and not commit.done():
            warn(
                "A checkpoint manager was garbage-collected while it was still writing; its errors "
                "will be lost. Call its wait_until_finished() first.", ResourceWarning,
            )  # fmt: skip

    def _add_futures(self, futures: Sequence[Any]) -> None:
        self._futures = futures

    def _start_async_commit(self, on_commit_callback: Callable[[], None] | None) -> None:
        name, futures = f"checkpoint commit {next(_numbers)}", self._futures
        steps: dict[str, Callable[[], object]] = {
            "written": lambda: [future.result() for future in futures],
            "done": first_process(on_commit_callback or (lambda: None)),
        }

        def commit() -> None:
            begin = time.monotonic()
            in_steps(name, steps, self._timeout)
            lasted = time.monotonic() - begin
            record_event_duration_secs("/jax/checkpoint/write/async/thread_duration_sec", lasted)

        self._commit = Background(commit, "commit")

    def check_for_errors(self) -> None:
        """Raises any error so far, once; does not wait.

        Raises:
          BarrierTimeoutError: other processes have not finished writing in time.
          RuntimeError: a write or the callback failed in another process, which the message names.
        """
        if self._commit is not None:
            self._commit._check()

    def wait_until_finished(self) -> None:
        """Waits until all processes have written the checkpoint in progress and process 0 has
        called the callback; raises like `check_for_errors`."""
        if self._commit is not None:
            commit, self._commit = self._commit, None
            commit.wait()


def in_steps(
    name: str,
    steps: Mapping[str, Callable[[], object]],
    seconds: float = WAIT,
    undo: Callable[[], object] = lambda: None,
) -> None:
    """Runs steps in all processes: each begins once the previous one has succeeded in all.

    undo: called if a step fails here or in another process.
    """
    try:
        for part, step in steps.items():
            together(f"{name}/{part}", step, seconds)
    except BaseException:
        undo()
        raise


def first_process(step: Callable[[], object]) -> Callable[[], object]:
    """A step that only process 0 runs."""
    return lambda: step() if process_index() == 0 else None


def together(
    name: str,
    step: Callable[[], object],
    seconds: float = WAIT,
    *,
    span: Sequence[int] | None = None,
    doing: str = "write",
) -> list[str]:
    """Runs a step, then waits until all processes (or those of a span) have run it; an error in
    one process is raised in all.

    step: its result, if it is a string, is sent to the other processes.
    doing: the failed action, for the message.

    Returns:
      The string of each process.
    """
    problem, text, said = None, "", ""
    try:
        result = step()
        text = result if isinstance(result, str) else ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        problem = error
        said = f"{type(error).__name__}: {error}"[:LONGEST]
    try:
        given = f"{said}\n{text}" if said or text else ""
        all_said = processes.exchanged(name, given, seconds, span)
    except TimeoutError as error:
        raise BarrierTimeoutError(
            f"Not all processes have reached {name} within {seconds:g} s. {error} All must call "
            "it: look for an `if` on process_index() around it, or allow more time for a slow "
            "process (timeout_secs of GlobalAsyncCheckpointManager)."
        ) from problem
    if problem is not None:
        raise problem
    rows = [line.rpartition("\n") for line in all_said]
    ranks = range(len(rows)) if span is None else span
    for rank, (other, _, _) in zip(ranks, rows, strict=True):
        if other:
            raise RuntimeError(
                f"Process {rank} could not {doing} its part of a checkpoint: {other}"
            )
    return [found for _, _, found in rows]


def check_same(what: str, name: str, path: str, contents: bytes, about: tuple[str, str]) -> None:
    """Raises in all processes if they write to different paths, or different contents.

    about: what the contents describe, and which of its properties, for messages.
    """
    digest = hashlib.sha256(contents).hexdigest()
    rows = [row.split(" ", 1) for row in together(name, lambda: f"{digest} {path}")]
    digests, paths = zip(*rows, strict=True)
    if len({*paths}) > 1:
        raise ValueError(f"{what}: path must be the same in all processes; got {list(paths)}.")
    other = next((i for i, d in enumerate(digests) if d != digests[0]), None)
    if other is not None:
        kind, properties = about
        verb = "differ from those" if kind.endswith("s") else "differs from that"
        raise ValueError(
            f"{what}: the {kind} of process {other} {verb} of process 0: {properties} must be the "
            "same in all processes."
        )


class GlobalAsyncCheckpointManager(AsyncManager, GlobalAsyncCheckpointManagerBase):
    """Writes and reads arrays distributed over all processes, with TensorStore."""

    def serialize(
        self,
        arrays: Sequence[Any],
        tensorstore_specs: Sequence[Spec],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """Starts writing arrays; their values have been copied when this returns.

        Args:
          arrays: a list of arrays.
          tensorstore_specs: the destination of each array.
          on_commit_callback: called in process 0 once all processes have finished writing, for
            instance to rename a folder.
          transaction: TensorStore's.

        Raises:
          any error of `check_for_errors`, for the previous checkpoint, which this waits for; and
          any of `async_serialize`.
        """
        self.wait_until_finished()
        futures: list[Any] = []
        options = {"commit_future": futures, "transaction": transaction}
        run(lambda: serialize_all(arrays, tensorstore_specs, **options))
        self._add_futures(futures)
        self._start_async_commit(on_commit_callback)

    def serialize_with_paths(
        self,
        arrays: Sequence[Any],
        paths: Sequence[str],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """`serialize` with a folder for each array, in the "zarr" format."""
        specs = [serialization_spec(path) for path in paths]
        self.serialize(
            arrays, specs, on_commit_callback=on_commit_callback, transaction=transaction
        )

    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[Spec],
        global_shapes: Sequence[Any] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Array]:
        """Reads arrays, each onto a sharding or `Format`; waits for writes in progress first.

        global_shapes, dtypes: of the results; by default as stored (see `async_deserialize`).
        concurrent_gb: limit on data read at a time, in GB.
        """
        self.wait_until_finished()
        return run_deserialization(
            shardings, tensorstore_specs, global_shapes, dtypes, concurrent_gb
        )

    def deserialize_with_paths(
        self,
        shardings: Sequence[Any],
        paths: Sequence[str],
        global_shapes: Sequence[Any] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Array]:
        """`deserialize` for arrays that `serialize_with_paths` wrote."""
        specs = [serialization_spec(path) for path in paths]
        return self.deserialize(shardings, specs, global_shapes, dtypes, concurrent_gb)
