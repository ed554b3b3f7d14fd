"""Interprets the body of a kernel, equation by equation, on the devices of `memory_machine`.

Each device is a generator that yields where it waits for a semaphore. Operations on values run as
elsewhere, twice if an operand is a pair; loops and branches with accesses are walked.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements
from shardwise._src.core.program import Equation, Literal, Program
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.kernels.accesses import MODES, kernel_load, kernel_store, new_memory
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.checking.memory_machine import Device, Machine, Version
from shardwise._src.kernels.checking.shadow_memory import (
    READ,
    WRITE,
    Buffer,
    Origin,
    Value,
    defined,
    differ,
    join,
    paired,
)
from shardwise._src.kernels.copies import (
    Region,
    kernel_copy,
    kernel_signal,
    kernel_wait,
    kernel_wait_copy,
)
from shardwise._src.kernels.in_step import CHANGES
from shardwise._src.ops.indexing.gather_rules import window_sizes
from shardwise._src.ops.indexing.gather_scatter import SCATTERS
from shardwise._src.ops.sharded.collective import axis_index
from shardwise._src.ops.sharded.varying import pcast

POLLS = 10_000  # rounds in which devices only read semaphores, until this is a deadlock
Steps = Generator[bool, None, list[Any]]
_COPIES = kernel_copy, kernel_wait_copy, kernel_signal, kernel_wait


@derived
def is_plain(program: Program) -> bool:
    """Whether a program has no accesses, and is the same on all devices."""
    own = (kernel_load, new_memory, axis_index, pcast, *CHANGES)
    return not any(
        e.op in own or any(v.aval.varying for v in e.outvars) for e in walk(program)
    ) and not any(v.aval.varying for v in program.inputs)


@derived
def _idle_loads(program: Program) -> frozenset[int]:
    """The numbers of loads that are part of an atomic update, or whose value is not used."""
    used = {a for e in program.eqns for a in e.invars} | {*program.outvars}
    updates = [
        (e.invars[0], e.params["sizes"], e.params["strides"])
        for e in program.eqns
        if e.op is kernel_store and e.params["mode"] != "set"
    ]
    return frozenset(
        i
        for i, e in enumerate(program.eqns)
        if e.op is kernel_load
        and (
            e.outvars[0] not in used
            or (e.invars[0], e.params["sizes"], e.params["strides"]) in updates
        )
    )


def run_devices(
    machine: Machine, body: Program, maps: Sequence[Program], operands: Sequence[Any]
) -> None:
    """Runs the kernel on all devices. operands: of each."""
    running: dict[int, Steps] = {}
    for xs in operands:
        device = machine.add_device(xs)
        running[device.number] = _Run(machine, device).launch(body, maps, xs)
    order, seed = random.Random(machine.seed), machine.seed
    idle = 0
    while running:
        changes, polling = machine.changes, False
        numbers = sorted(running)
        if seed is not None:
            order.shuffle(numbers)
        for number in numbers:
            try:
                polling |= next(running[number])
            except StopIteration:
                del running[number]
                machine.changes += 1
        idle = idle + 1 if machine.changes == changes else 0
        if idle > (POLLS if polling else 0):
            raise machine.faults.deadlock(machine.devices)


class _Run:
    """A kernel on one device."""

    def __init__(self, machine: Machine, device: Device):
        self.machine, self.device, self.faults = machine, device, machine.faults

    # -- the grid --

    def launch(self, body: Program, maps: Sequence[Program], operands: Sequence[Any]) -> Steps:
        launch, device = self.machine.launch, self.device
        dynamic = launch.parts(operands)[0]
        rest = iter(dynamic)
        grid = [int(np.asarray(next(rest))) if n is None else n for n in launch.grid]
        sizes, count = [defined(x) for x in dynamic], launch.prefetch
        prefetched = [Version(b, b.ids) for b in device.arguments[:count]]
        for ids in np.ndindex(*grid):
            at = tuple([i for i, p in zip(ids, launch.parallel, strict=True) if p])
            device.program, device.core = ids, self.machine.core(device, at)
            numbers = [defined(np.int32(i)) for i in ids]
            known = [*numbers, *prefetched]
            blocks = []
            buffers = *device.arguments[count:], *device.results
            rows = zip((*launch.ins, *launch.outs), maps, buffers, strict=True)
            for tile, index, buffer in rows:
                starts = yield from self.program(index, known)
                blocks.append(self._block(buffer, tile, starts))
            scratch = [Version(b, b.ids) for b in device.core.scratch]
            yield from self.program(body, [*numbers, *sizes, *prefetched, *blocks, *scratch])
        clock: dict[Any, int] = {}
        for core in device.cores.values():
            join(clock, core.clock)
        device.end = clock
        return []

    def _block(self, buffer: Buffer, tile: Tile, starts: Sequence[Value]) -> Version:
        index = []
        rows = zip(
            starts, tile.sizes, tile.kept, tile.element, tile.padding, buffer.shape, strict=True
        )
        for start, size, keep, is_element, (low, _), n in rows:
            at = self.machine.number(start, self.device, None)
            at = at + low if is_element else at * size
            if at < 0 or at + size > n:
                raise self.faults.outside_block(buffer, [int(s.a) for s in starts], self.device)
            index.append(slice(at, at + size) if keep else at)
        return Version(buffer, buffer.ids[(*index, ...)])

    # -- programs --

    def program(self, program: Program, args: Sequence[Any]) -> Steps:
        env = dict(zip(program.inputs, (*map(defined, program.consts), *args), strict=True))

        def value(atom: Any) -> Any:
            return defined(atom.value) if isinstance(atom, Literal) else env[atom]

        idle, made = _idle_loads(program), []
        for i, eqn in enumerate(program.eqns):
            values = [value(a) for a in eqn.invars]
            if eqn.op is new_memory:
                outs = [self._memory(eqn)]
                made.append(outs[0].buffer)
            elif eqn.op is kernel_load:
                if values[0].buffer.is_semaphore:
                    yield True
                outs = [self._load(eqn, values, i in idle)]
            elif eqn.op is kernel_store:
                outs = [self._store(eqn, values)]
            elif eqn.op in _COPIES:
                outs = yield from self._copies(eqn, values)
            else:
                outs = yield from self._operation(eqn, values)
            env.update(zip(eqn.outvars, outs, strict=True))
        if made:
            clock = self.device.core.clock
            self.machine.check_end(made, clock, "when the memory of `run_scoped` ends")
        return [value(a) for a in program.outvars]

    def _operation(self, eqn: Equation, values: list[Any]) -> Steps:
        op = eqn.op
        versions = [v for v in values if isinstance(v, Version)]
        if op is pcast:
            return values
        if op is axis_index:
            return [defined(np.int32(self._position(eqn.params["names"])))]
        if op.named_axes is not None:
            raise self.faults.collective(op.name)
        if not op.programs or not (versions or not all(map(is_plain, eqn.programs()))):
            return self._on_versions(eqn, values) if versions else self._applied(eqn, values)
        if op is cond:
            which = self._known(values[0], "the condition", eqn)
            branches = eqn.params["branches"]
            branch = branches[min(max(int(which), 0), len(branches) - 1)]
            return (yield from self.program(branch, values[1:]))
        if op is scan:
            return (yield from self._scan(ScanParams(**eqn.params), values))
        if op is while_loop:
            own = WhileParams(**eqn.params)
            tests, bodies, carry = own.parts(values)
            while True:
                (test,) = yield from self.program(own.test, [*tests, *carry])
                if not self._known(test, "the condition", eqn):
                    return list(carry)
                carry = yield from self.program(own.body, [*bodies, *carry])
        return (yield from self.program(next(iter(eqn.programs())), values))

    def _scan(self, own: ScanParams, values: list[Any]) -> Steps:
        consts, carry, xs = own.parts(values)
        rows: list[list[Any]] = []
        steps = range(own.length)
        for i in reversed(steps) if own.reverse else steps:
            slices = [
                paired(np.asarray(x.a)[i], np.asarray(x.b)[i], x.origin)
                if not x.is_defined
                else defined(np.asarray(x.a)[i])
                for x in xs
            ]
            outs = yield from self.program(own.body, [*consts, *carry, *slices])
            carry = outs[: own.num_carry]
            rows.append(outs[own.num_carry :])
        stacked = []
        for j, v in enumerate(own.body.outvars[own.num_carry :]):
            column = [row[j] for row in (reversed(rows) if own.reverse else rows)]
            empty = np.zeros((0, *v.aval.shape), v.aval.dtype)
            a, b = [
                np.stack([np.asarray(y[k]) for y in column]) if column else empty for k in (0, 1)
            ]
            origin = next((y.origin for y in column if not y.is_defined), None)
            stacked.append(paired(a, b, origin))
        return [*carry, *stacked]

    def _known(self, value: Value, what: str, eqn: Equation) -> Any:
        if not value.is_defined:
            raise self.faults.undefined(what, value.origin, self.device, eqn.site)
        return np.asarray(value.a)

    def _position(self, names: Sequence[Any]) -> int:
        axes = self.machine.axes
        at = dict(zip(axes, np.unravel_index(self.device.number, [*axes.values()]), strict=True))
        number = 0
        for name in names:
            number = number * axes[name] + int(at[name])
        return number

    def _applied(self, eqn: Equation, values: Sequence[Value]) -> list[Value]:
        """The results of an operation on values."""
        first = self._results(eqn, [v.a for v in values])
        origins = [v.origin for v in values if not v.is_defined]
        if not origins:
            return [*map(defined, first)]
        second = self._results(eqn, [v.b for v in values])
        return [paired(a, b, origins[0]) for a, b in zip(first, second, strict=True)]

    def _results(self, eqn: Equation, values: Sequence[Any]) -> list[Any]:
        found = eqn.op(*values, **eqn.params)
        return list(found) if eqn.op.multiple else [found]

    # -- accesses --

    def _memory(self, eqn: Equation) -> Version:
        device = self.device
        t = eqn.outvars[0].aval
        count = sum(isinstance(k, tuple) and k[0] == id(eqn) for k in device.buffers)
        buffer = self.machine.buffer(device, "memory of `run_scoped`", t)
        buffer.set_space(eqn.params["space"])
        device.buffers[id(eqn), count] = buffer
        return Version(buffer, buffer.ids)

    def _ids(self, eqn: Equation, version: Version, starts: Sequence[Any]) -> np.ndarray:
        p = eqn.params
        region = Region(p["sizes"], p["strides"], p["kept"])
        return self.machine.region(version, region, starts, self.device, eqn.site)

    def _load(self, eqn: Equation, values: list[Any], is_idle: bool) -> Value:
        version, *rest = values
        n, buffer = len(eqn.params["sizes"]), version.buffer
        ids = self._ids(eqn, version, rest[:n])
        if buffer.is_semaphore:
            return defined(np.int32(self.machine.semaphore(version, ids).count))
        if not eqn.params["masked"]:
            return self._read(buffer, ids, eqn, is_idle)
        mask, other = rest[n:]
        taken = [np.asarray(m) for m in (mask.a, mask.b)]
        self._read(buffer, ids[taken[0] | taken[1]], eqn, is_idle)
        value = buffer.value(ids, eqn.site)
        a = np.where(taken[0], value.a, np.asarray(other.a))
        b = np.where(taken[1], value.b, np.asarray(other.b))
        return paired(a, b, value.origin or mask.origin or other.origin)

    def _read(self, buffer: Buffer, ids: np.ndarray, eqn: Equation, is_idle: bool = False) -> Value:
        """The elements. is_idle: whether this is not an access."""
        if not (is_idle or buffer.is_readonly):
            number = self.machine.event(self.device, READ, eqn.site)
            buffer.read(ids[ids >= 0], number, self.device.core.clock, self.faults.race)
        return buffer.value(ids, eqn.site)

    def _store(self, eqn: Equation, values: list[Any]) -> Version:
        version, value, *rest = values
        n, mode = len(eqn.params["sizes"]), eqn.params["mode"]
        ids, buffer = self._ids(eqn, version, rest[:n]), version.buffer
        held = buffer.value(ids, eqn.site)
        a, b = [np.broadcast_to(np.asarray(x), ids.shape) for x in (value.a, value.b)]
        if mode != "set":
            a, b = [np.asarray(MODES[mode](x, y)) for x, y in ((held.a, a), (held.b, b))]
        origin = value.origin or held.origin
        if not eqn.params["masked"]:
            self._write(buffer, ids, a, b, origin, eqn, mode != "set")
            return version
        mask = rest[n]
        rows = [np.broadcast_to(np.asarray(m), ids.shape) for m in (mask.a, mask.b)]
        a, b = np.where(rows[0], a, held.a), np.where(rows[1], b, held.b)
        t = rows[0] | rows[1]
        self._write(buffer, ids[t], a[t], b[t], mask.origin or origin, eqn, mode != "set")
        return version

    def _write(
        self,
        buffer: Buffer,
        ids: np.ndarray,
        a: np.ndarray,
        b: np.ndarray,
        origin: Origin | None,
        eqn: Equation,
        is_atomic: bool = False,
    ) -> None:
        cause = origin if differ(a, b).any() else None
        fields = {"is_atomic": is_atomic, "origin": cause}
        number = self.machine.event(self.device, WRITE, eqn.site, **fields)
        buffer.write(ids, number, self.device.core.clock, self.faults.race)
        buffer.put(ids, a, b)

    def _on_versions(self, eqn: Equation, values: list[Any]) -> list[Any]:
        """An operation that reads from versions, or writes to one, with an index of arrays."""
        op, (version, *rest) = eqn.op, values
        if isinstance(version, Version) and op in SCATTERS.values():
            return [self._scattered(eqn, version, *rest)]
        if isinstance(version, Version) and op.elements is Elements.MOVED:
            params = eqn.params
            if "fill_value" in params:
                params = params | {"mode": "fill", "fill_value": -1}
            starts = [self._known(v, "an array of indices", eqn) for v in rest]
            ids = np.asarray(op(version.ids, *starts, **params))
            return [self._read(version.buffer, ids, eqn)]
        read = [self._read(v.buffer, v.ids, eqn) if isinstance(v, Version) else v for v in values]
        return self._applied(eqn, read)

    def _scattered(
        self, eqn: Equation, version: Version, indices: Value, updates: Value
    ) -> Version:
        op, buffer = eqn.op, version.buffer
        places = self._known(indices, "an array of indices", eqn)
        self._check_places(eqn, version, places, updates)
        old = buffer.value(version.ids, eqn.site)
        (new,) = self._applied(eqn, [old, indices, updates])
        marks = np.zeros(version.ids.shape, np.int32)
        ones = np.ones(np.shape(updates.a), np.int32)
        at = np.asarray(SCATTERS["set"](marks, places, ones, **eqn.params)) != 0
        a, b = np.asarray(new.a)[at], np.asarray(new.b)[at]
        origin = updates.origin or old.origin
        self._write(buffer, version.ids[at], a, b, origin, eqn, op is not SCATTERS["set"])
        return version

    def _check_places(self, eqn: Equation, version: Version, places: Any, updates: Value) -> None:
        """Raises if a defined value is written outside of a ref. (Where an index is masked, what
        is written is what was read there, which is not defined.)"""
        shape, numbers = version.ids.shape, eqn.params["dimension_numbers"]
        sizes = window_sizes(type_of(version.ids), type_of(updates.a), numbers)
        last = np.array([shape[d] - sizes[d] for d in numbers.scatter_dims_to_operand_dims])
        bad = ((places < 0) | (places > last)).any(-1)
        undefined = differ(np.asarray(updates.a), np.asarray(updates.b))
        bad &= ~undefined.any(axis=tuple(numbers.update_window_dims))
        if bad.any():
            raise self.faults.outside_array(version, places[bad][0], self.device, eqn.site)

    # -- copies and semaphores --

    def _copies(self, eqn: Equation, values: list[Any]) -> Steps:
        machine, device, op = self.machine, self.device, eqn.op
        results = [values[i] for i in CHANGES[op][: len(eqn.outvars)]]
        if op is kernel_copy:
            machine.copy(device, eqn, values)
        elif op is kernel_signal:
            machine.signal(device, eqn, values)
        else:
            yield from self._wait(eqn, values)
        if machine.seed is not None:
            yield False
            machine.changes += 1
        return results

    def _wait(self, eqn: Equation, values: list[Any]) -> Steps:
        machine, device, form = self.machine, self.device, eqn.params["form"]
        versions, starts, rest = form.parts(values)
        version, region, at = versions[-1], form.regions[-1], starts[-1]
        if eqn.op is kernel_wait:
            amount = machine.number(rest[0], device, eqn.site)
        else:
            held = form.regions[0]
            amount = int(np.prod(held.sizes)) * versions[0].buffer.type.dtype.itemsize
        ids = machine.region(version, region, at, device, eqn.site)
        semaphore = machine.semaphore(version, ids)
        while semaphore.count < amount:
            device.waits = version.buffer, semaphore, amount, eqn.site
            yield False
        device.waits = None
        self.faults.unclear.update(semaphore.take(amount, device.core.clock))
        return []
