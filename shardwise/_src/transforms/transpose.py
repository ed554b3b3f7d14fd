"""Transposition: runs a linear program backwards, equation by equation.

Backward rules may log values. A caller that collects them sets `COLLECTS`, which keys of programs
contain; only then do the transposes of loops return what was logged inside. Rules that access refs
(`REFS`) run where these can be reached: calls of programs with such a rule are inlined.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.base.flags import UserContext
from shardwise._src.base.marks import picked
from shardwise._src.core.fused import VARIADIC, fused
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Linear, Op, is_linear
from shardwise._src.core.program import Atom, Equation, Literal, Program, Var
from shardwise._src.core.program_tools import derived
from shardwise._src.messages.source import replay, replays, transposed
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.families import add
from shardwise._src.ops.sharded.collective import psum, summed_on, unreduced_psum
from shardwise._src.ops.sharded.sharding_ops import (
    cotangent_type,
    drop_sharding,
    reshard,
    reshard_like,
)
from shardwise._src.ops.sharded.varying import cast_like
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.partition_spec import NO_AXES, PartitionSpec
from shardwise._src.types.promotion import dtype_and_weak, lattice_join

REFS = "backward rules with refs"  # the effect of their equations
COLLECTS: UserContext[bool] = UserContext(False)
_logs: ContextVar[dict[str, Any] | None] = ContextVar("logs of backward rules", default=None)


@contextmanager
def collecting_logs() -> Generator[dict[str, Any]]:
    """The pytrees that backward rules log in the block, by name; of several, the last one."""
    logs: dict[str, Any] = {}
    token = _logs.set(logs)
    try:
        yield logs
    finally:
        _logs.reset(token)


def transposes_inline(program: Program) -> bool:
    """Whether a program must be transposed in the surroundings, not as a separate program."""
    return COLLECTS.value or REFS in program.effects


def log(entries: dict[str, Any]) -> None:
    logs = _logs.get()
    if logs is not None:
        logs.update(entries)


def transpose(
    program: Program,
    known: Sequence[Any],
    cotangents: Sequence[Any],
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """Cotangents of the linear arguments of a program, which follow the known ones.

    known:      values of the first arguments, in which the program need not be linear.
    cotangents: one per result; None for zero. Zero is also returned as None.
    wanted:     which cotangents to compute; the others are None. By default all.
    """
    inputs = program.invars
    env: dict[Var, Any] = dict(zip(program.inputs, (*program.consts, *known), strict=False))
    grown: dict[Var, Any] = {}
    for atom, ct in zip(program.outvars, cotangents, strict=True):
        if ct is not None and isinstance(atom, Var):
            _accumulate(grown, atom, ct)
    linear = _run_known(program, env)
    if wanted is not None:
        linear = _dependent(linear, picked(inputs[len(known) :], wanted))
    pairs = zip(program.outvars, cotangents, strict=True)
    _run_backwards(linear, env, grown, [a for a, ct in pairs if ct is not None])
    return [_as_input(grown.get(v), v.aval) for v in inputs[len(known) :]]


def _dependent(equations: Sequence[Equation], inputs: Sequence[Var]) -> list[Equation]:
    """The equations whose results depend on these inputs."""
    moved, found = {*inputs}, []
    for eqn in equations:
        if not moved.isdisjoint(eqn.invars):
            moved.update(eqn.outvars)
            found.append(eqn)
    return found


@replays
def _run_known(program: Program, env: dict[Var, Any]) -> list[Equation]:
    """Runs the equations with only known operands; returns the others, which are linear.

    Not `eval_program`: the backward pass needs the others unchanged, and all known values.
    """
    linear, outer = [], replay.site
    try:
        for eqn in program.eqns:
            if any(a.__class__ is Var and a not in env for a in eqn.invars):
                linear.append(eqn)
                continue
            replay.site = eqn.site
            values = [a.value if isinstance(a, Literal) else env[a] for a in eqn.invars]
            result = eqn.op(*values, **eqn.params)
            env.update(zip(eqn.outvars, result if eqn.op.multiple else (result,), strict=True))
    finally:
        replay.site = outer
    return linear


@replays
def _run_backwards(
    equations: Sequence[Equation],
    env: dict[Var, Any],
    grown: dict[Var, Any],
    results: Sequence[Atom],
) -> None:
    """Propagates cotangents from results to operands. env: of known values; results: those that
    have cotangents."""
    outer, around = replay.site, replay.scope
    live: set[Atom] | None = None  # once an op needs it
    try:
        for eqn in reversed(equations):
            cts = [grown.pop(v, None) for v in eqn.outvars]
            if all(ct is None for ct in cts):
                if not eqn.op.transposes_zero:
                    continue
                live = _live(equations, results) if live is None else live
                if live.isdisjoint(eqn.outvars):
                    continue
            replay.site, replay.scope = transposed(eqn.site, around)
            args = [_argument(a, env) for a in eqn.invars]
            for atom, ct in zip(eqn.invars, _transposed(eqn, cts, args), strict=True):
                if ct is not None and isinstance(atom, Var) and atom not in env:
                    _accumulate(grown, atom, _of_all(ct, atom.aval))
    finally:
        replay.site, replay.scope = outer, around


def _live(equations: Sequence[Equation], results: Sequence[Atom]) -> set[Atom]:
    """The atoms that results depend on."""
    found = {*results}
    for eqn in reversed(equations):
        if not found.isdisjoint(eqn.outvars):
            found.update(eqn.invars)
    return found


def _argument(atom: Any, env: dict[Var, Any]) -> Any:
    if atom.__class__ is Literal:
        return atom.value
    value = env.get(atom)
    return Linear(atom.aval) if value is None else value


def _transposed(eqn: Equation, cts: Sequence[Any], args: Sequence[Any]) -> Sequence[Any]:
    """Cotangents of the operands, from the cotangents of the results."""
    op = eqn.op
    if op.transpose is None:
        raise NotImplementedError(
            f"{op.missing('transpose', 'reverse-mode differentiation')} Only linear functions can "
            "be transposed: that of `linear_transpose`, and custom derivative rules, which must be "
            "linear in the tangents."
        )
    if op.dims is None:  # it contains programs, whose cotangents must have exact types
        cts = [_as_input(ct, v.aval) for ct, v in zip(cts, eqn.outvars, strict=True)]
    for i, ct in enumerate(cts):
        v = eqn.outvars[i]
        if ct is not None and _differ(ct, v):
            cts, args = _of_other_dtype(op, [*cts], args, i, v.aval.dtype)
    if op.dims is None or op.pointwise or op.shardings or not _has_mesh(eqn, cts):
        return op.transpose(op, cts if op.multiple else cts[0], *args, **eqn.params)
    known = [a for a in args if not is_linear(a)]
    return _transposed_freely(
        *[ct for ct in cts if ct is not None],
        *known,
        op=op,
        params=tuple(eqn.params.items()),
        given=tuple([ct is not None for ct in cts]),
        linear=tuple([a.aval if is_linear(a) else None for a in args]),
    )


def _of_other_dtype(
    op: Op, cts: list[Any], args: Sequence[Any], i: int, dtype: Any
) -> tuple[list[Any], Sequence[Any]]:
    """Cotangent i, which rules of users return in another dtype: ops that only move elements keep
    it, and all others compute in the dtype of their result.
    """
    wanted = type_of(cts[i]).dtype
    if op.elements is Elements.MOVED and len(cts) == 1:
        args = [
            Linear(a.aval.update(dtype=wanted)) if is_linear(a) and a.aval.dtype == dtype else a
            for a in args
        ]
    elif op.elements is not Elements.CONVERTED:
        cts[i] = _as_dtype(cts[i], dtype)
    return cts, args


def _differ(ct: Any, other: Var) -> bool:
    """Whether a cotangent has another dtype than a variable."""
    one, two = type_of(ct).dtype, other.aval.dtype
    return one is not two and one != two


def _as_dtype(ct: Any, dtype: Any) -> Any:
    return convert_element_type(ct, dtype=dtype, weak=False)


def _has_mesh(eqn: Equation, cts: Sequence[Any]) -> bool:
    """Whether an equation's types have shardings, and none of its results is unreduced."""
    if all(a.aval.mesh is None for a in eqn.invars) and all(
        ct is None or type_of(ct).mesh is None for ct in cts
    ):
        return False
    specs = [v.aval.spec for v in eqn.outvars]
    return not any(spec is not None and spec.reduced for spec in specs)


@fused(arrays=VARIADIC)
def _transposed_freely(*values: Any, op: Op, params: tuple, given: tuple, linear: tuple) -> Any:
    """An op's transpose between these types of cotangents and operands, partitioned freely inside.

    These types determine the sharding of results, so that nothing is ambiguous.
    """
    freed = map(drop_sharding, values)
    cts = [next(freed) if has else None for has in given]
    args = [next(freed) if t is None else Linear(t.update(spec=None, mesh=None)) for t in linear]
    transpose: Any = op.transpose
    results = transpose(op, cts if op.multiple else cts[0], *args, **dict(params))
    types = [type_of(x) for x in values]
    return [
        ct if ct is None or t is None else _as_cotangent(ct, cotangent_type(t), types)
        for ct, t in zip(results, linear, strict=True)
    ]


def _as_cotangent(ct: Any, t: ArrayType, types: Sequence[ArrayType]) -> Any:
    """A cotangent as type `t`, from values of some types.

    A reduction that `t` defers is only pending if all these types are sharded over its axes;
    else the full value is one of its partial sums.
    """
    sums = NO_AXES if t.spec is None else t.spec.unreduced
    if sums and all(u.spec and sums <= {*u.spec.axes} for u in types):
        return reshard(ct, sharding=t.explicit_sharding)
    return reshard_like(ct, t)


def _accumulate(grown: dict[Var, Any], var: Var, ct: Any) -> None:
    held = grown.get(var)
    if var.aval.mesh is not None or type_of(ct).mesh is not None:
        wanted = cotangent_type(var.aval)
        ct = ct if _splits_more(type_of(ct), wanted) else reshard_like(ct, wanted)
        if held is not None and type_of(held).spec is not type_of(ct).spec:
            held, ct = reshard_like(held, wanted), reshard_like(ct, wanted)
    if held is not None and type_of(held).dtype is not type_of(ct).dtype:
        dtype = lattice_join(*[dtype_and_weak(x) for x in (held, ct)])[0]
        held, ct = _as_dtype(held, dtype), _as_dtype(ct, dtype)
    grown[var] = ct if held is None else add(held, ct)


def _of_all(ct: Any, t: ArrayType) -> Any:
    """The cotangent of a value of type `t`: if the value is the same along a named axis, the sum
    of all cotangents along it, which is not taken yet if the value is reduced.
    """
    held = type_of(ct)
    if held.varying is t.varying and not (held.unreduced or t.reduced or t.unreduced):
        return ct
    rows = (
        (psum, held.varying - t.varying - t.reduced),
        (unreduced_psum, held.unreduced - t.reduced),
    )
    for op, names in rows:
        if names:
            ct = op(ct, groups=None, **_along(names))
    if names := t.reduced - held.unreduced - held.varying:
        ct = summed_on(ct, **_along(names))
    return cast_like(ct, cotangent_type(t))


def _along(names: frozenset[Any]) -> dict[str, Any]:
    row = tuple(sorted(names, key=str))
    return {"names": row, "sizes": tuple([current().axis(name).size for name in row])}


def _splits_more(t: ArrayType, wanted: ArrayType) -> bool:
    """Whether a cotangent is sharded over more axes than its type requires.

    It then remains so until it is summed or returned: if a replicated operand was broadcast against
    a sharded one, the sum is over shards.
    """
    if t.spec is None or wanted.mesh not in (None, t.mesh):
        return False
    asked = wanted.spec if wanted.spec is not None else PartitionSpec()
    if t.spec.unreduced or t.spec.reduced or asked.unreduced or asked.reduced:
        return False
    pairs = zip(t.spec.dims(t.ndim), asked.dims(t.ndim), strict=True)
    return all(given == axes or not axes for given, axes in pairs)


def _as_input(ct: Any, t: ArrayType) -> Any:
    """A cotangent in the type that corresponds to values of type `t`."""
    if ct is None or (t.mesh is None and type_of(ct).mesh is None):
        return ct
    return reshard_like(ct, cotangent_type(t))


def transpose_program(
    program: Program, known: int, nonzero: tuple[bool, ...], *, exact: bool = True
) -> tuple[Program, tuple[bool, ...]]:
    """The transpose as a program: takes the known arguments and the nonzero cotangents.

    Returns it with marks of the linear arguments whose cotangents (its results) are not zero.
    exact: whether results have the dtypes of the arguments, even if rules of users return others.
    """
    back, marks, logs = transpose_with_logs(program, known, nonzero, exact=exact)
    if logs is not None:
        raise NotImplementedError(
            f"with_logs: a backward rule in {program.name} logs values inside of a branch, a "
            "`shard_map` or a kernel, which do not return logs. Log them outside of it, or write "
            "them to a ref."
        )
    return back, marks


@derived
def transpose_with_logs(
    program: Program, known: int, nonzero: tuple[bool, ...], *, exact: bool = True
) -> tuple[Program, tuple[bool, ...], Any]:
    """`transpose_program` with the leaves of logs as last results, and their pytree; None if there
    are no logs, or nothing collects them."""
    marks: list[bool] = []
    trees: list[Any] = []

    def run(*args: Any) -> list[Any]:
        given = iter(args[known:])
        cts = [next(given) if has else None for has in nonzero]
        with collecting_logs() as logs:
            results = transpose(program, args[:known], cts)
        if exact:
            results = [
                x if x is None or type_of(x).dtype == v.aval.dtype else _as_dtype(x, v.aval.dtype)
                for x, v in zip(results, program.invars[known:], strict=True)
            ]
        leaves, tree = flatten(logs if COLLECTS.value else {})
        trees.append(tree if leaves else None)
        marks.extend([r is not None for r in results])
        return [*[r for r in results if r is not None], *leaves]

    cts = [cotangent_type(t) for t, has in zip(program.out_types, nonzero, strict=True) if has]
    types = [*program.in_types[:known], *cts]
    back = program_of(run, types, program.name, "transpose")
    return back, tuple(marks), trees[0]
