"""Explains why a program communicates, from the propagated shardings of an equation's operands.

    cause(equation, flow, ("x",))
    # "sums over dimension 1 of operand 0, which is sharded over 'x'"

Nothing is guessed: if neither the op nor its operands' shardings explain a collective, the stated
cause is that the partitioner moves data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardwise._src.control.scan import scan
from shardwise._src.core.program import Equation
from shardwise._src.explain.device_axes import Refined
from shardwise._src.maps.shard_map_op import shard_map
from shardwise._src.messages.formatting import join
from shardwise._src.ops.sharded import collective
from shardwise._src.ops.sharded.sharding_ops import reshard, sharding_constraint
from shardwise._src.runtime.compiler.shardy import Flow
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import short_name

Axes = tuple[Any, ...]
Spec = tuple[Axes, ...]  # for each dimension, the mesh axes that shard it
_ASKED = {
    collective.psum,
    collective.pmax,
    collective.pmin,
    collective.all_gather,
    collective.reduce_scatter,
    collective.all_to_all,
    collective.ppermute,
    collective.pbroadcast,
}
_REDUCE = ("all-reduce", "reduce-scatter")
_WORDS = {"add": "sums", "mul": "multiplies",
          "max": "takes the maximum", "min": "takes the minimum",
          "and": "combines all", "or": "combines all", "xor": "combines all"}  # fmt: skip


def operand_specs(eqn: Equation, flow: Flow | None) -> list[Spec | None]:
    """The sharding of each operand, in the order of the equation; None if unknown."""
    left = list(flow.operands) if flow is not None else []
    found: list[Spec | None] = []
    known: dict[Any, Spec | None] = {}  # an input used twice is one operand in the module
    for atom in eqn.invars:
        if not hasattr(atom, "value") and atom in known:
            found.append(known[atom])
            continue
        fits = [i for i, (shape, _) in enumerate(left) if _may_hold(shape, atom.aval.shape)]
        place = left.pop(fits[0])[1] if fits and not hasattr(atom, "value") else None
        known[atom] = None if place is None else place[1]
        found.append(known[atom])
    return found


def _may_hold(shape: Sequence[int], logical: Sequence[int]) -> bool:
    """Whether a module value may be a (possibly padded) value of the program."""
    if len(shape) != len(logical):
        return False
    return all([n >= m for n, m in zip(shape, logical, strict=True)])


def result_specs(eqn: Equation, flow: Flow | None) -> list[Spec | None]:
    """The sharding of each result; None if unknown."""
    if flow is None or len(flow.results) != len(eqn.outvars):
        return [None] * len(eqn.outvars)
    return [None if place is None else place[1] for _, place in flow.results]


def call_text(eqn: Equation, flow: Flow | None) -> str:
    """`dot_general(f32[64@x,8], f32[8,4]) → f32[64@x,4]`; only the name for loops and branches."""
    if eqn.op.programs:
        return eqn.op.name
    operands = zip(eqn.invars, operand_specs(eqn, flow), strict=True)
    results = zip(eqn.outvars, result_specs(eqn, flow), strict=True)
    taken, given = [
        [_type_text(a.aval, spec) for a, spec in rows if not hasattr(a, "value")]
        for rows in (operands, results)
    ]
    return f"{eqn.op.name}({', '.join(taken)}) → {', '.join(given) or '()'}"


def _type_text(t: ArrayType, spec: Spec | None) -> str:
    dims = spec or ((),) * t.ndim
    sizes = [f"{n}@{'+'.join(map(str, axes))}" if axes else str(n)
             for n, axes in zip(t.shape, dims, strict=False)]  # fmt: skip
    return f"{short_name(t.dtype)}[{','.join(sizes)}]"


def cause(
    eqn: Equation,
    flow: Flow | None,
    axes: Axes | None,
    kind: str = "all-reduce",
    given: Sequence[Spec | None] = (),
) -> str:
    """Why the equation communicates along mesh axes; axes is None if it is not along axes.

    kind: of the collective. given: the shardings of results that the program returns, each None if
    the equation's result is not returned, or if the partitioner chooses the sharding.
    """
    if eqn.op in _ASKED:
        return f"requested by {eqn.op.name}"
    ins, outs = operand_specs(eqn, flow), result_specs(eqn, flow)
    rows = [*ins, *outs, *given, (axes or (),)]
    parts = Refined([a for row in rows for some in row or () for a in some])
    ins, outs, given = [[parts.dims(spec) for spec in specs] for specs in (ins, outs, given)]
    here = set(parts.axes(axes or ()))
    if eqn.op in (sharding_constraint, reshard, shard_map):
        return f"{eqn.op.name} changes the sharding"
    if not here or flow is None:
        return "the partitioner moves parts of it between devices"
    if eqn.op.programs:
        return (
            _along_steps(eqn, flow, parts, here)
            or _given(outs, given, here)
            or f"the partitioner moves inputs, outputs or inner values of {eqn.op.name} between "
            "devices"
        )
    dims = _dims(eqn)
    combined = _combined(eqn, dims, ins, here)
    disagreement = _disagreement(dims, ins, outs, here)
    # Collectives that add come from reductions; others from disagreeing shardings.
    first, second = combined, disagreement
    if kind not in _REDUCE:
        first, second = disagreement, combined
    return (
        first
        or second
        or _worked(eqn, dims, ins, outs, here)
        or _given(outs, given, here)
        or _moved(ins, outs, here)
        or "the partitioner moves parts of it between devices"
    )


def _dims(eqn: Equation) -> Dims | None:
    if eqn.op.dims is None:
        return None
    types = [array_type(a.aval.shape, a.aval.dtype) for a in eqn.invars]
    return eqn.op.dims(eqn.op, *types, **eqn.params)


def _combined(eqn: Equation, dims: Dims | None, ins: Sequence[Spec | None], here: set[Any]) -> str:
    """A sharded dimension that is contracted or reduced."""
    if dims is None or not (dims.combine or eqn.op.contraction):
        return ""
    gone = dims.contracted()
    for i, (factors, spec) in enumerate(zip(dims.inputs, ins, strict=False)):
        for d, (factor, split) in enumerate(zip(factors, spec or (), strict=False)):
            names = {factor} if isinstance(factor, str) else set(factor or ())
            if names & gone and here & set(split):
                verb = _WORDS.get(dims.combine or "add", "combines")
                axes = _names(split, here)
                return f"{verb} over dimension {d} of operand {i}, which is sharded over {axes}"
    return ""


def _disagreement(
    dims: Dims | None, ins: Sequence[Spec | None], outs: Sequence[Spec | None], here: set[Any]
) -> str:
    """An operand or result that is sharded along a factor while another one is not."""
    if dims is None:
        return ""
    rows = [(f"operand {i}", *row) for i, row in enumerate(zip(dims.inputs, ins, strict=False))]
    rows += [
        ("the result" if len(outs) == 1 else f"result {i}", *row)
        for i, row in enumerate(zip(dims.outputs, outs, strict=False))
    ]
    known = [(who, factors, spec) for who, factors, spec in rows if spec is not None]
    for axis in sorted(here, key=str):
        places = {who: _place(factors, spec, axis) for who, factors, spec in known}
        for who, (d, factor) in places.items():
            if d is None:
                continue
            for other, factors, _ in known:
                if other != who and factor in factors and places[other][1] != factor:
                    where = places[other][0]
                    instead = "not" if where is None else f"dimension {where} of"
                    return f"{axis!r} shards dimension {d} of {who}, but {instead} {other}"
    return ""


def _place(factors: Sequence[Any], spec: Spec, axis: Any) -> tuple[int | None, Any]:
    """The dimension that an axis shards, and its factor."""
    for d, (factor, split) in enumerate(zip(factors, spec, strict=False)):
        if axis in split:
            return d, factor
    return None, None


def _worked(
    eqn: Equation,
    dims: Dims | None,
    ins: Sequence[Spec | None],
    outs: Sequence[Spec | None],
    here: set[Any],
) -> str:
    """A sharded dimension along which the op needs data from several shards."""
    shared = set() if dims is None else _shared(dims)
    rows = (("operand", ins, dims and dims.inputs), ("result", outs, dims and dims.outputs))
    for who, specs, factors in rows:
        for i, d, axes in _along(specs, here):
            if factors is None or factors[i][d] not in shared:
                return (
                    f"{eqn.op.name} works along dimension {d} of {who} {i}, which is sharded over "
                    f"{axes}"
                )
    return ""


def _along_steps(eqn: Equation, flow: Flow, parts: Refined, here: set[Any]) -> str:
    """A scan along a sharded dimension; requires that all values of the shape of an x agree."""
    p = eqn.params
    xs = eqn.invars[p["num_consts"] + p["num_carry"] :] if eqn.op is scan else ()
    for x in xs:
        alike = [parts.dims(place and place[1]) for shape, place in flow.operands
                 if shape == x.aval.shape]  # fmt: skip
        split = [spec[0] for spec in alike if spec and here & set(spec[0])]
        if split and len(split) == len(alike):
            text = _type_text(x.aval, alike[0])
            axes = _names(split[0], here)
            return f"scan iterates over dimension 0 of {text}, which is sharded over {axes}"
    return ""


def _moved(ins: Sequence[Spec | None], outs: Sequence[Spec | None], here: set[Any]) -> str:
    """The fallback: only names the sharded dimension."""
    for who, specs in (("operand", ins), ("result", outs)):
        for i, d, axes in _along(specs, here):
            return (
                f"the partitioner moves parts of it: dimension {d} of {who} {i} is sharded over "
                f"{axes}"
            )
    return ""


def _along(specs: Sequence[Spec | None], here: set[Any]) -> Iterator[tuple[int, int, str]]:
    """Dimensions sharded by these axes: the index of the value, the dimension, and the axes."""
    for i, spec in enumerate(specs):
        for d, split in enumerate(spec or ()):
            if here & set(split):
                yield i, d, _names(split, here)


def _shared(dims: Dims) -> set[Any]:
    """Factors that operands share with results: along them the op works shard by shard."""
    ins = {factor for row in dims.inputs for factor in row}
    return {factor for row in dims.outputs for factor in row if factor in ins} - {None}


def _given(outs: Sequence[Spec | None], given: Sequence[Spec | None], here: set[Any]) -> str:
    """A result that the program returns with another sharding than the op produces."""
    for made, wanted in zip(outs, given, strict=False):
        if made is None or wanted is None:
            continue
        for d, (before, after) in enumerate(zip(made, wanted, strict=False)):
            for axis in sorted(here, key=str):
                if (axis in before) != (axis in after):
                    made_so, given_so = ("shards", "not") if axis in before else (
                        "does not shard", "does")  # fmt: skip
                    return (
                        f"{axis!r} {made_so} dimension {d} of the result, but {given_so} in the "
                        "program's output"
                    )
    return ""


def _names(split: Axes, here: set[Any]) -> str:
    return join([a for a in split if a in here])
