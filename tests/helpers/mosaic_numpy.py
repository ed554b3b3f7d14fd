"""Runs a module of Mosaic with NumPy: the operations that kernels use, over the grid with windows.

    results = run(launch, module, *operands)

Values that are not specified are NaN, or a large integer: what is beyond the end of an array, and
what blocks of results hold before they are written. Copies end at once; semaphores count.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_module import MosaicKernel, has_windows
from shardwise._src.kernels.on_tpu.mosaic_text import sizes_in_memory, stored
from shardwise._src.kernels.spaces import LARGE
from shardwise._src.runtime.compiler.mosaic import _context
from tests.helpers.mlir_numpy import Blocks, garbage, kind


def numbers(attribute: Any) -> list[int]:
    """The integers of an attribute, as text: `[0, 1]`, `array<i64: 8, 128>`, `3 : i32`."""
    text = re.sub(r"array<i\d+:?|: [iu]\d+", "", str(attribute))
    return [int(x) for x in re.findall(r"-?\d+", text)]


# -- operations: (op, operands) → the result --


def _reduced(op: Any, x: Any, start: Any) -> Any:
    kind = re.search(r"<(\w+)>", str(op.attributes["kind"]))
    axes = tuple(numbers(op.attributes["reduction_dims"]))
    assert kind is not None
    function = {
        "add": np.add, "mul": np.multiply, "maximumf": np.maximum, "minimumf": np.minimum,
        "maxsi": np.maximum, "minsi": np.minimum,
    }[kind[1]]  # fmt: skip
    return function(function.reduce(x, axes), start).astype(x.dtype)


def _matmul(op: Any, x: Any, y: Any, start: Any) -> Any:
    text = str(op.attributes["dimension_numbers"])
    lists = [[int(n) for n in re.findall(r"\d+", part)] for part in re.findall(r"\[(.*?)\]", text)]
    lc, rc, _, _, order, lb, rb = lists
    wide = np.int32 if x.dtype.kind == "i" else np.float32
    names = iter("abcdefgh")
    left, right = [""] * x.ndim, [""] * y.ndim
    for i, j in [*zip(lc, rc, strict=True), *zip(lb, rb, strict=True)]:
        left[i] = right[j] = next(names)
    left, right = ([n or next(names) for n in side] for side in (left, right))
    pairs = zip(order[::2], order[1::2], strict=True)
    out = "".join((left, right)[side][d] for side, d in pairs)
    spec = f"{''.join(left)},{''.join(right)}->{out}"
    return start + np.einsum(spec, x.astype(wide), y.astype(wide))


def _iota(op: Any) -> Any:
    shape, dtype = kind(op.results[0])
    (axis,) = numbers(op.attributes["dimensions"])
    return np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape
    ).astype(dtype)


def _slice(op: Any, x: Any) -> Any:
    starts, sizes = (numbers(op.attributes[name]) for name in ("offsets", "sizes"))
    return x[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))]


def _places(op: Any, memory: Any, at: Sequence[Any], shape: Sequence[int]) -> Any:
    steps = numbers(op.attributes["strides"]) if "strides" in op.attributes else []
    steps = steps or [1] * memory.ndim
    rows = zip(at, shape, steps, memory.shape, strict=True)
    index = []
    for a, n, step, size in rows:
        last = int(a) + (n - 1) * step
        assert a >= 0 and last < size, f"{op.name}: {a} to {last} of {size}"
        index.append(slice(int(a), last + 1, step))
    return tuple(index)


def _load(op: Any, memory: Any, *at: Any) -> Any:
    shape, _ = kind(op.results[0])
    return memory[_places(op, memory, at, shape)].copy()


def _store(op: Any, value: Any, memory: Any, *rest: Any) -> None:
    at, mask = rest[: memory.ndim], rest[memory.ndim :]
    index = _places(op, memory, at, value.shape)
    memory[index] = np.where(mask[0], value, memory[index]) if mask else value


def _memref_slice(op: Any, memory: Any, *at: Any) -> Any:
    shape, _ = kind(op.results[0])
    return memory[_places(op, memory, at, shape)]


def _enqueue(op: Any, source: Any, target: Any, semaphore: Any) -> None:
    target[...] = source
    semaphore += np.int32(target.nbytes)


def _wait_copy(op: Any, semaphore: Any, source: Any, target: Any) -> None:
    semaphore -= np.int32(target.nbytes)
    assert semaphore >= 0, "a wait for a copy that has not started"


def _wait(op: Any, semaphore: Any, amount: Any) -> None:
    semaphore -= amount
    assert semaphore >= 0, "a wait for a signal that is not sent"


def _signal(op: Any, semaphore: Any, amount: Any) -> None:
    semaphore += amount


def _multiple(op: Any, x: Any) -> Any:
    (n,) = numbers(op.attributes["multiple"])
    assert x % n == 0, f"{x} is not a multiple of {n}"
    return x


def _argument(op: Any, x: Any) -> Any:
    function = np.argmax if "arg_max" in str(op.attributes["kind"]) else np.argmin
    return function(x, numbers(op.attributes["axis"])[0]).astype(np.int32)


OPS: dict[str, Callable[..., Any]] = {
    "vector.load": _load, "tpu.strided_load": _load, "tpu.vector_store": _store,
    "tpu.strided_store": _store,
    "memref.load": lambda op, memory, *at: memory[tuple(map(int, at))],
    "memref.store": lambda op, x, memory, *at: memory.__setitem__(tuple(map(int, at)), x),
    "vector.broadcast": lambda op, x: np.broadcast_to(x, kind(op.results[0])[0]),
    "vector.shape_cast": lambda op, x: x.reshape(kind(op.results[0])[0]),
    "vector.transpose": lambda op, x: x.transpose(numbers(op.attributes["permutation"])),
    "vector.extract": lambda op, x: x[tuple(numbers(op.attributes["static_position"]))],
    "vector.extract_strided_slice": _slice, "vector.multi_reduction": _reduced,
    "tpu.concatenate": lambda op, *xs: np.concatenate(xs, numbers(op.attributes["dimension"])[0]),
    "tpu.iota": _iota, "tpu.matmul": _matmul, "tpu.reduce_index": _argument,
    "tpu.memref_slice": _memref_slice, "tpu.assume_multiple": _multiple,
    "tpu.dynamic_rotate": lambda op, x, n: np.roll(x, n, numbers(op.attributes["dimension"])[0]),
    "tpu.memref_squeeze": lambda op, x: x.reshape(kind(op.results[0])[0]),
    "tpu.enqueue_dma": _enqueue, "tpu.wait_dma2": _wait_copy, "tpu.sem_wait": _wait,
    "tpu.sem_signal": _signal, "tpu.sem_read": lambda op, x: x[()].copy(),
}  # fmt: skip


class _Run(Blocks):
    """A run of the functions of a module. bounds: the sizes of the grid."""

    def __init__(self, module: Any, bounds: Sequence[int]):
        self.bounds = bounds
        self.functions = {
            ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations
        }

    def call(self, name: str, *args: Any) -> list[Any]:
        block = self.functions[name].operation.regions[0].blocks[0]
        return self.block(block, args, {})

    def other(self, op: Any, env: dict[Any, Any], *xs: Any) -> list[Any]:
        if op.name == "tpu.iteration_bound":
            return [np.int32(self.bounds[numbers(op.attributes["dim"])[0]])]
        found = OPS[op.name](op, *xs)
        if not len(op.results):
            return []
        assert (np.shape(found), np.asarray(found).dtype) == kind(op.results[0]), op
        return [found]


def run(launch: Launch, written: MosaicKernel, *operands: Any) -> list[np.ndarray]:
    """The results of a kernel for its operands, in the form in which its module has them."""
    with _context(), ir.Location.unknown(), np.errstate(all="ignore"):
        module = ir.Module.parse(written.text)
        sizes, first, arrays = launch.parts([*map(np.asarray, operands)])
        given = iter(sizes)
        bounds = [int(next(given)) if n is None else n for n in launch.grid]
        runs = _Run(module, bounds)
        spaces = [t.space.name for t in launch.ins]
        scalars = [_in_memory(x, "smem") for x in first]
        arrays = [_in_memory(x, space) for x, space in zip(arrays, spaces, strict=True)]
        aliased = {j: i for i, j in launch.aliases}
        results = [
            arrays[aliased[j]].copy()
            if j in aliased
            else garbage(sizes_in_memory(t.type.shape, t.space.name), _element(t.type.dtype))
            for j, t in enumerate(launch.outs)
        ]
        held = [
            np.zeros(s.shape, np.int32)
            if s.space.is_semaphore
            else garbage(sizes_in_memory(s.shape, s.space.name), _element(s.dtype))
            for s in (*launch.scratch, *written.scoped)
        ]
        if not has_windows(launch):
            runs.call("main", *scalars, *arrays, *results, *held)
        else:
            _over_grid(runs, launch, scalars, [*arrays, *results], held)
        for memory, s in zip(held, (*launch.scratch, *written.scoped), strict=True):
            assert not s.space.is_semaphore or not memory.any(), "a semaphore does not end at 0"
        rows = zip(results, launch.outs, strict=True)
        return [x.view(np.dtype(stored(t.type.dtype))) for x, t in rows]


def _element(dtype: Any) -> np.dtype:
    """The dtype of an element of memory: integers have no sign there."""
    found = np.dtype(stored(dtype))
    return np.dtype(f"i{found.itemsize}") if found.kind == "u" else found


def _in_memory(x: np.ndarray, space: str) -> np.ndarray:
    held = x.astype(stored(x.dtype)).reshape(sizes_in_memory(x.shape, space)).copy()
    return held.view(_element(x.dtype))


def _over_grid(
    runs: _Run, launch: Launch, scalars: list[Any], arrays: list[Any], held: list[Any]
) -> None:
    """Runs the body for each program. Blocks are moved when their indices change."""
    tiles, count = [*launch.ins, *launch.outs], len(launch.ins)
    windows: list[Any] = [None] * len(tiles)
    before: list[Any] = [None] * len(tiles)
    for ids in itertools.product(*[range(n) for n in runs.bounds or (1,)]):
        at = [np.int32(i) for i in ids]
        for i, (tile, array) in enumerate(zip(tiles, arrays, strict=True)):
            if tile.space.name in LARGE:
                windows[i] = array
                continue
            index = [*map(int, runs.call(f"block_{i}", *at, *scalars))]
            if index != before[i]:
                _leave(i, tile, array, windows, before, count)
                windows[i], before[i] = _entered(tile, array, index, i < count), index
        runs.call("main", *at, *scalars, *windows, *held)
    for i, (tile, array) in enumerate(zip(tiles, arrays, strict=True)):
        _leave(i, tile, array, windows, before, count)


def _spans(tile: Any, array: Any, index: Sequence[int]) -> list[tuple[int, int]]:
    """Where a block begins in an array, and its size, along each dimension."""
    sizes = sizes_in_memory(tile.sizes, tile.space.name)
    if any(tile.element):
        lows = [low for low, _ in tile.padding]
        return [(i - low, n) for i, n, low in zip(index, sizes, lows, strict=True)]
    return [(i * n, n) for i, n in zip(index, sizes, strict=True)]


def _inside(spans: Any, array: Any) -> tuple[Any, Any]:
    """The part of a block that is inside of the array: in the array, and in the block."""
    ends = [(max(a, 0), min(a + n, size)) for (a, n), size in zip(spans, array.shape, strict=True)]
    own = tuple(slice(low, max(high, low)) for low, high in ends)
    return own, tuple(
        slice(low - a, max(high, low) - a) for (low, high), (a, _) in zip(ends, spans, strict=True)
    )


def _entered(tile: Any, array: Any, index: Sequence[int], is_input: bool) -> Any:
    spans = _spans(tile, array, index)
    block = garbage([n for _, n in spans], array.dtype)
    if is_input:
        own, inner = _inside(spans, array)
        block[inner] = array[own]
    return block


def _leave(i: int, tile: Any, array: Any, windows: Any, before: Any, count: int) -> None:
    if i >= count and before[i] is not None:
        own, inner = _inside(_spans(tile, array, before[i]), array)
        array[own] = windows[i][inner]
