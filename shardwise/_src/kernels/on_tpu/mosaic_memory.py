"""The memory of refs in Mosaic's dialect: loads and stores, copies and semaphores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
from shardwise._src.kernels.emitted.emitted_programs import INDEX
from shardwise._src.kernels.on_tpu.mosaic_elementwise import cast, chosen, xored
from shardwise._src.kernels.on_tpu.mosaic_shapes import reshaped
from shardwise._src.kernels.on_tpu.mosaic_text import (
    Memory,
    Operand,
    Rule,
    Splat,
    Value,
    memory_of,
    on_values,
    operand,
    stored,
)
from shardwise._src.kernels.simulation import POISON, kernel_check
from shardwise._src.kernels.simulation import value as poisoned
from shardwise._src.kernels.spaces import LARGE, Scratch, Space
from shardwise._src.kernels.stochastic_rounding import kernel_stochastic_round
from shardwise._src.lowering.text import quoted
from shardwise._src.ops.sharded.collective import axis_index
from shardwise._src.random.core_generator import kernel_prng_bits, kernel_prng_seed

ZERO = operand(Splat(0), INDEX)


class _Part(NamedTuple):
    """A part of memory: along each of its dimensions the start, the number of elements, and their
    distance."""

    memory: Memory
    starts: Sequence[Operand]
    sizes: Sequence[int]
    strides: Sequence[int]

    @property
    def steps(self) -> str:
        """The attribute of operations with strides; "" if there are none."""
        text = ", ".join(map(str, self.strides))
        return f"{{strides = array<i32: {text}>}}" if any(s != 1 for s in self.strides) else ""

    def place(self, w: Any) -> str:
        names = [
            w.index(int(x.known)) if x.known is not None else
            w.let(f"arith.index_cast {x} : i32 to index") for x in self.starts
        ]  # fmt: skip
        return f"{self.memory.name}[{', '.join(names)}]"


def _part(memory: Memory, starts: Sequence[Operand], region: Region) -> _Part:
    """A region of a ref, whose memory may have more dimensions."""

    def row(entries: Sequence[Any], default: Any) -> list[Any]:
        rest = iter(entries)
        return [next(rest) if keep else default for keep in memory.kept]

    return _Part(memory, row(starts, ZERO), row(region.sizes, 1), row(region.strides, 1))


def _all(memory: Memory) -> _Part:
    n = len(memory.sizes)
    return _Part(memory, [ZERO] * n, memory.sizes, [1] * n)


def _check_space(w: Any, eqn: Any, memory: Memory, sizes: Sequence[int]) -> None:
    if memory.space in LARGE:
        raise w.unsupported(
            eqn, f"of a ref in {memory.space.upper()}",
            "Give it a block in VMEM, or copy it there with `make_async_copy`.",
        )  # fmt: skip
    if memory.space == "smem" and any(n != 1 for n in sizes):
        raise w.unsupported(
            eqn, f"of {list(sizes)} elements of a ref in SMEM", "SMEM is for scalars: `ref[i, j]`."
        )


# -- loads and stores --


def _load(w: Any, eqn: Any, ref: Operand, *rest: Operand, masked: bool, **elements: Any) -> Operand:
    region = Region(**elements)
    out, memory = eqn.outvars[0].aval, ref.value
    starts, more = rest[: len(region.sizes)], rest[len(region.sizes) :]
    if isinstance(memory, Memory) and memory.space == "semaphore_mem":
        semaphore = _view(w, eqn, memory, region, starts)
        return w.made(f"tpu.sem_read {semaphore.name} : {semaphore.type} ->", (), INDEX.dtype)
    if isinstance(memory, Memory):
        _check_space(w, eqn, memory, region.sizes)
        found = _loaded(w, _part(memory, starts, region), out)
    elif ref.known is not None:
        found = operand(memory, out)
    else:
        raise w.unsupported(eqn, "of a value", "Store it to a ref first: `run_scoped`.")
    if not masked:
        return found
    flag, other = [w.in_register(x) for x in more]
    return chosen(w, flag, w.in_register(found), other)


def _loaded(w: Any, part: _Part, t: Any) -> Operand:
    """Elements, in the shape and dtype of `t`."""
    x = _elements(w, part, part.place(w), stored(t.dtype))
    return cast(w, reshaped(w, x, t.shape), t.dtype)


def _elements(w: Any, part: _Part, place: str, dtype: Any) -> Operand:
    kind = part.memory.type
    if part.memory.space == "smem":
        return Operand(w.let(f"memref.load {place} : {kind}"), (), dtype)
    text = f"tpu.strided_load {place} {part.steps}" if part.steps else f"vector.load {place}"
    return w.made(f"{text} : {kind},", part.sizes, dtype)


def _store(
    w: Any, eqn: Any, ref: Operand, x: Operand, *rest: Operand, masked: bool, mode: str,
    **elements: Any,
) -> Operand:  # fmt: skip
    region = Region(**elements)
    t, memory = eqn.invars[1].aval, ref.value
    if not isinstance(memory, Memory):
        raise w.unsupported(eqn, "to a value", "Store to a ref.")
    _check_space(w, eqn, memory, region.sizes)
    part = _part(memory, rest[: len(region.sizes)], region)
    x = w.in_register(x)
    if mode != "set":
        old = _loaded(w, part, t)
        x = operand(w.composed(MODES[mode], (t, t), old.value, x.value), t)
    _written(w, part, x, w.in_register(rest[-1]) if masked else None)
    return ref


def _written(w: Any, part: _Part, x: Operand, mask: Operand | None = None) -> None:
    x = cast(w, x, stored(x.dtype))
    place, is_scalar = part.place(w), part.memory.space == "smem"
    to = () if is_scalar else part.sizes
    x = reshaped(w, x, to)
    kind, masked, more = part.memory.type, "", ""
    if mask is not None:
        mask = reshaped(w, mask, to)
        masked, more = f" masked {mask}", f" {mask.kind}"
        if is_scalar or part.steps:
            x = chosen(w, mask, x, _elements(w, part, place, x.dtype))
    if is_scalar:
        w.line(f"memref.store {x}, {place} : {kind}")
    elif part.steps:
        w.line(f"tpu.strided_store {place}, {x} {part.steps} : {kind}, {x.kind}")
    else:
        steps = "{strides = array<i32>}"
        w.line(f"tpu.vector_store {place}, {x}{masked} {steps} : {kind}, {x.kind},{more}")


def load_all(w: Any, memory: Memory, t: Any) -> str:
    """The value of a version: all its elements."""
    return str(_loaded(w, _all(memory), t))


def store_all(w: Any, memory: Memory, value: Value, t: Any) -> None:
    """Makes a value the last version."""
    _written(w, _all(memory), w.in_register(operand(value, t)))


# -- memory that the body allocates --


def _memory(w: Any, eqn: Any, *, program: Any, space: str, fill: Any) -> list[Operand]:
    t = eqn.outvars[0].aval
    memory = memory_of(f"%m{len(w.scoped)}", t, space)
    w.scoped.append((memory, Scratch(t.shape, t.dtype, Space(space))))
    if fill == POISON and space == "vmem":
        store_all(w, memory, Splat(poisoned(fill, t)), t)
    return [operand(memory, t)]


# -- copies and semaphores --


def _view(w: Any, eqn: Any, memory: Value, region: Region, starts: Sequence[Operand]) -> Memory:
    """A part of memory, without the dimensions that the part does not have."""
    if not isinstance(memory, Memory):
        raise w.unsupported(eqn, "of a value", "Store it to a ref first: `run_scoped`.")
    part = _part(memory, starts, region)
    if part.steps:
        raise w.unsupported(eqn, "with strides", "Copy all elements, and load with a stride.")
    found = replace(memory, sizes=tuple(part.sizes))
    if found.sizes != memory.sizes:
        names = ", ".join([w.name(x.value, INDEX) for x in part.starts])
        text = f"tpu.memref_slice {memory.name}[{names}] : {memory.type} -> {found.type}"
        found = replace(found, name=w.let(text))
    marks = iter(region.kept)
    kept = [keep and next(marks) for keep in memory.kept]
    if all(kept):
        return found
    left = tuple([n for n, keep in zip(found.sizes, kept, strict=True) if keep])
    new = replace(found, sizes=left, kept=(True,) * len(left))
    text = f"tpu.memref_squeeze {found.name} : {found.type} -> {new.type}"
    return replace(new, name=w.let(text))


def _on_views(write: Callable[..., str]) -> Rule:
    """A rule that writes an operation on parts of memory: `write(copy_params, parts, device,
    amount, core)`. Of the device's operands, the last one says whether it takes part, which is so
    on TPUs."""

    def rule(w: Any, eqn: Any, *operands: Operand, copy_params: CopyParams, **p: Any) -> Any:
        if copy_params.add:
            raise w.unsupported(
                eqn, "with add=True", "Copy to other memory, and add that to the target."
            )
        versions, starts, rest = copy_params.parts(operands)
        rows = zip(versions, copy_params.regions, starts, strict=True)
        views = [_view(w, eqn, v.value, region, at) for v, region, at in rows]
        device = w.name(rest[-2].value, INDEX) if copy_params.axes else ""
        amount = w.name(rest[0].value, INDEX) if copy_params.amount else ""
        core = f" core_id {w.name(rest[1].value, INDEX)}" if copy_params.core else ""
        w.line(write(copy_params, views, device, amount, core))
        return versions[len(versions) - len(eqn.outvars) :]

    return rule


def _copy(copy_params: CopyParams, views: Sequence[Memory], device: str, *_: str) -> str:
    source, target, done, *left = views
    words = ["source", "target", *["source_semaphore"] * len(left), "target_semaphore"]
    more = f" {{priority = {copy_params.priority} : i32}}" if copy_params.priority else ""
    return f"tpu.enqueue_dma {_named(words, [source, target, *left, done], device)}{more}"


def _wait_copy(copy_params: CopyParams, views: Sequence[Memory], device: str, *_: str) -> str:
    part, done = views
    return f"tpu.wait_dma2 {_named(('semaphore', 'src', 'dst'), (done, part, part), device)}"


def _named(words: Sequence[str], parts: Sequence[Memory], device: str) -> str:
    rows = [f"{n}({m.name} : {m.type})" for n, m in zip(words, parts, strict=True)]
    return " ".join([*rows, *[f"device_id({device})"] * bool(device)])


def _on_semaphore(op: str) -> Callable[..., str]:
    def write(_: Any, views: Sequence[Memory], device: str, amount: str, core: str) -> str:
        where = f" device_id {device}{core}" if device else core
        return f"{op} {views[0].name}, {amount}{where} : {views[0].type}"

    return write


def _multiple(w: Any, eqn: Any, x: Operand, *, values: Any, **p: Any) -> list[Operand]:
    if isinstance(x.value, str) and not x.shape:
        for n in values:
            x = w.made(f"tpu.assume_multiple {x}, {n} :", (), x.dtype)
    return [x]


# -- the generator of random numbers --


def _seed(w: Any, eqn: Any, state: Operand, *words: Operand, **p: Any) -> list[Operand]:
    if len(words) > 2:
        raise w.unsupported(eqn, f"of {len(words)} integers", "Combine them: pass one or two.")
    names = ", ".join([w.name(x.value, INDEX) for x in words])
    kinds = ", ".join(["i32"] * len(words))
    w.line(f'"tpu.prng_set_seed_32"({names}) : ({kinds}) -> ()')
    return [state]


def _bits(w: Any, eqn: Any, state: Operand, *, shape: Any, **p: Any) -> list[Operand]:
    wide = (*[1] * (2 - len(shape)), *shape)
    found = w.made('"tpu.prng_random_bits"() : () ->', wide, eqn.outvars[1].aval.dtype)
    return [state, reshaped(w, found, shape)]


def _round(w: Any, eqn: Any, x: Operand, random: Operand, *, dtype: Any, **p: Any) -> list[Operand]:
    x, random = w.in_register(x), w.in_register(random)
    text = f"tpu.stochastic_convert {x}, {random} : {x.kind}, {random.kind} ->"
    return [w.made(text, x.shape, dtype)]


def _check(w: Any, eqn: Any, failed: Operand, *values: Any, text: str, **p: Any) -> list[Operand]:
    if not text:
        raise w.unsupported(eqn)
    w.line(f"cf.assert {xored(w, w.in_register(failed), True)}, {quoted(text)}")
    return []


def _axis_index(w: Any, eqn: Any, *, names: Any, sizes: Any, varies: bool) -> Operand:
    return _loaded(w, _all(w.places[names, sizes]), INDEX)


MEMORY_RULES = on_values({
    kernel_load: _load, kernel_store: _store, new_memory: _memory,
    kernel_copy: _on_views(_copy), kernel_wait_copy: _on_views(_wait_copy),
    kernel_signal: _on_views(_on_semaphore("tpu.sem_signal")),
    kernel_wait: _on_views(_on_semaphore("tpu.sem_wait")),
    kernel_prng_seed: _seed, kernel_prng_bits: _bits, kernel_stochastic_round: _round,
    kernel_check: _check, axis_index: _axis_index, known_multiple: _multiple,
})  # fmt: skip
