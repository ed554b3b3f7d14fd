"""`save`: all processes write a pytree into a checkpoint, each shard once, by one of its owners.

    save("/ckpt/step_10", {"params": params, "step": 10})
    saving = save_async("/ckpt/step_20", state)     # values are copied now; training continues
    saving.wait()

All processes write to one location. Process 0 creates it, and publishes the checkpoint when all
are done; an error in one process is raised in all, and leaves an existing checkpoint untouched.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

from shardwise._src.base.progress import progress
from shardwise._src.base.warn import warn
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.placement.device_put import process_count, process_index
from shardwise._src.saving import manifest
from shardwise._src.saving.arrays import LimitInFlightBytes, run, tensorstore
from shardwise._src.saving.async_manager import Background, check_same, first_process, in_steps
from shardwise._src.saving.chunk_files import in_groups
from shardwise._src.saving.chunks import IN_FLIGHT, metadata, write_parts
from shardwise._src.saving.committing import Writing, begin, staging_place
from shardwise._src.saving.digests import METADATA, collect, digest_of, groups, leave
from shardwise._src.saving.shard_sources import Shard, Source, source_of
from shardwise._src.saving.storage import Place, explained
from shardwise._src.saving.tree_metadata import Node, flatten_tree

_FETCHED = 256 << 20  # bytes of shards fetched from devices at a time
_numbers = itertools.count()  # of saves, in the same order in all processes


@dataclass(frozen=True)
class Job:
    """A checkpoint to write, with everything that is known in advance.

    then: called by process 0 once it is committed.
    """

    number: int
    place: Place
    overwrite: bool
    metadata: Any
    tree: Node
    sources: tuple[Source, ...]
    then: Callable[[], None] = lambda: None

    @property
    def nbytes(self) -> int:
        return sum([source.nbytes for source in self.sources])


@hides_frames
def save(
    path: str | PathLike[str], tree: Any, *, overwrite: bool = False, metadata: Any = None
) -> None:
    """Writes a pytree into a checkpoint, which is complete when this returns.

    Args:
      path: a folder, or an address such as gs://bucket/folder. All processes call this with the
        same path.
      tree: arrays (of this library over any devices, or NumPy's), typed keys, numbers, strings,
        bytes and None, in dicts, lists, tuples, named tuples, dataclasses and registered
        containers. Process-local values are those of process 0.
      overwrite: whether to replace an existing checkpoint, which is an error otherwise; on a file
        system it stays until the new one is complete. Anything that is not a checkpoint is never
        replaced.
      metadata: any JSON-serializable value, for `describe(path).metadata`.

    Raises:
      TypeError: something in the pytree cannot be saved.
      CheckpointError: a checkpoint is at the path and `overwrite` is False; something else is
        there; or another writer is active there.
      RuntimeError: another process failed.
      OSError: writing failed; an existing checkpoint is still there. A TimeoutError: a store does
        not answer.
      ImportError: tensorstore is not installed.
    """
    write(prepared("save", path, tree, overwrite, metadata), lambda _: None)


@hides_frames
def save_async(
    path: str | PathLike[str], tree: Any, *, overwrite: bool = False, metadata: Any = None
) -> Saving:
    """`save` in a thread. All values have been copied to the host when this returns, so arrays may
    then be changed, deleted and donated.

    First waits for the previous save, and raises its error unless it was already raised.
    """
    return start(prepared("save_async", path, tree, overwrite, metadata))


class Saving(Background):
    """A checkpoint being written: the result of `save_async`."""

    def __init__(self, job: Job):
        self._path, self._total, self._written = job.place.text, job.nbytes, 0
        super().__init__(partial(write, job, self._add), "save")

    def _add(self, size: int) -> None:
        self._written += size

    def progress(self) -> float:
        """The fraction of this process's bytes that has been written, from 0 to 1."""
        if self.done() and self._error is None:
            return 1.0
        return min(1.0, self._written / self._total) if self._total else 0.0

    @hides_frames
    def wait(self) -> None:
        """Waits until the checkpoint is committed. Raises, once, any error of the save."""
        super().wait()

    def __repr__(self) -> str:
        state = f"{self.progress():.0%} written"
        if self.done():
            state = "done" if self._error is None else f"failed: {self._error}"
        return f"Saving({self._path!r}, {state})"

    def warn_if_unseen(self) -> None:
        """Warns of an error that was never raised."""
        error, self._error = getattr(self, "_error", None), None
        if error is not None:
            warn(
                f"The checkpoint {self._path} could not be written, and wait() was not called: "
                f"{str(error).removesuffix('.')}. Call wait() on the result of save_async, or on "
                "the manager.",
                RuntimeWarning,
            )

    def __del__(self) -> None:
        self.warn_if_unseen()


class _Current:
    """The save in progress, if any: one at a time."""

    saving: Saving | None = None


@atexit.register
def _warn_of_the_last() -> None:
    """At exit: the program may not have waited for its last checkpoint."""
    if _Current.saving is not None:
        _Current.saving._task.join()  # Python does not wait for threads started by exit handlers
        _Current.saving.warn_if_unseen()


def start(job: Job) -> Saving:
    """Starts writing in a thread once the previous save is done; raises the error of that."""
    _finish_earlier(job)
    taken = replace(job, sources=tuple([source.taken() for source in job.sources]))
    _Current.saving = Saving(taken)
    return _Current.saving


def _finish_earlier(job: Job) -> None:
    """Waits for the save in progress, if any. Raises its error, and `job` is then not started."""
    before, _Current.saving = _Current.saving, None
    if before is None:
        return
    try:
        before.wait()
    except Exception as error:
        error.add_note(
            "It is the error of an earlier save_async, for which wait() was not called. The save "
            f"to {job.place.text} was not started: call it again."
        )
        raise


def prepared(
    what: str,
    path: str | PathLike[str],
    tree: Any,
    overwrite: bool,
    metadata: Any,
    then: Callable[[], None] = lambda: None,
) -> Job:
    """Checks the arguments and returns the job."""
    tensorstore()
    try:
        metadata = json.loads(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, RecursionError):
            found = f"a {type(metadata).__name__} that is nested too deeply"
        else:
            found = f"{short_repr(metadata)}: {error}"
        raise TypeError(f"{what}: metadata must be JSON-serializable; got {found}.") from None
    node, ends = flatten_tree(what, "tree", tree)
    place = Place.at(what, path)
    own = tuple([source_of(what, end) for end in ends])
    return Job(next(_numbers), place, overwrite, metadata, node, own, then)


# ------------------------------------------------------------------------------------- writing


def write(job: Job, on_written: Callable[[int], None]) -> None:
    """Writes a checkpoint. on_written: called with the number of bytes this process has written."""
    writings: list[Writing] = []  # of process 0
    digests: dict[str, str] = {}
    entries = [source.entry for source in job.sources]
    where, bar = staging_place(job.place), progress(f"saving {job.place.text}", job.nbytes)

    def prepare() -> None:
        with explained("save", job.place, "its folder could not be created"):
            writings.append(begin("save", job.place, job.overwrite))
        with explained("save", job.place, f"a {METADATA} could not be written"):
            digests.update(run_all(lambda: _described(where, entries)))

    def written(size: int) -> None:
        on_written(size)
        bar.add(size)

    def write_arrays() -> None:
        digests.update(run_all(lambda: _arrays(where, job.sources, written)))
        if process_index() > 0:
            with explained("save", job.place, "the digests of the files could not be written"):
                leave(where, process_index(), digests)

    def commit() -> None:
        with explained("save", job.place, "it could not be moved to its final location"):
            digests.update(collect(where, process_count()))
            about = manifest.written(job.tree, entries, job.metadata, process_count(), digests)
            writings[0].commit(about)
        job.then()

    name = f"checkpoint save {job.number}"
    steps = {"begin": first_process(prepare), "arrays": write_arrays, "end": first_process(commit)}
    with bar:
        _check_same(name, job)
        in_steps(name, steps, undo=lambda: [writing.abandon() for writing in writings])


def _check_same(name: str, job: Job) -> None:
    """Raises if processes save different pytrees, or to different places."""
    if process_count() == 1:
        return
    text = manifest.written(job.tree, [s.entry for s in job.sources], None, 1, {})
    about = json.loads(text)["content"]
    values = json.dumps([about["arrays"], _without_values(about["tree"])], sort_keys=True)
    about = "tree", "names, shapes, dtypes and shardings"
    check_same("save", f"{name}/same", job.place.text, values.encode(), about)


def _without_values(tree: dict[str, Any]) -> dict[str, Any]:
    if "items" not in tree:
        return {"kind": tree["kind"]}
    return {**tree, "items": [_without_values(item) for item in tree["items"]], "static": None}


async def _described(place: Place, entries: Sequence[manifest.Entry]) -> dict[str, str]:
    """Writes Zarr metadata: for each array, and for the folders above them. Returns the digests of
    these files."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    about: dict[str, Any] = dict.fromkeys(groups([entry.folder for entry in entries]), group)
    about |= {entry.folder: metadata(entry) for entry in entries}
    rows = [(f"{folder}/{METADATA}".removeprefix("/"), row) for folder, row in about.items()]
    texts = {name: json.dumps(row).encode() for name, row in rows}

    await place.put_all(texts)
    return {name: digest_of(text) for name, text in texts.items()}


async def _arrays(
    place: Place, own: Sequence[Source], written: Callable[[int], None]
) -> dict[str, str]:
    """Writes this process's shards; only a few shards are on the host at a time. Returns the
    digests of the files."""
    files, shards = LimitInFlightBytes(IN_FLIGHT), LimitInFlightBytes(_FETCHED)
    digests: dict[str, str] = {}

    async def write(group: list[tuple[Source, Shard]]) -> None:
        size = sum(map(nbytes, group))
        await shards.wait_for_bytes(size)
        parts = [(source.entry, bounds, value()) for source, (bounds, value) in group]
        await write_parts(place, parts, files, written, digests)
        del parts
        await shards.release_bytes(size)

    def nbytes(row: tuple[Source, Shard]) -> int:
        source, (bounds, _) = row
        return source.nbytes_of(bounds)

    own_shards = [(source, shard) for source in own for shard in source.parts]
    async with asyncio.TaskGroup() as tasks:
        for group in in_groups(own_shards, nbytes):
            tasks.create_task(write(group))
    return digests


def run_all(make: Callable[[], Any]) -> Any:
    """`run` for task groups: of several errors, raises the first."""
    try:
        return run(make)
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
