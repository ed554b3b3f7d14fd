"""Writes arrays to TensorStore files and reads them back, shard by shard.

    asyncio.run(async_serialize(x, spec))
    x = asyncio.run(async_deserialize(sharding, spec))

Each process writes and reads the shards of its own devices; one replica of each shard is written.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.base.interrupts import import_module, uninterrupted
from shardwise._src.messages.formatting import short_repr
from shardwise._src.placement.array_creation import make_array_from_callback
from shardwise._src.placement.device_put import process_count, process_index
from shardwise._src.runtime.threads import result_of
from shardwise._src.saving.tensorstore_specs import Spec, has_metadata, metadata
from shardwise._src.transfers.regions import bounds_of
from shardwise._src.types.dtypes import canonicalize
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format
from shardwise._src.types.sharding import Sharding

if TYPE_CHECKING:
    TS_CONTEXT: Any
_DEFAULT: Any = object()  # default context or chunk layout, created when needed
_RAM = 10_000_000_000  # limit of TensorStore's chunk caches, in bytes


def tensorstore() -> ModuleType:
    """The tensorstore package, which may not be installed."""
    try:
        return import_module("tensorstore")
    except ImportError as error:
        raise ImportError(
            "Arrays are written to files and read with the package tensorstore, which is not "
            "installed: pip install 'shardwise[tensorstore]'."
        ) from error


@functools.cache
def shared_context() -> Any:
    """The TensorStore context shared by all reads and writes here: cache pools and their limits."""
    pool = {"total_bytes_limit": _RAM}
    return tensorstore().Context({
        "file_io_concurrency": {"limit": 128}, "data_copy_concurrency": {"limit": 128},
        "cache_pool": pool, "cache_pool#remote": pool,
    })  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "TS_CONTEXT":
        return shared_context()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.", name=name)


@functools.cache
def store_context() -> Any:
    """The context for checkpoints, which caches no file contents in memory."""
    limits = {"file_io_concurrency": {"limit": 16}, "cache_pool": {"total_bytes_limit": 0}}
    return tensorstore().Context(limits)


def _how(context: Any, chunk_layout: Any) -> dict[str, Any]:
    ts = tensorstore()
    if chunk_layout is _DEFAULT:
        chunk_layout = ts.ChunkLayout(chunk=ts.ChunkLayout.Grid(elements=100_000_000))
    context = shared_context() if context is _DEFAULT else context
    return {"context": context, "chunk_layout": chunk_layout}


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that may be closed while TensorStore still cancels abandoned operations.

    If one of several reads fails, the others are cancelled and report this through the loop,
    possibly after it was closed.
    """

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise
            return asyncio.Handle(callback, args, self, context)  # never called


class _Interruptible:
    """A task that Ctrl-C cancels at any point: asyncio's own handling of Ctrl-C may lose it, or
    end in a cancellation that was not requested."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]):
        self.work = work
        self.task: asyncio.Task[Any] | None = None
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.task is not None:
            self.task.get_loop().call_soon_threadsafe(self.task.cancel)

    async def run(self) -> None:
        self.task = asyncio.current_task()
        if not self.is_cancelled:
            await self.work()


def _run_alone(work: _Interruptible) -> None:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(work.run())


def run(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a coroutine, even if another event loop is running in this thread.

    make: creates it, where Ctrl-C cannot come between that and its start.
    """
    results: list[Any] = []

    async def kept() -> None:
        # Not returned as the task's result: Python 3.11 formats that when the task ends, and
        # formatting an array copies all of it to the host.
        results.append(await make())

    work = _Interruptible(kept)
    with uninterrupted(work.cancel):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            _run_alone(work)
        else:
            result_of(lambda: _run_alone(work), "loop")
    return results[0]


class LimitInFlightBytes:
    """Limits the bytes read into memory at a time. A single larger read may exceed the limit."""

    def __init__(self, host_memory_bytes_limit: int):
        self._most = self._left = host_memory_bytes_limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # first come, first served

    async def wait_for_bytes(self, requested_bytes: int) -> None:
        """Waits until the requested bytes fit under the limit, then reserves them."""
        if requested_bytes > self._most:
            self._left += requested_bytes - self._most
            self._most = requested_bytes
        if not self._waiting and self._left >= requested_bytes:
            self._left -= requested_bytes
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((requested_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was granted just before the cancellation
                await self.release_bytes(requested_bytes)
            raise

    async def release_bytes(self, requested_bytes: int) -> None:
        """Releases the bytes."""
        self._left += requested_bytes
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.cancelled():
                if size > self._left:
                    return
                self._left -= size
                turn.set_result(None)
            self._waiting.popleft()


# ------------------------------------------------------------------------------------- writing


async def async_serialize(
    arr_inp: Any,
    tensorstore_spec: Spec,
    commit_future: list[Any] | None = None,
    context: Any = _DEFAULT,
    chunk_layout: Any = _DEFAULT,
    primary_host: int | None = None,
    replica_id: int = 0,
    transaction: Any = None,
) -> None:
    """Writes this process's shards of an array.

    Args:
      arr_inp: an array, or a NumPy array, which process 0 writes.
      tensorstore_spec: where to write. A missing shape and dtype are filled in.
      commit_future: a list to which TensorStore's futures are appended; the caller must wait for
        them. The array's values have been copied when this returns. Without it, everything has been
        written when this returns.
      context, chunk_layout, transaction: TensorStore's.
      primary_host: the process that creates the file; by default each process does if it is absent.
      replica_id: the replica of each shard to write.

    Raises:
      ValueError: with several processes, if one process has the full array: every process would
        write it.
      TypeError: for a value that is not an array, and for key arrays.
      ImportError: tensorstore is not installed.
    """
    ts = tensorstore()
    _check_writable(arr_inp, tensorstore_spec)
    if not has_metadata(tensorstore_spec):
        tensorstore_spec["metadata"] = metadata(arr_inp, tensorstore_spec["driver"])
    if tensorstore_spec["driver"] == "zarr" and "dtype" not in tensorstore_spec:
        tensorstore_spec["dtype"] = arr_inp.dtype.name
    how = {**_how(context, chunk_layout), "open": True, "transaction": transaction}
    if primary_host is None or process_index() == primary_host:
        opened = ts.open(ts.Spec(tensorstore_spec), create=True, **how)
        if commit_future is None:
            await opened
        else:
            commit_future.append(opened)
    store = await ts.open(ts.Spec(tensorstore_spec), assume_metadata=True, **how)
    fixed = isinstance(arr_inp, Array)

    async def write(index: Any, data: Any) -> None:
        await asyncio.sleep(0)  # lets device-to-host copies in flight make progress
        writing = store[index].write(np.asarray(data), can_reference_source_data_indefinitely=fixed)
        if commit_future is None:
            await writing.commit
        else:
            commit_future.append(writing.commit)
            await writing.copy

    await asyncio.gather(*[write(*part) for part in _own_parts(arr_inp, replica_id)])


def _check_writable(x: Any, spec: Spec) -> None:
    if not isinstance(x, Array | np.ndarray) or isinstance(x.dtype, ExtendedDType):
        more = " Write `shardwise.random.key_data(keys)`." if hasattr(x, "dtype") else ""
        raise TypeError(f"async_serialize expects numeric arrays; got {short_repr(x)}.{more}")
    if isinstance(x, Array) and process_count() > 1 and x.is_fully_addressable:
        raise ValueError(
            f"async_serialize: the array for {spec.get('kvstore')} is fully addressable in this "
            f"process, so all {process_count()} processes would write it. Pass an array sharded "
            "over the devices of all processes, or, for NumPy arrays, call this in one process "
            "only."
        )


def _own_parts(x: Any, replica: int) -> list[tuple[Any, Any]]:
    """Indices and values of the shards that this process writes."""
    if not isinstance(x, Array):
        return [(..., x)] if process_index() == 0 else []
    shards = [s for s in x.addressable_shards if s.replica_id == replica and s.data.size]
    for s in shards:
        s.data.copy_to_host_async()
    return [(s.index, s.data) for s in shards]


async def combine_kvstores(
    combined_kvstore: Spec, kvstores: Sequence[Spec], context: Any = _DEFAULT
) -> None:
    """Combines several stores into one without copying: its entries reference theirs."""
    ts = tensorstore()
    context = shared_context() if context is _DEFAULT else context
    whole, *parts = await asyncio.gather(
        *[ts.KvStore.open(s, context=context) for s in (combined_kvstore, *kvstores)]
    )
    transaction = ts.Transaction()
    into = whole.with_transaction(transaction)
    await asyncio.gather(*[part.experimental_copy_range_to(into) for part in parts])
    await transaction.commit_async()


# ------------------------------------------------------------------------------------- reading


async def async_deserialize(
    in_type: Any,
    tensorstore_spec: Any,
    global_shape: Sequence[int] | None = None,
    dtype: Any = None,
    byte_limiter: LimitInFlightBytes | None = None,
    context: Any = _DEFAULT,
    chunk_layout: Any = _DEFAULT,
    assume_metadata: bool = False,
) -> Array:
    """Reads an array onto devices; each process reads only the shards of its own devices.

    Args:
      in_type: a sharding, a `Format`, or a `ShapeDtypeStruct` with a sharding, whose dtype is used.
      tensorstore_spec: where the array is stored.
      global_shape: of the result, if it differs from the stored one: missing elements are zero,
        extra ones are not read.
      dtype: of the result; by default as stored. It is converted on the host.
      byte_limiter: limits the bytes read at a time.
      context, chunk_layout, assume_metadata: TensorStore's.

    Raises:
      TypeError: `in_type` has no sharding.
      ValueError: the file is missing or cannot be read.
      ImportError: tensorstore is not installed.
    """
    ts = tensorstore()
    sharding, place, wanted = _target(in_type)
    dtype = wanted if dtype is None else dtype
    store = await ts.open(
        tensorstore_spec, open=True, assume_metadata=assume_metadata, **_how(context, chunk_layout)
    )
    shape = tuple(store.shape if global_shape is None else global_shape)
    stored = store.dtype.numpy_dtype
    final: Any = canonicalize(stored if dtype is None else dtype)
    own: dict[Any, Any] = {}
    for index in sharding.addressable_devices_indices_map(shape).values():
        own.setdefault(bounds_of(index, shape), None)
    size = sum([estimate_read_memory_footprint(store, _overlap(ts, store, b)) for b in own])
    if byte_limiter is not None:
        await byte_limiter.wait_for_bytes(size)

    async def read(bounds: Any) -> None:
        part = np.zeros([stop - start for start, stop in bounds], stored)
        domain = _overlap(ts, store, bounds)
        into = tuple(
            slice(o - start, o - start + n)
            for o, n, (start, _) in zip(domain.origin, domain.shape, bounds, strict=True)
        )
        if domain.size:
            await ts.array(part[into] if into else part).write(store[domain].translate_to[0])
        own[bounds] = part.astype(final, copy=False)

    await asyncio.gather(*map(read, own))
    result = make_array_from_callback(shape, place, lambda i: own[bounds_of(i, shape)], final)
    if byte_limiter is not None:
        await byte_limiter.release_bytes(size)
    return result


def _target(x: Any) -> tuple[Sharding, Any, Any]:
    """The requested sharding, the full placement (with layout), and the requested dtype."""
    if isinstance(x, ShapeDtypeStruct):
        sharding, dtype = x.sharding, x.aval.dtype
        place = sharding if x.layout is None else x.format
    else:
        sharding, place, dtype = (x.sharding if isinstance(x, Format) else x), x, None
    if not isinstance(sharding, Sharding):
        raise TypeError(
            "async_deserialize: in_type must be a sharding, a Format or a ShapeDtypeStruct with a "
            f"sharding, to place the array on devices; got {short_repr(x)}."
        )
    return sharding, place, dtype


def _overlap(ts: ModuleType, store: Any, bounds: Sequence[tuple[int, int]]) -> Any:
    """The part of the bounds that is inside the store's domain; possibly empty."""
    have = zip(store.domain.origin, store.domain.shape, bounds, strict=True)
    ranges = [(max(o, a), min(o + n, b)) for o, n, (a, b) in have]
    return ts.IndexDomain(
        inclusive_min=[a for a, _ in ranges], exclusive_max=[max(a, b) for a, b in ranges]
    )


def estimate_read_memory_footprint(t: Any, domain: Any) -> int:
    """Bytes needed to read a region of a store: the size of all chunks that the region overlaps."""
    size = t.dtype.numpy_dtype.itemsize
    domain = t.domain if domain is None else domain
    chunk = t.chunk_layout.read_chunk_template
    if not all(chunk[i].finite for i in range(t.rank)):
        return domain.size * size  # stores without chunks
    if not domain.size:
        return 0
    rows = zip(domain.origin, domain.shape, chunk.origin, chunk.shape, strict=True)
    for origin, length, first, step in rows:
        size *= (-(-(origin + length - first) // step) - (origin - first) // step) * step
    return size


# -------------------------------------------------------------------------------------- lists


def run_serialization(arrays: Sequence[Any], tensorstore_specs: Sequence[Spec]) -> None:
    """Writes arrays and waits until they are written."""
    run(lambda: serialize_all(arrays, tensorstore_specs))


async def serialize_all(
    arrays: Sequence[Any], tensorstore_specs: Sequence[Spec], **options: Any
) -> None:
    """Writes arrays at the same time. options: of `async_serialize`."""
    pairs = zip(arrays, tensorstore_specs, strict=True)
    await asyncio.gather(*[async_serialize(x, spec, **options) for x, spec in pairs])


def run_deserialization(
    shardings: Sequence[Any],
    tensorstore_specs: Sequence[Any],
    global_shapes: Sequence[Any] | None = None,
    dtypes: Sequence[Any] | None = None,
    concurrent_gb: int = 32,
) -> list[Array]:
    """Reads arrays. concurrent_gb: limit on data read at a time, in GB."""
    count = len(tensorstore_specs)

    async def all_of_them() -> list[Array]:
        limit = LimitInFlightBytes(concurrent_gb * 10**9)
        shapes = [None] * count if global_shapes is None else global_shapes
        kinds = [None] * count if dtypes is None else dtypes
        rows = zip(shardings, tensorstore_specs, shapes, kinds, strict=True)
        return await asyncio.gather(*[async_deserialize(*row, byte_limiter=limit) for row in rows])

    return run(all_of_them)
