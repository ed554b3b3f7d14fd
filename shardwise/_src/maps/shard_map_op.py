"""The `shard_map` op: a program that each device runs on its shards of the operands.

Axes of a mesh are manual in it: collectives name them, and along them the program sees the sizes of
shards. Its parameters:

program:   the program that each device runs, without constants.
place:     a fully replicated sharding, over the mesh.
in_specs, out_specs: the specs of operands and results, over the manual axes only.
axes:      the axes that it makes manual.
tracked:   whether types in it record which values vary along them. If so, a result that is
           replicated along an axis is the same on all devices by its type. Else the first device's
           result is used, and along axes that a spec does not name all devices share its cotangent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.base.context import NamedAxis, current
from shardwise._src.control.call import known_first
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import consts_to_args, derived, inlined
from shardwise._src.ops.basis import move_axis, reshape
from shardwise._src.ops.elementwise import div
from shardwise._src.ops.families import lit
from shardwise._src.ops.sharded.collective import psum
from shardwise._src.ops.sharded.sharding_ops import drop_sharding, reshard_like
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.transforms.batch import MappedAxis, axes_in, batch_program
from shardwise._src.transforms.entering import Inside
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.linearize import split_program
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.transpose import transpose_program
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

Specs = tuple[PartitionSpec, ...]


# -- types --


def manual_mesh(mesh: Any, axes: Sequence[Any]) -> AbstractMesh:
    """The mesh as it is inside, where some of its axes are manual."""
    return mesh.abstract_mesh.update_axis_types({a: AxisType.Manual for a in axes})


def shard_type(
    t: ArrayType, place: NamedSharding, spec: PartitionSpec, axes: Any, tracked: bool
) -> ArrayType:
    """The type of a device's shard of a value of type `t`."""
    sizes = place.mesh.shape
    dims = [[a for a in names if a in axes] for names in spec.dims(t.ndim)]
    parts = [math.prod([sizes[a] for a in names]) for names in dims]
    shape = [n // count for n, count in zip(t.shape, parts, strict=True)]
    own = {a for names in dims for a in names} if tracked else ()
    rest = _rest(t, place, axes)
    return t.update(shape=tuple(shape), varying=t.varying.union(own), **rest)


def _rest(t: ArrayType, place: NamedSharding, axes: Any) -> dict[str, Any]:
    """The sharding of a value over explicit axes that are not manual."""
    if t.mesh is None or t.spec is None:
        return {}
    mesh = manual_mesh(place.mesh, axes)
    left = [tuple([a for a in names if a not in axes]) for names in t.spec.dims(t.ndim)]
    return {"mesh": mesh, "spec": t.spec.update(partitions=left)}


def global_type(t: ArrayType, place: NamedSharding, spec: PartitionSpec, axes: Any) -> ArrayType:
    """The type of the value whose shards are of type `t`."""
    sizes = place.mesh.shape
    dims = spec.dims(t.ndim)
    parts = [math.prod([sizes[a] for a in names]) for names in dims]
    shape = [n * count for n, count in zip(t.shape, parts, strict=True)]
    fields: dict[str, Any] = {"shape": tuple(shape), "varying": t.varying.difference(axes)}
    mesh = place.mesh.abstract_mesh
    if mesh.explicit_axes:
        held = PartitionSpec() if t.spec is None or t.mesh is None else t.spec
        both = [a + b for a, b in zip(dims, held.dims(t.ndim), strict=True)]
        fields |= {"mesh": mesh, "spec": held.update(partitions=both)}
    return t.update(**fields)


def _type(
    op: Op,
    *types: ArrayType,
    program: Program,
    place: NamedSharding,
    out_specs: Specs,
    axes: Any,
    **p: Any,
) -> tuple[ArrayType, ...]:
    pairs = zip(program.out_types, out_specs, strict=True)
    return tuple([global_type(t, place, spec, axes) for t, spec in pairs])


def in_types(program: Program, place: NamedSharding, in_specs: Specs, axes: Any) -> list[ArrayType]:
    """The types of the operands."""
    pairs = zip(program.in_types, in_specs, strict=True)
    return [global_type(t, place, spec, axes) for t, spec in pairs]


def result_specs(program: Program) -> list[tuple[Any, PartitionSpec] | None]:
    """The shardings of a program's results that its `shard_map`s determine: mesh and spec."""
    made: dict[Any, Any] = {
        v: (eqn, i)
        for eqn in program.eqns
        if eqn.op is shard_map
        for i, v in enumerate(eqn.outvars)
    }
    rows = [made.get(v) for v in program.outvars]
    return [
        row and (row[0].params["place"].mesh, row[0].params["out_specs"][row[1]]) for row in rows
    ]


# -- the context of the program --


@contextmanager
def inside(place: NamedSharding, axes: Sequence[Any], tracked: bool) -> Iterator[None]:
    """The context of the program: its axes are in scope."""
    here = current()
    mesh = manual_mesh(place.mesh, axes)
    named = [NamedAxis(a, mesh.shape[a], tracked) for a in axes]
    with here.replace(mesh=mesh).with_axes("shard_map", *named).entered():
        yield


def _bind(
    program: Program, args: Sequence[Any], in_specs: Specs, out_specs: Specs, **p: Any
) -> list[Any]:
    types = in_types(program, p["place"], in_specs, p["axes"])
    given = map(reshard_like, args, types)
    return shard_map(*given, program=program, in_specs=in_specs, out_specs=out_specs, **p)


def _lower(
    op: Op,
    e: Any,
    ins: Any,
    outs: Any,
    *xs: str,
    program: Program,
    place: NamedSharding,
    in_specs: Specs,
    out_specs: Specs,
    axes: Any,
    tracked: bool,
) -> list[str]:
    places = [list(map(place.with_spec, specs)) for specs in (in_specs, out_specs)]
    return e.manually(program, xs, ins, outs, place.mesh, places, axes, tracked)


# -- residuals, and other per-device results --


def _kept_spec(t: ArrayType, place: NamedSharding, axes: Any, tracked: bool) -> PartitionSpec:
    """The spec of a per-device value, with a new leading dimension, as it leaves the program."""
    names = tuple(
        [a for a in place.mesh.axis_names if a in axes and (not tracked or a in t.varying)]
    )
    return PartitionSpec(names or None)


@derived
def _stacked(program: Program, count: int) -> Program:
    """The program whose results after the first `count` have a new leading dimension of size 1."""

    def fun(*args: Any) -> list[Any]:
        outs = program(*args)
        return [*outs[:count], *[reshape(x, shape=(1, *type_of(x).shape)) for x in outs[count:]]]

    return program_of(fun, program.in_types, program.name, "linearize")


@derived
def _unstacked(program: Program, marks: tuple[bool, ...]) -> Program:
    """The program that takes some of its first arguments with a new leading dimension."""
    types = list(program.in_types)
    for i, stacked in enumerate(marks):
        if stacked:
            types[i] = _with_one(types[i])

    def fun(*args: Any) -> list[Any]:
        given = list(args)
        for i, stacked in enumerate(marks):
            if stacked:
                given[i] = reshape(given[i], shape=type_of(given[i]).shape[1:])
        return program(*given)

    return program_of(fun, types, program.name, "linearize")


def _with_one(t: ArrayType) -> ArrayType:
    spec = t.spec
    if spec is not None:
        spec = spec.update(partitions=[None, *spec])
    return t.update(shape=(1, *t.shape), spec=spec)


# -- derivatives --


def _jvp(
    op: Op,
    primals: Any,
    tangents: Any,
    *,
    program: Program,
    in_specs: Specs,
    out_specs: Specs,
    **p: Any,
) -> tuple[list[Any], list[Any]]:
    nonzero = tuple([t is not None for t in tangents])
    with _inside(p):
        both, marks = jvp_program(program, nonzero)
    moving = _picked(in_specs, nonzero)
    args = [*primals, *[t for t in tangents if t is not None]]
    results = _bind(both, args, (*in_specs, *moving), (*out_specs, *_picked(out_specs, marks)), **p)
    count = len(out_specs)
    found = iter(results[count:])
    return results[:count], [next(found) if m else None for m in marks]


def _inside(p: dict[str, Any]) -> Any:
    return inside(p["place"], p["axes"], p["tracked"])


def _picked(rows: Sequence[Any], marks: Sequence[bool]) -> tuple[Any, ...]:
    return tuple([row for row, mark in zip(rows, marks, strict=True) if mark])


def _split(op: Op, interpreter: Any, args: Any, params: dict[str, Any]) -> list[Any]:
    """Partial evaluation. Residuals leave with a new leading dimension, which is sharded over the
    axes along which they vary.
    """
    unknown = tuple([interpreter.is_unknown(a) for a in args])
    program, p = params["program"], {k: params[k] for k in ("place", "axes", "tracked")}
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    with _inside(p):
        parts = split_program(program, unknown)
        count = len(parts.unknown_out) - sum(parts.unknown_out)
        stacks = tuple([_kept_spec(t, **p) for t in parts.known.out_types[count:]])
        known = _stacked(parts.known, count)
        rest = _unstacked(parts.rest, tuple([i is None for i in parts.forwarded]))
    known_in = _picked(in_specs, [not u for u in unknown])
    marks = parts.unknown_out
    known_out = (*_picked(out_specs, [not m for m in marks]), *stacks)
    known_args = [a for a, u in zip(args, unknown, strict=True) if not u]
    outs = interpreter.known(
        op, known_args, {"program": known, "in_specs": known_in, "out_specs": known_out, **p}
    )
    computed = iter(zip(outs[count:], stacks, strict=True))
    residuals = [
        next(computed) if i is None else (known_args[i], known_in[i]) for i in parts.forwarded
    ]
    rest_args = [a for a, u in zip(args, unknown, strict=True) if u]
    found = interpreter.record(
        op,
        (*[r for r, _ in residuals], *rest_args),
        {
            "program": rest,
            "in_specs": (*[s for _, s in residuals], *_picked(in_specs, unknown)),
            "out_specs": _picked(out_specs, marks),
            **p,
        },
    )
    rest_outs, known_outs = iter(found), iter(outs[:count])
    return [next(rest_outs) if u else next(known_outs) for u in marks]


def _transpose(
    op: Op, cts: Any, *args: Any, program: Program, in_specs: Specs, out_specs: Specs, **p: Any
) -> list[Any]:
    linear = tuple([is_linear(a) for a in args])
    nonzero = tuple([ct is not None for ct in cts])
    known_specs = _picked(in_specs, [not is_lin for is_lin in linear])
    linear_specs, ct_specs = _picked(in_specs, linear), _picked(out_specs, nonzero)
    with _inside(p):
        if p["tracked"]:
            program = _varied(program, tuple([spec.axes for spec in out_specs]))
        backward, marks = transpose_program(known_first(program, linear), len(known_specs), nonzero)
        if not p["tracked"]:
            sizes = tuple([(a, p["place"].mesh.shape[a]) for a in p["axes"]])
            rows = [tuple(_unnamed(s, sizes)) for s in (ct_specs, _picked(linear_specs, marks))]
            backward = _shared(backward, len(known_specs), *rows)
    known = [a for a in args if not is_linear(a)]
    given = [*known, *[ct for ct in cts if ct is not None]]
    found = iter(
        _bind(backward, given, (*known_specs, *ct_specs), _picked(linear_specs, marks), **p)
    )
    grads = iter([next(found) if m else None for m in marks])
    return [next(grads) if is_lin else None for is_lin in linear]


@derived
def _varied(program: Program, rows: tuple) -> Program:
    """The program whose results have types that vary along the axes that shard them, and so do
    their cotangents, even if each device has the same result.
    """
    if all([t.varying.issuperset(n) for t, n in zip(program.out_types, rows, strict=True)]):
        return program

    def fun(*args: Any) -> list[Any]:
        return [pvary(x, names) for x, names in zip(program(*args), rows, strict=True)]

    return program_of(fun, program.in_types, program.name, "transpose")


def _unnamed(specs: Specs, sizes: Sequence[tuple[Any, int]]) -> Iterator[tuple[Any, ...]]:
    """The axes, with sizes, that each spec does not name."""
    for spec in specs:
        yield tuple([(a, n) for a, n in sizes if a not in spec.axes])


@derived
def _shared(program: Program, first: int, ins: tuple, outs: tuple) -> Program:
    """The transpose if types do not track varying axes: cotangents, which follow the first
    arguments, are split among the devices along axes; results are summed along theirs.
    """

    def fun(*args: Any) -> list[Any]:
        given = list(args)
        for i, axes in enumerate(ins, first):
            if (count := math.prod([n for _, n in axes])) > 1:
                given[i] = div(given[i], lit(count, given[i]))
        found = program(*given)
        return [_summed(x, axes) for x, axes in zip(found, outs, strict=True)]

    return program_of(fun, program.in_types, program.name, "transpose")


def _summed(x: Any, axes: tuple) -> Any:
    if not axes:
        return x
    names, sizes = zip(*axes, strict=True)
    return psum(x, names=names, sizes=sizes, groups=None)


# -- values saved by a policy, checks --


def _divide(op: Op, inside_of: Any, eqn: Equation) -> tuple[Equation, list[Var], Equation]:
    """Values saved in the program leave it like residuals."""
    params = eqn.params
    p = {k: params[k] for k in ("place", "axes", "tracked")}
    with _inside(params):
        parts, program = inside_of(params["program"])
        if not parts.saved:
            return eqn, [], eqn
        count = len(program.outvars)
        first = program.replace(outvars=[*program.outvars, *parts.saved], eqns=parts.first)
        again = program.replace(inputs=[*program.inputs, *parts.saved], eqns=parts.again)
        marks = (False,) * len(program.invars) + (True,) * len(parts.saved)
        first, again = _stacked(first, count), _unstacked(again, marks)
        specs = tuple([_kept_spec(v.aval, **p) for v in parts.saved])
        types = first.out_types[count:]
    wholes = [global_type(t, p["place"], s, p["axes"]) for t, s in zip(types, specs, strict=True)]
    held = [Var(t) for t in wholes]
    leaving = {**params, "program": first, "out_specs": (*params["out_specs"], *specs)}
    coming = {**params, "program": again, "in_specs": (*params["in_specs"], *specs)}
    return (
        eqn.replace(params=leaving, outvars=[*eqn.outvars, *held]),
        held,
        eqn.replace(params=coming, invars=[*eqn.invars, *held]),
    )


def _enter(
    op: Op,
    inside_of: Inside,
    state: list[Any],
    args: list[Any],
    *,
    program: Program,
    in_specs: Specs,
    out_specs: Specs,
    **p: Any,
) -> tuple[list[Any], list[Any]]:
    """Each device starts with a state of its own."""
    count = len(out_specs)
    with _inside(p):
        if not inside_of.has(program):
            outs = op(*args, program=program, in_specs=in_specs, out_specs=out_specs, **p)
            return outs, state
        new = inside_of.fresh(op, program)
        stacks = tuple([_kept_spec(t, **p) for t in new.out_types[count:]])
        new = _stacked(new, count)
    outs = _bind(new, args, in_specs, (*out_specs, *stacks), **p)
    states = [drop_sharding(x) for x in outs[count:]]
    return outs[:count], list(inside_of.join(state, states))


# -- op by op, for `debug_nans` --


def _replay(
    op: Op,
    run: Any,
    args: list[Any],
    *,
    program: Program,
    in_specs: Specs,
    out_specs: Specs,
    **p: Any,
) -> Equation | None:
    """Each equation runs on all devices, one after another. Values leave like residuals."""
    program, constants = consts_to_args(inlined(program, lambda eqn: eqn.called))
    args, in_specs = [*constants, *args], (PartitionSpec(),) * len(constants) + in_specs
    own = [eqn for eqn in program.eqns if eqn.op is not reshape]
    if len(own) == 1:
        return _replay_one(op, run, args, own[0], program, in_specs, p)
    env: dict[Any, Any] = {}

    def step(some: Program, wanted: Sequence[Any], given: Sequence[Any], specs: Specs) -> None:
        with _inside(p):
            stacked, kept = _stacked(some, 0), [_kept_spec(v.aval, **p) for v in wanted]
        whole = {"program": stacked, "in_specs": specs, "out_specs": tuple(kept), **p}
        types = in_types(stacked, p["place"], specs, p["axes"])
        calling = program_of(lambda *xs: op(*xs, **whole), types, program.name)
        env.update(zip(wanted, run(calling, given), strict=True))

    arguments = program.invars
    step(program.replace(outvars=arguments, eqns=[]), arguments, args, in_specs)
    for eqn in program.eqns:
        taken = _taken(eqn)
        one = Program(taken, eqn.outvars, [eqn], (), program.name)
        with _inside(p):
            one = _unstacked(one, (True,) * len(taken))
            specs = tuple([_kept_spec(v.aval, **p) for v in taken])
        step(one, eqn.outvars, [env[v] for v in taken], specs)
    return None


def _taken(eqn: Equation) -> list[Var]:
    return [v for v in dict.fromkeys(eqn.invars) if isinstance(v, Var)]


def _replay_one(
    op: Op,
    run: Any,
    args: list[Any],
    eqn: Equation,
    program: Program,
    in_specs: Specs,
    p: dict[str, Any],
) -> Equation:
    """The one equation that does more than reshape: on one device after the other, if it needs no
    other device.
    """
    taken = _taken(eqn)
    if axes_in(program) or not taken:
        return eqn
    before = program.eqns[: program.eqns.index(eqn)]
    with _inside(p):
        stacked = _stacked(program.replace(outvars=taken, eqns=before), 0)
        specs = tuple([_kept_spec(v.aval, **p) for v in taken])
    found = op(*args, program=stacked, in_specs=in_specs, out_specs=specs, **p)
    one, sizes = Program(taken, eqn.outvars, [eqn], (), program.name), p["place"].mesh.shape
    for at in np.ndindex(*[sizes[a] for a in p["axes"]]):
        here = dict(zip(p["axes"], at, strict=True))
        parts = []
        for x, v, spec in zip(found, taken, specs, strict=True):
            number = 0
            for a in spec.axes:
                number = number * sizes[a] + here[a]
            parts.append(reshard_like(x[number], v.aval))
        run(one, parts)
    return eqn


# -- batching: the batch dimension is first in the program --


def _batch(
    op: Op,
    mapped: MappedAxis,
    args: Any,
    dims: Any,
    *,
    program: Program,
    in_specs: Specs,
    out_specs: Specs,
    **p: Any,
) -> tuple[list[Any], list[int | None]]:
    axis, over = mapped.of(args, dims), mapped.split_over
    names = _manual_names(over, p["axes"])
    parts = math.prod([p["place"].mesh.shape[a] for a in names])
    kept = None if names else axis.batch_sharding
    inner = replace(axis, size=axis.size // parts, batch_sharding=kept)
    batched = tuple([d is not None for d in dims])
    with _inside(p):
        new, marks = batch_program(program, inner, batched)
    batch_axes = names or None
    pairs = zip(in_specs, dims, strict=True)
    ins = [_with_batch_dim(s, d is not None, batch_axes) for s, d in pairs]
    outs = [_with_batch_dim(s, m, batch_axes) for s, m in zip(out_specs, marks, strict=True)]
    moved = [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    found = _bind(new, moved, tuple(ins), tuple(outs), **p)
    return found, [0 if m else None for m in marks]


def _manual_names(over: Any, axes: Any) -> tuple[Any, ...]:
    given = over if isinstance(over, tuple | list) else () if over is None else (over,)
    return tuple([a for a in given if a in axes])


def _with_batch_dim(spec: PartitionSpec, batched: bool, names: Any) -> PartitionSpec:
    return spec.update(partitions=[names, *spec]) if batched else spec


shard_map = Op(
    "shard_map",
    type_rule=_type,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    partial_eval=_split,
    enter=_enter,
    remat=_divide,
    eval=_replay,
    multiple=True,
    programs=("program",),
    shardings=("place",),
    binds="axes",
    is_expensive=True,
    aliases={"jaxpr": "program"},
)
