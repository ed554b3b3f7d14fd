"""The memory of refs in Mosaic's dialect: loads and stores, copies and semaphores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.kernels.accesses import (
    MODES,
    kernel_load,
    kernel_store,
    known_multiple,
    new_memory,
)
from shardwise._src.kernels.copying.copies import (
    CopyParams,
    Region,
    kernel_copy,
    kernel_signal,
    kernel_wait,
    kernel_wait_copy,
)
from shardwise._src.kernels.on_tpu.mosaic_elementwise import BOOL, cast, kind_of
from shardwise._src.kernels.on_tpu.mosaic_shapes import reshaped
from shardwise._src.kernels.on_tpu.mosaic_text import (
    Memory,
    Splat,
    Value,
    element,
    memory_of,
    stored,
    vector,
)
from shardwise._src.kernels.spaces import Scratch, Space
from shardwise._src.ops.sharded.collective import axis_index
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type


def _row(memory: Memory, *rows: Sequence[Any]) -> list[list[Any]]:
    """Rows with an entry for each dimension of a ref, extended to those of its memory."""
    found = []
    for row, default in zip(rows, (Splat(0), 1, 1), strict=False):
        entries = iter(row)
        found.append([next(entries) if keep else default for keep in memory.kept])
    return found


def _indices(w: Any, starts: Sequence[Value]) -> str:
    names = []
    for x in starts:
        if isinstance(x, Splat):
            names.append(w.index(int(x.number)))
        else:
            names.append(w.let(f"arith.index_cast {x} : i32 to index"))
    return ", ".join(names)


def _check_space(w: Any, eqn: Any, memory: Memory, sizes: Sequence[int]) -> None:
    if memory.space in ("any", "hbm"):
        raise w.unsupported(
            eqn, f"of a ref in {memory.space.upper()}",
            "Give it a block in VMEM, or copy it there with `make_async_copy`.",
        )  # fmt: skip
    if memory.space == "smem" and any(n != 1 for n in sizes):
        raise w.unsupported(
            eqn, f"of {list(sizes)} elements of a ref in SMEM", "SMEM is for scalars: `ref[i, j]`."
        )


def _load(
    w: Any, eqn: Any, ref: Value, *rest: Value, sizes: Any, strides: Any, kept: Any, masked: bool
) -> Value:
    out = eqn.outvars[0].aval
    starts, more = rest[: len(sizes)], rest[len(sizes) :]
    if isinstance(ref, Memory) and ref.space == "semaphore_mem":
        semaphore = _view(w, eqn, ref, Region(sizes, strides, kept), starts)
        return w.let(f"tpu.sem_read {semaphore.name} : {semaphore.type} -> i32")
    if isinstance(ref, Splat):
        found: Value = ref
    elif isinstance(ref, Memory):
        _check_space(w, eqn, ref, sizes)
        found = _loaded(w, ref, out, *_row(ref, starts, sizes, strides))
    else:
        raise w.unsupported(eqn, "of a value", "Store it to a ref first: `run_scoped`.")
    if not masked:
        return found
    types = [a.aval for a in eqn.invars[len(sizes) + 1 :]]
    names = [w.name(x, t) for x, t in zip(more, types, strict=True)]
    kinds = kind_of(types[0]), kind_of(out)
    kind = ", ".join(kinds) if out.shape else kinds[1]
    return w.let(f"arith.select {names[0]}, {w.name(found, out)}, {names[1]} : {kind}")


def _loaded(w: Any, memory: Memory, out: ArrayType, starts: Any, sizes: Any, strides: Any) -> str:
    held = out.update(dtype=stored(out.dtype))
    at = f"{memory.name}[{_indices(w, starts)}]"
    if memory.space == "smem":
        x = w.let(f"memref.load {at} : {memory.type}")
        return cast(w, reshaped(w, x, held.update(shape=()), out.shape), held, out.dtype)
    kind = vector(sizes, element(held.dtype))
    if any(s != 1 for s in strides):
        steps = ", ".join(map(str, strides))
        x = w.let(
            f"tpu.strided_load {at} {{strides = array<i32: {steps}>}} : {memory.type}, {kind}"
        )
    else:
        x = w.let(f"vector.load {at} : {memory.type}, {kind}")
    return cast(w, reshaped(w, x, held.update(shape=tuple(sizes)), out.shape), held, out.dtype)


def _store(
    w: Any, eqn: Any, ref: Value, value: Value, *rest: Value, sizes: Any, strides: Any, kept: Any,
    masked: bool, mode: str,
) -> Value:  # fmt: skip
    t = eqn.invars[1].aval
    starts, more = rest[: len(sizes)], rest[len(sizes) :]
    if not isinstance(ref, Memory):
        raise w.unsupported(eqn, "to a value", "Store to a ref.")
    _check_space(w, eqn, ref, sizes)
    rows = _row(ref, starts, sizes, strides)
    name = w.name(value, t)
    if mode != "set":
        combined = program_of(lambda x, y: [MODES[mode](x, y)], (t, t), mode)
        (name,) = w.program(combined, [_loaded(w, ref, t, *rows), name])
    mask = w.name(more[0], eqn.invars[-1].aval) if masked else None
    _written(w, ref, name, t, *rows, mask=mask)
    return ref


def _written(
    w: Any, memory: Memory, x: str, t: ArrayType, starts: Any, sizes: Any, strides: Any,
    mask: str | None = None,
) -> None:  # fmt: skip
    held = t.update(dtype=stored(t.dtype))
    x = cast(w, x, t, held.dtype)
    at = f"{memory.name}[{_indices(w, starts)}]"
    if memory.space == "smem":
        if mask is not None:
            before = w.let(f"memref.load {at} : {memory.type}")
            x = w.let(f"arith.select {mask}, {x}, {before} : {element(held.dtype)}")
        x = reshaped(w, x, held, ())
        w.line(f"memref.store {x}, {at} : {memory.type}")
        return
    kind = vector(sizes, element(held.dtype))
    x = reshaped(w, x, held, sizes)
    if mask is not None:
        flags = t.update(dtype=BOOL)
        mask = reshaped(w, mask, flags, sizes)
    steps = ", ".join(map(str, strides)) if any(s != 1 for s in strides) else ""
    if steps and mask is not None:
        old = w.let(
            f"tpu.strided_load {at} {{strides = array<i32: {steps}>}} : {memory.type}, {kind}"
        )
        x = w.let(f"arith.select {mask}, {x}, {old} : {vector(sizes, 'i1')}, {kind}")
    if steps:
        w.line(
            f"tpu.strided_store {at}, {x} {{strides = array<i32: {steps}>}} : {memory.type}, {kind}"
        )
    elif mask is None:
        w.line(f"tpu.vector_store {at}, {x} {{strides = array<i32>}} : {memory.type}, {kind},")
    else:
        w.line(
            f"tpu.vector_store {at}, {x} masked {mask} {{strides = array<i32>}} : {memory.type}, "
            f"{kind}, {vector(sizes, 'i1')}"
        )


def _all(memory: Memory) -> tuple[Any, Any, Any]:
    n = len(memory.sizes)
    return [Splat(0)] * n, memory.sizes, [1] * n


def load_all(w: Any, memory: Memory, t: ArrayType) -> str:
    """The value of a version: all its elements."""
    return _loaded(w, memory, t, *_all(memory))


def store_all(w: Any, memory: Memory, value: Value, t: ArrayType) -> None:
    """Makes a value the last version."""
    _written(w, memory, w.name(value, t), t, *_all(memory))


# -- memory that the body allocates --


def _memory(w: Any, eqn: Any, *, program: Any, space: str) -> list[Value]:
    t = eqn.outvars[0].aval
    memory = memory_of(f"%m{len(w.scoped)}", t.shape, t.dtype, space)
    w.scoped.append((memory, Scratch(t.shape, t.dtype, Space(space))))
    return [memory]


# -- copies and semaphores --


def _view(w: Any, eqn: Any, memory: Value, region: Region, starts: Sequence[Value]) -> Memory:
    """A part of memory, without the dimensions that the part does not have."""
    if not isinstance(memory, Memory):
        raise w.unsupported(eqn, "of a value", "Store it to a ref first: `run_scoped`.")
    at, sizes, strides = _row(memory, starts, region.sizes, region.strides)
    if any(s != 1 for s in strides):
        raise w.unsupported(eqn, "with strides", "Copy all elements, and load with a stride.")
    found = replace(memory, sizes=tuple(sizes))
    if tuple(sizes) != memory.sizes:
        names = [w.name(x, _INDEX) for x in at]
        text = f"tpu.memref_slice {memory.name}[{', '.join(names)}] : {memory.type} -> {found.type}"
        found = replace(found, name=w.let(text))
    marks = iter(region.kept)
    kept = [keep and next(marks) for keep in memory.kept]
    if not all(kept):
        left = tuple([n for n, keep in zip(sizes, kept, strict=True) if keep])
        new = replace(found, sizes=left, kept=(True,) * len(left))
        text = f"tpu.memref_squeeze {found.name} : {found.type} -> {new.type}"
        found = replace(new, name=w.let(text))
    return found


def _views(w: Any, eqn: Any, copy_params: CopyParams, operands: Sequence[Value]) -> tuple[Any, Any]:
    """The parts of memory that an op accesses, and its other operands; the last one says whether
    the device takes part, which is so on TPUs."""
    versions, starts, rest = copy_params.parts(operands)
    rows = zip(versions, copy_params.regions, starts, strict=True)
    return [_view(w, eqn, *row) for row in rows], rest


def _device(w: Any, copy_params: CopyParams, rest: Sequence[Value]) -> str:
    return w.name(rest[-2], _INDEX) if copy_params.axes else ""


def _copy(w: Any, eqn: Any, *operands: Value, copy_params: CopyParams, **p: Any) -> Sequence[Value]:
    (source, target, done, *left), rest = _views(w, eqn, copy_params, operands)
    parts = [("source", source), ("target", target)]
    parts += [*[("source_semaphore", s) for s in left], ("target_semaphore", done)]
    text = " ".join(f"{word}({m.name} : {m.type})" for word, m in parts)
    device = _device(w, copy_params, rest)
    more = f" {{priority = {copy_params.priority} : i32}}" if copy_params.priority else ""
    w.line(f"tpu.enqueue_dma {text}{device and f' device_id({device})'}{more}")
    return operands[1 : len(copy_params.regions)]


def _wait_copy(
    w: Any, eqn: Any, *operands: Value, copy_params: CopyParams, **p: Any
) -> Sequence[Value]:
    (part, done), rest = _views(w, eqn, copy_params, operands)
    device = _device(w, copy_params, rest)
    w.line(
        f"tpu.wait_dma2 semaphore({done.name} : {done.type}) src({part.name} : {part.type}) "
        f"dst({part.name} : {part.type}){device and f' device_id({device})'}"
    )
    return operands[:2]


def _signal(
    w: Any, eqn: Any, *operands: Value, copy_params: CopyParams, **p: Any
) -> Sequence[Value]:
    (semaphore,), (amount, *rest) = _views(w, eqn, copy_params, operands)
    device = _device(w, copy_params, rest)
    w.line(
        f"tpu.sem_signal {semaphore.name}, {w.name(amount, _INDEX)}"
        f"{device and f' device_id {device}'} : {semaphore.type}"
    )
    return operands[:1]


def _wait(w: Any, eqn: Any, *operands: Value, copy_params: CopyParams, **p: Any) -> Sequence[Value]:
    (semaphore,), (amount,) = _views(w, eqn, copy_params, operands)
    w.line(f"tpu.sem_wait {semaphore.name}, {w.name(amount, _INDEX)} : {semaphore.type}")
    return operands[:1]


def _multiple(w: Any, eqn: Any, x: Value, *, values: Any, **p: Any) -> list[Value]:
    if isinstance(x, str) and not eqn.invars[0].aval.shape:
        for n in values:
            x = w.let(f"tpu.assume_multiple {x}, {n} : i32")
    return [x]


def _axis_index(w: Any, eqn: Any, *, names: Any, sizes: Any, varies: bool) -> str:
    return _loaded(w, w.places[names, sizes], _INDEX, [Splat(0)], [1], [1])


_INDEX = array_type((), np.dtype("int32"))
MEMORY_RULES: dict[Op, Callable[..., Any]] = {
    kernel_load: _load,
    kernel_store: _store,
    new_memory: _memory,
    kernel_copy: _copy,
    kernel_wait_copy: _wait_copy,
    kernel_signal: _signal,
    kernel_wait: _wait,
    axis_index: _axis_index,
    known_multiple: _multiple,
}
