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

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from shardwise._src.base.warn import warn
from shardwise._src.core.op import Op, Params, own_names
from shardwise._src.core.program_text import Style, equation_text, text
from shardwise._src.messages.source import (
    Site,
    SourceInfo,
    attributes_of,
    replay,
    replays,
    scope_of,
)
from shardwise._src.types.array_type import ArrayType


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
