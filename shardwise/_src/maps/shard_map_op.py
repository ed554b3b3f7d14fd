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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.base.marks import given, merge, partition, picked, spread
from shardwise._src.control.call import known_first
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs, is_linear
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import consts_to_args, derived, inlined, prunes, reduced_to
from shardwise._src.maps.shard_types import Specs, global_type, in_types, inside
from shardwise._src.messages.formatting import join
from shardwise._src.ops.basis import move_axis, reshape
from shardwise._src.ops.elementwise import div
from shardwise._src.ops.families import lit
from shardwise._src.ops.sharded.collective import psum
from shardwise._src.ops.sharded.sharding_ops import cotangent_spec, drop_sharding, reshard_like
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.transforms.batch import MappedAxis, axes_in, batch_program, spmd_axes
from shardwise._src.transforms.entering import Inside
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.residuals import split_and_shrink
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.transpose import transpose_program
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding


class ShardMapParams(NamedTuple):
    """The parameters of the op."""

    program: Program
    place: NamedSharding
    in_specs: Specs
    out_specs: Specs
    axes: tuple[Any, ...]
    tracked: bool

    def inside(self) -> AbstractContextManager[None]:
        """The context of the program."""
        return inside(self.place, self.axes, self.tracked)

    def bind(
        self, program: Program, args: Sequence[Any], in_specs: Specs, out_specs: Specs
    ) -> list[Any]:
        """The results of another program on these devices."""
        types = in_types(program, self.place, in_specs, self.axes)
        new = self._replace(program=program, in_specs=in_specs, out_specs=out_specs)
        return shard_map(*map(reshard_like, args, types), **new._asdict())

    def of_rows(
        self, program: Program, in_specs: Specs | None = None, out_specs: Specs | None = None
    ) -> Callable[..., list[Any]]:
        """Another program on these devices, as a function of arrays with a new first dimension:
        for the devices along whose axes a value varies (see `row`). So are its results.

        in_specs, out_specs: of operands or results without that dimension.
        """
        ins, outs = [
            tuple([self.kept_spec(t) for t in types]) if specs is None else specs
            for types, specs in ((program.in_types, in_specs), (program.out_types, out_specs))
        ]
        with self.inside():
            one = program if in_specs else _unstacked(program, (True,) * len(program.invars))
            one = one if out_specs else _stacked(one, 0)
        return lambda *args: self.bind(one, args, ins, outs)

    def row(self, t: ArrayType, device: Sequence[int]) -> int:
        """Which element of that dimension is the value of a device, at positions along `axes`."""
        at, number = dict(zip(self.axes, device, strict=True)), 0
        for a in self.kept_spec(t).axes:
            number = number * self.place.mesh.shape[a] + at[a]
        return number

    def kept_spec(self, t: ArrayType, other: Collection[Any] = ()) -> PartitionSpec:
        """The spec of a per-device value as it leaves the program, with a new first dimension.

        other: axes that will shard a batch dimension.
        """
        own = [a for a in self.place.mesh.axis_names if a in self.axes and a not in other]
        names = [a for a in own if not self.tracked or a in t.varying]
        unreduced, reduced = t.unreduced.intersection(own), t.reduced.intersection(own)
        return PartitionSpec(tuple(names) or None, unreduced=unreduced, reduced=reduced)


# -- types --


def _type(op: Op, *types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
    own = ShardMapParams(**params)
    pairs = zip(own.program.out_types, own.out_specs, strict=True)
    return tuple([global_type(t, own.place, spec, own.axes) for t, spec in pairs])


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


def _lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **params: Any) -> list[str]:
    own = ShardMapParams(**params)
    places = [list(map(own.place.with_spec, specs)) for specs in (own.in_specs, own.out_specs)]
    return e.manually(own.program, xs, ins, outs, own.place.mesh, places, own.axes, own.tracked)


# -- residuals, and other per-device results --


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
    every = (*marks, *[False] * (len(program.invars) - len(marks)))
    types = [_with_one(t) if m else t for t, m in zip(program.in_types, every, strict=True)]

    def fun(*args: Any) -> list[Any]:
        pairs = zip(args, every, strict=True)
        return program(*[reshape(x, shape=type_of(x).shape[1:]) if m else x for x, m in pairs])

    return program_of(fun, types, program.name, "linearize")


def _with_one(t: ArrayType) -> ArrayType:
    spec = t.spec
    if spec is not None:
        spec = spec.update(partitions=[None, *spec])
    return t.update(shape=(1, *t.shape), spec=spec)


# -- derivatives --


def _jvp(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    own = ShardMapParams(**params)
    nonzero = tuple([t is not None for t in tangents])
    with own.inside():
        both, marks = jvp_program(own.program, nonzero)
    ins = (*own.in_specs, *_specs(own.in_specs, nonzero))
    outs = (*own.out_specs, *_specs(own.out_specs, marks))
    results, count = own.bind(both, [*primals, *given(tangents)], ins, outs), len(own.out_specs)
    return results[:count], spread(results[count:], marks)


def _specs(specs: Specs, marks: Sequence[bool]) -> Specs:
    return tuple(picked(specs, marks))


def _split(op: Op, interpreter: Any, args: Any, params: dict[str, Any]) -> list[Any]:
    """Partial evaluation. Residuals leave with a new leading dimension, which is sharded over the
    axes along which they vary; except those that are results.
    """
    unknown = tuple([interpreter.is_unknown(a) for a in args])
    own = ShardMapParams(**params)
    in_specs, out_specs = own.in_specs, own.out_specs
    with own.inside():
        parts = split_and_shrink(own.program, unknown)
        marks = parts.unknown_out
        known_in = _specs(in_specs, [not u for u in unknown])
        known_out = _specs(out_specs, [not m for m in marks])
        count, outputs = len(known_out), parts.known.outvars
        at, spmd = _among_results(own, outputs, known_out), spmd_axes(interpreter)
        stored = [v for v, k in zip(outputs[count:], at, strict=True) if k is None]
        stacks = tuple([own.kept_spec(v.aval, spmd) for v in stored])
        known = _stacked(parts.known.replace(outvars=[*outputs[:count], *stored]), count)
        numbers = iter(at)
        places = [next(numbers) if i is None else None for i in parts.forwarded]
        both = list(zip(parts.forwarded, places, strict=True))
        rest = _unstacked(parts.rest, tuple([i is None and k is None for i, k in both]))
    known_args, rest_args = partition(args, unknown)
    first = own._replace(program=known, in_specs=known_in, out_specs=(*known_out, *stacks))
    outs = interpreter.known(op, known_args, first._asdict())
    computed = iter(zip(outs[count:], stacks, strict=True))
    residuals = [
        (known_args[i], known_in[i])
        if i is not None
        else next(computed)
        if k is None
        else (outs[k], known_out[k])
        for i, k in both
    ]
    rest_in = (*[s for _, s in residuals], *_specs(in_specs, unknown))
    left = own._replace(program=rest, in_specs=rest_in, out_specs=_specs(out_specs, marks))
    found = interpreter.record(op, (*[r for r, _ in residuals], *rest_args), left._asdict())
    return merge(marks, found, outs[:count])


def _among_results(own: ShardMapParams, outputs: Sequence[Any], specs: Specs) -> list[int | None]:
    """For each residual, which follow the results, the number of the result that it equals, if the
    spec of that result preserves the values of all devices.
    """
    count = len(specs)
    numbers = {v: k for k, v in enumerate(outputs[:count])}
    found: list[int | None] = []
    for v in outputs[count:]:
        k = numbers.get(v)
        if k is not None:
            kept, spec = own.kept_spec(v.aval), specs[k]
            same = {*kept.axes} == {*spec.axes} and kept.unreduced == spec.unreduced
            k = k if same and kept.reduced == spec.reduced else None
        found.append(k)
    return found


def _transpose(op: Op, cts: Any, *args: Any, **params: Any) -> list[Any]:
    own = ShardMapParams(**params)
    program, in_specs, out_specs = own.program, own.in_specs, own.out_specs
    linear = tuple([is_linear(a) for a in args])
    nonzero = tuple([ct is not None for ct in cts])
    known_specs = _specs(in_specs, [not is_lin for is_lin in linear])
    linear_specs, ct_specs = [
        tuple(map(cotangent_spec, _specs(specs, marks)))
        for specs, marks in ((in_specs, linear), (out_specs, nonzero))
    ]
    with own.inside():
        if own.tracked:
            program = _varied(program, tuple([spec.axes for spec in out_specs]))
        backward, marks = transpose_program(known_first(program, linear), len(known_specs), nonzero)
        if not own.tracked:
            spmd = spmd_axes(current().interpreter)
            sizes = tuple([(a, own.place.mesh.shape[a]) for a in own.axes if a not in spmd])
            rows = [tuple(_unnamed(s, sizes)) for s in (ct_specs, _specs(linear_specs, marks))]
            means = [[a for a in own.axes if a in s.reduced] for s in _specs(linear_specs, marks)]
            backward = _shared(backward, len(known_specs), *rows, tuple(map(tuple, means)))
    ins, outs = (*known_specs, *ct_specs), _specs(linear_specs, marks)
    found = own.bind(backward, [*partition(args, linear)[0], *given(cts)], ins, outs)
    return spread(spread(found, marks), linear)


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
        named = {*spec.axes, *spec.unreduced, *spec.reduced}
        yield tuple([(a, n) for a, n in sizes if a not in named])


@derived
def _shared(program: Program, first: int, ins: tuple, outs: tuple, means: tuple) -> Program:
    """The transpose if types do not track varying axes: cotangents, which follow the first
    arguments, are split among the devices along axes; results are summed along theirs. Along the
    axes of `means` all devices should have the same result, that for an unreduced operand.
    """

    def fun(*args: Any) -> list[Any]:
        values = list(args)
        for i, axes in enumerate(ins, first):
            if (count := math.prod([n for _, n in axes])) > 1:
                values[i] = div(values[i], lit(count, values[i]))
        found = program(*values)
        found = [_summed(x, axes) for x, axes in zip(found, outs, strict=True)]
        return [_mean(x, names) for x, names in zip(found, means, strict=True)]

    return program_of(fun, program.in_types, program.name, "transpose")


def _summed(x: Any, axes: tuple) -> Any:
    if not axes:
        return x
    names, sizes = zip(*axes, strict=True)
    return psum(x, names=names, sizes=sizes, groups=None)


def _mean(x: Any, names: tuple) -> Any:
    if not names:
        return x
    sizes = tuple([current().axis(name).size for name in names])
    return div(psum(x, names=names, sizes=sizes, groups=None), lit(math.prod(sizes), x))


# -- values saved by a policy, unused results, checks --


def _remat(op: Op, inside_of: Any, eqn: Equation) -> tuple[Equation, list[Var], Equation]:
    """Values saved in the program leave it like residuals."""
    own = ShardMapParams(**eqn.params)
    with own.inside():
        parts, program = inside_of(own.program)
        if not parts.saved:
            return eqn, [], eqn
        count = len(program.outvars)
        first = program.replace(outvars=[*program.outvars, *parts.saved], eqns=parts.first)
        second = program.replace(inputs=[*program.inputs, *parts.saved], eqns=parts.second)
        marks = (False,) * len(program.invars) + (True,) * len(parts.saved)
        first, second = _stacked(first, count), _unstacked(second, marks)
        specs = tuple([own.kept_spec(v.aval) for v in parts.saved])
        pairs = zip(first.out_types[count:], specs, strict=True)
    held = [Var(global_type(t, own.place, s, own.axes)) for t, s in pairs]
    leaving = own._replace(program=first, out_specs=(*own.out_specs, *specs))
    coming = own._replace(program=second, in_specs=(*own.in_specs, *specs))
    return (
        eqn.replace(params=leaving._asdict(), outvars=[*eqn.outvars, *held]),
        held,
        eqn.replace(params=coming._asdict(), invars=[*eqn.invars, *held]),
    )


@prunes
def _prune(eqn: Equation, needed: tuple[bool, ...]) -> Equation:
    """The map with the needed results only, and their operands."""
    if eqn.effects:  # XLA partitions no host call in a map without operands and results
        return eqn
    own = ShardMapParams(**eqn.params)
    program, read = reduced_to(own.program, needed)
    in_specs, out_specs = _specs(own.in_specs, read), _specs(own.out_specs, needed)
    new = own._replace(program=program, in_specs=in_specs, out_specs=out_specs)
    return eqn.replace(
        invars=tuple(picked(eqn.invars, read)),
        outvars=tuple(picked(eqn.outvars, needed)),
        params=new._asdict(),
    )


def _enter(
    op: Op, inside_of: Inside, state: list[Any], args: list[Any], **params: Any
) -> tuple[list[Any], list[Any]]:
    """Each device starts with its own state."""
    own = ShardMapParams(**params)
    count = len(own.out_specs)
    with own.inside():
        if not inside_of.has(own.program):
            return op(*args, **params), state
        new = inside_of.fresh(op, own.program)
        stacks = tuple(map(own.kept_spec, new.out_types[count:]))
        new = _stacked(new, count)
    outs = own.bind(new, args, own.in_specs, (*own.out_specs, *stacks))
    states = [drop_sharding(x) for x in outs[count:]]
    return outs[:count], list(inside_of.join(state, states))


# -- op by op, for `debug_nans` --


def _replay(op: Op, run: Any, args: list[Any], **params: Any) -> Equation | None:
    """Each equation runs on all devices, one after another. Values leave like residuals."""
    own = ShardMapParams(**params)
    program, constants = consts_to_args(inlined(own.program, lambda eqn: eqn.called))
    args, in_specs = [*constants, *args], (PartitionSpec(),) * len(constants) + own.in_specs
    own = own._replace(program=program, in_specs=in_specs)
    equations = [eqn for eqn in program.eqns if eqn.op is not reshape]
    if len(equations) == 1:
        return _replay_one(op, run, args, equations[0], own)
    env: dict[Any, Any] = {}

    def step(some: Program, wanted: Sequence[Any], given: Sequence[Any], specs: Specs) -> None:
        with own.inside():
            stacked, kept = _stacked(some, 0), tuple([own.kept_spec(v.aval) for v in wanted])
        whole = own._replace(program=stacked, in_specs=specs, out_specs=kept)
        types = in_types(stacked, own.place, specs, own.axes)
        calling = program_of(lambda *xs: op(*xs, **whole._asdict()), types, program.name)
        env.update(zip(wanted, run(calling, given), strict=True))

    arguments = program.invars
    step(program.replace(outvars=arguments, eqns=[]), arguments, args, in_specs)
    for eqn in program.eqns:
        taken = _taken(eqn)
        one = Program(taken, eqn.outvars, [eqn], (), program.name)
        with own.inside():
            one = _unstacked(one, (True,) * len(taken))
            specs = tuple([own.kept_spec(v.aval) for v in taken])
        step(one, eqn.outvars, [env[v] for v in taken], specs)
    return None


def _taken(eqn: Equation) -> list[Var]:
    return [v for v in dict.fromkeys(eqn.invars) if isinstance(v, Var)]


def _replay_one(op: Op, run: Any, args: list[Any], eqn: Equation, own: ShardMapParams) -> Equation:
    """The one equation that does more than reshape: on one device after the other, if it needs no
    other device.
    """
    taken, program = _taken(eqn), own.program
    if axes_in(program) or not taken:
        return eqn
    before = program.eqns[: program.eqns.index(eqn)]
    with own.inside():
        stacked = _stacked(program.replace(outvars=taken, eqns=before), 0)
        specs = tuple([own.kept_spec(v.aval) for v in taken])
    found = op(*args, **own._replace(program=stacked, out_specs=specs)._asdict())
    one, sizes = Program(taken, eqn.outvars, [eqn], (), program.name), own.place.mesh.shape
    for at in np.ndindex(*[sizes[a] for a in own.axes]):
        here = dict(zip(own.axes, at, strict=True))
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
    op: Op, mapped: MappedAxis, args: Any, dims: Any, **params: Any
) -> tuple[list[Any], list[int | None]]:
    own, axis = ShardMapParams(**params), mapped.of(args, dims)
    names = _manual_names(mapped.split_over, own.axes)
    if used_names := [a for a in names if a in axes_in(own.program)]:
        raise ValueError(
            f"[shard_map] collectives over {join(used_names)} would mix the values of a `vmap` "
            "whose spmd_axis_name is this axis. Use an axis of the mesh that the function does not "
            "use."
        )
    parts = math.prod([own.place.mesh.shape[a] for a in names])
    kept = None if names else axis.batch_sharding
    inner = replace(axis, size=axis.size // parts, batch_sharding=kept)
    batched = tuple([d is not None for d in dims])
    with own.inside():
        new, marks = batch_program(own.program, inner, batched)
    ins, outs = [
        tuple([s.update(partitions=[names or None, *s]) if m else s for s, m in pairs])
        for pairs in (
            zip(own.in_specs, batched, strict=True),
            zip(own.out_specs, marks, strict=True),
        )
    ]
    moved = [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    return own.bind(new, moved, ins, outs), [0 if m else None for m in marks]


def _manual_names(over: Any, axes: Any) -> tuple[Any, ...]:
    given = over if isinstance(over, tuple | list) else () if over is None else (over,)
    return tuple([a for a in given if a in axes])


shard_map = Op(
    "shard_map",
    type_rule=_type,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    partial_eval=_split,
    enter=_enter,
    prune=_prune,
    multiple=True,
    contains=Programs(("program",), binds="axes", eval=_replay, remat=_remat),
    shardings=("place",),
    is_expensive=True,
    aliases={"jaxpr": "program"},
)
