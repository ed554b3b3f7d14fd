"""The emitter: the interface with which lowering rules write StableHLO text.

A rule gets SSA names (`%3`) and types, and adds lines:

    def lower(e, ins, outs, x, *, perm):
        return e.let(f"stablehlo.transpose {x}, dims = {perm} : {e.ty(ins[0])} -> {e.ty(outs[0])}")
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.signature import stored_type
from shardwise._src.base.caches import cached, exact
from shardwise._src.base.config import enable_x64
from shardwise._src.base.context import TraceKey, current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements
from shardwise._src.core.program import Literal, Program
from shardwise._src.core.program_tools import derived, programs_in, without_sites
from shardwise._src.lowering.distributed_functions import module_text
from shardwise._src.lowering.extended_lowering import on_buffers
from shardwise._src.lowering.instructions import Instructions
from shardwise._src.lowering.interleaving import Pair
from shardwise._src.lowering.kernel_calls import Kernels
from shardwise._src.lowering.manual import Manual, ManualAxes
from shardwise._src.lowering.narrow_dtypes import NarrowDtypes
from shardwise._src.lowering.text import (
    constant_text,
    literal_text,
    quoted,
    return_text,
    symbol_text,
    tensor_text,
)
from shardwise._src.messages.source import joined, line_of, note_line, scope_of, shown
from shardwise._src.runtime.compiler.callback_targets import bits_of
from shardwise._src.runtime.platforms import CPU, Platform
from shardwise._src.transforms.batch import axes_in
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.extended import ExtendedDType

NUMBERED = "equation "  # prefix of location names with equation numbers
MAX_DENSE = 64  # maximum elements of a constant written as text


class Emitter(Manual, Instructions, Kernels, NarrowDtypes):
    """Collects the lines of one module: the body of the current function, and other functions."""

    def __init__(self, meshes: Any = None, devices: int = 1, located: Any = False):
        self.meshes = meshes  # the module's `lowering.module.Meshes`; None on one device
        # Whether lines have source locations of the user's program; a list collects the equations,
        # and the location of a line is then the equation's index in it.
        self._located = located
        self._around: Any = None  # equation whose rule emits others, without sites
        self._number = ""  # location of its lines, if lines are numbered
        self.scope: str | None = None  # the name scope of lines, if they have one
        self.platform = CPU
        self.host_numbers: dict[Any, int] = {}  # numbers of the host functions that it calls
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.devices = devices
        self._symbols: dict[Program, str] = {}
        self.foreign: dict[Any, str] = {}  # symbols of functions that are not programs
        self.taken = {"main"}  # symbols of functions
        self.count = 0
        self.hoisted: dict[int, str] = {}
        self.pairs: dict[str, Pair] = {}
        self.places: dict[Any, str] = {}

    ty = staticmethod(tensor_text)
    literal = staticmethod(literal_text)

    # -- values --

    def fresh(self) -> str:
        self.count += 1
        return f"%{self.count}"

    def let(self, text: str) -> str:
        """Adds `%n = text` and returns `%n`."""
        self.count += 1
        name = f"%{self.count}"
        self.lines.append(f"{name} = {text}")
        return name

    def lets(self, text: str, count: int) -> list[str]:
        """Adds an instruction with `count` results and returns their names."""
        if count == 0:
            self.lines.append(text)
            return []
        if count == 1:
            return [self.let(text)]
        self.count += 1
        self.lines.append(f"%{self.count}:{count} = {text}")
        return [f"%{self.count}#{i}" for i in range(count)]

    def constant(self, value: Any, aval: ArrayType) -> str:
        """A scalar constant, broadcast to the shape of `aval`."""
        if value.__class__ is np.ndarray:
            value = value[()]
        return self.let(constant_text(value, aval, exact(value)))

    def scalar(self, value: Any, dtype: Any) -> str:
        return self.constant(value, array_type((), dtype))

    # -- programs --

    def program(self, program: Program, names: Sequence[str]) -> list[str]:
        """Emits a program's equations in place; returns the names of its results.

        Unlike `eval_program`, it executes nothing, and constants and literals get names as well.

        names: the names of all its inputs, constants first.
        """
        env: dict[Any, str] = dict(zip(program.inputs, names, strict=True))
        plain = self.scope is None and self._located is False
        write = self._equation if plain else self._located_equation
        for eqn in program.eqns:
            try:
                write(eqn, env)
            except NotImplementedError as error:
                note_line(error, eqn.site)
                raise
        return [self._atom(a, env) for a in program.outvars]

    def _located_equation(self, eqn: Any, env: dict[Any, str]) -> None:
        """Emits an equation with its location: its scope names and source line."""
        begin, outer, around = len(self.lines), self.scope, self._around
        name = ""
        if eqn.site is None and around is not None:
            eqn = eqn.replace(site=around.site)
        if outer is not None:
            held = eqn.called
            self.scope = joined(outer, scope_of(eqn.site))
            if held is None:
                name = joined(shown(self.scope), eqn.op.name)
            else:
                self.scope = joined(self.scope, f"jit({held.name})")
                name = shown(self.scope)
        number = self._number
        if isinstance(self._located, list):
            self._number = f' loc("{NUMBERED}{len(self._located)}")'
            self._located.append(eqn)
        self._around = eqn
        self._equation(eqn, env)
        self.scope, self._around = outer, around
        if self._number:
            self._note(begin, self._number)
            self._number = number
            return
        file, line, function = line_of(eqn.site) if self._located else ("", 0, "")
        place = f"({quoted(file)}:{line}:0)" if eqn.site is not None and self._located else ""
        if not (name or place):
            return
        self._note(begin, f" loc({quoted(name or function or 'module')}{place})")

    def _note(self, begin: int, note: str) -> None:
        """Adds a location to each line from `begin` on that does not have one."""
        for i in range(begin, len(self.lines)):
            if " loc(" not in self.lines[i].rpartition("\n")[2]:
                self.lines[i] += note

    def under_marks(self, marks: str, program: Program, *names: str) -> list[str]:
        """Calls a nested program with an instruction that carries marks (`messages.source`)."""
        begin, outer = len(self.lines), self.scope
        self.scope = joined(outer or "", marks)
        results = self.call(program, *names)
        self._note(begin, f" loc({quoted(joined(shown(self.scope), program.name))})")
        self.scope = outer
        return results

    def mark(self, name: str, marks: str) -> None:
        """Adds marks to the instruction that defines a value; arguments have none."""
        made = re.compile(re.escape(name.partition("#")[0]) + "[: ]")
        for i in reversed(range(len(self.lines))):
            if made.match(self.lines[i]):
                text, at, place = self.lines[i].rpartition(' loc("')
                here = at and "\n" not in place
                new = f"{text}{at}{quoted(marks)[1:-1]}/{place}"
                self.lines[i] = new if here else f"{self.lines[i]} loc({quoted(marks)})"
                return

    def _equation(self, eqn: Any, env: dict[Any, str]) -> None:
        op = eqn.op
        if op.instruction is not None and self._is_plain(eqn):  # most are: no rule is needed
            t, atoms = eqn.outvars[0].aval, eqn.invars
            xs = [self.constant(a.value, t) if a.__class__ is Literal else env[a] for a in atoms]
            line = f"{op.instruction} {', '.join(xs)} : {tensor_text(t)}"
            env[eqn.outvars[0]] = self.let(line)
            return
        if op.lower is None:
            raise op.missing("lower", "compilation")
        outs = tuple([v.aval for v in eqn.outvars])
        ins, xs, opaque = [], [], False
        for a in eqn.invars:
            aval = a.aval
            if a.__class__ is Literal:
                if op.pointwise and outs[0].shape:
                    aval = array_type(outs[0].shape, aval.dtype)
                xs.append(self.constant(a.value, aval))
            else:
                xs.append(env[a])
            ins.append(aval)
            opaque = opaque or isinstance(aval.dtype, ExtendedDType)
        if opaque and op.elements is not Elements.KNOWN:  # it does not inspect the elements
            held = self.staged(
                on_buffers,
                [stored_type(t) for t in ins],
                op=op,
                types=tuple(ins),
                params=tuple(eqn.params.items()),
            )
            results = self.inline(held, *xs)
        elif op.multiple:
            results = self.lowered(op, ins, outs, xs, eqn.params)
        else:
            (result,) = self.lowered(op, ins, outs, xs, eqn.params)
            if self.devices > 1 and not (op.pointwise and _follows(outs[0], ins)):
                result = self.placed_by_type(result, outs[0])
            env[eqn.outvars[0]] = result
            return
        if self.devices > 1 and not (op.pointwise and _follows(outs[0], ins)):
            results = [self.placed_by_type(r, t) for r, t in zip(results, outs, strict=True)]
        env.update(zip(eqn.outvars, results, strict=True))

    def _is_plain(self, eqn: Any) -> bool:
        """Whether operands and result have one type, and surely the same sharding."""
        t = eqn.outvars[0].aval
        for a in eqn.invars:
            if a.aval is not t and (a.__class__ is not Literal or a.aval.dtype is not t.dtype):
                return False
        if self.devices == 1:
            return True
        return _follows(t, [a.aval for a in eqn.invars if a.__class__ is not Literal])

    def _atom(self, atom: Any, env: dict[Any, str]) -> str:
        if atom.__class__ is Literal:
            return self.constant(atom.value, atom.aval)
        return env[atom]

    def inline(self, program: Program, *names: str, scope: str = "") -> list[str]:
        """Emits a nested program in place.

        scope: the names of the program in locations: `while/body`.
        """
        constants = [self._constant(value) for value in program.consts]
        outer = self.scope
        if outer is not None and scope:
            self.scope = joined(shown(outer), scope)
        results = self.program(program, [*constants, *names])
        self.scope = outer
        return results

    def _constant(self, value: Any) -> str:
        """A nested program's constant: a hidden module argument, or small enough for text."""
        name = self.hoisted.get(id(value))
        if name is not None:
            return name
        flat = np.asarray(value)
        aval = type_of(value)
        if flat.size > MAX_DENSE:
            raise TypeError(f"a constant of type {aval.str_short(True)} cannot be used in lowering")
        texts = [literal_text(x, aval.dtype) for x in flat.ravel()]
        body = f"dense<[{', '.join(texts)}]>" if len(texts) != 1 else f"dense<{texts[0]}>"
        flat_type = array_type((flat.size,), aval.dtype)
        line = self.let(f"stablehlo.constant {body} : {tensor_text(flat_type)}")
        types = f"({tensor_text(flat_type)}) -> {tensor_text(aval)}"
        return self.let(f"stablehlo.reshape {line} : {types}")

    def call(self, program: Program, *names: str) -> list[str]:
        """Calls a nested program as a separate function, which is emitted once."""
        return self._called(program, names, lambda symbol, xs: f"func.call @{symbol}({xs})")

    def composite(
        self, program: Program, names: Sequence[str], *, name: str, version: int, attributes: str
    ) -> list[str]:
        """An operation with this name, whose decomposition is the program."""
        return self._called(
            program,
            names,
            lambda symbol, xs: (
                f"stablehlo.composite {quoted(name)} {xs} {{composite_attributes = {attributes}, "
                f"decomposition = @{symbol}, version = {version} : i32}}"
            ),
        )

    def _called(
        self, program: Program, names: Sequence[str], form: Callable[[str, str], str]
    ) -> list[str]:
        """form: `(symbol, operands) → the instruction`, without the types."""
        if any_constants(program) or (self.devices > 1 and not self._can_be_apart(program)):
            return self.inline(program, *names)
        symbol = self._symbols.get(program)
        if symbol is None:
            symbol = self._symbols[program] = self.symbol(program.name)
            self.functions.append(self.function(symbol, program))
        ins = ", ".join(tensor_text(t) for t in program.in_types)
        outs = ", ".join(tensor_text(t) for t in program.out_types)
        text = form(symbol, ", ".join(names))
        return self.lets(f"{text} : ({ins}) -> ({outs})", len(program.outvars))

    def _can_be_apart(self, program: Program) -> bool:
        """Whether any sharding splits the arguments and results into equal shards, and the program
        does not query the position of a device.

        Otherwise Shardy would reshard the uneven ones at the function boundary.
        """
        if self.manual is not None and axes_in(program):
            return False
        types = (*program.in_types, *program.out_types)
        return all(self.divides(n) for t in types for n in t.shape)

    def symbol(self, name: str) -> str:
        """A symbol for a function, unique in the module."""
        safe = symbol_text(name) or "f"
        symbol, number = safe, 0
        while symbol in self.taken:
            number += 1
            symbol = f"{safe}_{number}"
        self.taken.add(symbol)
        return symbol

    def function(self, symbol: str, program: Program) -> str:
        """The text of a private function. Scope names in it are relative to its own program: XLA
        prepends those of its callers.
        """
        lines, self.lines = self.lines, []
        scope, self.scope = self.scope, None if self.scope is None else ""
        around, self._around = self._around, None
        names = [f"%arg{i}" for i in range(len(program.inputs))]
        results = self.program(program, names)
        pairs = zip(names, program.inputs, strict=True)
        ins = ", ".join(f"{n}: {tensor_text(v.aval)}" for n, v in pairs)
        outs = ", ".join(tensor_text(t) for t in program.out_types)
        self.lines.append(return_text("func.return", results, program.out_types))
        body, self.lines, self.scope, self._around = self.lines, lines, scope, around
        return f"func.func private @{symbol}({ins}) -> ({outs}) {{\n" + "\n".join(body) + "\n}"

    def region(self, write: Callable[[], None]) -> str:
        """The text of a region whose lines are emitted by `write`."""
        lines, self.lines = self.lines, []
        write()
        if self._number:  # lines around equations, for example in loop bodies
            self._note(0, self._number)
        body, self.lines = self.lines, lines
        return "\n".join(body)

    def via(self, fun: Callable, ins: Sequence[ArrayType], *names: str, **params: Any) -> list[str]:
        """Lowers by a Python function over ops: traced once per types and parameters."""
        return self.call(self.staged(fun, ins, **params), *names)

    def staged(self, fun: Callable, ins: Sequence[ArrayType], **params: Any) -> Program:
        """The cached program of a Python function over ops."""
        marks = exact(tuple(params.values()))
        return _staged(fun, current().trace_key, tuple(ins), marks, *params.items())

    def within(self, own: ManualAxes) -> Emitter:
        """The emitter of code that is manual along more axes, where none of them is sharded."""
        left = math.prod(
            [n for n, name in zip(own.grid.shape, own.names, strict=True) if name not in own.manual]
        )
        new = (Emitter if left == 1 else type(self))(self.meshes, left, self._located)
        new.manual, new.platform, new.host_numbers = own, self.platform, self.host_numbers
        new.functions, new.taken, new.count = self.functions, self.taken, self.count
        new.scope, new._around, new._number = self.scope, self._around, self._number
        return new

    def for_platform(self, platform: Platform) -> Emitter:
        """The emitter of another function of the module, for the given platform."""
        new = type(self)(self.meshes, self.devices, self._located)
        new.platform, new.functions, new.taken = platform, self.functions, self.taken
        return new

    @staticmethod
    def plain() -> Emitter:
        """The emitter for code of one device."""
        return Emitter()

    @staticmethod
    def partitioned_module(
        asked: dict[str, Any], pieces: list[Any]
    ) -> tuple[str, Sequence[int | None]]:
        """The per-device module of a function of sharded matrices, for the partitioner callback."""
        with enable_x64(True):  # XLA may call this on its own thread
            return module_text(Emitter(), asked, pieces)

    # -- host functions --

    def host_call(
        self,
        function: Any,
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        names: Sequence[str],
        pure: bool,
    ) -> list[str]:
        """Calls a host function: once, with full values; or on each device, with its shards.

        One of the devices makes the call, the others receive its results. The results travel as
        bits, because they are sent as sums with zeros: a float sum would lose the sign of a zero.
        """
        if self.manual is not None and self.devices > 1:
            return self.run_on_one(
                names, ins, outs, lambda e, given: e.host_call(function, ins, outs, given, pure)
            )
        callback, place, as_bits = function.callback, {}, outs
        if not (kind := self.platform.callbacks):
            raise NotImplementedError(
                f"programs on {self.platform} cannot call host functions (callbacks, "
                "`shardwise.debug.print`). Run this part on a CPU device: `shardwise.device_put(x, "
                "shardwise.devices('cpu')[0])`."
            )
        target = f"xla_ffi_{'partitioned_' if callback.local else ''}python_{kind}_callback"
        if self.devices > 1:
            symbol = self.meshes.one_device(callback.device)
            every = ", ".join([f"<@{symbol}, []>"] * max(len(outs), 1))
            place = {"sdy.sharding": f"#sdy.sharding_per_value<[{every}]>"}
            as_bits = [t.update(dtype=bits_of(t.dtype)) for t in outs]
            gathered = [self._gathered(t, callback.local) for t in ins]
            names = [self.replicate_dims(*row) for row in zip(names, ins, gathered, strict=True)]
        results = self.custom_call(
            target,
            names,
            ins,
            as_bits,
            effect=not pure,
            extra=place,
            config=f"{{index = {self.host_numbers[function]} : ui64}}",
        )
        if self.devices == 1:
            return results
        return [self._from_bits(*row) for row in zip(results, as_bits, outs, strict=True)]

    def note(self, target: str, what: str, xs: Sequence[str], ts: Sequence[ArrayType]) -> None:
        """A call with operands but no results, which passes information to XLA. It cannot be
        partitioned. what: what XLA does, for the error message."""
        if self.manual is not None and self.devices > 1:
            self.run_on_one(xs, ts, [], lambda e, given: e.note(target, what, given, ts) or [])
            return
        if self.devices > 1:
            raise NotImplementedError(
                f"{target}: XLA {what} in single-device code only. Call it inside of "
                "`shardwise.shard_map`."
            )
        self.custom_call(target, xs, ts, [], effect=True)

    def _gathered(self, t: ArrayType, local: bool) -> list[int]:
        """The dimensions to replicate for a call: the shards of a device must have no padding."""
        return [d for d, n in enumerate(t.shape) if not (local and self.divides(n))]

    def _from_bits(self, name: str, bits: ArrayType, t: ArrayType) -> str:
        name = self.replicate_dims(name, bits, range(t.ndim))
        return self.as_bits(name, bits, t)

    # -- shardings --

    def replicate_dims(self, name: str, t: ArrayType, dims: Sequence[int]) -> str:
        """A value with some of its dimensions replicated, if there are several devices.

        For ops that XLA's partitioner cannot split along these dimensions.
        """
        if self.devices == 1 or not dims:
            return name
        place = t.explicit_sharding
        if place is not None and place.spec.unreduced:  # stays so, and no dimension is free
            rows = [() if d in dims else axes for d, axes in enumerate(place.spec.dims(t.ndim))]
            there = place.with_spec(place.spec.update(partitions=rows))
            return self.constrained(name, t, there)
        parts = ", ".join("{}" if d in dims else "{?}" for d in range(t.ndim))
        place = f"<@{self.meshes.leading()}, [{parts}]>"
        return self.let(f"sdy.sharding_constraint {name} {place} : {tensor_text(t)}")

    def shard_alike(self, names: Sequence[str], types: Sequence[ArrayType]) -> list[str]:
        """Values that the partitioner shards the same way."""
        if self.devices > 1 and self.manual is not None:
            raise NotImplementedError(
                "shard_alike: XLA fails inside of a `shardwise.shard_map` that leaves some mesh "
                "axes to the partitioner. Make all axes manual, or call it outside."
            )
        if self.devices > 1:
            group = next(self.meshes.groups)
            self.lines += [
                f"sdy.sharding_group {x} group_id = {group} : {tensor_text(stored_type(t))}"
                for x, t in zip(names, types, strict=True)
            ]
        return [*names]

    def divides(self, size: int) -> bool:
        """Whether any split of a dimension of this size gives equal parts."""
        return size % self.devices == 0

    def placed_by_type(self, name: str, t: ArrayType) -> str:
        """A value constrained to the sharding in its type, if any."""
        sharding = t.explicit_sharding
        if sharding is None or not (t.ndim or sharding.spec.unreduced):
            return name
        return self.constrained(name, stored_type(t), sharding)

    def constrained(self, name: str, t: ArrayType, sharding: Any, unreduced: bool = False) -> str:
        """A value constrained to this sharding. unreduced: whether the value is a partial sum."""
        place = self.sharding(sharding, t.ndim)
        if not (unreduced or sharding.partial_axes[0]):
            return self.constraint(name, place, t)
        if sharding.partial_axes[0] and not sharding.is_even(t.shape):
            raise ValueError(
                f"a value of shape {t.shape} is to be left unreduced under {sharding}, which "
                "shards a dimension unevenly. XLA does not support that: reduce the value "
                "(leave out `unreduced`), or do not shard that dimension."
            )
        return Emitter.constraint(self, name, place, t)  # workarounds would take the sum

    def constraint(self, name: str, place: str, t: ArrayType) -> str:
        """A value constrained to a sharding in Shardy's text form."""
        return self.let(f"sdy.sharding_constraint {name} {place} : {self.ty(t)}")

    def sharding(self, sharding: Any, ndim: int) -> str:
        """The Shardy form of a sharding: `<@mesh, [{"x"}, {}]>`."""
        return self.meshes.target(sharding, ndim)


def _follows(out: ArrayType, ins: Sequence[ArrayType]) -> bool:
    """Whether an elementwise result surely gets the sharding of its type: an operand has it."""
    if out.spec is not None and out.spec.unreduced:  # without a constraint, XLA would take the sum
        return False
    return any(t.spec is out.spec and t.shape == out.shape for t in ins)


@derived
def any_constants(program: Program) -> bool:
    """Whether the program, or a program nested in it, has constants."""
    return any(p.consts for p in programs_in(program))


@cached(4096)
def _staged(
    fun: Callable,
    context: TraceKey,
    types: tuple[ArrayType, ...],
    marks: tuple,
    *params: tuple[str, Any],
) -> Program:
    """Traces a function over ops outside of all interpreters; it may return one or several results.

    marks: the exact parameter values, to distinguish equal ones such as 0.0 and -0.0.
    """
    # Without meshes: the partitioner decides the shardings inside.
    free = [t.update(spec=None, mesh=None) if t.mesh else t for t in types]

    def flat(*values: Any) -> list[Any]:
        result = fun(*values, **dict(params))
        return list(result) if isinstance(result, list | tuple) else [result]

    return without_sites(program_of(flat, free, getattr(fun, "__name__", "f"), "lower"))
