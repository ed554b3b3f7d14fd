"""`Program`: a staged function, as a list of equations over typed variables (JAX's *jaxpr*).

    { lambda ; a:f32[8,4]. let
        b:f32[8,4] = sin a
        c:f32[8,4] = mul b 2.0
      in (c,) }

A program carries its constants, the values of its first inputs; callers pass the other inputs.
Programs are immutable and compare by identity: `replace` and the tools of `core.program_tools`
return new ones. A program is run by replaying it under the current interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from shardwise._src.base.warn import warn
from shardwise._src.core.op import Op, Params, own_names
from shardwise._src.messages.source import (
    Site,
    SourceInfo,
    attributes_of,
    describe,
    replay,
    replays,
    scope_of,
)
from shardwise._src.types.array_type import ArrayType


class Style(NamedTuple):
    """What is printed in addition to names, ops and parameters."""

    types: bool = True
    lines: bool = False
    scopes: bool = False
    effects: bool = False
    width: int | None = None
    colour: bool = False


class Var:
    """A variable of one program."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.aval.str_short()}"


class Literal:
    """A scalar constant, written inline."""

    __slots__ = ("aval", "value")

    def __init__(self, value: Any, aval: ArrayType):
        self.value = value
        self.aval = aval

    val = property(lambda self: self.value)  # JAX's name

    def __repr__(self) -> str:
        return f"Literal({self.value})"


Atom = Var | Literal


class EquationContext(NamedTuple):
    """The context of an equation when JAX's interpreters bind it again, by `eqn.ctx.manager`.

    An equation depends on its parameters and its site only, so `manager` does nothing.

    xla_metadata: the attributes of `set_xla_metadata`, if there are any.
    """

    compute_type: str | None = None
    xla_metadata: Any = None

    @property
    def manager(self) -> AbstractContextManager[None]:
        return nullcontext()


def _renamed(what: str, old: str, new: str) -> Any:
    """A property for the name that a field had. (A `__getattr__` would slow down all fields.)"""

    def renamed(self: Any) -> Any:
        warn(
            f"`{old}` of a {what} is now `{new}`, as in JAX; the old name is removed in 0.4.0.",
            DeprecationWarning,
        )
        return getattr(self, new)

    return property(renamed)


class Equation:
    """`outvars = op invars` with parameters, and the user's source line that it came from.

    primitive: the op, or the user's primitive that it represents.
    """

    __slots__ = ("op", "invars", "outvars", "params", "site")

    def __init__(
        self,
        op: Op,
        invars: Sequence[Atom],
        outvars: Sequence[Var],
        params: dict[Any, Any],
        site: Site | None,
    ):
        self.op = op
        self.invars = invars
        self.outvars = outvars
        self.params = params if op.aliases is None else Params(params, op.aliases)
        self.site = site

    primitive = property(lambda self: self.op if self.op.foreign is None else self.op.foreign)
    source_info = property(lambda self: SourceInfo(self.site))
    ctx = property(lambda self: EquationContext(None, attributes_of(scope_of(self.site)) or None))
    inputs = _renamed("Equation", "inputs", "invars")
    outputs = _renamed("Equation", "outputs", "outvars")

    def __repr__(self) -> str:
        return equation_text(self)

    def programs(self) -> Iterator[Program]:
        """The programs that this equation's parameters contain."""
        return held_in(self.op, self.params)

    @property
    def called(self) -> Program | None:
        """The program that may replace this equation, if the equation only calls it."""
        return next(self.programs()) if self.op.contains.is_call else None

    @property
    def effects(self) -> frozenset[Any]:
        if not self.op.programs:
            return self.op.effects
        return self.op.effects.union(*[p.effects for p in self.programs()])

    def replace(self, **fields: Any) -> Equation:
        """The equation with some fields replaced; `primitive` may be a user's."""
        merged = {n: getattr(self, n) for n in self.__slots__} | _own(fields)
        if "primitive" in merged:
            op = merged.pop("primitive")
            merged["op"] = op if op.__class__ is Op else op.op
        if "source_info" in merged:
            merged["site"] = merged.pop("source_info").traceback
        merged["params"] = own_names(merged["op"], merged["params"])
        return Equation(**merged)


def held_in(op: Op, params: dict[str, Any]) -> Iterator[Program]:
    """The programs that an op's parameters contain; functions that are not staged yet have none."""
    for name in op.programs:
        held = params.get(name, ())
        yield from held if isinstance(held, tuple) else (held,)


_DERIVED = ("effects", "debug_info", "ctx", "is_high")


def _own(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields without those that are derived from others."""
    return {name: value for name, value in fields.items() if name not in _DERIVED}


class DebugInfo(NamedTuple):
    """Which function a program was staged from: for messages."""

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None = None
    result_paths: tuple[str, ...] | None = None

    @property
    def func_name(self) -> str:
        return self.func_src_info.split(" ")[0]


_MADE_OF = ("inputs", "outvars", "eqns", "consts", "name")


class Program:
    """A staged function.

    inputs: `constvars`, with the values `consts`, then `invars`, whose values callers pass.
    name:   the name of the Python function.
    """

    __slots__ = ("inputs", "outvars", "eqns", "consts", "name", "effects", "derived", "__weakref__")

    def __init__(
        self,
        inputs: Iterable[Var],
        outvars: Iterable[Atom],
        eqns: Iterable[Equation],
        consts: Iterable[Any] = (),
        name: str = "f",
    ):
        self.inputs = tuple(inputs)
        self.outvars = tuple(outvars)
        self.eqns = tuple(eqns)
        self.consts = tuple(consts)
        self.name = name
        found = [e.effects for e in self.eqns if e.op.effects or e.op.programs]
        self.effects: frozenset[Any] = frozenset().union(*found)
        self.derived: dict[tuple[Any, ...], Any] = {}

    @property
    def constvars(self) -> tuple[Var, ...]:
        return self.inputs[: len(self.consts)]

    @property
    def invars(self) -> tuple[Var, ...]:
        """The inputs that callers pass."""
        return self.inputs[len(self.consts) :]

    @property
    def in_types(self) -> tuple[ArrayType, ...]:
        return tuple(v.aval for v in self.invars)

    @property
    def out_types(self) -> tuple[ArrayType, ...]:
        return tuple(a.aval for a in self.outvars)

    # JAX's other names.
    in_avals = in_types
    out_avals = out_types
    jaxpr = property(lambda self: self)
    literals = property(lambda self: self.consts)
    debug_info = property(lambda self: DebugInfo("jit", self.name))
    equations = _renamed("Program", "equations", "eqns")
    arguments = _renamed("Program", "arguments", "invars")
    outputs = _renamed("Program", "outputs", "outvars")
    constants = _renamed("Program", "constants", "consts")
    constant_vars = _renamed("Program", "constant_vars", "constvars")

    def replace(self, **fields: Any) -> Program:
        """The program with some fields replaced; `jaxpr` is a program without constants."""
        base = fields.pop("jaxpr", self)
        merged = {n: getattr(base, n) for n in _MADE_OF}
        if base is not self:
            merged["consts"] = self.consts
        if "invars" in fields or "constvars" in fields:
            own = fields.pop("constvars", base.constvars)
            fields["inputs"] = (*own, *fields.pop("invars", base.invars))
        return Program(**(merged | _own(fields)))

    def __call__(self, *args: Any) -> list[Any]:
        return eval_program(self, args)

    def __repr__(self) -> str:
        return text(self)

    def pretty_print(
        self,
        *,
        source_info: bool = False,
        print_shapes: bool = True,
        name_stack: bool = False,
        print_effects: bool = False,
        custom_pp_eqn_rules: bool = True,
        width: int | None = None,
        use_color: bool | None = None,
    ) -> str:
        """The program as a string.

        Args:
          source_info: whether each equation shows the user's source line where it was staged.
          print_shapes: whether variables have their types where they are defined.
          name_stack: whether each equation shows the names in scope (`named_scope`).
          print_effects: whether programs show their side effects.
          custom_pp_eqn_rules: has no effect, as all operations are printed alike.
          width: in characters, above which the parameters of an equation get separate lines.
          use_color: whether the string has colors, for terminals; None means False.
        """
        style = Style(print_shapes, source_info, name_stack, print_effects, width, bool(use_color))
        return text(self, style=style)


def eval_jaxpr(
    jaxpr: Program, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True
) -> list[Any]:
    """Evaluates a program with other constants.

    propagate_source_info: whether equations that are staged in the process keep the program's
      source lines, instead of the line of this call.
    """
    return eval_program(jaxpr.replace(consts=consts), args, lines=propagate_source_info)


@replays
def eval_program(
    program: Program,
    args: Sequence[Any],
    bind: Callable[[Equation, list[Any]], Sequence[Any]] | None = None,
    lines: bool = True,
) -> list[Any]:
    """Evaluates a program equation by equation, at the user's source lines.

    bind: returns the results of an equation for the values of its operands, as a list; by default
      the current interpreter receives the op.
    lines: whether these lines are the original ones of the program.
    """
    env: dict[Var, Any] = dict(zip(program.inputs, (*program.consts, *args), strict=True))
    outer = replay.site
    try:
        for eqn in program.eqns:
            replay.site = eqn.site if lines else outer
            values = [a.value if isinstance(a, Literal) else env[a] for a in eqn.invars]
            if bind is not None:
                env.update(zip(eqn.outvars, bind(eqn, values), strict=True))
                continue
            result = eqn.op(*values, **eqn.params)
            if eqn.op.multiple:
                env.update(zip(eqn.outvars, result, strict=True))
            else:
                env[eqn.outvars[0]] = result
    finally:
        replay.site = outer
    return [a.value if isinstance(a, Literal) else env[a] for a in program.outvars]


# -- printing: variables are named a, b, … z, aa, … in the order of their definition --


def text(program: Program, indent: str = "", style: Style = Style()) -> str:  # noqa: B008
    """The program, one equation a line; nested programs are printed inside, indented."""
    rows = list(_Printer(style).program(program, indent))
    column = max([len(row) for row, comment in rows if comment], default=0) + 1
    shown = [f"{row:{column}}# {comment}" if comment else row for row, comment in rows]
    return _coloured("\n".join(shown)) if style.colour else "\n".join(shown)


def equation_text(eqn: Equation) -> str:
    """A single equation, with separate names for its variables."""
    return "\n".join([row for row, _ in _Printer(Style()).equation(eqn, "")])


def _names() -> Iterator[str]:
    number = 0
    while True:
        digits, rest = "", number
        while True:
            digits = chr(ord("a") + rest % 26) + digits
            rest = rest // 26 - 1
            if rest < 0:
                break
        yield digits
        number += 1


Row = tuple[str, str]  # a line, and the comment at its end


class _Printer:
    def __init__(self, style: Style) -> None:
        self._style = style
        self._fresh = _names()
        self._known: dict[Var, str] = {}

    def name(self, atom: Any) -> str:
        if hasattr(atom, "value"):
            return f"{_scalar(atom.value)}:{atom.aval.str_short(True)}"
        if atom not in self._known:
            self._known[atom] = next(self._fresh)
        return self._known[atom]

    def defined(self, variables: Iterable[Var]) -> str:
        if not self._style.types:
            return " ".join([self.name(v) for v in variables])
        return " ".join([f"{self.name(v)}:{v.aval.str_short(True)}" for v in variables])

    def program(self, program: Program, indent: str) -> Iterator[Row]:
        constants = self.defined(program.constvars)
        arguments = self.defined(program.invars)
        yield f"{{ lambda {constants + ' ' if constants else ''}; {arguments}. let", ""
        for eqn in program.eqns:
            (first, _), *rest = self.equation(eqn, indent + "    ")
            yield f"{indent}    {first}", self.comment(eqn)
            yield from rest
        outputs = ", ".join(self.name(a) for a in program.outvars)
        if len(program.outvars) == 1:
            outputs += ","
        yield f"{indent}  in ({outputs}){self.effects(program)} }}", ""

    def comment(self, eqn: Equation) -> str:
        said = [describe(eqn.site)] if self._style.lines else []
        if self._style.scopes:
            said.append(f"[{SourceInfo(eqn.site).name_stack}]")
        return " ".join(said)

    def effects(self, program: Program) -> str:
        if not self._style.effects:
            return ""
        return f" : {{ {', '.join(sorted(map(str, program.effects)))} }}"

    def equation(self, eqn: Equation, indent: str) -> Iterator[Row]:
        inputs = "".join([f" {self.name(a)}" for a in eqn.invars])
        head = f"{self.defined(eqn.outvars)} = {eqn.op.name}" if eqn.outvars else eqn.op.name
        if not eqn.params:
            yield head + inputs, ""
            return
        if not eqn.op.programs:
            written = " ".join([f"{k}={_plain(v)}" for k, v in eqn.params.items()])
            line = f"{head}[{written}]{inputs}"
            if self._style.width is None or len(indent + line) <= self._style.width:
                yield line, ""
                return
        yield f"{head}[", ""
        for key, value in eqn.params.items():
            yield from self.parameter(key, value, indent + "  ")
        yield f"{indent}]{inputs}", ""

    def parameter(self, key: str, value: Any, indent: str) -> Iterator[Row]:
        several = value.__class__ is tuple and len(value) > 0
        held = value if several else (value,)
        if not hasattr(held[0], "eqns"):
            yield f"{indent}{key}={_plain(value)}", ""
            return
        begun = f"{indent}{key}={'(' if several else ''}"
        for program in held:
            (first, _), *rows, (last, _) = _Printer(self._style).program(program, indent)
            yield begun + first, ""
            yield from rows
            begun = f"{last} "
        yield begun[:-1] + (")" if several else ""), ""


def _plain(value: Any) -> str:
    name = getattr(value, "__name__", None)  # of a class or function
    return str(value) if name is None else str(name)


def _coloured(text: str) -> str:
    """Keywords in bold, types in cyan, the comments at the ends of lines in grey."""
    text = re.sub(r"(?<=:)[a-z]\w*\[[^\]\s]*\](?:{[^}]*})?", "\033[36m\\g<0>\033[0m", text)
    text = re.sub(r"(?<=[{. ])(?:lambda|let|in)(?= |$)", "\033[1m\\g<0>\033[0m", text, flags=re.M)
    return re.sub(r"# .*$", "\033[90m\\g<0>\033[0m", text, flags=re.M)


def _scalar(value: Any) -> str:
    return str(value.item() if hasattr(value, "item") else value)
