"""The emitter: what lowering rules write StableHLO text with.

A rule gets SSA names (`%3`) and types, and adds lines:

    def lower(e, ins, outs, x, *, perm):
        return e.let(f"stablehlo.transpose {x}, dims = {perm} : {e.ty(ins[0])} -> {e.ty(outs[0])}")
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.signature import stored_type
from shardwise._src.base.caches import exact
from shardwise._src.base.config import enable_x64
from shardwise._src.base.context import TraceKey, current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements
from shardwise._src.core.program import Literal, Program
from shardwise._src.core.program_tools import derived, programs_in, without_sites
from shardwise._src.lowering.distributed_functions import module_text
from shardwise._src.lowering.extended import on_buffers
from shardwise._src.lowering.instructions import Instructions
from shardwise._src.lowering.kernels import Kernels
from shardwise._src.lowering.manual import Manual, ManualAxes
from shardwise._src.lowering.partitioned import Partitioned
from shardwise._src.lowering.text import (
    constant_text,
    literal_text,
    quoted,
    return_text,
    symbol_text,
    tensor_text,
)
from shardwise._src.messages.source import joined, line_of, scope_of
from shardwise._src.runtime.callbacks import bits_of
from shardwise._src.transforms.batch import axes_in
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.extended import ExtendedDType

NUMBERED = "equation "  # the names of lines by their equations begin so
MAX_DENSE = 64  # elements of a constant that lowering may write as text


class Emitter(Manual, Instructions, Kernels, Partitioned):
    """Collects the lines of one module: the current function's body, and other functions."""

    def __init__(self, meshes: Any = None, devices: int = 1, located: bool | list[Any] = False):
        self.meshes = meshes  # of the module, `lowering.module.Meshes`; None on one device
        # Whether lines say where in the user's program they come from; a list takes the equations,
        # and lines have their positions in it for names.
        self._located = located
        self._around: Any = None  # the equation whose rule writes others, which have no sites
        self._number = ""  # the location of what is written for it, where lines have numbers
        self.scope: str | None = None  # the names that lines say they are in, where they do
        self.platform = "cpu"
        self.host_numbers: dict[Any, int] = {}  # of the host functions that the module calls
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.devices = devices
        self._symbols: dict[Program, str] = {}
        self.foreign: dict[Any, str] = {}  # symbols of functions that are no programs
        self.taken = {"main"}  # symbols of functions
        self.count = 0
        self.hoisted: dict[int, str] = {}
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
        """A scalar constant, repeated over the shape of `aval`."""
        if value.__class__ is np.ndarray:
            value = value[()]
        return self.let(constant_text(value, aval, exact(value)))

    def scalar(self, value: Any, dtype: Any) -> str:
        return self.constant(value, array_type((), dtype))

    # -- programs --

    def program(self, program: Program, names: Sequence[str]) -> list[str]:
        """Writes a program's equations in place; returns the names of its results.

        Not `eval_program`: nothing runs, and constants and literals have names here as well.

        names: of all its inputs, constants first.
        """
        env: dict[Any, str] = dict(zip(program.inputs, names, strict=True))
        plain = self.scope is None and self._located is False
        write = self._equation if plain else self._located_equation
        for eqn in program.equations:
            write(eqn, env)
        return [self._atom(a, env) for a in program.outputs]

    def _located_equation(self, eqn: Any, env: dict[Any, str]) -> None:
        """Writes an equation, and where it comes from: its names, its line."""
        begin, outer, around = len(self.lines), self.scope, self._around
        name = ""
        if eqn.site is None and around is not None:
            eqn = eqn.replace(site=around.site)
        if outer is not None:
            held = eqn.called
            own = eqn.op.name if held is None else f"jit({held.name})"
            parts = outer, scope_of(eqn.site), own
            name = "/".join([part for part in parts if part])
            self.scope = "/".join([part for part in parts[:2] if part])
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
        """Adds a location to each line from `begin` on that has none."""
        for i in range(begin, len(self.lines)):
            if " loc(" not in self.lines[i].rpartition("\n")[2]:
                self.lines[i] += note

    def under_marks(self, marks: str, program: Program, *names: str) -> list[str]:
        """Calls a held program, by an instruction that has marks (`messages.source`)."""
        begin, outer = len(self.lines), self.scope
        self.scope = joined(outer or "", marks)
        results = self.call(program, *names)
        self._note(begin, f" loc({quoted(joined(self.scope, program.name))})")
        self.scope = outer
        return results

    def mark(self, name: str, marks: str) -> None:
        """Adds marks to the instruction that gave a value; an argument has none."""
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
        if op.instruction is not None and self._is_plain(eqn):  # most are: no rule is asked then
            t, atoms = eqn.outputs[0].aval, eqn.inputs
            xs = [self.constant(a.value, t) if a.__class__ is Literal else env[a] for a in atoms]
            line = f"{op.instruction} {', '.join(xs)} : {tensor_text(t)}"
            env[eqn.outputs[0]] = self.let(line)
            return
        if op.lower is None:
            raise op.missing("lower", "compilation")
        outs = tuple([v.aval for v in eqn.outputs])
        ins, xs, opaque = [], [], False
        for a in eqn.inputs:
            aval = a.aval
            if a.__class__ is Literal:
                if op.pointwise and outs[0].shape:
                    aval = array_type(outs[0].shape, aval.dtype)
                xs.append(self.constant(a.value, aval))
            else:
                xs.append(env[a])
            ins.append(aval)
            opaque = opaque or isinstance(aval.dtype, ExtendedDType)
        if opaque and op.elements is not Elements.KNOWN:  # it does not look into them
            held = self.staged(on_buffers, [stored_type(t) for t in ins], op=op, types=tuple(ins),
                               params=tuple(eqn.params.items()))
            results = self.inline(held, *xs)
        elif op.multiple:
            results = op.lower(op, self, ins, outs, *xs, **eqn.params)
        else:
            result = op.lower(op, self, ins, outs, *xs, **eqn.params)
            if self.devices > 1 and not (op.pointwise and _follows(outs[0], ins)):
                result = self._placed(result, outs[0])
            env[eqn.outputs[0]] = result
            return
        if self.devices > 1 and not (op.pointwise and _follows(outs[0], ins)):
            results = [self._placed(r, t) for r, t in zip(results, outs, strict=True)]
        env.update(zip(eqn.outputs, results, strict=True))

    def _is_plain(self, eqn: Any) -> bool:
        """Whether operands and result are of one type, and surely sharded alike."""
        t = eqn.outputs[0].aval
        for a in eqn.inputs:
            if a.aval is not t and (a.__class__ is not Literal or a.aval.dtype is not t.dtype):
                return False
        if self.devices == 1:
            return True
        return _follows(t, [a.aval for a in eqn.inputs if a.__class__ is not Literal])

    def _atom(self, atom: Any, env: dict[Any, str]) -> str:
        if atom.__class__ is Literal:
            return self.constant(atom.value, atom.aval)
        return env[atom]

    def inline(self, program: Program, *names: str) -> list[str]:
        """Writes a held program in place."""
        constants = [self._constant(value) for value in program.constants]
        return self.program(program, [*constants, *names])

    def _constant(self, value: Any) -> str:
        """A held program's constant: a hidden argument of the module, or small enough for text."""
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
        """Calls a held program as a function of its own, which is written once."""
        return self._called(program, names, lambda symbol, xs: f"func.call @{symbol}({xs})")

    def composite(
        self, program: Program, names: Sequence[str], *, name: str, version: int, attributes: str
    ) -> list[str]:
        """An operation of this name, whose decomposition is the program."""
        return self._called(program, names, lambda symbol, xs: (
            f"stablehlo.composite {quoted(name)} {xs} {{composite_attributes = {attributes}, "
            f"decomposition = @{symbol}, version = {version} : i32}}"
        ))

    def _called(
        self, program: Program, names: Sequence[str], form: Callable[[str, str], str]
    ) -> list[str]:
        """form: `(symbol, operands) → the instruction`, without its types."""
        if any_constants(program) or (self.devices > 1 and not self._can_be_apart(program)):
            return self.inline(program, *names)
        symbol = self._symbols.get(program)
        if symbol is None:
            symbol = self._symbols[program] = self.symbol(program.name)
            self.functions.append(self.function(symbol, program))
        ins = ", ".join(tensor_text(t) for t in program.in_types)
        outs = ", ".join(tensor_text(t) for t in program.out_types)
        text = form(symbol, ", ".join(names))
        return self.lets(f"{text} : ({ins}) -> ({outs})", len(program.outputs))

    def _can_be_apart(self, program: Program) -> bool:
        """Whether any sharding splits the arguments and results into equal parts, and the program
        does not ask where a device is.

        Shardy reshards those that it does not, where they pass the border of a function.
        """
        if self.manual is not None and axes_in(program):
            return False
        types = (*program.in_types, *program.out_types)
        return all(self.divides(n) for t in types for n in t.shape)

    def symbol(self, name: str) -> str:
        """A symbol for a function, which no other one of the module has."""
        safe = symbol_text(name) or "f"
        symbol, number = safe, 0
        while symbol in self.taken:
            number += 1
            symbol = f"{safe}_{number}"
        self.taken.add(symbol)
        return symbol

    def function(self, symbol: str, program: Program) -> str:
        """The text of a private function. Names in it are those in its own program: XLA puts
        those of its calls before them.
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
        """The text of a region whose lines `write` adds."""
        lines, self.lines = self.lines, []
        write()
        if self._number:  # what is written around the equations of a loop's body, say
            self._note(0, self._number)
        body, self.lines = self.lines, lines
        return "\n".join(body)

    def via(self, fun: Callable, ins: Sequence[ArrayType], *names: str, **params: Any) -> list[str]:
        """Lowers by a Python function over ops: staged once for each types and parameters."""
        return self.call(self.staged(fun, ins, **params), *names)

    def staged(self, fun: Callable, ins: Sequence[ArrayType], **params: Any) -> Program:
        """The program of a Python function over ops; kept."""
        marks = exact(tuple(params.values()))
        return _staged(fun, current().trace_key, tuple(ins), marks, *params.items())

    def within(self, own: ManualAxes) -> Emitter:
        """The emitter of code that is manual along more axes, by which nothing is divided there."""
        left = math.prod([n for n, name in zip(own.grid.shape, own.names, strict=True)
                          if name not in own.manual])
        new = (Emitter if left == 1 else type(self))(self.meshes, left, self._located)
        new.manual, new.platform, new.host_numbers = own, self.platform, self.host_numbers
        new.functions, new.taken, new.count = self.functions, self.taken, self.count
        new.scope, new._around, new._number = self.scope, self._around, self._number
        return new

    def beside(self, platform: str) -> Emitter:
        """The emitter of another function of the module, for a platform."""
        new = type(self)(self.meshes, self.devices, self._located)
        new.platform, new.functions, new.taken = platform, self.functions, self.taken
        return new

    @staticmethod
    def plain() -> Emitter:
        """The emitter of code of one device."""
        return Emitter()

    @staticmethod
    def divided(asked: dict[str, Any], pieces: list[Any]) -> tuple[str, Sequence[int | None]]:
        """The module of one device for a function of divided matrices."""
        with enable_x64(True):  # XLA may ask from a thread of its own
            return module_text(Emitter(), asked, pieces)

    # -- host functions --

    def host_call(
        self, function: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType],
        names: Sequence[str], pure: bool,
    ) -> list[str]:
        """Calls a host function: once, with whole values; or on each device, with its parts.

        Of several devices one makes the call, the others get its results. They come as bits, since
        they are sent as sums with zeros: a sum would lose the sign of a zero.
        """
        if self.manual is not None and self.devices > 1:
            return self.on_one_of_rest(
                names, ins, outs, lambda e, given: e.host_call(function, ins, outs, given, pure)
            )
        callback, place, as_bits = function.callback, {}, outs
        kind = "gpu" if self.platform in ("cuda", "rocm") else "cpu"
        target = f"xla_ffi_{'partitioned_' if callback.local else ''}python_{kind}_callback"
        if self.devices > 1:
            symbol = self.meshes.one_device(callback.device)
            every = ", ".join([f"<@{symbol}, []>"] * max(len(outs), 1))
            place = {"sdy.sharding": f"#sdy.sharding_per_value<[{every}]>"}
            as_bits = [t.update(dtype=bits_of(t.dtype)) for t in outs]
            gathered = [self._gathered(t, callback.local) for t in ins]
            names = [self.whole(*row) for row in zip(names, ins, gathered, strict=True)]
        results = self.custom_call(
            target, names, ins, as_bits, effect=not pure, extra=place,
            config=f"{{index = {self.host_numbers[function]} : ui64}}",
        )
        if self.devices == 1:
            return results
        return [self._from_bits(*row) for row in zip(results, as_bits, outs, strict=True)]

    def note(self, target: str, what: str, xs: Sequence[str], ts: Sequence[ArrayType]) -> None:
        """A call that takes values and has no results, by which XLA is told something. It cannot
        partition it. what: it does, for the error."""
        if self.manual is not None and self.devices > 1:
            self.on_one_of_rest(xs, ts, [], lambda e, given: e.note(target, what, given, ts) or [])
            return
        if self.devices > 1:
            raise NotImplementedError(
                f"{target}: XLA {what} in code of single devices only. Call it in a function of "
                "`shardwise.shard_map`."
            )
        self.custom_call(target, xs, ts, [], effect=True)

    def _gathered(self, t: ArrayType, local: bool) -> list[int]:
        """The dimensions that are whole in a call: parts of a device must have no padding."""
        return [d for d, n in enumerate(t.shape) if not (local and self.divides(n))]

    def _from_bits(self, name: str, bits: ArrayType, t: ArrayType) -> str:
        name = self.whole(name, bits, range(t.ndim))
        return self.as_bits(name, bits, t)

    # -- shardings --

    def whole(self, name: str, t: ArrayType, dims: Sequence[int]) -> str:
        """A value with some of its dimensions whole on each device, where there are several.

        For ops that XLA's partitioner cannot split along them.
        """
        if self.devices == 1 or not dims:
            return name
        parts = ", ".join("{}" if d in dims else "{?}" for d in range(t.ndim))
        place = f"<@{self.meshes.leading()}, [{parts}]>"
        return self.let(f"sdy.sharding_constraint {name} {place} : {tensor_text(t)}")

    def alike(self, names: Sequence[str], types: Sequence[ArrayType]) -> list[str]:
        """Values that the partitioner divides alike."""
        if self.devices > 1 and self.manual is not None:
            raise NotImplementedError(
                "shard_alike: in a function of `shardwise.shard_map` that leaves some axes of the "
                "mesh to the partitioner, XLA fails. Make all axes manual, or call it outside."
            )
        if self.devices > 1:
            group = next(self.meshes.groups)
            self.lines += [
                f"sdy.sharding_group {x} group_id = {group} : {tensor_text(stored_type(t))}"
                for x, t in zip(names, types, strict=True)
            ]
        return [*names]

    def divides(self, size: int) -> bool:
        """Whether any way to split a dimension of this size gives equal parts."""
        return size % self.devices == 0

    def _placed(self, name: str, t: ArrayType) -> str:
        """A value where its type says that it is; where it says nothing, as it is."""
        sharding = t.explicit_sharding
        if sharding is None or not (t.ndim or sharding.spec.unreduced):
            return name
        return self.constrained(name, stored_type(t), sharding)

    def constrained(self, name: str, t: ArrayType, sharding: Any) -> str:
        """A value that is sharded like this."""
        if sharding.partial_axes[0] and not sharding.is_even(t.shape):
            raise ValueError(
                f"a value of shape {t.shape} is to be left as addends under {sharding}, which "
                "splits a dimension into a number of parts that does not divide it. XLA has no "
                "such sums: take the sum (leave out `unreduced`), or leave that dimension whole."
            )
        return self.constraint(name, self.sharding(sharding, t.ndim), t)

    def constraint(self, name: str, place: str, t: ArrayType) -> str:
        """A value that is sharded as a text of Shardy's says."""
        return self.let(f"sdy.sharding_constraint {name} {place} : {self.ty(t)}")

    def sharding(self, sharding: Any, ndim: int) -> str:
        """The sdy form of a sharding: `<@mesh, [{"x"}, {}]>`."""
        return self.meshes.target(sharding, ndim)


def _follows(out: ArrayType, ins: Sequence[ArrayType]) -> bool:
    """Whether an elementwise result is surely sharded as its type says: as an operand is."""
    if out.spec is not None and out.spec.unreduced:  # left to itself, XLA would take the sum
        return False
    return any(t.spec is out.spec and t.shape == out.shape for t in ins)


@derived
def any_constants(program: Program) -> bool:
    """Whether the program, or one that it holds, has constants."""
    return any(p.constants for p in programs_in(program))


@functools.lru_cache(4096)
def _staged(
    fun: Callable, context: TraceKey, types: tuple[ArrayType, ...], marks: tuple,
    *params: tuple[str, Any],
) -> Program:
    """Stages a function over ops outside of every interpreter; results may be one or several.

    marks: of the parameters' values, which tell equal ones apart.
    """
    # Without meshes: what is inside is split as the partitioner likes.
    free = [t.update(spec=None, mesh=None) if t.mesh else t for t in types]

    def flat(*values: Any) -> list[Any]:
        result = fun(*values, **dict(params))
        return list(result) if isinstance(result, list | tuple) else [result]

    return without_sites(program_of(flat, free, getattr(fun, "__name__", "f"), "lower"))
