"""`check="memory"`: runs a kernel in memory that records accesses: see `check_memory`.

It interprets the body, equation by equation. Each device is a generator that yields where it waits
for a semaphore. Operations on values run as elsewhere, twice if an operand is a pair; the programs
of loops and branches with accesses are interpreted likewise.

The other parts: `shadow_memory` (who wrote and read each element), `memory_machine` (devices,
copies, messages), `inner_programs`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.op import Elements
from shardwise._src.core.program import Equation, Literal, Program
from shardwise._src.core.program_tools import derived, used, walk
from shardwise._src.effects.callback import host_context
from shardwise._src.kernels.accesses import MODES, kernel_load, kernel_store, new_memory
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.checking.inner_programs import Steps, run_inner
from shardwise._src.kernels.checking.memory_machine import Device, Machine, Version, selected
from shardwise._src.kernels.checking.shadow_memory import (
    Buffer,
    Value,
    as_text,
    defined,
    differ,
    lifted,
    several,
)
from shardwise._src.kernels.copying.copies import Region
from shardwise._src.kernels.copying.in_step import CHANGES
from shardwise._src.kernels.launch_checks import check_blocks
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.ref_access import MASKED
from shardwise._src.kernels.spaces import SEMAPHORES
from shardwise._src.ops.indexing.gather_scatter import SCATTERS
from shardwise._src.ops.indexing.index_windows import windows_inside
from shardwise._src.ops.sharded.collective import axis_index
from shardwise._src.ops.sharded.varying import pcast

SEED = 0  # of the second order in which devices run
POLLS = 10_000  # rounds in which devices only read semaphores, until this is a deadlock


def check_memory(
    body: Program,
    maps: Sequence[Program],
    launch: Launch,
    operands: Sequence[Sequence[Any]],
    axes: Mapping[Any, int] | None = None,
) -> list[list[Any]]:
    """Raises a `KernelError` for the first error; returns the results of each device.

    operands: of each device. axes: of the mesh, names to sizes; None for one device outside of a
    mesh.

    Errors are:
    - accesses outside of a ref, also by arrays of indices;
    - elements of results that are not written, or that depend on memory that was not written or on
      what is beyond the end of an array; likewise conditions, indices and amounts;
    - races: two accesses of one element, of copies, devices or programs that differ along a
      parallel axis, of which one writes and neither waits for the other;
    - copies that no device waits for; semaphores that are not 0 at their end; deadlocks.
    """
    if axes is None or all(map(is_plain, maps)):
        check_blocks(maps, launch, operands[0], by_element=True)
    machine = Machine(launch, axes)
    with host_context().entered():
        _run(machine, body, maps, operands)
        if len(operands) > 1:
            _run(Machine(launch, axes, SEED), body, maps, operands)
    return [[*map(_result, device.results)] for device in machine.devices]


def _result(buffer: Buffer) -> Any:
    return eval_trace().new_array(buffer.a[buffer.inside].reshape(buffer.type.shape))


def _run(machine: Machine, body: Program, maps: Sequence[Program], operands: Sequence[Any]) -> None:
    """Runs the kernel on all devices, and checks what is left. operands: of each."""
    _run_devices(machine, [_Run(machine, xs).launch(body, maps, xs) for xs in operands])
    for device in machine.devices:
        cores = [*device.cores.values()]
        machine.check_end(device.buffers.values(), cores, "at the end of the kernel")
    for buffer in [buffer for device in machine.devices for buffer in device.results]:
        for element in np.flatnonzero(differ(buffer.a, buffer.b) & buffer.inside)[:1].tolist():
            place, event = machine.text(buffer, element), buffer.written_by(element)
            if event.kind == "entry":
                raise machine.error(f"no program writes {place}.")
            what = machine.does(event, place)
            raise machine.error(f"{what}, and the value {event.origin.text}")


def _run_devices(machine: Machine, runs: Sequence[Steps]) -> None:
    running = dict(enumerate(runs))
    order, idle = random.Random(machine.seed), 0
    while running:
        changes, polling = machine.changes, False
        numbers = [*running]
        if machine.seed is not None:
            order.shuffle(numbers)
        for number in numbers:
            try:
                polling |= next(running[number])
            except StopIteration:
                del running[number]
                machine.changes += 1
        idle = idle + 1 if machine.changes == changes else 0
        if idle > (POLLS if polling else 0):
            waits = "; ".join([device.waiting() for device in machine.devices if device.waits])
            raise machine.error(
                f"a deadlock: {waits}. No copy or signal is left that could end the wait."
            )


@derived
def is_plain(program: Program) -> bool:
    """Whether a program has no accesses, and is the same on all devices."""
    own = kernel_load, new_memory, axis_index, pcast, *CHANGES
    atoms = [*program.inputs, *[v for e in walk(program) for v in e.outvars]]
    return not any(e.op in own for e in walk(program)) and not any(v.aval.varying for v in atoms)


@derived
def _idle_loads(program: Program) -> frozenset[int]:
    """The numbers of loads that are part of an atomic update, or whose value is not used."""

    def place(e: Equation) -> tuple[Any, ...]:
        return e.invars[0], e.params["sizes"], e.params["strides"]

    atoms = used(program)
    stores = [e for e in program.eqns if e.op is kernel_store and e.params["mode"] != "set"]
    updates = [*map(place, stores)]
    loads = [(i, e) for i, e in enumerate(program.eqns) if e.op is kernel_load]
    return frozenset([i for i, e in loads if e.outvars[0] not in atoms or place(e) in updates])


def _refs_of(eqn: Equation) -> Sequence[Any]:
    """The versions of refs that an access, copy or operation on semaphores takes."""
    if eqn.op in (kernel_load, kernel_store):
        return eqn.invars[:1]
    return eqn.invars[: len(eqn.params["copy_params"].regions)] if eqn.op in CHANGES else ()


class _Run(Device):
    """A device that interprets a kernel."""

    def launch(self, body: Program, maps: Sequence[Program], operands: Sequence[Any]) -> Steps:
        launch, count = self.machine.launch, self.machine.launch.prefetch
        dynamic = [defined(np.asarray(n)) for n in launch.parts(operands)[0]]
        sizes = iter(dynamic)
        grid = [int(next(sizes).a) if n is None else n for n in launch.grid]
        prefetched = [Version(b, b.ids) for b in self.arguments[:count]]
        tiles = *launch.ins, *launch.outs
        for self.program in np.ndindex(*grid):
            marks = zip(self.program, launch.parallel, strict=True)
            self.core = self.core_at(tuple([i for i, p in marks if p]))
            ids = [defined(np.int32(i)) for i in self.program]
            blocks = []
            rows = zip(tiles, maps, (*self.arguments[count:], *self.results), strict=True)
            for tile, index, buffer in rows:
                starts = yield from self.evaluate(index, [*ids, *prefetched])
                blocks.append(self._block(buffer, tile, starts))
            scratch = [Version(b, b.ids) for b in self.core.scratch]
            yield from self.evaluate(body, [*ids, *dynamic, *prefetched, *blocks, *scratch])
        return []

    def _block(self, buffer: Buffer, tile: Tile, starts: Sequence[Value]) -> Version:
        index, at = [], [int(self.known(start, "the index of a block")) for start in starts]
        rows = zip(at, tile.sizes, tile.element, tile.padding, buffer.ids.shape, strict=False)
        for i, size, is_element, (low, _), n in rows:
            i = i + low if is_element else i * size
            if i < 0 or i + size > n:
                raise self.machine.error(
                    f"{buffer.name}: {self.machine.who(self)} has block "
                    f"{as_text(at[: len(tile.sizes)])}, which is outside of the array."
                )
            index.append(slice(i, i + size))
        ids = buffer.ids[tuple(index)]
        for d, size in zip(tile.ragged, at[len(tile.sizes) :], strict=True):
            number = np.indices(ids.shape, sparse=True)[d]
            ids = np.where(number < size, ids, -1)
        return Version(buffer, ids.reshape(tile.shape))

    # -- programs --

    def evaluate(self, program: Program, args: Sequence[Any]) -> Steps:
        env = dict(zip(program.inputs, (*map(defined, program.consts), *args), strict=True))

        def value(atom: Any) -> Any:
            return defined(atom.value) if isinstance(atom, Literal) else env[atom]

        idle, made = _idle_loads(program), []
        for i, eqn in enumerate(program.eqns):
            values, op, self.site = [value(a) for a in eqn.invars], eqn.op, eqn.site
            for n, atom in enumerate(_refs_of(eqn)):
                if isinstance(values[n], Value):
                    values[n] = env[atom] = self._memory_with(atom, values[n])
            if op is new_memory:
                outs = [self._memory(eqn)]
                made.append(outs[0].buffer)
            elif op is kernel_load and values[0].buffer.space in SEMAPHORES:
                outs = yield from self._read_semaphore(eqn, *values)
            elif op is kernel_load:
                outs = [self._load(eqn, values, i in idle)]
            elif op is kernel_store:
                outs = [self._store(eqn, values)]
            elif op in CHANGES:
                yield from self.synchronize(eqn, values)
                self.machine.changes += 1
                if self.machine.seed is not None:
                    yield False
                outs = [values[i] for i in CHANGES[op][: len(eqn.outvars)]]
            else:
                outs = yield from self._operation(eqn, values)
            env.update(zip(eqn.outvars, outs, strict=True))
        if made:
            moment = "when the memory of `run_scoped` ends"
            self.machine.check_end(made, [self.core], moment)
        return [value(a) for a in program.outvars]

    def _operation(self, eqn: Equation, values: list[Any]) -> Steps:
        op, versions = eqn.op, [v for v in values if isinstance(v, Version)]
        if op is pcast:
            return values
        if op is axis_index:
            return [defined(self._position(eqn.params["names"]))]
        if op.named_axes is not None:
            raise NotImplementedError(
                f"kernel {self.machine.launch.name}: its body has the operation {op.name} over "
                "devices, which the check does not interpret. Use copies and semaphores, or call "
                "it outside of the kernel."
            )
        if op.contains.eval is None or (not versions and all(map(is_plain, eqn.programs()))):
            return self._on_versions(eqn, values) if versions else self._applied(eqn, values)
        condition = partial(self.known, what="the condition")
        return (yield from run_inner(op, eqn.params, values, self.evaluate, condition, lifted))

    def _position(self, names: Sequence[Any]) -> np.int32:
        axes = self.machine.axes or {}
        at = dict(zip(axes, np.unravel_index(self.device, [*axes.values()]), strict=True))
        rows = [at[name] for name in names], [axes[name] for name in names]
        return np.int32(np.ravel_multi_index(*rows))

    def _applied(self, eqn: Equation, values: Sequence[Value]) -> list[Value]:
        """The results of an operation on values."""

        def run(*xs: Any) -> list[Any]:
            found = eqn.op(*xs, **eqn.params)
            return list(found) if eqn.op.multiple else [found]

        return several(run, values)

    # -- accesses --

    def _memory(self, eqn: Equation) -> Version:
        key = id(eqn), sum([key[0] == id(eqn) for key in self.buffers])
        name, space = "memory of `run_scoped`", eqn.params["space"]
        made = self.buffer(key, name, eqn.outvars[0].aval, space=space)
        return Version(made, made.ids)

    def _memory_with(self, atom: Any, value: Value) -> Version:
        """Memory that begins with a value: refs of `Indirect` blocks have copies of elements."""
        key = id(atom), sum([key[0] == id(atom) for key in self.buffers])
        made = self.buffer(key, "a copy in the kernel", atom.aval)
        self.write(made, made.ids, value)
        return Version(made, made.ids)

    def _parts(self, eqn: Equation, version: Version, rest: Sequence[Any]) -> tuple[Any, Any]:
        """The ids of accessed elements, and the operands after the starts."""
        p, n = eqn.params, len(eqn.params["sizes"])
        region = Region(p["sizes"], p["strides"], p["kept"])
        mask = rest[n] if p.get("masked") else None
        return self.region(version, region, rest[:n], mask), rest[n:]

    def _read_semaphore(self, eqn: Equation, version: Version, *starts: Value) -> Steps:
        semaphore = version.buffer.semaphores[int(self._parts(eqn, version, starts)[0])]
        self.waits = semaphore, version.buffer, 0
        yield True
        self.waits = None
        return [defined(np.int32(semaphore.count))]

    def _load(self, eqn: Equation, values: list[Any], is_idle: bool) -> Value:
        """is_idle: whether this is not an access."""
        version, *rest = values
        ids, rest = self._parts(eqn, version, rest)
        if not is_idle:
            self.read(version.buffer, ids[selected(rest[0])] if rest else ids)
        found = version.buffer.value(ids, self.site)
        return lifted(np.where, rest[0], found, rest[1]) if rest else found

    def _store(self, eqn: Equation, values: list[Any]) -> Version:
        version, new, *rest = values
        (ids, rest), mode = self._parts(eqn, version, rest), eqn.params["mode"]
        held = version.buffer.value(ids, self.site)
        if mode != "set":
            new = lifted(MODES[mode], held, new)
        if rest:
            taken = selected(rest[0])
            new = lifted(lambda *xs: np.where(*xs)[taken], rest[0], new, held)
            ids = ids[taken]
        self.write(version.buffer, ids, new, is_atomic=mode != "set")
        return version

    def _on_versions(self, eqn: Equation, values: list[Any]) -> list[Any]:
        """An operation that reads from versions, or writes to one, with an index of arrays."""
        op, (version, *rest) = eqn.op, values
        if isinstance(version, Version) and op in SCATTERS.values():
            return [self._scattered(eqn, version, *rest)]
        if isinstance(version, Version) and op.elements is Elements.MOVED:
            params = eqn.params
            if "fill_value" in params:
                params = params | {"mode": "fill", "fill_value": -1}
            at = [self.known(v, "an array of indices") for v in rest]
            return [self.read(version.buffer, np.asarray(op(version.ids, *at, **params)))]
        read = [self.read(v.buffer, v.ids) if isinstance(v, Version) else v for v in values]
        return self._applied(eqn, read)

    def _scattered(
        self, eqn: Equation, version: Version, indices: Value, updates: Value
    ) -> Version:
        buffer, places = version.buffer, self.known(indices, "an array of indices")
        self._check_places(eqn, version, places, updates)
        held = buffer.value(version.ids, self.site)
        (new,) = self._applied(eqn, [held, indices, updates])
        marks = np.zeros(version.ids.shape, np.int32)
        ones = np.ones(np.shape(updates.a), np.int32)
        at = np.asarray(SCATTERS["set"](marks, places, ones, **eqn.params)) != 0
        new = lifted(lambda x: np.asarray(x)[at], new)
        self.write(buffer, version.ids[at], new, is_atomic=eqn.op is not SCATTERS["set"])
        return version

    def _check_places(self, eqn: Equation, version: Version, places: Any, updates: Value) -> None:
        """Raises if a defined value is written outside of a ref, where an index is not masked."""
        places = np.where((places == MASKED).any(-1, keepdims=True), 0, places)
        windows = eqn.op.windows(eqn.op, (version.ids, places, updates.a), **eqn.params)  # type: ignore[misc]
        bad = ~np.asarray(windows_inside(*windows))  # type: ignore[misc]
        undefined = differ(np.asarray(updates.a), np.asarray(updates.b))
        bad &= ~undefined.any(eqn.params["dimension_numbers"].update_window_dims)
        if bad.any():
            raise self.machine.error(
                f"{version.buffer.name}: the index {as_text(places[bad][0])} of an array of "
                f"indices is outside of the ref of {as_text(version.ids.shape)} elements, and what "
                f"is written there is dropped: {self.machine.where(self)}."
            )
