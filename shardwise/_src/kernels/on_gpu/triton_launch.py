"""A launch as a function in Triton's dialect, run by as many programs as its grid has.

Axes of the grid whose programs are independent become axes of Triton's grid, of which there are at
most three. The others are loops within each of its programs: scratch memory, and blocks of results
that several iterations share, are values which these loops carry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shardwise._src.core.program import Program
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.emitted.emitted_programs import flat
from shardwise._src.kernels.grid_values import used_axes
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_gpu import gpu_refs
from shardwise._src.kernels.on_gpu.barriers import Access
from shardwise._src.kernels.on_gpu.gpu_refs import Buffer, Memory, block_of, everything
from shardwise._src.kernels.on_gpu.loop_peeling import bounded_iterations, peeled
from shardwise._src.kernels.on_gpu.triton_body import Body
from shardwise._src.kernels.on_gpu.triton_text import INT32, Value, is_element, padded
from shardwise._src.kernels.size_arithmetic import row_major_strides
from shardwise._src.messages.formatting import in_bytes
from shardwise._src.runtime.platforms import Platform
from shardwise._src.targets.gpus import GPUS
from shardwise._src.types.array_type import ArrayType

DEFAULTS = 4, 3  # warps, stages
REGISTERS = 1 << 18  # bytes, of a GPU's core
GRID_LIMITS = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class TritonKernel:
    """A module in Triton's dialect, and how XLA launches it."""

    name: str
    text: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Slot:
    """A ref of the body: of an operand, a result, or scratch memory.

    input:  its place among the inputs of the body.
    buffer: None for scratch memory.
    depth:  how many of the loops its block depends on.
    held:   whether it is a value, and not in memory.
    read:   whether a value begins with what is in memory.
    """

    input: int
    type: ArrayType
    buffer: Any = None
    tile: Any = None
    map: Any = None
    depth: int = 0
    held: bool = False
    read: bool = False


class Launching:
    """Writes the function of one launch.

    axes: of the launch that are Triton's, with their sizes, the last one first. loops: the others.
    grid: Triton's.
    """

    def __init__(
        self,
        body: Program,
        maps: Sequence[Program],
        launch: Launch,
        parallel: Sequence[bool],
        buffers: Sequence[Buffer],
        text: Body,
    ):
        self.body, self.launch, self.text = body, launch, text
        axes = [(d, n or 1) for d, n in enumerate(launch.grid) if n != 1]
        self.loops = [d for d, _ in axes if not parallel[d]]
        self.axes = [(d, n) for d, n in reversed(axes) if parallel[d]]
        sizes = [n for _, n in self.axes]
        x, y, z = (*sizes, 1, 1, 1)[:3]
        fits = all(n <= most for n, most in zip((x, y, z), GRID_LIMITS, strict=True))
        self.grid = (x, y, z) if fits and len(sizes) <= 3 else (math.prod(sizes), 1, 1)
        self.ids = [text.integer(0)] * len(launch.grid)
        self.prefetched = []
        for b in buffers[: launch.prefetch]:
            shape, bounds = b.type.shape, ((),) * b.type.ndim
            self.prefetched.append(Memory(b, b.pointer, shape, row_major_strides(shape), bounds))
        first = len(launch.grid) + launch.prefetch
        ins, outs = len(launch.ins), len(launch.outs)
        own = [*buffers[launch.prefetch :][:ins], *buffers[len(buffers) - outs :]]
        self.blocks = [*zip(own, (*launch.ins, *launch.outs), strict=True)]
        rows = enumerate(zip(self.blocks, maps, strict=True), first)
        self.slots = [self._slot(i, *block, index) for i, (block, index) in rows]
        first += len(self.slots)
        self.slots += [Slot(first + i, s.type, held=True) for i, s in enumerate(launch.scratch)]
        self.ends = [s.input for s in self.slots][len(launch.ins) :]

    def _slot(self, i: int, buffer: Buffer, tile: Tile, index: Program) -> Slot:
        used, launch = used_axes(index, tile, len(self.ids)), self.launch
        depth = max([k + 1 for k, d in enumerate(self.loops) if d in used], default=0)
        again = any(d not in used for d in self.loops[:depth])
        held = buffer.result and any(d not in used for d in self.loops)
        if held:  # by the loops, if the block is read, and accessed as a whole
            found = [x for x in self._accesses if x.buffer is buffer]
            held = any(x.kind == "load" for x in found)
            held = held and all(x.is_whole and x.kind != "atomic" for x in found)
        number = i - len(launch.grid) - launch.prefetch - len(launch.ins)
        begins = number in dict(launch.aliases).values()
        return Slot(i, tile.ref_type, buffer, tile, index, depth, held, held and (again or begins))

    @cached_property
    def _accesses(self) -> list[Access]:
        """Those of results in the body, if all of them are in memory."""
        text = Body(self.text.title, self.text.platform)
        values: list[Any] = [text.value(text.fresh(), v.aval) for v in self.body.invars]
        first = len(self.ids) + self.launch.prefetch
        values[len(self.ids) : first] = self.prefetched
        for i, (buffer, tile) in enumerate(self.blocks):
            values[first + i] = block_of(text, buffer, tile, [text.integer(0)] * len(tile.sizes))
        text.program(self.body, values)
        return [x for x in flat(text.lines) if isinstance(x, Access)]

    def lines(self) -> str:
        """The lines of the function."""
        text, left = self.text, None
        if self.grid[: len(self.axes)] != tuple([n for _, n in self.axes]):
            left = text.let("tt.get_program_id x : i32", (), INT32)
        for axis, (d, size) in enumerate(self.axes):
            if left is None:
                self.ids[d] = text.let(f"tt.get_program_id {'xyz'[axis]} : i32", (), INT32)
            else:
                n = text.integer(size)
                self.ids[d] = text.binary("arith.remsi", left, n)
                left = text.binary("arith.divsi", left, n)
        self._nest(0, self.body, {})
        text.line("tt.return")
        return "\n".join(text.body())

    def _nest(self, depth: int, body: Program, refs: dict[int, Any]) -> dict[int, Any]:
        """Writes the loops from a depth on; returns the refs with the values after them."""
        text, opened = self.text, []
        for slot in self.slots:
            if slot.depth != depth:
                continue
            ref: Any = None
            if slot.buffer is not None:
                at = text.program(slot.map, [*self.ids, *self.prefetched])
                ref = block_of(text, slot.buffer, slot.tile, at)
                opened += [(slot, ref)] * slot.held
            if slot.read:
                ref = gpu_refs.load(text, ref, everything(text, ref))
            elif slot.held:
                ref = text.number(0, slot.type)
            refs = refs | {slot.input: ref}
        if depth < len(self.loops):
            refs = self._loop(depth, body, refs)
        else:
            inputs = [*self.ids, *self.prefetched, *[refs[s.input] for s in self.slots]]
            found = text.program(body, inputs)
            text.settled(found, [refs[i] for i in self.ends], body.out_types)
            refs = refs | dict(zip(self.ends, found, strict=True))
        for slot, ref in opened:
            gpu_refs.store(text, ref, everything(text, ref), refs[slot.input], None, slot)
        return refs

    def _loop(self, depth: int, body: Program, refs: dict[int, Any]) -> dict[int, Any]:
        axis, text = self.loops[depth], self.text
        size, zero = self.launch.grid[axis] or 0, text.integer(0)
        first, every, last, bounded = None, body, None, None
        if depth == len(self.loops) - 1:
            first, every, last = peeled(body, axis, size, self.ends)
            if not any(s.held and s.depth > depth for s in self.slots):
                bounded = bounded_iterations(every, axis, [s.input for s in self.slots])

        def run(program: Program | None, i: Value, refs: dict[int, Any]) -> dict[int, Any]:
            if program is None:
                return refs
            self.ids[axis] = i
            refs = self._nest(depth + 1, program, refs)
            self.ids[axis] = zero
            return refs

        refs = run(first, zero, refs)
        carried = [s for s in self.slots if s.held and s.input in refs]
        types = [s.type for s in carried]

        def filled(state: Sequence[Value]) -> dict[int, Any]:
            return refs | {s.input: x for s, x in zip(carried, state, strict=True)}

        def iteration(i: Value, state: list[Value]) -> list[Value]:
            now = run(every, i, filled(state))
            return [now[s.input] for s in carried]

        high = text.integer(size)
        if bounded is not None:
            every = bounded.every
            given = [refs.get(s.input) for s in self.slots]
            low, limit = text.program(bounded.limits, [*self.ids, *self.prefetched, *given])
            limit = text.plus(limit, text.integer(1)) if bounded.inclusive else limit
            high = text.binary("arith.minsi", high, text.binary("arith.subi", limit, low))
        found = text.loop(zero, high, [refs[s.input] for s in carried], types, iteration)
        return run(last, text.integer(size - 1), filled(found))


def triton_kernel(
    body: Program,
    maps: Sequence[Program],
    launch: Launch,
    parallel: Sequence[bool],
    types: Sequence[ArrayType],
    platform: Platform,
) -> TritonKernel:
    """The kernel of a launch.

    types: of prefetched arrays, inputs, and the values that results begin with.

    Raises:
      NotImplementedError: if something is not supported by Triton.
      ValueError: if blocks are larger than a GPU has room for, or a parameter is not valid.
    """
    given = launch.params.num_warps, launch.params.num_stages
    warps, stages = [n if g is None else g for g, n in zip(given, DEFAULTS, strict=True)]
    if warps not in (1, 2, 4, 8, 16, 32) or stages < 1:
        raise ValueError(
            f"kernel {launch.name}: num_warps must be a power of two up to 32, and num_stages at "
            f"least 1; got {warps} and {stages}."
        )
    operands = launch.prefetch + len(launch.ins)
    copied = ["the values of a result"] * (len(types) - operands)
    names = [*launch.ref_names[:operands], *copied, *launch.ref_names[operands:]]
    every = [*types, *[tile.type for tile in launch.outs]]
    rows = enumerate(zip(names, every, strict=False))
    buffers = [Buffer(what, f"%arg{i}", t, i >= len(types)) for i, (what, t) in rows]
    for b in buffers:
        if not is_element(b.type.dtype):
            raise NotImplementedError(
                f"kernel {launch.name} cannot be compiled for GPUs: {b.what} is "
                f"{b.type.str_short(True)}, and Triton has no values of its dtype. Convert it "
                "outside of the kernel."
            )
    text = Body(launch.name, platform, stages)
    launching = Launching(body, maps, launch, parallel, buffers, text)
    lines = launching.lines()
    held = [s.type for s in launching.slots if s.held and launching.loops]
    _check_room(launch, text, held, stages, platform)
    name = re.sub(r"\W", "_", launch.name, flags=re.ASCII)
    arguments = ", ".join(f"{b.pointer}: {b.kind} {{tt.divisibility = 16 : i32}}" for b in buffers)
    head = f"  tt.func public @{name}({arguments}) attributes {{noinline = false}} {{"
    module = f"module {{\n{head}\n{lines}\n  }}\n}}\n"
    return TritonKernel(name, module, launching.grid, warps, stages)


def _check_room(
    launch: Launch, text: Body, held: Sequence[ArrayType], stages: int, platform: Platform
) -> None:
    """Values that loops carry stay in registers, operands of products in shared memory."""
    needed = sum(math.prod(padded(t.shape)) * t.dtype.itemsize for t in held)
    if needed > REGISTERS:
        raise ValueError(
            f"kernel {launch.name}: its scratch memory, and the blocks of results that it adds "
            f"to, are {in_bytes(needed)} in registers, and a GPU's core has {in_bytes(REGISTERS)}. "
            "Use smaller blocks."
        )
    room = max([g.shared_memory for g in GPUS.values() if g.platform is platform], default=0)
    if text.shared > room > 0:
        raise ValueError(
            f"kernel {launch.name}: a product keeps {in_bytes(text.shared)} of its operands in "
            f"shared memory, with num_stages={stages}, and no GPU has more than {in_bytes(room)}. "
            "Use smaller blocks, or fewer stages: `params=CompilerParams(num_stages=2)`."
        )
