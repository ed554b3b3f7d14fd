"""Operations of multi-process programs on host values: barriers, gathering, comparing.

    sync_global_devices("data is there")            # all wait for all
    process_allgather({"loss": 0.5})                # {"loss": array([0.5, 0.7])} in two processes
    broadcast_one_to_all(np.random.rand(3))         # the value of process 0
    assert_equal(params, "params")                  # or report which leaf differs, and where

Each is called by all processes, in the same order. Inconsistent arguments raise an error in all of
them, which names the argument, before anything is sent. They also work in a single-process program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.errors import ProcessFailureError
from shardwise._src.distributed import host_exchange, tree_comparison
from shardwise._src.distributed.host_exchange import Leaf, here, named_leaves, on_host, result
from shardwise._src.distributed.shared_memory import SharedMemory
from shardwise._src.distributed.tiles import Tiles, is_spread
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.runtime import backend, buffers, processes


def _count() -> int:
    at = here()
    return 1 if at is None else at.count


# ----------------------------------------------------------------------------------- gathering


@hides_frames
def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes, in all processes, as NumPy arrays.

    Args:
      in_tree: a pytree of process-local values (NumPy arrays, numbers or arrays on this process's
        devices), with the same shapes and dtypes in all processes; or of arrays over the devices of
        several processes, which are returned in full.
      tiled: whether the values are concatenated along their first dimension. If not, they are
        stacked along a new one, with one entry per process. Numbers are stacked in both cases.

    Returns:
      The pytree with NumPy arrays: of shape (processes, *shape), or (processes * n, ...) for values
      of shape (n, ...) if tiled. Bits are unchanged. Typed keys are returned as an array of keys.

    Raises:
      ValueError: shapes, dtypes or structures differ between processes; or an array over several
        processes is passed without tiled=True.
      TypeError: a value is neither an array nor a number.
      UnexpectedTracerError: a value is traced.
    """
    what = "process_allgather"
    named, tree = named_leaves(what, in_tree)
    if not tiled:
        for name, x in named:
            if is_spread(x):
                raise ValueError(
                    f"{what}: {name} is {x.aval.str_short(True)} over the devices of several "
                    "processes: it is one global array, with nothing to stack. Pass tiled=True to "
                    "gather it."
                )
    if _count() == 1:
        leaves = [on_host(what, name, x) for name, x in named]
        return tree.unflatten([result(x, x.value if tiled else x.value[None]) for x in leaves])
    whole = {i: Tiles(name, x) for i, (name, x) in enumerate(named) if is_spread(x)}
    own = [whole[i].leaf if i in whole else on_host(what, *row) for i, row in enumerate(named)]
    out: list[Any] = []
    for i, (leaf, rows) in enumerate(zip(own, _gathered(what, tree, own), strict=True)):
        if i in whole:
            out.append(result(leaf, whole[i].joined(rows)))
        elif tiled and leaf.shape:
            out.append(result(leaf, rows.reshape(-1, *rows.shape[2:])))
        else:
            out.append(result(leaf, rows))
    return tree.unflatten(out)


def _gathered(what: str, tree: Any, leaves: Sequence[Leaf]) -> list[np.ndarray]:
    """The values of all processes, stacked along a new first dimension, for each leaf."""
    count = _count()
    little = _those_that_fit(leaves, host_exchange.LITTLE // count)
    sent = b"".join([leaves[i].value.tobytes() for i in little])
    types = [(x.name, x.type) for x in leaves]
    large = {i: _bytes_of(x) for i, x in enumerate(leaves) if i not in little}
    me = backend.process_index()
    with SharedMemory([count * part.nbytes for part in large.values()]) as memory:
        note = [host_exchange.as_text(sent), memory.announce(me == 0)]
        notes = host_exchange.gather_notes(what, tree, types, note)
        pairs = zip(memory.offsets, large.values(), strict=True)
        parts = [(offset + me * part.nbytes, part) for offset, part in pairs]
        shared = host_exchange.through_memory(what, memory, [n for _, n in notes], 0, parts)
    if shared is None:
        shared = [host_exchange.all_rows(part) for part in large.values()]
    rows = [_unpacked(text, leaves, little) for text, _ in notes]
    found = {i: np.stack([row[i] for row in rows]) for i in little}
    found.update(zip(large, shared, strict=True))
    return [
        found[i].reshape(-1).view(x.value.dtype).reshape(count, *x.value.shape)
        for i, x in enumerate(leaves)
    ]


def _those_that_fit(leaves: Sequence[Leaf], room: int) -> list[int]:
    """The indices of the smallest leaves that fit into `room` bytes, in order."""
    found: list[int] = []
    for i in sorted(range(len(leaves)), key=lambda i: leaves[i].value.nbytes):
        room -= leaves[i].value.nbytes
        if room < 0:
            break
        found.append(i)
    return sorted(found)


def _unpacked(text: str, leaves: Sequence[Leaf], little: Sequence[int]) -> dict[int, np.ndarray]:
    """The bytes of the leaves with these indices, which were sent in one message."""
    data = np.frombuffer(bytearray(host_exchange.as_bytes(text)), np.uint8)
    ends = np.cumsum([leaves[i].value.nbytes for i in little])
    return dict(zip(little, np.split(data, ends[:-1]), strict=True)) if little else {}


def _bytes_of(leaf: Leaf) -> np.ndarray:
    return leaf.value.reshape(-1).view(np.uint8)


@hides_frames
def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of one process, in all processes, as NumPy arrays.

    Args:
      in_tree: a pytree of NumPy arrays, numbers, or arrays on the devices of this process, with the
        same shapes and dtypes in all processes. Only the values of the source matter.
      is_source: whether this process is the source; exactly one must be. By default it is process
        0.

    Returns:
      The pytree with NumPy arrays of the same shapes and dtypes. Bits are unchanged. Typed keys are
      returned as an array of keys.

    Raises:
      ValueError: shapes, dtypes or structures differ between processes; or there is not exactly one
        source.
      TypeError: a value is neither an array nor a number.
      UnexpectedTracerError: a value is traced.
    """
    what = "broadcast_one_to_all"
    named, tree = named_leaves(what, in_tree)
    for name, x in named:
        if is_spread(x) and not x.is_fully_replicated:
            raise ValueError(
                f"{what}: {name} is {x.aval.str_short(True)} over the devices of several "
                "processes, so no process has all of it. Use process_allgather(tiled=True)."
            )
    leaves = [on_host(what, name, x) for name, x in named]
    if _count() == 1:
        _check_sources(what, [0] if is_source in (None, True) else [])
        return tree.unflatten([result(x, x.value) for x in leaves])
    mine = backend.process_index() == 0 if is_source is None else bool(is_source)
    little = _those_that_fit(leaves, host_exchange.LITTLE)
    sent = b"".join([leaves[i].value.tobytes() for i in little]) if mine else b""
    large = {i: _bytes_of(x) for i, x in enumerate(leaves) if i not in little}
    with SharedMemory([part.nbytes for part in large.values()]) as memory:
        note = [host_exchange.as_text(sent) if mine else None, memory.announce(mine)]
        notes = host_exchange.gather_notes(what, tree, [(x.name, x.type) for x in leaves], note)
        sources = [rank for rank, (text, _) in enumerate(notes) if text is not None]
        _check_sources(what, sources)
        (source,) = sources
        parts = list(zip(memory.offsets, large.values(), strict=True)) if mine else []
        shared = host_exchange.through_memory(what, memory, [n for _, n in notes], source, parts)
    if shared is None:
        shared = [host_exchange.from_one(x if mine else None, x.nbytes) for x in large.values()]
    small = _unpacked(notes[source][0], leaves, little)
    found = {i: small[i].copy() for i in little}  # aligned
    found.update(zip(large, shared, strict=True))
    values = [found[i].view(x.value.dtype).reshape(x.value.shape) for i, x in enumerate(leaves)]
    return tree.unflatten([result(x, value) for x, value in zip(leaves, values, strict=True)])


def _check_sources(what: str, sources: Sequence[int]) -> None:
    if len(sources) != 1:
        who = "no process is the source"
        if sources:
            who = f"processes {', '.join(map(str, sources))} are all sources"
        raise ValueError(f"{what}: {who}. Pass is_source=True in one of them.")


# ------------------------------------------------------------------------------------- meeting


@hides_frames
def sync_global_devices(name: str, timeout: float | None = None) -> None:
    """A barrier: waits for all processes, and for the programs in flight on the devices.

    Args:
      name: identifies the barrier; the same in all processes.
      timeout: seconds; None for the limit `wait_timeout_secs`.

    Raises:
      TimeoutError: some process did not arrive within `timeout`; the message says which, and where
        it was. The processes may still meet: call it again.
      ProcessFailureError: another process is lost, or arrived at a different barrier.
    """
    at = here()
    buffers.finish_launches()
    if at is not None:
        what = f"sync_global_devices({name!r})"
        try:
            at.watch.meet(what, timeout=timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{what}: within {timeout:g} s {error}") from None


@hides_frames
def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raises, in all processes, if they do not have the same values.

    Values are compared as numbers: 0.0 equals -0.0, and NaN equals NaN. For arrays over the devices
    of several processes, the shards that more than one process has are compared.

    Args:
      in_tree: a pytree of NumPy arrays, numbers or arrays.
      fail_message: a prefix of the error message.

    Raises:
      AssertionError: trees, shapes, dtypes or values differ; it names the leaf and the processes.
      UnexpectedTracerError: a value is traced.
    """
    what = "assert_equal"
    named, treedef = named_leaves(what, in_tree)
    if _count() == 1:
        return
    head = f"{fail_message}: " if fail_message else ""
    types, rows = [], []
    for name, x in named:
        tiles = Tiles(name, x) if is_spread(x) else None
        leaf = on_host(what, name, x) if tiles is None else tiles.leaf
        types.append((name, leaf.type if tiles is None else f"{leaf.type} over {x.sharding}"))
        held = {"": ((), leaf.value)} if tiles is None else tiles.held()
        rows.append(tree_comparison.digests(held))
    try:
        found = tree_comparison.first_unequal(what, treedef, types, rows)
    except ValueError as error:
        raise AssertionError(f"{head}{error}") from None
    if found is not None:
        leaf, difference = found
        name, kind = types[leaf]
        raise AssertionError(
            f"{head}{name} of type {kind} is not the same in all processes: {difference}."
        )


# ----------------------------------------------------------------------------- live processes


@contextlib.contextmanager
def live_devices(devices: Sequence[Any]) -> Iterator[list[Any]]:
    """The devices whose processes are alive, as agreed on by these processes.

    All live processes of `devices` must enter and leave the `with` statement; they wait for each
    other at both ends.

    Args:
      devices: must include some of this process.

    Yields:
      The devices that belong to live processes, in the order of their ids.

    Raises:
      ValueError: no device, or none of this process, is passed.
      ProcessFailureError: on exit, if a process of these devices was lost inside; `failed_devices`
        has its devices.
    """
    chosen = sorted(devices, key=lambda d: d.id)
    if all(d.process_index != backend.process_index() for d in chosen):
        raise ValueError(
            f"live_devices: {pluralize(len(chosen), 'device')} given, but none belongs to this "
            f"process, {backend.process_index()}. Call it only in the processes of the devices."
        )
    before = _living(chosen)
    error: Exception | None = None
    try:
        yield before
    except Exception as found:
        error = found
    after = _living(chosen)
    lost = [d for d in before if d not in after]
    if lost:
        ranks = sorted({d.process_index for d in lost})
        raise ProcessFailureError(
            f"live_devices: {tree_comparison.named(ranks)} failed, and with it devices "
            f"{[d.id for d in lost]}.",
            ranks,
            lost,
        ) from error
    if error is not None:
        raise error


def _living(devices: Sequence[Any]) -> list[Any]:
    at = here()
    ranks = {d.process_index for d in devices}
    if at is None or len(ranks) == 1:
        return list(devices)
    alive = set(at.watch.census(sorted(ranks), "live_devices"))
    return [d for d in devices if d.process_index in alive]


@hides_frames
def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether this is the step at which all processes should save, before one is preempted.

    Call it in every process at every step, with the step's number. From the first call on, SIGTERM
    does not end a process: it is the notice that the process will be ended soon. The processes then
    agree on the next step that none has reached; in that step the result is true.

    In a single-process program it is the first step after the signal, and only in a main thread
    that has not set its own handler.

    Raises:
      TypeError: step_id is not an integer.
    """
    if isinstance(step_id, bool) or not isinstance(step_id, int | np.integer):
        raise TypeError(
            f"reached_preemption_sync_point: step_id must be an integer; got {short_repr(step_id)}."
        )
    here()
    return processes.reached_preemption_sync_point(int(step_id))
