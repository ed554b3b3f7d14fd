"""`custom_linear_solve` and `custom_root`: implicit differentiation of solutions.

How a solution was found does not matter for its derivative: the derivative of the solution of
`A x = b` solves another linear system with `A`, and the derivative of a root of `f` solves the
linear system with the derivative of `f` there (the implicit function theorem). So the solver may
iterate in any way; only these systems are differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from shardwise._src.base.context import CURRENT
from shardwise._src.base.marks import given, spread
from shardwise._src.control.bodies import Body, check_function, leaf, staged, with_types
from shardwise._src.control.call import call
from shardwise._src.control.programs import fit, with_results
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs, is_linear
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import consts_to_args, derived
from shardwise._src.core.structure import shared
from shardwise._src.custom.custom_calls import Rule, as_array, as_arrays
from shardwise._src.custom.custom_jvp import custom_jvp_call
from shardwise._src.effects.ordering import ORDERED
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, paths_in, tree_difference
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.elementwise import neg, sub
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.runtime.platforms import Platform
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import Axis, MappedAxis, batch_program, to_dim
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.linearize import linearize
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.transpose import transpose_program
from shardwise._src.types.annotations import Aux, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.values.convert import strip_weak_type

Marks = tuple[bool, ...]

# -- the op: (constants of each program…, b…) → (x…, more…) --
#
# programs: (matvec, solve), or (matvec, solve, vecmat, transpose_solve).
# counts:   the number of constants of each.


def groups_of(values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """The constants of each program, then the rest."""
    found, start = [], 0
    for count in counts:
        found.append(values[start : start + count])
        start += count
    return [*found, values[start:]]


def _type(op: Op, *types: ArrayType, programs: tuple, counts: tuple) -> tuple[ArrayType, ...]:
    return programs[1].out_types


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, programs: tuple, counts: tuple
) -> list[str]:
    groups = groups_of(xs, counts)
    return e.call(programs[1], *groups[1], *groups[-1])


def _jvp(
    op: Op, primals: Any, tangents: Any, *, programs: tuple, counts: tuple
) -> tuple[list, list]:
    """d(A x) = db, so A dx = db - dA x."""
    outs = linear_solve(*primals, programs=programs, counts=counts)
    consts, moving = groups_of(primals, counts), groups_of(tangents, counts)
    rhs = list(moving[-1])
    x = outs[: len(rhs)]
    if any(t is not None for t in moving[0]):
        change = tangents_of(programs[0], [*consts[0], *x], [*moving[0], *[None] * len(x)])
        rhs = [_difference(a, b) for a, b in zip(rhs, change, strict=True)]
    if all(t is None for t in rhs):
        return outs, [None] * len(outs)
    types = [type_of(b) for b in consts[-1]]
    rhs = [zeros(t) if v is None else fit(v, t) for v, t in zip(rhs, types, strict=True)]
    known = primals[: sum(counts)]
    dx = linear_solve(*known, *rhs, programs=programs, counts=counts)[: len(x)]
    return outs, [*dx, *[None] * (len(outs) - len(x))]


def _difference(a: Any, b: Any) -> Any:
    if b is None:
        return a
    return neg(b) if a is None else sub(a, b)


def tangents_of(program: Program, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Tangents of a program's results; None for zero."""
    both, marks = jvp_program(program, tuple([t is not None for t in tangents]))
    outs = call(*map(fit, [*primals, *given(tangents)], both.in_types), program=both)
    return spread(outs[len(program.outvars) :], marks)


def _transpose(op: Op, cts: Any, *args: Any, programs: tuple, counts: tuple) -> list[Any]:
    known = sum(counts)
    if len(programs) == 2:
        raise TypeError(
            f"custom_linear_solve: reverse-mode differentiation of the solution by "
            f"{programs[1].name} solves a system with the transpose of {programs[0].name}. Pass "
            "`transpose_solve`, or `symmetric=True` if it is its own transpose."
        )
    if any(is_linear(a) for a in args[:known]):
        raise TypeError(
            "custom_linear_solve: the solution can be transposed with respect to b only, not to "
            f"values that {programs[0].name} captures."
        )
    types = [a.aval.strong() for a in args[known:]]
    cts = [zeros(t) if ct is None else fit(ct, t) for ct, t in zip(cts, types, strict=False)]
    groups = groups_of(args, counts)
    swapped = [*groups[2], *groups[3], *groups[0], *groups[1]]
    found = linear_solve(
        *swapped, *cts, programs=(*programs[2:], *programs[:2]), counts=(*counts[2:], *counts[:2])
    )
    return [None] * known + found[: len(types)]


@derived
def _batched(program: Program, axis: Axis, marks: Marks, known: int) -> tuple[Program, Marks]:
    """A batched program: all operands after the `known` ones have a batch dimension, and so does
    the same number of results.
    """
    operands = len(program.invars) - known
    force = [i < operands for i in range(len(program.outvars))]
    return batch_program(program, axis, (*marks, *[True] * operands), tuple(force))


def _batch(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, *, programs: tuple, counts: tuple
) -> tuple:
    axis = mapped.of(args, dims)
    *marks, _ = groups_of([d is not None for d in dims], counts)
    found = [
        _batched(p, axis, tuple(m), n) for p, m, n in zip(programs, marks, counts, strict=True)
    ]
    new = tuple([p for p, _ in found])
    wanted = [0 if m else None for group in marks for m in group]
    wanted += [0] * (len(args) - len(wanted))
    rows = zip(args, dims, wanted, strict=True)
    moved = [to_dim(a, d, w, mapped.size) for a, d, w in rows]
    types = [t for p, n in zip(new, counts, strict=True) for t in p.in_types[:n]]
    types += new[1].in_types[counts[1] :]
    moved = [reshard_like(a, t) for a, t in zip(moved, types, strict=True)]
    outs = linear_solve(*moved, programs=new, counts=counts)
    return outs, [0 if m else None for m in found[1][1]]


def _expand(
    op: Op, types: Sequence[ArrayType], p: dict[str, Any], platform: Platform
) -> Program | None:
    """If the solver has ordered effects, the call of it, which passes their token through."""
    solver, counts = p["programs"][1], p["counts"]
    if ORDERED not in solver.effects:
        return None

    def run(*args: Any) -> list[Any]:
        groups = groups_of(args, counts)
        return solver(*groups[1], *groups[-1])

    return program_of(run, types, op.name)


linear_solve = Op(
    "custom_linear_solve",
    type_rule=_type,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    expand=_expand,
    multiple=True,
    contains=Programs(("programs",)),
)

# -- the public functions --


@overload
def custom_linear_solve(
    matvec: Callable[[T], T],
    b: T,
    solve: Callable[[Callable[[T], T], T], T],
    transpose_solve: Callable[[Callable[[T], T], T], T] | None = None,
    symmetric: bool = False,
    has_aux: Literal[False] = False,
) -> T: ...
@overload
def custom_linear_solve(
    matvec: Callable[[T], T],
    b: T,
    solve: Callable[..., tuple[T, Any]],
    transpose_solve: Callable[..., tuple[T, Any]] | None = None,
    symmetric: bool = False,
    *,
    has_aux: Literal[True],
) -> tuple[T, Any]: ...
@hides_frames
def custom_linear_solve(
    matvec: Callable[..., Any],
    b: Any,
    solve: Callable[..., Any],
    transpose_solve: Callable[..., Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Solves `matvec(x) = b` with a custom solver, and differentiates implicitly.

    Args:
      matvec: a linear function from pytrees like `b` to pytrees like `b`. The solution is
        differentiable with respect to the values that it captures.
      b: the right-hand side, a pytree of floating-point arrays.
      solve: `solve(matvec, b)` returns the solution. It need not be differentiable.
      transpose_solve: `transpose_solve(vecmat, b)` solves with the transpose of `matvec`; needed
        for reverse mode.
      symmetric: whether `matvec` is its own transpose; `solve` is then used for both.
      has_aux: whether the solvers return pairs of a solution and auxiliary data, which is not
        differentiated.

    Returns:
      The solution, a pytree like `b`; with `has_aux` a pair.

    Raises:
      TypeError: if `matvec` or a solver returns another pytree or other types than `b`, or if a
        transpose is needed and `transpose_solve` is missing.
    """
    who = "custom_linear_solve"
    functions = {"matvec": matvec, "solve": solve}
    if symmetric and transpose_solve is None:
        transpose_solve = solve
    if transpose_solve is not None:
        functions["transpose_solve"] = transpose_solve
    for what, f in functions.items():
        check_function(who, what, f)
    system = _System(who, "b", b, has_aux)
    if CURRENT.get().interpreter.eager:
        return system.eagerly(solve, matvec)
    bodies = [system.staged(matvec), system.staged_solver(solve, matvec)]
    if transpose_solve is not None:
        back = bodies[0] if symmetric else system.transposed(bodies[0])
        vecmat = matvec if symmetric else system.function(back)
        bodies += [back, system.staged_solver(transpose_solve, vecmat)]
    consts, programs, counts = as_params(bodies)
    outs = linear_solve(*consts, *system.leaves, programs=programs, counts=counts)
    return bodies[1].tree.unflatten(outs)


@overload
def custom_root(
    f: Callable[[T], T],
    initial_guess: T,
    solve: Callable[[Callable[[T], T], T], T],
    tangent_solve: Callable[..., Any],
    has_aux: Literal[False] = False,
) -> T: ...
@overload
def custom_root(
    f: Callable[[T], T],
    initial_guess: T,
    solve: Callable[..., tuple[T, Aux]],
    tangent_solve: Callable[..., Any],
    has_aux: Literal[True],
) -> tuple[T, Aux]: ...
@hides_frames
def custom_root(
    f: Callable[..., Any],
    initial_guess: Any,
    solve: Callable[..., Any],
    tangent_solve: Callable[..., Any],
    has_aux: bool = False,
) -> Any:
    """Finds a root of a function with a custom solver, and differentiates implicitly.

    Args:
      f: a function from pytrees like `initial_guess` to pytrees like it. The root is
        differentiable with respect to the values that it captures.
      initial_guess: the starting point, a pytree of floating-point arrays.
      solve: `solve(f, initial_guess)` returns x with `f(x) = 0`. It need not be differentiable.
      tangent_solve: `tangent_solve(g, y)` solves `g(x) = y` for a linear function `g`, the
        derivative of `f`. For a scalar: `lambda g, y: y / g(1.0)`.
      has_aux: whether `solve` returns a pair of a root and auxiliary data, which is not
        differentiated.

    Returns:
      The root, a pytree like `initial_guess`; with `has_aux` a pair.

    Raises:
      TypeError: if `f` or a solver returns another pytree or other types than `initial_guess`.
    """
    who = "custom_root"
    for what, fun in (("f", f), ("solve", solve), ("tangent_solve", tangent_solve)):
        check_function(who, what, fun)
    system = _System(who, "initial_guess", initial_guess, has_aux)
    if CURRENT.get().interpreter.eager:
        return system.eagerly(solve, f)
    bodies = [
        system.staged(f),
        system.staged_solver(solve, f),
        system.staged_tangent(f, tangent_solve),
    ]
    consts, *params = as_params(bodies)
    outs = custom_jvp_call(*consts, *system.leaves, rule=_RootRule(name_of(f), *params))
    return bodies[1].tree.unflatten(outs)


class _RootRule(Rule):
    """Values: the constants of f, of the solver and of the tangent solver, then the guess."""

    kind = "custom_jvp"
    __slots__ = ("programs", "counts")

    def __init__(self, name: str, programs: tuple, counts: tuple):
        super().__init__(name, (programs, counts))
        self.programs, self.counts = programs, counts

    def fun(self, *values: Any) -> list[Any]:
        groups = groups_of(values, self.counts)
        return call(*groups[1], *groups[3], program=self.programs[1])

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        """f(x; p) = 0, so (df/dx) dx = -(df/dp) dp."""
        f, _, tangent_solver = self.programs
        outs = custom_jvp_call(*primals, rule=self)  # its derivatives do not use the solver
        groups = groups_of(primals, self.counts)
        x = outs[: len(groups[3])]
        none = [None] * len(outs)
        moving = groups_of(tangents, self.counts)[0]
        if all(t is None for t in moving):
            return outs, none
        change = tangents_of(f, [*groups[0], *x], [*moving, *none[: len(x)]])
        rhs = [
            zeros(type_of(v).strong()) if t is None else neg(t)
            for t, v in zip(change, x, strict=True)
        ]
        found = call(*groups[2], *x, *rhs, program=tangent_solver)
        return outs, [*found, *none[len(x) :]]


def as_params(bodies: Sequence[Body]) -> tuple[list[Any], tuple[Program, ...], tuple[int, ...]]:
    """The captured values of all bodies, their programs, and how many values each captures."""
    consts = [x for body in bodies for x in body.outside]
    programs = tuple([shared(body.program) for body in bodies])
    return consts, programs, tuple([len(body.outside) for body in bodies])


class _System:
    """Functions between pytrees of one structure, with the same types.

    what, value: the argument that defines structure and types.
    """

    def __init__(self, who: str, what: str, value: Any, has_aux: bool):
        self.who, self.what, self.has_aux = who, what, has_aux
        found, self.tree = flatten(value)
        found = [leaf(x, who, what, self.tree, i) for i, x in enumerate(found)]
        self.leaves = list(map(strip_weak_type, found))
        self.types = list(map(type_of, self.leaves))

    def staged(self, fun: Callable) -> Body:
        """Traces a function of one pytree."""
        name = name_of(fun)

        def checked(*xs: Any) -> Any:
            return self._tree_checked(name, fun(self.tree.unflatten(xs)))

        return self._staged(checked, name, "x")

    def staged_solver(self, solve: Callable, fun: Callable) -> Body:
        """Traces a solver of a function."""
        name = name_of(solve)

        def solved(*xs: Any) -> Any:
            return self.checked(name, solve(fun, self.tree.unflatten(xs)))

        return self._staged(solved, name, self.what)

    def staged_tangent(self, f: Callable, tangent_solve: Callable) -> Body:
        """From a root and a right-hand side to the solution of the linearized system."""
        name, count = name_of(tangent_solve), len(self.types)

        def flat(*xs: Any) -> list[Any]:
            return flatten(f(self.tree.unflatten(xs)))[0]

        def solved(*xs: Any) -> Any:
            _, linear = linearize(flat, xs[:count], self.who, name_of(f))

            def g(v: Any) -> Any:
                given = [strip_weak_type(x) for x in flatten(v)[0]]
                moved = zip(linear(given), self.types, strict=True)
                return self.tree.unflatten([zeros(t) if x is None else x for x, t in moved])

            result = tangent_solve(g, self.tree.unflatten(xs[count:]))
            return self._tree_checked(name, result)

        return self._staged(solved, name, "x", "y")

    def _staged(self, flat: Callable, name: str, *arguments: str) -> Body:
        """Traces a function of the leaves of pytrees, the arguments of these names."""
        names = [path for argument in arguments for path in paths_in(argument, self.tree)]
        body = staged(flat, self.types * len(arguments), self.who, name, names)
        self._check_types(body.out_types, name)
        body.program = with_types(body.program, self.types)
        return body

    def eagerly(self, solve: Callable, fun: Callable) -> Any:
        """Runs a solver eagerly; the function is traced only to check its types."""
        self.staged(fun)
        given = [fit(x, t) for x, t in zip(self.leaves, self.types, strict=True)]
        name = name_of(solve)
        result = self.checked(name, solve(fun, self.tree.unflatten(given)))
        found = flatten(result[0] if self.has_aux else result)[0]
        found = [
            leaf(x, self.who, f"the result of {name}", self.tree, i) for i, x in enumerate(found)
        ]
        self._check_types([type_of(x) for x in found], name)
        values = [as_array(fit(x, t)) for x, t in zip(found, self.types, strict=True)]
        x = self.tree.unflatten(values)
        return (x, as_arrays(result[1])) if self.has_aux else x

    def transposed(self, body: Body) -> Body:
        """The transpose of a linear function."""
        count = len(body.outside)
        back, marks = transpose_program(body.program, count, (True,) * len(self.types))
        back = with_results(back, 0, marks, (True,) * len(marks), self.types)
        back, constants = consts_to_args(back)
        return Body(back, [*constants, *body.outside], self.tree, body.captures)

    def function(self, body: Body) -> Callable:
        """A callable for a traced function of one pytree."""

        def vecmat(v: Any) -> Any:
            given = [strip_weak_type(x) for x in flatten(v)[0]]
            return self.tree.unflatten(call(*body.outside, *given, program=body.program))

        return vecmat

    def checked(self, name: str, result: Any) -> Any:
        """The checked result of a solver."""
        if not self.has_aux:
            return self._tree_checked(name, result)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(
                f"{self.who}: with has_aux, {name} must return a pair (solution, aux); it "
                f"returned {result!r}."
            )
        return self._tree_checked(name, result[0]), result[1]

    def _tree_checked(self, name: str, result: Any) -> Any:
        tree = flatten(result)[1]
        if tree != self.tree:
            differences = tree_difference(self.what, self.tree, "the result", tree, "x")
            raise TypeError(
                f"{self.who}: {name} must return a pytree like {self.what}; {differences}."
            )
        return result

    def _check_types(self, found: Sequence[ArrayType], name: str) -> None:
        rows = [
            f"{path_in('x', self.tree, i)} is {b.str_short(True)}, but {self.what} has "
            f"{a.str_short(True)}"
            for i, (a, b) in enumerate(zip(self.types, found, strict=False))
            if a.shape != b.shape or a.dtype != b.dtype
        ]
        if rows:
            raise TypeError(
                f"{self.who}: {name} must return values with the types of {self.what}; "
                f"{', '.join(rows)}."
            )
