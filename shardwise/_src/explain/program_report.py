"""`explain(f)(*args)`: predicts what a function will do on its devices, without running it.

The function is traced and compiled as for a call, from a module whose instructions carry the
numbers of their source equations. XLA preserves these numbers, also on instructions that the
partitioner adds; so each collective and each buffer can be traced back to a line of user code.
"""

from __future__ import annotations

import functools
import linecache
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Never

from shardwise._src.core.program import Equation, Program
from shardwise._src.explain.abstract_devices import described, lowered_there
from shardwise._src.explain.attribution import Spec, call_text, cause
from shardwise._src.explain.communication import KINDS, Collective, collectives
from shardwise._src.explain.compile_only import inspected_elsewhere
from shardwise._src.explain.dtype_emulation import as_sent, hlo_name, product_dtype
from shardwise._src.explain.hlo import ArrayShape, Instruction, read
from shardwise._src.explain.launches.launch_report import call_work, is_launch, reports_of
from shardwise._src.explain.live_values import live_values
from shardwise._src.explain.machines import Machine, chosen, machine_of
from shardwise._src.explain.memory_usage import Place, places
from shardwise._src.explain.program_meshes import Frame, Frames
from shardwise._src.explain.report import Report
from shardwise._src.explain.report_data import Buffer, Communication, Memory, Seconds, merged
from shardwise._src.explain.scattered_sums import ScatteredSums
from shardwise._src.explain.work import CallWork, work_of
from shardwise._src.jit.jit import jit
from shardwise._src.jit.stages import Lowered, Wrapped
from shardwise._src.lowering.emitter import NUMBERED
from shardwise._src.messages.source import line_of, names_of, scope_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.running.plan import ModulePlan
from shardwise._src.running.program_placement import constraint_shardings
from shardwise._src.runtime.compiler.offline import Inspection, inspected
from shardwise._src.runtime.compiler.quiet import quiet
from shardwise._src.runtime.compiler.shardy import Flow, propagated_flows
from shardwise._src.runtime.target_machines import target_of
from shardwise._src.types.devices import is_described
from shardwise._src.types.sharding import NamedSharding

TIMEOUT = 300.0  # timeout in seconds for compiling for absent devices
_COPIES = {"copy", "convert", "bitcast", "transpose", "parameter", "get-tuple-element",
           "copy-start", "copy-done"}  # fmt: skip
_EQUATION = re.compile(rf"{NUMBERED}(\d+)(?=[/:)\"]|$)")
_JOINED = re.compile(r"(?:^|(?<=/))\(")  # an opening parenthesis of a joined path component


def explain(
    f: Callable[..., Any],
    *others: Never,
    machine: str | Machine | None = None,
    timeout: float = TIMEOUT,
) -> Callable[..., Report]:
    """A function that reports what `f` will do on its devices for given arguments.

    It takes the arguments of `f`: arrays, or `ShapeDtypeStruct`s, of which only shapes, dtypes and
    shardings are used. `f` is compiled but not run. Shardings over an `AbstractMesh`, whether of
    arguments or requested by `jit` and constraints, represent absent devices, as many as the mesh
    has: the program is compiled for the same number of virtual devices in another process.

    Args:
      f: a function; it is jitted if it is not already.
      others: none; they are accepted for a better message.
      machine: for estimates, the name of one of `machines`, or a `Machine`; by default the machine
        of the devices. A name with a number of devices, such as "h100:2x8" or "tpu-v5p:2x2x2" (see
        `shardwise.targets.devices`), is compiled for by its own compiler if that is installed; its
        devices take the places of those of the arguments, in order. Otherwise the report says so,
        and reads the program that XLA makes for CPUs.
      timeout: seconds for compiling for the devices of an `AbstractMesh`, in another process. The
        compiler of a machine that `machine` names runs in this process until it ends; the command
        `shardwise compile` has a time-out for it.

    Returns:
      `(*args, **kwargs) → Report`.

    Raises:
      Any error of `jit(f).lower(*args)`; TypeError if `f` is not a function, or is already
      compiled, or if there are further positional arguments; ValueError, before the function is
      called, for an unknown machine; TimeoutError, RuntimeError or NotImplementedError if compiling
      for absent devices fails.
    """

    if others:
        raise TypeError(
            f"explain takes one positional argument, a function; got {1 + len(others)}. The "
            "machine is a keyword, and the function's arguments belong in a second call: "
            '`explain(f, machine="h100:8")(*args)`.'
        )
    if not callable(f) or (hasattr(f, "as_text") and not isinstance(f, Wrapped)):
        raise TypeError(
            f"explain takes a function; got {type(f).__name__}. Pass the function's arguments "
            "in a second call: `explain(f)(*args)`."
        )
    asked = chosen(machine)

    @functools.wraps(f)
    @hides_frames
    def explained(*args: Any, **kwargs: Any) -> Report:
        wrapped = f if isinstance(f, Wrapped) else jit(f)
        args, kwargs = described((args, kwargs))
        lowered = lowered_there(wrapped.trace(*args, **kwargs), asked.target)
        return replace(report_of(lowered, asked.machine, timeout), missing=asked.missing)

    return explained


def report_of(lowered: Lowered, machine: Any = None, timeout: float = TIMEOUT) -> Report:
    """The report of a lowered function."""
    return _Making(lowered, machine, timeout).report()


def estimate_of(
    lowered: Lowered, machine: Machine, timeout: float, overrides: tuple
) -> tuple[Seconds, Memory]:
    """The time and memory estimates of a report, without the rest."""
    compiled = _Compiled(lowered, machine, timeout, overrides)
    return compiled.seconds(), compiled.memory()


def _inspected(plan: ModulePlan, text: str, overrides: tuple, timeout: float) -> Inspection:
    devices = plan.devices
    if is_described(devices):
        free = [s is None for s in plan.places.results]
        return inspected_elsewhere(text, len(devices), free, timeout, overrides)
    with quiet():  # the report replaces XLA's warnings
        return inspected(plan._replace(text=text).compiled(overrides).raw)


def paths_of(op_name: str) -> list[list[int]]:
    """The numbers of an instruction's equation and the enclosing ones; for each joined name."""
    found = [[int(n) for n in _EQUATION.findall(name)] for name in _alone(op_name)]
    return [numbers for numbers in found if numbers]


def _alone(op_name: str) -> list[str]:
    """The names that were joined into one: `a/(b:c/(d:e))` is `a/b`, `a/c/d` and `a/c/e`."""
    begin = _JOINED.search(op_name)
    if begin is None:
        return [op_name]
    parts, depth, at = [""], 1, begin.end()
    while at < len(op_name) and depth:
        letter = op_name[at]
        depth += (letter == "(") - (letter == ")")
        at += 1
        if letter == ":" and depth == 1:
            parts.append("")
        elif depth:
            parts[-1] += letter
    around = op_name[: begin.start()], op_name[at:]
    return [name for part in parts for name in _alone(around[0] + part + around[1])]


class _Compiled:
    """An optimized program, with the source equations of its instructions.

    text: the module before compilation, with the numbers of the equations.
    """

    def __init__(self, lowered: Lowered, machine: Any, timeout: float, overrides: tuple = ()):
        self.plan = lowered.plan
        self.text, self.eqns = self.plan.numbered()
        overrides = (*lowered.traced.overrides, *overrides)
        self.found = _inspected(self.plan, self.text, overrides, timeout)
        self.machine = machine_of(machine, self.plan.devices[0])
        self.hlo = read(self.found.text, "explain")
        self.instructions = {i.name: i for _, i in self.hlo}
        platform = self.plan.platform
        elsewhere = platform.is_xla_cpu and self.machine.name != platform.typical_machine
        sums = ScatteredSums(self.hlo, elsewhere)
        self.collectives = [
            as_sent(
                self.taken_apart(sums.read(c)),
                [self.eqns[n] for n in self.numbers(c)],
                self.machine,
            )
            for c in collectives(self.hlo)
        ]
        self.work = work_of(self.hlo, self.product_dtype, self.work_of_call)

    def paths(self, c: Collective) -> list[list[int]]:
        """The equation paths of a collective: one, or one per array as far as known."""
        found = paths_of(c.op_name)
        operands = self.operands(c)
        if len(found) < 2 and len(c.arrays) == len(operands) > 1:  # combined, and named by one
            each = [self.path_to(name) for name in operands]
            if all(each):
                return each
        return found or self.nearest(c.name)

    def operands(self, c: Collective) -> Sequence[str]:
        """The operands of a collective; the parts of one that was joined from several."""
        i = self.instructions[c.name]
        made = self.instructions.get(i.operands[0]) if len(i.operands) == 1 else None
        if made is None or made.opcode not in ("concatenate", "fusion"):
            return i.operands
        if made.opcode == "concatenate":
            return made.operands
        inside = self.hlo.computations.get(made.called[0][0], [])
        root = next((one for one in inside if one.root), None)
        numbers = {one.name: one.number for one in inside if one.opcode == "parameter"}
        if root is None or root.opcode != "concatenate" or not {*root.operands} <= {*numbers}:
            return i.operands
        return [made.operands[numbers[name] or 0] for name in root.operands]

    def taken_apart(self, c: Collective) -> Collective:
        """A collective with the arrays of its operands, if they were joined into one."""
        names = self.operands(c)
        if len(c.arrays) > 1 or len(names) < 2 or not {*names} <= {*self.instructions}:
            return c
        arrays = tuple([self.instructions[name].arrays[0] for name in names])
        same = sum([a.elements for a in arrays]) == c.elements
        return replace(c, arrays=arrays) if same else c

    def path_to(self, name: str) -> list[int]:
        """The path of the operation that makes a value, possibly through copies; [] if unknown."""
        i = self.instructions.get(name)
        while i is not None:
            inside = self.hlo.computations.get(i.called[0][0], []) if i.opcode == "fusion" else []
            for one in (i, *_from_the_root(inside)):
                if found := paths_of(one.op_name):
                    return found[0]
            i = self.instructions.get(i.operands[0]) if i.operands else None
        return []

    def numbers(self, c: Collective) -> list[int]:
        """The equation numbers of a collective."""
        return [self.known(path) for path in self.paths(c)]

    def product_dtype(self, i: Instruction) -> str:
        found, dtype = paths_of(i.op_name), i.arrays[0].dtype
        if not found:
            return dtype
        return product_dtype(dtype, self.eqns[self.known(found[0])], self.machine)

    def work_of_call(self, i: Instruction) -> CallWork | None:
        """The work of a custom call that runs a kernel; None for others."""
        found = [self.eqns[n] for path in paths_of(i.op_name) for n in path]
        launches = [e for e in found if is_launch(e)]
        return call_work(launches[0], self.machine) if launches else None

    def seconds(self) -> Seconds:
        work, machine = self.work, self.machine
        talking = sum([c.runs * self.seconds_of(c) for c in self.collectives])
        compute = sum([n / machine.flop_rate(dtype) for dtype, n in work.flops.items()])
        return Seconds(compute, work.bytes / machine.memory_bandwidth, talking)

    def memory(self) -> Memory:
        s = self.found.sizes
        peak = s["argument"] + s["output"] - s["alias"] + s["temp"]
        return Memory(s["argument"], s["output"], s["alias"], s["temp"], peak)

    def seconds_of(self, c: Collective) -> float:
        """The time that a collective takes once."""
        link = self.machine.link(c.groups or c.pairs, self.hlo.device_count)
        return self.machine.collective_seconds(c.kind, c.bytes, c.group_size, link)

    def known(self, path: Sequence[int]) -> int:
        """The equation that represents a path: the innermost one that has a source line.

        In `a/b`, a calls b; if b has no source line, the user recognizes a.
        """
        placed = [n for n in path if self.eqns[n].site is not None]
        return (placed or path)[-1]

    @functools.cached_property
    def callers(self) -> dict[str, Instruction]:
        """The instruction that runs each computation: a loop, a branch, a call, and a fusion of a
        collective."""
        within = {name for name, i in self.hlo if i.opcode.removesuffix("-start") in KINDS}
        return {
            name: i
            for _, i in self.hlo
            for name, _ in i.called
            if i.opcode != "fusion" or name in within
        }

    def nearest(self, name: str) -> list[list[int]]:
        """For an instruction without a path: the path of its nearest user, or else operand."""
        users: dict[str, list[str]] = defaultdict(list)
        for within, instruction in self.hlo:
            for operand in instruction.operands:
                users[operand].append(instruction.name)
            if instruction.root and within in self.callers:
                users[instruction.name].append(self.callers[within].name)
        taken = {i.name: list(i.operands) for _, i in self.hlo}
        for steps in (users, taken):
            seen, front = {name}, [name]
            while front:
                front = [n for here in front for n in steps.get(here, []) if n not in seen]
                seen.update(front)
                for near in front:
                    found = paths_of(getattr(self.instructions.get(near), "op_name", ""))
                    if found:
                        return found[:1]
        return []


class _Making(_Compiled):
    """A report under construction."""

    def __init__(self, lowered: Lowered, machine: Any, timeout: float):
        super().__init__(lowered, machine, timeout)
        self.program, places = lowered.traced.program, self.plan.places
        self.flows = propagated_flows(self.text, NUMBERED) if len(places.devices) > 1 else {}
        self.frames = Frames(self.text, _meshes(self.plan, self.program), places.devices)
        pairs = zip(self.plan.program.outvars, places.results, strict=True)
        self.given = {id(v): (s, v.aval.ndim) for v, s in pairs}

    def report(self) -> Report:
        rows = merged([r for c in self.collectives for r in self.communication(c)])
        buffers = self.buffers()
        lines = {row.line for row in (*rows, *buffers)} - {""}
        meshes = [dict(frame.mesh.shape) for frame in self.frames.all]
        target = target_of(self.plan.devices[0])
        return Report(
            name=self.program.name, devices=len(self.plan.places.devices),
            mesh=meshes[0] if meshes else {}, others=tuple(meshes[1:]), machine=self.machine,
            communication=rows, memory=self.memory(), buffers=buffers,
            computation=self.work,
            seconds=self.seconds(),
            lines={at: _source(at) for at in sorted(lines)},
            program=self.program.pretty_print(source_info=True), hlo=self.found.text,
            compiler="" if target is None else target.compiler,
            target="" if target is None else target.name,
            launches=tuple(reports_of(self.program, self.machine)),
        )  # fmt: skip

    def communication(self, c: Collective) -> list[Communication]:
        """A row for each equation that takes part. If there are several, each gets its share of the
        payload, and the row with the largest share is the one that counts."""
        parts, rows, seconds = self.parts(c), [], self.seconds_of(c)
        sizes = [sum([a.bytes for a in part]) for _, part in parts]
        for (path, part), size in zip(parts, sizes, strict=True):
            share = size / c.bytes if c.bytes else 1 / len(parts)
            rows.append(Communication(
                kind=c.kind, groups=c.group_size, count=c.runs, known=c.runs_known,
                bytes=size * c.runs, dtypes=tuple(sorted({a.dtype for a in part})),
                seconds=seconds * c.runs * share,
                shared=c.runs if len(rows) != sizes.index(max(sizes)) else 0,
                **self.origin(path, c),
            ))  # fmt: skip
        return rows

    def parts(self, c: Collective) -> list[tuple[list[int], list[ArrayShape]]]:
        """The arrays of a collective, by the equation paths they belong to; [] if unknown."""
        paths = self.paths(c)
        if len({self.known(path) for path in paths}) < 2:
            return [(paths[0] if paths else [], list(c.arrays))]
        if len(paths) == len(c.arrays):
            return [(path, [a]) for path, a in zip(paths, c.arrays, strict=True)]
        return [([], list(c.arrays))]  # joined, and the assignment to equations is unknown

    def origin(self, path: Sequence[int], c: Collective) -> dict[str, Any]:
        frame, axes = self.along(path, c)
        found = {"axes": axes, "mesh": 0 if frame is None else frame.number}
        if not path:
            return found | {"op": "", "call": "", "line": "", "function": "",
                            "why": "the partitioner moves parts of it between devices"}  # fmt: skip
        number = self.known(path)
        eqn, flow = self.eqns[number], self.flows.get(number)
        line, function = _line(eqn)
        given = [self.given_over(frame, v) for v in eqn.outvars]
        return found | {
            "op": eqn.op.name,
            "call": self.call(number),
            "line": line,
            "function": function,
            "why": cause(eqn, self.over(flow, frame), axes, c.kind, given),
            "scope": "/".join(names_of(scope_of(eqn.site))),
        }

    def along(self, path: Sequence[int], c: Collective) -> tuple[Frame | None, Any]:
        """The mesh and axes of a collective: of a mesh of its equation, else of any other mesh."""
        for frame in dict.fromkeys([*self.nearby(path), *self.frames.all]):
            axes = frame.axes(c)
            if axes is not None:
                return frame, axes
        return None, None

    def nearby(self, path: Sequence[int]) -> Iterator[Frame]:
        """The meshes of an equation: of its operands and results, or of its parameters."""
        flow = self.flows.get(self.known(path)) if path else None
        for _, place in (*flow.operands, *flow.results) if flow is not None else ():
            frame = None if place is None or not any(place[1]) else self.frames.named(place)[0]
            if frame is not None:
                yield frame
        for eqn in [self.eqns[n] for n in reversed(path)]:
            for sharding in [eqn.params[name] for name in eqn.op.shardings]:
                frame = self.frames.of(sharding)
                if frame is not None:
                    yield frame

    def given_over(self, frame: Frame | None, value: Any) -> Spec | None:
        """The mesh axes of each dimension of a returned value, if sharded over this mesh."""
        sharding, ndim = self.given.get(id(value), (None, 0))
        of_it = isinstance(sharding, NamedSharding) and self.frames.of(sharding) == frame
        return sharding.spec.dims(ndim) if of_it else None

    def call(self, number: int) -> str:
        """An operation with the types of its operands and results."""
        return call_text(self.eqns[number], self.over(self.flows.get(number)))

    def over(self, flow: Flow | None, *frames: Frame | None) -> Flow | None:
        """The shardings of a flow by axis names: those over some meshes, by default over all.

        Axes of other meshes may share names.
        """
        if flow is None:
            return None
        return Flow(*[[(shape, self._place(place, frames)) for shape, place in rows]
                      for rows in flow])  # fmt: skip

    def _place(self, place: Any, frames: Sequence[Frame | None]) -> Any:
        frame, dims = (None, ()) if place is None else self.frames.named(place)
        return None if place is None or (frames and frame not in frames) else (place[0], dims)

    def buffers(self) -> tuple[Buffer, ...]:
        if not self.found.buffers:  # not every compiler reports them
            return tuple(map(self.buffer, live_values(self.hlo)))
        return tuple(map(self.buffer, places(self.found.buffers, self.found.module)))

    def buffer(self, place: Place) -> Buffer:
        if place.parameter >= 0:
            return Buffer(place.bytes, *self.argument(place.parameter, place.kind), "")
        what, line = self.made_by(self.instructions.get(place.instruction), place.part)
        return Buffer(place.bytes, place.kind, what, line)

    def argument(self, number: int, kind: str) -> tuple[str, str]:
        """The kind and path of a program argument, by its number; hoisted constants come first."""
        names, number = self.plan.names, number - len(self.plan.constants)
        if number < 0:
            return "constant", "an array that the function closes over"
        return kind, names[number] if number < len(names) else f"args[{number}]"

    def made_by(self, made: Instruction | None, part: Sequence[int]) -> tuple[str, str]:
        """The operation that makes a value, and its line: an equation, or a copy of its result.

        part: index into a tuple result; arrays of joined collectives belong to different equations.
        Fusions have no names, but their instructions do. Copies and conversions added by XLA are
        attributed to their operand; parameters of a loop body to the loop.
        """
        i, copied, seen = made, "", set[str]()
        while i is not None and i.name not in seen:
            seen.add(i.name)
            inside = self.hlo.computations.get(i.called[0][0], []) if i.opcode == "fusion" else []
            for one in (i, *_from_the_root(inside)):
                if found := paths_of(one.op_name):
                    if one is made and len({self.known(path) for path in found}) > 1:
                        if len(found) != len(one.arrays) or not part:
                            return one.opcode, ""
                        found = [found[part[0]]]
                    number = self.known(found[0])
                    eqn = self.eqns[number]
                    own = {hlo_name(v.aval.dtype) for v in eqn.outvars}
                    copy = f"{copied} copy of " if copied and copied not in own else ""
                    return f"{copy}{self.call(number)}", _line(eqn)[0]
            if i.name in self.parameters:
                copy = f"{copied} copy of " if copied else ""
                return f"{copy}{self.argument(self.parameters[i.name], '')[1]}", ""
            opcodes = {one.opcode for one in inside or [i]}
            if not opcodes <= _COPIES:
                break
            if "convert" in opcodes:
                copied = copied or i.arrays[0].dtype
            within = "" if i.operands else self.within.get(i.name, "")
            i = self.callers.get(within) if within else self.instructions.get(i.operands[0])
        return ("?" if made is None else made.opcode), ""

    @functools.cached_property
    def within(self) -> dict[str, str]:
        """The computation of each parameter."""
        return {i.name: name for name, i in self.hlo if i.opcode == "parameter"}

    @functools.cached_property
    def parameters(self) -> dict[str, int]:
        """The number of each parameter of the program."""
        entry = self.hlo.computations[self.hlo.entry]
        return {i.name: i.number or 0 for i in entry if i.opcode == "parameter"}


def _from_the_root(computation: Sequence[Instruction]) -> Iterator[Instruction]:
    """The instructions of a computation, from the root to its operands."""
    known = {i.name: i for i in computation}
    front = [i for i in computation if i.root]
    seen = set[str]()
    while front:
        yield from front
        seen.update([i.name for i in front])
        names = dict.fromkeys([o for i in front for o in i.operands if o not in seen])
        front = [known[name] for name in names if name in known]


def _meshes(plan: ModulePlan, program: Program) -> list[Any]:
    """All meshes that a program may use, the leading one first."""
    places = plan.places
    held = [*places.arguments, *places.constants, *places.results, *constraint_shardings(program)]
    met = [*places.meshes, *[getattr(sharding, "mesh", None) for sharding in held]]
    return [mesh for mesh in met if mesh is not None]


def _line(eqn: Equation) -> tuple[str, str]:
    if eqn.site is None:
        return "", ""
    file, line, function = line_of(eqn.site)
    return f"{file}:{line}", function


def _source(at: str) -> str:
    file, _, line = at.rpartition(":")
    return linecache.getline(file, int(line)).strip()
