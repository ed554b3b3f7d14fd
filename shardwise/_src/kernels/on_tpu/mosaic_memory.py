"""Loads and stores of the memory of refs in Mosaic's dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.core.op import Op
from shardwise._src.kernels.accesses import MODES, kernel_load, kernel_store
from shardwise._src.kernels.on_tpu.mosaic_ops import BOOL, cast, kind_of, reshaped
from shardwise._src.kernels.on_tpu.mosaic_text import Memory, Splat, Value, element, stored, vector
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType


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
        raise w.no_form(
            eqn, f"of a ref in {memory.space.upper()}",
            "Give it a block in VMEM, or copy it there with `make_async_copy`.",
        )  # fmt: skip
    if memory.space == "smem" and any(n != 1 for n in sizes):
        raise w.no_form(
            eqn, f"of {list(sizes)} elements of a ref in SMEM", "SMEM is for scalars: `ref[i, j]`."
        )


def _load(
    w: Any, eqn: Any, ref: Value, *rest: Value, sizes: Any, strides: Any, kept: Any, masked: bool
) -> Value:
    out = eqn.outvars[0].aval
    starts, more = rest[: len(sizes)], rest[len(sizes) :]
    if isinstance(ref, Splat):
        found: Value = ref
    elif isinstance(ref, Memory):
        _check_space(w, eqn, ref, sizes)
        found = _loaded(w, ref, out, *_row(ref, starts, sizes, strides))
    else:
        raise w.no_form(eqn, "of a value", "Store it to a ref first: `run_scoped`.")
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
        raise w.no_form(eqn, "to a value", "Store to a ref.")
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


MEMORY_RULES: dict[Op, Callable[..., Any]] = {kernel_load: _load, kernel_store: _store}
