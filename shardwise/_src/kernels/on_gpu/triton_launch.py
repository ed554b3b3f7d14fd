"""A launch as a function in Triton's dialect, run by as many programs as its grid has.

Axes of the grid whose programs are independent become axes of Triton's grid, of which there are at
most three. The others are loops within each of its programs: scratch memory, and blocks of results
that several turns share, are values which these loops carry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.core.program import Program, Var
from shardwise._src.core.program_tools import without_dead_code
from shardwise._src.kernels.accesses import kernel_load
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_gpu import gpu_refs
from shardwise._src.kernels.on_gpu.gpu_refs import Buffer, Memory, Region, block_of
from shardwise._src.kernels.on_gpu.triton_body import Body
from shardwise._src.kernels.on_gpu.triton_text import INT32, Value, is_element, padded
from shardwise._src.kernels.on_gpu.turns import split_turns
from shardwise._src.kernels.on_gpu.version_uses import accesses
from shardwise._src.messages.formatting import in_bytes
from shardwise._src.runtime.platforms import Platform
from shardwise._src.targets.gpus import GPUS
from shardwise._src.types.array_type import ArrayType

NUM_WARPS, NUM_STAGES = 4, 3
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
    buffer: Buffer | None = None
    tile: Any = None
    map: Program | None = None
    depth: int = 0
    held: bool = False
    read: bool = False


class Launching:
    """Writes the function of one launch."""

    def __init__(
        self,
        body: Program,
        maps: Sequence[Program],
        launch: Launch,
        parallel: Sequence[bool],
        types: Sequence[ArrayType],
        names: Sequence[str],
        text: Body,
    ):
        self.body, self.launch, self.text = body, launch, text
        self.loops = [d for d, n in enumerate(launch.grid) if not parallel[d] and n != 1]
        self.ids: list[Value | None] = [None] * len(launch.grid)
        self.buffers = [
            Buffer(what, f"%arg{i}", t)
            for i, (what, t) in enumerate(zip(names, types, strict=True))
        ]
        self.slots = self._slots(maps)

    # -- refs --

    def _slots(self, maps: Sequence[Program]) -> list[Slot]:
        launch, axes = self.launch, len(self.launch.grid)
        ins, outs = len(launch.ins), len(launch.outs)
        first = axes + launch.prefetch
        aliased = {j for _, j in launch.aliases}
        found = []
        for i, (tile, m) in enumerate(zip((*launch.ins, *launch.outs), maps, strict=True)):
            buffer = self.buffers[launch.prefetch + i if i < ins else i - ins - outs]
            used = _axes_of(m, axes)
            depth = max([k + 1 for k, d in enumerate(self.loops) if d in used], default=0)
            again = any(d not in used for d in self.loops[:depth])
            held = False
            if i >= ins:
                shared = any(d not in used for d in self.loops)
                held = shared and self._is_carried(first + i)
            read = again or i - ins in aliased
            found.append(
                Slot(first + i, tile.ref_type, buffer, tile, m, depth, held, read and held)
            )
        for i, s in enumerate(launch.scratch):
            found.append(Slot(first + ins + outs + i, s.type, held=True))
        return found

    def _is_carried(self, i: int) -> bool:
        """Whether the block of a result is read, and only as a whole, so that loops carry it."""
        found, others = accesses(self.body, self.body.invars[i])
        loads = [eqn for eqn in found if eqn.op is kernel_load]
        return bool(loads) and not others and all(_is_whole(eqn) for eqn in found)

    def _memory(self, slot: Slot) -> Memory:
        """The ref of a block, for the present indices."""
        assert slot.buffer is not None and slot.map is not None
        ids = [self.text.integer(0) if i is None else i for i in self.ids]
        at = self.text.program(slot.map, [*ids, *self._prefetched()])
        return block_of(self.text, slot.buffer, slot.tile, at)

    def _prefetched(self) -> list[Memory]:
        found = []
        for buffer in self.buffers[: self.launch.prefetch]:
            shape = buffer.type.shape
            strides = tuple(gpu_refs.row_major(shape))
            bounds = (None,) * len(shape)
            found.append(Memory(buffer, buffer.pointer, shape, strides, bounds))
        return found

    # -- the function --

    def written(self, grid: Sequence[int]) -> str:
        """The module. grid: Triton's."""
        self._read_ids(grid)
        self._nest(0, {})
        self.text.line("tt.return")
        arguments = ", ".join(
            f"{b.pointer}: !tt.ptr<{b.element}> {{tt.divisibility = 16 : i32}}"
            for b in self.buffers
        )
        head = f"  tt.func public @{symbol_of(self.launch.name)}({arguments})"
        lines = "\n".join(self.text.body())
        return f"module {{\n{head} attributes {{noinline = false}} {{\n{lines}\n  }}\n}}\n"

    def _read_ids(self, grid: Sequence[int]) -> None:
        """The index of this program along each axis that is not a loop; the last is x."""
        text, sizes = self.text, self.launch.grid
        own = [d for d in reversed(range(len(sizes))) if d not in self.loops]
        for d in own:
            if sizes[d] == 1:
                self.ids[d] = text.integer(0)
        own = [d for d in own if sizes[d] != 1]
        direct = [sizes[d] for d in own] == [n for n in grid if n != 1] and len(own) <= 3
        if direct:
            for axis, d in zip("xyz", own, strict=False):
                self.ids[d] = text.let(f"tt.get_program_id {axis} : i32", (), INT32)
            return
        left = text.let("tt.get_program_id x : i32", (), INT32)
        for d in own:
            if d == own[-1]:
                self.ids[d] = left
                break
            n = text.integer(sizes[d] or 0)
            self.ids[d] = text.binary("arith.remsi", left, n)
            left = text.binary("arith.divsi", left, n)

    def _nest(self, depth: int, refs: dict[int, Any]) -> dict[int, Any]:
        """Writes the loops from a depth on; returns the refs with the values after them."""
        text = self.text
        opened = [s for s in self.slots if s.depth == depth]
        memories: dict[int, Memory] = {}
        for slot in opened:
            if slot.buffer is not None:
                memories[slot.input] = self._memory(slot)
            refs = refs | {slot.input: self._begun(slot, memories.get(slot.input))}
        refs = self._loop(depth, refs) if depth < len(self.loops) else self._run(self.body, refs)
        for slot in opened:
            if slot.held and slot.buffer is not None:
                ref = memories[slot.input]
                gpu_refs.store(text, ref, _everything(text, ref), refs[slot.input], None, slot)
        return refs

    def _begun(self, slot: Slot, memory: Memory | None) -> Any:
        if not slot.held:
            return memory
        if slot.read and memory is not None:
            return gpu_refs.load(self.text, memory, _everything(self.text, memory))
        return self.text.constant(0, slot.type.shape, slot.type.dtype)

    def _loop(self, depth: int, refs: dict[int, Any]) -> dict[int, Any]:
        axis, text = self.loops[depth], self.text
        size = self.launch.grid[axis]
        assert size is not None
        first, every, last = None, self.body, None
        inner = depth == len(self.loops) - 1
        if inner:
            ends = [s.input for s in self.slots][len(self.launch.ins) :]
            first, every, last = split_turns(self.body, axis, size, ends)
        if first is not None:
            refs = self._turn(depth, first, text.integer(0), refs)
        carried = [s.input for s in self.slots if s.held and s.input in refs]
        for slot in self.slots:
            ref = refs.get(slot.input)
            if slot.buffer is not None and slot.input >= self._first_out:
                if isinstance(ref, Memory):
                    text.enter_loop(every, every.invars[slot.input], ref)
                elif ref is None:
                    slot.buffer.written = "store"

        def turn(i: Value, state: list[Value]) -> list[Value]:
            now = refs | dict(zip(carried, state, strict=True))
            self.ids[axis] = i
            now = self._turn(depth, every, i, now) if inner else self._nest(depth + 1, now)
            return [now[k] for k in carried]

        low, high = text.integer(0), text.integer(size)
        found = text.loop(low, high, [refs[k] for k in carried], turn)
        refs = refs | dict(zip(carried, found, strict=True))
        if last is not None:
            refs = self._turn(depth, last, text.integer(size - 1), refs)
        self.ids[axis] = None
        return refs

    @property
    def _first_out(self) -> int:
        return len(self.launch.grid) + self.launch.prefetch + len(self.launch.ins)

    def _turn(self, depth: int, program: Program, i: Value, refs: dict[int, Any]) -> dict[int, Any]:
        """One turn of the innermost loop, with the refs whose blocks depend on it."""
        self.ids[self.loops[depth]] = i
        outer, self.body = self.body, program
        refs = self._nest(depth + 1, refs)
        self.body = outer
        return refs

    def _run(self, program: Program, refs: dict[int, Any]) -> dict[int, Any]:
        """The body, for the present indices."""
        axes = len(self.launch.grid)
        inputs = [*self.ids, *self._prefetched(), *[refs[s.input] for s in self.slots]]
        assert len(inputs) == axes + self.launch.prefetch + len(self.slots)
        found = self.text.program(program, inputs)
        ends = [s.input for s in self.slots][len(self.launch.ins) :]
        for i, new in zip(ends, found, strict=True):
            old = refs[i]
            if isinstance(old, Memory) and new is not old:
                raise self.text.unsupported(
                    f"the ref of {old.buffer.what}",
                    "is replaced by other values. Write to it with `ref[...] = values`, at slices "
                    "or with a mask",
                )
        return refs | dict(zip(ends, found, strict=True))


def _everything(text: Body, ref: Memory) -> Region:
    n = len(ref.shape)
    zeros = tuple([text.integer(0)] * n)
    return Region(zeros, ref.shape, (1,) * n, (True,) * n)


def _is_whole(eqn: Any) -> bool:
    """Whether an access is of all elements of a ref, without a mask."""
    p = eqn.params
    start = 1 if eqn.op is kernel_load else 2
    zeros = all(getattr(a, "value", 1) == 0 for a in eqn.invars[start : start + len(p["sizes"])])
    whole = p["sizes"] == eqn.invars[0].aval.shape and all(p["kept"]) and not p["masked"]
    return zeros and whole and p.get("mode", "set") == "set"


def _axes_of(index: Program, axes: int) -> set[int]:
    """The axes of the grid that the index of a block depends on."""
    reached: dict[Any, set[int]] = {v: {d} for d, v in enumerate(index.invars[:axes])}
    for eqn in without_dead_code(index.outvars, index.eqns):
        found = set().union(*[reached.get(a, set()) for a in eqn.invars if isinstance(a, Var)])
        reached |= dict.fromkeys(eqn.outvars, found)
    return set().union(*[reached.get(a, set()) for a in index.outvars if isinstance(a, Var)])


def symbol_of(name: str) -> str:
    """The name of a kernel as a symbol."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def triton_grid(launch: Launch, parallel: Sequence[bool]) -> tuple[int, int, int]:
    """Triton's grid: the last parallel axis is x. More than three axes are folded into one."""
    sizes = [n for n, p in zip(launch.grid, parallel, strict=True) if p and n not in (1, None)]
    rows = [*sizes[::-1]]
    grid = [*rows, 1, 1, 1][:3]
    if len(rows) > 3 or any(n > most for n, most in zip(grid, GRID_LIMITS, strict=True)):
        grid = [math.prod(rows), 1, 1]
    return grid[0], grid[1], grid[2]


def triton_kernel(
    body: Program,
    maps: Sequence[Program],
    launch: Launch,
    parallel: Sequence[bool],
    types: Sequence[ArrayType],
    names: Sequence[str],
    platform: Platform,
) -> TritonKernel:
    """The kernel of a launch.

    types, names: of prefetched arrays, inputs, values that results begin with, and results.

    Raises:
      NotImplementedError: if something has no form in Triton's language.
      ValueError: if blocks are larger than a GPU has room for, or a parameter is not valid.
    """
    warps, stages = launch.params.num_warps, launch.params.num_stages
    warps = NUM_WARPS if warps is None else warps
    stages = NUM_STAGES if stages is None else stages
    if warps not in (1, 2, 4, 8, 16, 32) or stages < 1:
        raise ValueError(
            f"kernel {launch.name}: num_warps must be a power of two up to 32, and num_stages at "
            f"least 1; got {warps} and {stages}."
        )
    for what, t in zip(names, types, strict=True):
        if not is_element(t.dtype):
            raise NotImplementedError(
                f"kernel {launch.name} cannot be compiled for GPUs: {what} is {t.str_short(True)}, "
                "and Triton has no values of its dtype. Convert it outside of the kernel."
            )
    grid = triton_grid(launch, parallel)
    text = Body(launch.name, platform.triton_library, stages)
    own = Launching(body, maps, launch, parallel, types, names, text)
    _check_registers(own, launch)
    module = own.written(grid)
    _check_shared_memory(text, launch, stages, platform)
    return TritonKernel(symbol_of(launch.name), module, grid, warps, stages)


def _check_registers(own: Launching, launch: Launch) -> None:
    """Values that loops carry stay in registers."""
    held = [s for s in own.slots if s.held and own.loops]
    needed = sum(math.prod(padded(s.type.shape)) * s.type.dtype.itemsize for s in held)
    if needed > REGISTERS:
        raise ValueError(
            f"kernel {launch.name}: its scratch memory, and the blocks of results that it adds "
            f"to, are {in_bytes(needed)} in registers, and a GPU's core has {in_bytes(REGISTERS)}. "
            "Use smaller blocks."
        )


def _check_shared_memory(text: Body, launch: Launch, stages: int, platform: Platform) -> None:
    room = max([g.shared_memory for g in GPUS.values() if g.platform is platform], default=0)
    if text.shared > room > 0:
        raise ValueError(
            f"kernel {launch.name}: a product keeps {in_bytes(text.shared)} of its operands in "
            f"shared memory, with num_stages={stages}, and no GPU has more than {in_bytes(room)}. "
            "Use smaller blocks, or fewer stages: `params=CompilerParams(num_stages=2)`."
        )
