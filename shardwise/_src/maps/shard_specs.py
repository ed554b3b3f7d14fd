"""Checks of the specs of arguments and results of `shard_map`."""

from __future__ import annotations

import math
from typing import Any

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.core.program import Program
from shardwise._src.maps.shard_types import shard_type
from shardwise._src.messages.formatting import join, pluralize, short_repr
from shardwise._src.messages.tree_paths import paths_in
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding


def is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)


def is_leaf(x: Any) -> bool:
    return x is None or is_spec(x)


def part_type(
    what: str, name: str, t: ArrayType, place: NamedSharding, spec: Any, axes: Any, tracked: bool
) -> ArrayType:
    """The type of an argument's shard."""
    check_spec(what, "in_specs", name, t, place, spec, axes)
    sizes = place.mesh.shape
    for d, names in enumerate(spec.dims(t.ndim)):
        count = math.prod([sizes[a] for a in names if a in axes])
        if t.shape[d] % count:
            raise ValueError(
                f"{what}: dimension {d} of {name}, of type {t.str_short(True)}, cannot be divided "
                f"by {spec} over {place.mesh} into {count} equal shards. Inside shard_map all "
                "devices have shards of the same size: pad the dimension, or use `shardwise.jit`, "
                "whose partitioner supports any size."
            )
    return shard_type(t, place, spec, axes, tracked)


def check_spec(
    what: str, argument: str, name: str, t: ArrayType, place: NamedSharding, spec: Any, axes: Any
) -> None:
    if not is_spec(spec):
        kind = ValueError if spec is None else TypeError  # None is a pytree without leaves
        raise kind(f"{what}: {argument} must be PartitionSpecs; got {short_repr(spec)} for {name}.")
    try:
        place.with_spec(spec).tiling(t.ndim)  # raises if names or rank do not fit
    except ValueError as error:
        message = f"{what}: {argument} for {name}, of type {t.str_short(True)}: {error}"
        raise ValueError(message) from None
    others = sorted({*spec.axes} - {*axes}, key=str)
    if others or PartitionSpec.UNCONSTRAINED in tuple(spec):
        why = (
            f"{' and '.join(map(repr, others))} is not manual here"
            if others
            else "it must name the axes over which each dimension is sharded"
        )
        raise ValueError(
            f"{what}: {argument} for {name} is {spec}: {why}. Specs name the manual axes, "
            f"{', '.join(map(repr, axes))}; other axes are left to the partitioner."
        )
    if (spec.unreduced or spec.reduced) and {*axes} != {*place.mesh.axis_names}:
        raise NotImplementedError(
            f"{what}: {argument} for {name} is {spec}: unreduced and reduced axes are supported if "
            f"all axes of the mesh are manual; got {join(axes)} of {place.mesh}."
        )


def _check_rank(what: str, name: str, t: ArrayType, spec: Any, tracked: bool) -> None:
    """Raises if a spec names axes in entries beyond a result's rank; simply removing
    them would only lead to the next error.
    """
    if not is_spec(spec) or PartitionSpec.UNCONSTRAINED in tuple(spec):
        return
    names = [a for entry in spec.dims(max(len(spec), t.ndim))[t.ndim :] for a in entry]
    if not names:
        return
    left = PartitionSpec(*[*spec][: t.ndim])
    parts = f"`x[{'..., ' if t.ndim else ''}None]`"
    if tracked and t.varying.isdisjoint(names):
        advice = (
            f"It is the same on all devices along {join(names)}: use {left} as its spec, or add "
            f"a dimension to concatenate the copies, {parts}."
        )
    else:
        advice = (
            f"Add a dimension to concatenate the values of the devices, {parts}; or return a value "
            f"that is the same on all of them, such as `shardwise.lax.psum(x, {names[0]!r})`, and "
            f"use {left} as its spec."
        )
    raise ValueError(
        f"{what}: out_specs for {name}, of type {t.str_short(True)}: {spec} has "
        f"{pluralize(len(spec), 'entry', 'entries')}, but the result has only "
        f"{pluralize(t.ndim, 'dimension')}. {advice}"
    )


def checked_out_specs(
    what: str,
    out_specs: Any,
    tree: Any,
    program: Program,
    place: NamedSharding,
    axes: Any,
    tracked: bool,
) -> tuple[PartitionSpec, ...]:
    skeleton = tree.unflatten(range(tree.num_leaves))
    specs = broadcast_prefix(out_specs, skeleton, f"{what}: out_specs", is_spec, "result")
    rows = zip(paths_in("result", tree), specs, program.out_types, strict=True)
    for path, spec, t in rows:
        _check_rank(what, path, t, spec, tracked)
        check_spec(what, "out_specs", path, t, place, spec, axes)
        sums = t.varying & spec.unreduced  # `shard_map` casts these
        left = sorted(t.varying.intersection(axes) - {*spec.axes} - sums, key=str)
        if tracked and left:
            shown_names = ", ".join(map(repr, left))
            parts = "Name it in out_specs to concatenate the shards"
            if not t.ndim:
                parts = f"Return it with a dimension, `x[None]`, and n{parts[1:]}"
            raise ValueError(
                f"{what}: {path}, of type {t.str_short(True)}, may vary along {shown_names}, which "
                f"its spec {spec} does not name. {parts}; "
                f"combine them with a collective, such as `shardwise.lax.psum(x, {left[0]!r})`, "
                "or `all_gather_invariant` to give all shards to every device; or pass "
                "check_vma=False, if they are known to be equal."
            )
        if tracked and (t.unreduced | sums, t.reduced) != (spec.unreduced, spec.reduced):
            raise ValueError(
                f"{what}: {path}, of type {t.str_short(True)}, is not unreduced and reduced along "
                f"the same axes as its spec {spec}. Cast it with `shardwise.lax.pcast`, reduce it "
                "with a collective, such as `shardwise.lax.psum`, or name these axes in out_specs."
            )
    return tuple(specs)
