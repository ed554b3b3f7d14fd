"""`explain(f)(*args)`: what a function will do on its devices, without running it.

The function is staged and compiled as a call would be, from a module whose instructions carry the
numbers of the equations that they come from. XLA keeps these, also on what the partitioner adds; so
each collective and each buffer leads back to a line of the user's.
"""

from __future__ import annotations

import functools
import linecache
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.api.jit import jit
from shardwise._src.api.shapes import ShapeDtypeStruct
from shardwise._src.api.stages import Lowered, Wrapped
from shardwise._src.core.program import Equation
from shardwise._src.explain.buffers import Place, places
from shardwise._src.explain.causes import Spec, call_text, cause
from shardwise._src.explain.communication import Collective, collectives, mesh_axes
from shardwise._src.explain.elsewhere import inspected_elsewhere
from shardwise._src.explain.hlo import Instruction, Module, read
from shardwise._src.explain.machines import Machine, machine_of
from shardwise._src.explain.report import (
    Buffer,
    Communication,
    Computation,
    Memory,
    Report,
    Seconds,
    merged,
)
from shardwise._src.explain.widened import as_sent, product_dtype
from shardwise._src.explain.work import work_of
from shardwise._src.lowering.emitter import NUMBERED
from shardwise._src.messages.source import line_of, names_of, scope_of
from shardwise._src.running.plan import ModulePlan
from shardwise._src.runtime.inspection import Inspection, inspected
from shardwise._src.runtime.shardy import Flow, propagated_flows
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.types.devices import DescribedDevice, is_described
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.sharding import NamedSharding

TIMEOUT = 300.0  # seconds for compiling a program for devices that are not there
_MESH = re.compile(r"sdy\.mesh @(\w+) = <\[(.*)\]>")  # in the program's order of devices
_EQUATION = re.compile(rf"{NUMBERED}(\d+)(?=[/:)\"]|$)")


def explain(
    f: Callable[..., Any], *, machine: str | Machine | None = None, timeout: float = TIMEOUT
) -> Callable[..., Report]:
    """A function that tells what `f` will do on its devices for given arguments.

    It takes what `f` takes: arrays, or `ShapeDtypeStruct`s of which only shapes, dtypes and
    shardings count. Nothing of `f` is run; it is compiled. Shardings over an `AbstractMesh` stand
    for devices that are not there, as many as the mesh says: the program is compiled for as many
    virtual devices of another process.

    Args:
      f: a function; it is jitted if it is not yet.
      machine: for estimates of time, one of `machines` by name, or a `Machine`; by default that of
        the devices.
      timeout: seconds for compiling for devices that are not there.

    Returns:
      `(*args, **kwargs) → Report`.

    Raises:
      What `jit(f).lower(*args)` raises; TypeError for what is no function, or is compiled already;
      ValueError for an unknown machine; TimeoutError, and RuntimeError or NotImplementedError if a
      program cannot be compiled for devices that are not there.
    """

    if not callable(f) or (hasattr(f, "as_text") and not isinstance(f, Wrapped)):
        raise TypeError(
            f"explain takes a function; got {type(f).__name__}. It compiles a function for the "
            "arguments that it is then given: `explain(f)(*args)`."
        )

    @functools.wraps(f)
    def explained(*args: Any, **kwargs: Any) -> Report:
        wrapped = f if isinstance(f, Wrapped) else jit(f)
        meshes: dict[AbstractMesh, Mesh] = {}
        described = functools.partial(_described, meshes=meshes)
        args, kwargs = tree_map(described, (args, kwargs))
        return report_of(wrapped.lower(*args, **kwargs), machine, timeout)

    return explained


def _described(x: Any, meshes: dict[AbstractMesh, Mesh]) -> Any:
    """A `ShapeDtypeStruct` over devices that are not there, in place of one over no devices."""
    sharding = getattr(x, "sharding", None)
    if not isinstance(x, ShapeDtypeStruct) or not isinstance(sharding, NamedSharding):
        return x
    mesh = sharding.mesh
    if isinstance(mesh, Mesh):
        return x
    if mesh not in meshes:
        meshes[mesh] = described_mesh(mesh)
    there = NamedSharding(meshes[mesh], sharding.spec, sharding.memory_kind)
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=there, weak_type=x.weak_type)


def described_mesh(mesh: AbstractMesh) -> Mesh:
    """A mesh of devices that are not there."""
    kind = mesh.abstract_device.device_kind if mesh.abstract_device is not None else "cpu"
    devices = [DescribedDevice(i, "cpu", kind) for i in range(mesh.size)]
    grid = np.array(devices, dtype=object).reshape(mesh.axis_sizes)
    return Mesh(grid, mesh.axis_names, mesh.axis_types)


def report_of(lowered: Lowered, machine: Any = None, timeout: float = TIMEOUT) -> Report:
    """The report of a function that is lowered."""
    plan = lowered.plan
    text, equations = plan.numbered()
    device = plan.places.devices[0]
    found = _inspected(plan, text, lowered.traced.overrides, timeout)
    known = machine_of(machine, device.platform, getattr(device, "device_kind", ""))
    flows = propagated_flows(text, NUMBERED) if len(plan.places.devices) > 1 else {}
    rest = text, equations, flows, found, known
    return _Making(plan, lowered.traced.program, *rest).report()


def estimate_of(
    lowered: Lowered, machine: Machine, timeout: float, overrides: tuple
) -> tuple[Seconds, Memory]:
    """What a report says of time and memory, without anything else."""
    text, equations = lowered.plan.numbered()
    found = _inspected(lowered.plan, text, (*lowered.traced.overrides, *overrides), timeout)
    compiled = _Compiled(read(found.text, "explain"), equations, machine)
    return compiled.seconds(), _memory(found)


def _inspected(plan: ModulePlan, text: str, overrides: tuple, timeout: float) -> Inspection:
    devices = plan.places.devices
    if is_described(devices):
        free = [s is None for s in plan.places.results]
        return inspected_elsewhere(text, len(devices), free, timeout, overrides)
    return inspected(plan._replace(text=text).compiled(overrides).raw)


class _Compiled:
    """An optimised program, with the equations that its instructions come from."""

    def __init__(self, hlo: Module, equations: Sequence[Equation], machine: Machine):
        self.hlo, self.equations, self.machine = hlo, equations, machine
        self.instructions = {i.name: i for _, i in hlo}
        self.collectives = [
            as_sent(c, [equations[n] for n in self.numbers(c)], machine) for c in collectives(hlo)
        ]
        self.work = work_of(hlo, self.product_dtype)

    def numbers(self, c: Collective) -> list[int]:
        """The numbers of the equations that a collective is for."""
        return self.equations_of(c.op_name) or self.nearest(c.name)

    def product_dtype(self, i: Instruction) -> str:
        found, dtype = self.equations_of(i.op_name), i.arrays[0].dtype
        if not found:
            return dtype
        return product_dtype(dtype, self.equations[found[0]], self.machine)

    def seconds(self) -> Seconds:
        work, machine, talking = self.work, self.machine, 0.0
        for c in self.collectives:
            link = machine.link(c.groups or c.pairs, self.hlo.device_count)
            talking += c.runs * machine.collective_seconds(c.kind, c.bytes, c.group_size, link)
        compute = sum([n / machine.flop_rate(dtype) for dtype, n in work.flops.items()])
        return Seconds(compute, work.bytes / machine.memory_bandwidth, talking)

    def equations_of(self, op_name: str) -> list[int]:
        """The numbers of the equations that an instruction comes from: several if it was joined.

        In `a/b`, b is what a calls; where b is of no line, it is a that the user knows.
        """
        joined = op_name.strip("()").split(":") if op_name.startswith("(") else [op_name]
        found = [[int(n) for n in _EQUATION.findall(name)] for name in joined]
        return list(dict.fromkeys([self._known(numbers) for numbers in found if numbers]))

    def _known(self, numbers: list[int]) -> int:
        """The last of these that comes from a line."""
        placed = [n for n in numbers if self.equations[n].site is not None]
        return (placed or numbers)[-1]

    def nearest(self, name: str) -> list[int]:
        """The equation of what an instruction without one is for, or else of what it takes."""
        users: dict[str, list[str]] = defaultdict(list)
        for _, instruction in self.hlo:
            for operand in instruction.operands:
                users[operand].append(instruction.name)
        taken = {i.name: list(i.operands) for _, i in self.hlo}
        for steps in (users, taken):
            seen, front = {name}, [name]
            while front:
                front = [n for here in front for n in steps.get(here, []) if n not in seen]
                seen.update(front)
                for near in front:
                    found = self.equations_of(getattr(self.instructions.get(near), "op_name", ""))
                    if found:
                        return found[:1]
        return []


class _Making(_Compiled):
    """A report in the making."""

    def __init__(
        self, plan: ModulePlan, program: Any, text: str, equations: Sequence[Equation],
        flows: dict[int, Flow], found: Inspection, machine: Machine,
    ):
        super().__init__(read(found.text, "explain"), equations, machine)
        self.plan, self.program, self.found, self.flows = plan, program, found, flows
        self.mesh = next((m for m in plan.places.meshes if m is not None), None)
        self.count = len(plan.places.devices)
        self.symbols = _symbols(text, self.mesh)
        pairs = zip(plan.program.outputs, plan.places.results, strict=True)
        self.given = {id(v): _dims_of(s, v.aval.ndim) for v, s in pairs}

    def report(self) -> Report:
        rows = merged([r for c in self.collectives for r in self.communication(c)])
        buffers, work = self.buffers(), self.work
        lines = {row.line for row in (*rows, *buffers)} - {""}
        return Report(
            name=self.program.name, devices=self.count,
            mesh={} if self.mesh is None else self.mesh.shape, machine=self.machine,
            communication=rows, memory=_memory(self.found), buffers=buffers,
            computation=Computation(
                work.flops, work.elementwise, work.bytes, work.uncounted, work.known
            ),
            seconds=self.seconds(),
            lines={at: _source(at) for at in sorted(lines)},
            program=self.program.pretty_print(source_info=True), hlo=self.found.text,
        )  # fmt: skip

    def communication(self, c: Collective) -> list[Communication]:
        """A row for each equation that takes part; of several, with its part of the payload."""
        axes = None if self.mesh is None else mesh_axes(c, self.mesh)
        link = self.machine.link(c.groups or c.pairs, self.count)
        numbers: list[int | None] = [*self.numbers(c)]
        arrays = [[a] for a in c.arrays]
        if len(numbers) != len(arrays) or len(numbers) < 2:
            numbers, arrays = [*(numbers[:1] or [None])], [list(c.arrays)]
        seconds = self.machine.collective_seconds(c.kind, c.bytes, c.group_size, link)
        rows = []
        for i, (number, part) in enumerate(zip(numbers, arrays, strict=True)):
            size = sum([a.bytes for a in part])
            share = size / c.bytes if c.bytes else 1 / len(numbers)
            rows.append(Communication(
                kind=c.kind, axes=axes, groups=c.group_size, count=c.runs, known=c.runs_known,
                bytes=size * c.runs, dtypes=tuple(sorted({a.dtype for a in part})),
                seconds=seconds * c.runs * share, shared=c.runs if i else 0,
                **self.origin(number, axes, c.kind),
            ))  # fmt: skip
        return rows

    def origin(self, number: int | None, axes: Any, kind: str) -> dict[str, Any]:
        if number is None:
            return {"op": "", "call": "", "line": "", "function": "",
                    "why": "the partitioner moves parts of it between devices"}  # fmt: skip
        eqn, flow = self.equations[number], self.flows.get(number)
        line, function = _line(eqn)
        given = [self.given.get(id(v)) for v in eqn.outputs]
        why = cause(eqn, self.over_mesh(flow), axes, kind, given)
        return {
            "op": eqn.op.name, "call": call_text(eqn, flow), "why": why,
            "line": line, "function": function, "scope": "/".join(names_of(scope_of(eqn.site))),
        }

    def over_mesh(self, flow: Flow | None) -> Flow | None:
        """What is split over the report's mesh: axes of others may have the same names."""
        if flow is None:
            return None
        operands, results = [
            [(shape, at if at is None or at[0] in self.symbols else None) for shape, at in rows]
            for rows in flow
        ]
        return Flow(operands, results)

    def buffers(self) -> tuple[Buffer, ...]:
        return tuple([self.buffer(p) for p in places(self.found.buffers, self.found.module)])

    def buffer(self, place: Place) -> Buffer:
        hidden = len(self.plan.constants)
        if 0 <= place.parameter < hidden:
            return Buffer(place.bytes, "constant", "an array that the function closes over", "")
        if place.parameter >= hidden:
            number = place.parameter - hidden
            name = self.plan.names[number] if number < len(self.plan.names) else f"args[{number}]"
            return Buffer(place.bytes, place.kind, name, "")
        instruction: Instruction | None = self.instructions.get(place.instruction)
        numbers = self.equations_of(instruction.op_name) if instruction is not None else []
        if not numbers:
            made = instruction.opcode if instruction is not None else "?"
            return Buffer(place.bytes, place.kind, made, "")
        eqn = self.equations[numbers[0]]
        return Buffer(
            place.bytes, place.kind, call_text(eqn, self.flows.get(numbers[0])), _line(eqn)[0]
        )


def _memory(found: Inspection) -> Memory:
    s = found.sizes
    peak = s["argument"] + s["output"] - s["alias"] + s["temp"]
    return Memory(s["argument"], s["output"], s["alias"], s["temp"], peak)


def _symbols(text: str, mesh: Mesh | None) -> set[str]:
    """What a module calls the mesh."""
    if mesh is None:
        return set()
    axes = ", ".join([f'"{name}"={size}' for name, size in mesh.shape.items()])
    return {symbol for symbol, of in _MESH.findall(text) if of == axes}


def _dims_of(sharding: Any, ndim: int) -> Spec | None:
    """The mesh axes of each dimension; None where no axes say it."""
    if not isinstance(sharding, NamedSharding):
        return None
    return tuple([tuple(map(str, names)) for names in sharding.spec.dims(ndim)])


def _line(eqn: Equation) -> tuple[str, str]:
    if eqn.site is None:
        return "", ""
    file, line, function = line_of(eqn.site)
    return f"{file}:{line}", function


def _source(at: str) -> str:
    file, _, line = at.rpartition(":")
    return linecache.getline(file, int(line)).strip()
