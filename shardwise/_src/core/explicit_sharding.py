"""Shardings over explicit mesh axes: infers the specs of an op's results from its operands.

The op's `dims` rule is sufficient: a dimension of a result is sharded like the operand dimensions
of the same factor. An operand without a mesh counts as replicated. If operands disagree, or the op
works along a sharded dimension, the program must specify the sharding, by `reshard` of an operand
or by `out_sharding=`; all communication is visible in the types. The error says which of the two
to use: its advice has been tried on the types (`core.remedies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.op import Op
from shardwise._src.core.remedies import remedy
from shardwise._src.messages.formatting import join
from shardwise._src.types.array_type import ArrayType, in_row
from shardwise._src.types.dims import Dims
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.partition_spec import NO_AXES, PartitionSpec

Axes = tuple[Any, ...]


def with_specs(
    op: Op, types: tuple[ArrayType, ...], outs: Sequence[ArrayType], params: dict[str, Any]
) -> list[ArrayType]:
    """The types of the results with their specs, if any operand has one."""
    try:
        return _with_specs(op, types, outs, params)
    except ShardingTypeError as error:
        message = str(error)
    meshes = {t.mesh for t in types if t.mesh is not None}
    if len(meshes) > 1:
        advice = "Use `shardwise.sharding.reshard(x, NamedSharding(mesh, P(...)))` on one of them."
    else:
        wanted = _wanted(op, types, params)
        advice = remedy(op, types, wanted, lambda new: _with_specs(op, new, outs, params))
    raise ShardingTypeError(f"{message} {advice}")


def _wanted(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any]) -> list[list[Axes]]:
    """For each operand, the axes of its dimensions that agree with the other operands."""
    whole = tuple([t.update(spec=None) for t in types])
    dims: Dims = cast("Any", op.dims)(op, *whole, **params)
    rows = [
        [_key(f, d, t.ndim, dims) for d, f in enumerate(factors)]
        for t, factors in zip(types, dims.inputs, strict=True)
    ]
    given = [() if t.spec is None else t.spec.dims(t.ndim) for t in types]
    found: list[list[Axes]] = []
    for i, (keys, own) in enumerate(zip(rows, given, strict=True)):
        axes_of = dict.fromkeys(dims.contracted(), ()) if op.contraction else {}
        for j in (j for j in range(len(types)) if j != i):
            for key, axes in zip(rows[j], given[j], strict=False):
                if axes and key is not None:
                    axes_of.setdefault(key, axes)
        found.append([axes_of.get(k, a) for k, a in zip(keys, own, strict=False)])
    return found


def _with_specs(
    op: Op, types: tuple[ArrayType, ...], outs: Sequence[ArrayType], params: dict[str, Any]
) -> list[ArrayType]:
    mesh = _common_mesh(op, types)
    if op.dims is None:
        raise op.missing("dims", "explicit sharding")
    dims: Dims = op.dims(op, *types, **params)
    unreduced, reduced = _sums(op, types, dims)
    specs = _specs(op, types, outs, dims) if dims.specs is None else dims.specs
    found: list[ArrayType] = []
    for t, spec in zip(outs, specs, strict=True):
        _check_distinct(op, types, spec, unreduced)
        whole = PartitionSpec(*spec, unreduced=unreduced, reduced=reduced - {*spec_axes(spec)})
        found.append(t.update(mesh=mesh, spec=whole))
    return found


def spec_axes(spec: Sequence[Axes]) -> list[Any]:
    return [axis for axes in spec for axis in axes]


def _common_mesh(op: Op, types: tuple[ArrayType, ...]) -> AbstractMesh:
    meshes: set[AbstractMesh] = {t.mesh for t in types if t.mesh is not None}
    if len(meshes) > 1:
        raise ShardingTypeError(
            f"[{op.name}] operands are on different meshes: "
            f"{' and '.join(sorted(str(m) for m in meshes))}."
        )
    return meshes.pop()


# -- shardings of the results' dimensions --


def _specs(
    op: Op, types: tuple[ArrayType, ...], outs: Sequence[ArrayType], dims: Dims
) -> list[list[Axes]]:
    """The axes of every dimension of each result."""
    axes_of, holders = _factor_axes(op, types, dims)
    if op.contraction:
        twice = {f: axes_of[f] for f in dims.contracted() if len(holders.get(f, ())) > 1}
        if twice:
            raise ShardingTypeError(
                f"[{op.name}] operands {in_row(types)} are sharded over "
                f"{', '.join(map(str, twice.values()))} along a contracted dimension, so the "
                "result's sharding is ambiguous."
            )
    return [
        [axes_of.get(_key(f, d, t.ndim, dims), ()) for d, f in enumerate(factors)]
        for t, factors in zip(outs, dims.outputs, strict=True)
    ]


def _key(factor: Any, d: int, ndim: int, dims: Dims) -> Any:
    """What determines the sharding of a dimension: its factor, or its position in the array."""
    if isinstance(factor, tuple):
        return cast("Any", factor)[0]  # a compound dimension is sharded along its major factor
    return (d, ndim) if factor is None and dims.worked == "kept" else factor


def _factor_axes(
    op: Op, types: tuple[ArrayType, ...], dims: Dims
) -> tuple[dict[Any, Axes], dict[Any, list[int]]]:
    """Mesh axes of every factor, and which operands are sharded; raises if two disagree."""
    axes_of: dict[Any, Axes] = {}
    holders: dict[Any, list[int]] = {}
    for i, (t, factors) in enumerate(zip(types, dims.inputs, strict=True)):
        if t.spec is None:
            continue
        for d, (factor, axes) in enumerate(zip(factors, t.spec.dims(t.ndim), strict=True)):
            key = _key(factor, d, t.ndim, dims)
            if not axes or (key is None and dims.worked == "dropped"):
                continue
            if key is None:
                raise ShardingTypeError(
                    f"[{op.name}] cannot operate along dimension {d} of "
                    f"{t.str_short(True)}, which is sharded over {axes}."
                )
            held = axes_of.setdefault(key, axes)
            if held != axes:
                places = [_place(key, types[k], dims.inputs[k], dims) for k in (holders[key][0], i)]
                what = "dimensions {} and {}" if places[0] != places[1] else "dimension {}"
                raise ShardingTypeError(
                    f"[{op.name}] operands {in_row(types)} disagree about the sharding of "
                    f"{what.format(*places)}: {held} and {axes}."
                )
            holders.setdefault(key, []).append(i)
    return axes_of, holders


def _place(key: Any, t: ArrayType, factors: Sequence[Any], dims: Dims) -> int:
    """Which dimension has this key."""
    return next(d for d, f in enumerate(factors) if _key(f, d, t.ndim, dims) == key)


def _check_distinct(
    op: Op, types: tuple[ArrayType, ...], spec: Sequence[Axes], unreduced: frozenset[Any]
) -> None:
    """Checks that no two dimensions of a result are sharded over one mesh axis."""
    first: dict[Any, int] = {}
    for d, axes in enumerate(spec):
        for axis in axes:
            if first.setdefault(axis, d) != d:
                raise ShardingTypeError(
                    f"[{op.name}] operands {in_row(types)} would shard dimensions "
                    f"{first[axis]} and {d} of the result over the same mesh axis, {axis!r}."
                )
            if axis in unreduced:
                raise ShardingTypeError(
                    f"[{op.name}] operands {in_row(types)}: one is unreduced along {axis!r}, and "
                    "another is sharded over it."
                )


# -- unreduced values --


def _sums(
    op: Op, types: tuple[ArrayType, ...], dims: Dims
) -> tuple[frozenset[Any], frozenset[Any]]:
    """The axes over which the results are unreduced, and reduced."""
    none = NO_AXES, NO_AXES
    marks = [(t.spec.unreduced, t.spec.reduced) if t.spec is not None else none for t in types]
    held = {i for i, (unreduced, _) in enumerate(marks) if unreduced}
    unreduced = marks[min(held)][0] if held else NO_AXES
    if held and (held not in map(set, dims.linear) or any(marks[i][0] != unreduced for i in held)):
        raise ShardingTypeError(
            f"[{op.name}] operands {in_row(types)}: an operand "
            f"is unreduced along {join(sorted(unreduced, key=str))}, and the op is not linear in "
            "just the unreduced operands."
        )
    kinds = {reduced for _, reduced in marks if reduced}
    if not kinds or op.contraction:
        return unreduced, NO_AXES
    own = kinds.pop()
    linear = {i for group in dims.linear for i in group}  # others, like indices, have no cotangents
    rows = [(types[i], *marks[i]) for i in linear or range(len(types))]
    # Scalars are compatible with everything.
    if any(t.mesh and t.ndim and sums | reduced != own for t, sums, reduced in rows):
        raise ShardingTypeError(
            f"[{op.name}] operands {in_row(types)} are not reduced along the same mesh axes, "
            "so their cotangents would be summed differently."
        )
    return unreduced, own - unreduced
