"""Staging: running a function on tracers that record its ops as a `Program`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.caches import exact, register
from shardwise._src.base.config import enable_checks
from shardwise._src.base.context import current
from shardwise._src.core.checker import check_program
from shardwise._src.core.fused import Fused
from shardwise._src.core.infer import as_arraylike, infer, is_array, type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Literal, Program, Var
from shardwise._src.core.program_tools import without_dead_code
from shardwise._src.messages.formatting import short_repr, to_register
from shardwise._src.messages.leaks import reject_leaks
from shardwise._src.messages.source import Site, user_site
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.templates import Template, keep, key_of, templates
from shardwise._src.transforms.tracer import Tracer, escaped, is_ancestor
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import constant_of
from shardwise._src.values.value import Value

LITERAL_CACHE_SIZE = 4096
_literals: dict[tuple, Literal] = {}
register(__name__, "literals", lambda: len(_literals), _literals.clear, LITERAL_CACHE_SIZE)
_SCALARS = (bool, int, float, complex, np.generic)


class StageTracer(Tracer):
    """A variable of the program that is being staged."""

    __slots__ = ("variable",)

    def __init__(self, interpreter: Stage, aval: ArrayType, variable: Var):
        self.interpreter = interpreter
        self.aval = aval
        self.variable = variable

    def concrete(self) -> Any:
        read = self.interpreter.read
        return None if read is None else read(self)

    _constant_or = Tracer._concrete_or  # no derivative is lost

    def made_at(self) -> Site | None:
        for eqn in self.interpreter.eqns:
            if self.variable in eqn.outvars:
                return eqn.site
        return None

    def origin(self) -> str:
        names = self.interpreter.argument_names_behind(self.variable)
        if not names:
            return ""
        noun = "argument" if len(names) == 1 else "arguments"
        return f" The value depends on the {noun} {', '.join(names)}."


class Stage(Interpreter):
    """Records ops as equations. Values from outside become captured inputs.

    refs: maps each outer ref that was touched (refs/refs.py) to its value at the start, which is
      an input, and its current value.
    ref_type: returns the type in here of an outer ref's value, from its type around this stage;
      None if the caller passes no refs.
    read: returns the value of a tracer, or None if it is unknown, for a caller that has the values
      of all arguments; None if it has not.
    """

    is_apart = True
    __slots__ = ("eqns", "captures", "inputs", "names", "refs", "ref_type", "read")

    def __init__(self, parent: Interpreter, transform: str, function: str):
        super().__init__(parent, transform, function)
        self.eqns: list[Equation] = []
        self.captures: dict[int, tuple[Var, Any]] = {}
        self.inputs: list[Var] = []
        self.names: list[str] = []
        self.refs: dict[Any, list[Any]] = {}
        self.ref_type: Callable[[ArrayType], ArrayType] | None = None
        self.read: Callable[[StageTracer], Any] | None = None

    def new_input(self, aval: ArrayType, name: str = "") -> StageTracer:
        var = Var(aval)
        self.inputs.append(var)
        self.names.append(name)
        return StageTracer(self, aval, var)

    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Runs a fused function inline; copies its equations, if they are cached."""
        key = key_of(fused, self, StageTracer, args, static)
        if key is None:
            return super().call(fused, args, static)
        given = args[: fused.arrays]
        if key in templates:
            template = templates[key]
            return (
                super().call(fused, args, static)
                if template is None
                else (self._copied(template, given))
            )
        before, captured = len(self.eqns), len(self.captures)
        result = super().call(fused, args, static)
        if len(self.captures) == captured:
            keep(key, given, self.eqns[before:], result)
        return result

    def _copied(self, template: Template, args: tuple[Any, ...]) -> StageTracer:
        """Adds the equations of a template."""
        steps, result = template
        atoms: Any = [getattr(a, "variable", None) for a in args]
        site, add = user_site(3), self.eqns.append
        for op, params, inputs, single, types in steps:
            taken: list[Any] = [atoms[i] if i.__class__ is int else i for i in inputs]
            if single is not None:
                var = Var(single)
                add(Equation(op, taken, (var,), params, site))
                atoms.append(var)
            else:
                outs = [Var(t) for t in types]
                add(Equation(op, taken, outs, params, site))
                atoms += outs
        variable = atoms[result]
        return StageTracer(self, variable.aval, variable)

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        if op.stage is not None:
            args, params = op.stage(op, self, args, params)
        return self.record(op, args, params)

    def record(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        atoms, types = [], []
        for a in args:
            owned = a.__class__ is StageTracer and a.interpreter is self
            atom = a.variable if owned else self.atom(a)
            atoms.append(atom)
            types.append(atom.aval)
        found = infer(op, tuple(types), params)
        if op.multiple:
            outs = [Var(t) for t in found]
            self.eqns.append(Equation(op, atoms, outs, params, user_site(3)))
            return [StageTracer(self, v.aval, v) for v in outs]
        var = Var(found)
        self.eqns.append(Equation(op, atoms, (var,), params, user_site(3)))
        return StageTracer(self, found, var)

    def atom(self, x: Any) -> Var | Literal:
        """The variable or literal for a value that this program does not contain yet."""
        if isinstance(x, _SCALARS):
            return _literal(x)
        if isinstance(x, Tracer):
            if x.interpreter is self:
                return x.variable  # pyright: ignore[reportAttributeAccessIssue] (StageTracer)
            if not x.interpreter.alive or not is_ancestor(x.interpreter, self):
                raise escaped(x)
        elif isinstance(x, np.ndarray) and x.ndim == 0:
            return self.atom(x[()])
        elif not isinstance(x, Value | np.ndarray):
            converted = as_arraylike(x)
            if converted is not x:
                return self.atom(converted)
            if is_array(x):  # a type, of which `eval_shape` needs no value
                return self.capture(x)
            raise TypeError(f"expected an array or a scalar, got {short_repr(x)}.{to_register(x)}")
        return self.capture(x)

    def capture(self, x: Any) -> Var:
        """The variable for a value from outside."""
        held = self.captures.get(id(x))
        if held is None:
            held = self.captures[id(x)] = (Var(type_of(x)), x)
        return held[0]

    def argument_names_behind(self, var: Var) -> list[str]:
        """The names of all inputs, also of outer functions, that a variable depends on."""
        needed = {var}
        for eqn in reversed(self.eqns):
            if not needed.isdisjoint(eqn.outvars):
                needed.update(a for a in eqn.invars if isinstance(a, Var))
        found = [n for v, n in zip(self.inputs, self.names, strict=True) if v in needed and n]
        for var, x in self.captures.values():
            if var in needed and x.__class__ is StageTracer:
                outer = x.interpreter
                names = outer.argument_names_behind(x.variable)
                found += [f"{n} of {outer.function}" for n in names]
        return found

    def finish(self, outputs: Sequence[Any], name: str = "") -> tuple[Program, list[Any]]:
        """The program with captured values as its first inputs, and these values."""
        atoms = [self.atom(x) for x in outputs]
        equations = without_dead_code(atoms, self.eqns)
        captured = list(self.captures.values())
        if captured:
            used = {a for e in equations for a in e.invars if a.__class__ is Var}
            used.update(a for a in atoms if a.__class__ is Var)
            captured = [(v, x) for v, x in captured if v in used]
        inputs = [v for v, _ in captured] + self.inputs
        program = Program(inputs, atoms, equations, name=name or self.function)
        return program, [x for _, x in captured]


def _literal(x: Any) -> Literal:
    """The literal of a scalar; recent ones are cached, by class, value and context."""
    key = (x, exact(x), current().key)
    try:
        found = _literals.get(key)
    except TypeError:  # a float0, which is unhashable
        return _new_literal(x)
    if found is None:
        if len(_literals) >= LITERAL_CACHE_SIZE:
            _literals.clear()
        found = _literals[key] = _new_literal(x)
    return found


def _new_literal(x: Any) -> Literal:
    aval = type_of(x)
    value = x if aval.weak_type else constant_of(x, aval.dtype)
    return Literal(value, aval)  # a Python scalar stays weak when rerun


def _same(t: ArrayType) -> ArrayType:
    return t


def stage(
    fun: Callable,
    types: Sequence[ArrayType],
    *,
    transform: str = "jit",
    name: str = "f",
    names: Sequence[str] = (),
    parent: Interpreter | None = None,
    refs: list[Any] | None = None,
    ref_type: Callable[[ArrayType], ArrayType] = _same,
    read: Callable[[StageTracer], Any] | None = None,
) -> tuple[Program, list[Any]]:
    """Stages `fun(*tracers) -> list of values`.

    refs: receives the outer refs that were touched; their values are the last arguments and
      results. None: touching one is an error. ref_type: returns the type of such a value in here.
    read: see `Stage`.

    Returns the program and the values of outer tracers that it captured, which are its first
    arguments; concrete values that it captured are its constants.
    """
    interpreter = Stage(parent or current().interpreter, transform, name)
    with interpreter.entered():
        interpreter.ref_type = None if refs is None else ref_type
        interpreter.read = read
        program, captured = _run(interpreter, fun, types, names)
        if refs is not None:
            refs.extend(interpreter.refs)
    reject_leaks(interpreter)
    found = split_captures(program, captured)
    if enable_checks.value:
        check_program(found[0])
    return found


def stage_fused(
    fused: Fused,
    types: Sequence[ArrayType],
    rest: Sequence[Any],
    static: dict[str, Any],
    parent: Interpreter,
) -> tuple[Program, Any]:
    """The program of a fused function at given types; the pytree of its results, None for an array.

    rest, static: its static arguments, by position and by name.
    """
    trees: list[Any] = []
    flat = leaves_of(lambda *tracers: fused.fun(*tracers, *rest, **static), trees)
    program, _ = stage(flat, types, name=fused.name, parent=parent)
    return program, tree_of_several(trees)


def leaves_of(fun: Callable[..., Any], trees: list[Any]) -> Callable[..., list[Any]]:
    """`fun`, which returns the leaves of its result, and adds the pytree to `trees`."""

    def flat(*args: Any) -> list[Any]:
        leaves, tree = flatten(fun(*args))
        trees.append(tree)
        return leaves

    return flat


def tree_of_several(trees: Sequence[Any]) -> Any:
    """The pytree of a result; None if it is one array."""
    (tree,) = trees
    return None if tree.num_nodes == 1 and tree.num_leaves == 1 else tree


def _run(
    interpreter: Stage, fun: Callable, types: Sequence[ArrayType], names: Sequence[str]
) -> tuple[Program, list[Any]]:
    tracers = [interpreter.new_input(t, names[i] if names else "") for i, t in enumerate(types)]
    outs = fun(*tracers)
    if interpreter.refs:
        outs = [*outs, *[now for _, now in interpreter.refs.values()]]
    return interpreter.finish(outs)


def split_captures(program: Program, captured: Sequence[Any]) -> tuple[Program, list[Any]]:
    """Makes concrete captured values constants of the program; keeps tracers as arguments."""
    if not captured:
        return program, []
    pairs = list(zip(program.inputs, captured, strict=False))
    constants = [(v, x) for v, x in pairs if not isinstance(x, Tracer)]
    tracers = [(v, x) for v, x in pairs if isinstance(x, Tracer)]
    inputs = [v for v, _ in constants] + [v for v, _ in tracers] + [*program.inputs[len(pairs) :]]
    values = [x for _, x in constants]
    return program.replace(inputs=inputs, consts=values), [x for _, x in tracers]


# -- programs of functions over ops, without values --


class _Detached(Interpreter):
    """The parent of stagers that only build programs: no op reaches it."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, "program", "f")


DETACHED = _Detached()


def program_of(
    fun: Callable, types: Sequence[ArrayType], name: str, transform: str = "program"
) -> Program:
    """The program of `fun(*values) → list`, a function over ops that captures nothing."""
    stager = Stage(DETACHED, transform, name)
    with stager.entered():
        found, captured = stager.finish(fun(*map(stager.new_input, types)))
    return split_captures(found, captured)[0]
