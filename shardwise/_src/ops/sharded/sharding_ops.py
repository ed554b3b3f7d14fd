"""Sharding ops: `sharding_constraint` for the partitioner, `reshard` in types.

`reshard` changes the spec of its operand over explicit mesh axes, with any communication that this
needs. Its operand and its result may also differ in which axes are explicit: a value without a mesh
in its type is sharded as the partitioner chooses (`drop_sharding`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import VARIADIC, fused
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.messages.formatting import join
from shardwise._src.ops.memory_kinds import in_memory, kind_of
from shardwise._src.ops.rules import elementwise_dims, linear_jvp
from shardwise._src.ops.sharded.varying import cast_like, pvary
from shardwise._src.types.array_type import ArrayType, says_nothing, with_sharding
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import NO_AXES, PartitionSpec, check_sums
from shardwise._src.types.sharding import GSPMDSharding, NamedSharding, Sharding
from shardwise._src.types.tiling import Tiling


def type_over(op: Op, x: ArrayType, *, sharding: Any, **p: Any) -> ArrayType:
    sharding.shard_shape(x.shape)  # raises if rank or sizes do not fit
    return with_sharding(x, sharding)


def lower_over(op: Op, e: Any, ins: Any, outs: Any, x: str, *, sharding: Any, **p: Any) -> str:
    return x if e.devices == 1 else e.constraint(x, e.sharding(sharding, ins[0].ndim), ins[0])


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, sharding: Any) -> str:
    kind = kind_of(sharding)
    if kind is not None:
        x = in_memory(e, x, ins[0], kind)
    return lower_over(op, e, ins, outs, x, sharding=sharding)


def _batch(op: Op, mapped: Any, args: Any, dims: Any, *, sharding: Any) -> tuple[Any, int]:
    """The batch dimension is free, or over the mesh axes of `vmap(spmd_axis_name=)`."""
    (x,), (d,) = args, dims
    return sharding_constraint(x, sharding=with_dim(sharding, d, x.ndim - 1, mapped.split_over)), d


def with_dim(sharding: Any, d: int, ndim: int, axes: Any) -> Any:
    """A sharding for arrays with one more dimension, at `d`."""
    if isinstance(sharding, NamedSharding):
        parts: list[Any] = [*sharding.spec, *[None] * (ndim - len(sharding.spec))]
        parts.insert(d, axes if axes is not None else PartitionSpec.UNCONSTRAINED)
        return sharding.with_spec(sharding.spec.update(partitions=parts))
    if axes is not None:
        raise ValueError(
            f"vmap shards the mapped axis over {axes!r} (spmd_axis_name), but {sharding} has no "
            "mesh with that axis. Constrain values by a NamedSharding, or leave spmd_axis_name out."
        )
    if sharding.is_fully_replicated:
        return sharding
    old = sharding.tiling(ndim)
    tiles = (*old.dims[:d], 1, *old.dims[d:])
    new = Tiling(tiles, old.mesh_sizes, old.order, old.replicated, old.assignment)
    return GSPMDSharding(sharding.devices, new, sharding.memory_kind)


sharding_constraint = Op(
    "sharding_constraint",
    shardings=("sharding",),
    elements=Elements.MOVED,
    type_rule=type_over,
    dims=elementwise_dims,
    lower=_lower,
    jvp=linear_jvp,
    transpose=lambda op, ct, x, **p: [op(ct, **p)],
    batch=_batch,
)


def constrained(x: Any, sharding: Any, name: str) -> Any:
    """A constraint for Auto axes; the entries for Explicit axes must match the type already.

    If the mesh has both, a dimension without Explicit axes keeps those of the type.
    """
    t = type_of(x)
    axes = sharding.mesh.explicit_axes if isinstance(sharding, NamedSharding) else ()
    if not axes:
        return sharding_constraint(x, sharding=sharding)
    wanted = with_sharding(t, sharding)
    held, given = [PartitionSpec() if u.spec is None else u.spec for u in (t, wanted)]
    free = [d for d, p in enumerate(sharding.spec) if p is PartitionSpec.UNCONSTRAINED]
    every = sharding.mesh.are_all_axes_explicit
    rows = list(zip(given.dims(t.ndim), held.dims(t.ndim), strict=True))
    if any(w != h for d, (w, h) in enumerate(rows) if d not in free and (w or every)):
        raise ShardingTypeError(
            f"with_sharding_constraint: {name} is of type {t.str_short(True)}, and {sharding.spec} "
            f"requires {wanted.str_short(True)}. Explicit axes are part of types, which a "
            "constraint does not change. Use `shardwise.sharding.reshard(x, "
            f"{'P(...)' if free else sharding.spec})`."
        )
    if every:
        return x
    parts: list[Any] = [*sharding.spec, *[None] * (t.ndim - len(sharding.spec))]
    for d, ((w, h), axes) in enumerate(zip(rows, sharding.spec.dims(t.ndim), strict=True)):
        if h and not w and d not in free:
            parts[d] = (*h, *axes)
    whole = sharding.with_spec(sharding.spec.update(partitions=parts))
    return sharding_constraint(x, sharding=whole)


# -- reshard: to `sharding`, a NamedSharding; None if the result's type has no mesh --


def _reshard_batch(op: Op, mapped: Any, args: Any, dims: Any, *, sharding: Any) -> tuple[Any, int]:
    """The batch dimension keeps its sharding, or uses the axes that `vmap` found for it."""
    (x,), (d,) = args, dims
    if sharding is None:
        return reshard(x, sharding=None), d
    t = type_of(x)
    axes = mapped.split_over if t.spec is None else t.spec.dims(t.ndim)[d]
    parts: list[Any] = list(sharding.spec.dims(t.ndim - 1))
    twice = [a for a in sharding.spec.axes if a in (axes or ())]
    if twice:
        raise ShardingTypeError(
            f"[reshard] under vmap cannot shard a value by {sharding.spec}: the mapped axis is "
            f"already sharded over {join(twice)}. Use other mesh axes inside, or map over an "
            "unsharded axis."
        )
    parts.insert(d, axes or ())
    return reshard(x, sharding=sharding.with_spec(sharding.spec.update(partitions=parts))), d


def _reshard_eager(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """A transfer: the type of an array reflects its sharding."""
    (x,), target = args, params["sharding"]
    place, t = eval_trace().place, type_of(x)
    if _sums_of(t) or (target is not None and target.spec.unreduced):
        return _compiled_reshard(x, sharding=target)
    own = getattr(x, "sharding", None)
    if not isinstance(own, NamedSharding):
        own = None
    if target is None:
        if own is None or t.mesh is None:
            return x
        mesh = own.mesh.update(axis_types=[AxisType.Auto] * len(own.mesh.axis_names))
        return place(x, NamedSharding(mesh, own.spec.update(unreduced=NO_AXES, reduced=NO_AXES)))
    if not isinstance(target.mesh, Mesh):
        devices = own.mesh if own is not None else current().mesh
        if not isinstance(devices, Mesh) or devices.shape_tuple != target.mesh.shape_tuple:
            return x  # on one device: it follows the other operands
        mesh = devices.update(axis_types=target.mesh.axis_types)
        target = NamedSharding(mesh, target.spec)
    return place(x, target)


def _sums_of(t: ArrayType) -> frozenset[Any]:
    return NO_AXES if t.spec is None else t.spec.unreduced


@fused(arrays=1)
def _compiled_reshard(x: Any, sharding: Any) -> Any:
    """Resharding as a program, which can reduce unreduced values; a transfer cannot."""
    return reshard(x, sharding=sharding)


def _reshard_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, sharding: Any) -> str:
    """The result's type adds its own constraint. Partial sums are added before, and a full value
    is constrained to be one, of which XLA takes the partial sums; a value without a mesh may
    already be partial sums (`placed`).
    """
    before, after = _sums_of(ins[0]), _sums_of(outs[0])
    is_free = sharding is None or ins[0].mesh is None
    if e.devices == 1 or is_free or bool(before) == bool(after):
        return x
    t = ins[0]
    there = NamedSharding(t.mesh, t.spec.update(unreduced=NO_AXES))
    return e.constrained(x, t, there, unreduced=bool(before))


reshard = Op(
    "reshard",
    type_rule=lambda op, x, *, sharding: with_sharding(x, sharding),
    dims=elementwise_dims,
    lower=_reshard_lower,
    jvp=linear_jvp,
    transpose=lambda op, ct, x, **params: [reshard_like(ct, cotangent_type(x.aval))],
    batch=_reshard_batch,
    eager=_reshard_eager,
    shardings=("sharding",),
    elements=Elements.MOVED,
)


def reshard_like(x: Any, t: ArrayType) -> Any:
    """The value with the sharding of type `t`, and in its states along manual axes, as far as casts
    can change them.
    """
    held = type_of(x)
    if held.varying is not t.varying or t.unreduced or t.reduced:
        x = cast_like(x, t)
    if held.mesh is t.mesh and held.spec is t.spec:
        return x
    return resharded(x, t.explicit_sharding)


def resharded(x: Any, sharding: Any) -> Any:
    """`reshard`, where a value without a mesh in its type is the full one, not a partial sum."""
    if sharding is not None and sharding.spec.unreduced and type_of(x).mesh is None:
        full = sharding.with_spec(sharding.spec.update(unreduced=NO_AXES))
        x = reshard(x, sharding=full)
    return reshard(x, sharding=sharding)


def zero_like(zero: Any, t: ArrayType) -> Any:
    """A zero as type `t`: also as an unreduced one, of which each device has a zero."""
    return reshard_like(pvary(zero, t.unreduced) if t.unreduced else zero, t)


def drop_sharding(x: Any) -> Any:
    """The value without a mesh in its type."""
    return x if type_of(x).mesh is None else reshard(x, sharding=None)


def unreduced_like(zero: Any, x: Any) -> Any:
    """A zero to combine with `x`: if `x` is unreduced, a zero partial sum of the same kind."""
    t = type_of(x)
    if t.mesh is None or not _sums_of(t):
        return zero
    return reshard(zero, sharding=NamedSharding(t.mesh, PartitionSpec(unreduced=_sums_of(t))))


def cotangent_type(t: ArrayType) -> ArrayType:
    """The cotangent type of values of type `t`: reduced and unreduced axes are swapped."""
    if t.unreduced or t.reduced:
        t = t.update(unreduced=t.reduced, reduced=t.unreduced)
    spec = t.spec
    if spec is None or not (spec.unreduced or spec.reduced):
        return t.strong()
    return t.strong().update(spec=cotangent_spec(spec))


def cotangent_spec(spec: PartitionSpec) -> PartitionSpec:
    """The spec of cotangents of values with this one."""
    if not (spec.unreduced or spec.reduced):
        return spec
    return spec.update(unreduced=spec.reduced, reduced=spec.unreduced)


# -- out_sharding: sharding is free inside a function, and its result is resharded --


def target(sharding: Any, name: str, *operands: Any) -> NamedSharding:
    """The NamedSharding of a user's `out_sharding`, which may be a spec over a mesh in scope.

    operands: if no mesh is in scope, the spec is over the mesh in the type of one of them.
    """
    if isinstance(sharding, NamedSharding):
        found = sharding
    elif isinstance(sharding, PartitionSpec):
        check_sums(sharding, ValueError, f"{name}: ")
        meshes = [t.mesh for t in map(type_of, operands) if t.mesh is not None]
        mesh = current().mesh_for_values or (meshes[0] if meshes else None)
        if mesh is None:
            raise ValueError(
                f"{name}: a bare {sharding} needs a mesh in scope. Use NamedSharding(mesh, "
                f"{sharding}), or enter `with shardwise.set_mesh(mesh):`."
            )
        found = NamedSharding(mesh, sharding)
    else:
        raise TypeError(
            f"{name} takes a NamedSharding or a PartitionSpec; got {sharding!r} of type "
            f"{type(sharding).__name__}."
        )
    if kind_of(found) is not None:
        raise ValueError(
            f"{name}: a sharding in types has no memory kind; got {found.memory_kind!r}. Use "
            "`device_put` for another memory."
        )
    other = [a for a in found.spec.axes if a not in found.mesh.explicit_axes]
    if other:
        raise ValueError(
            f"{name}: {found.spec} names {join(other)} of {found.mesh}, but only Explicit axes "
            "are part of types. Use `shardwise.lax.with_sharding_constraint` for Auto axes."
        )
    return found


def placed(fun: Callable[..., Any], out_sharding: Any, *args: Any, **kwargs: Any) -> Any:
    """`fun(*args, **kwargs)` with its result sharded by `out_sharding`, as one program.

    Inside, the partitioner chooses, so that nothing is ambiguous. None, and an `out_sharding`
    without any information, have no effect.
    """
    if out_sharding is None or says_nothing(out_sharding):
        return fun(*args, **kwargs)
    at = tuple([i for i, x in enumerate(args) if _has_shape(x)])
    named = tuple([k for k, x in kwargs.items() if _has_shape(x)])
    operands = [*[args[i] for i in at], *[kwargs[k] for k in named]]
    sharding = target(out_sharding, f"{_name(fun)}: out_sharding", *operands)
    _check_sums(sharding, operands, _name(fun))
    fixed = tuple([None if i in at else _frozen(x) for i, x in enumerate(args)])
    rest = tuple([(k, _frozen(x)) for k, x in kwargs.items() if k not in named])
    general = NamedSharding(sharding.mesh.abstract_mesh, sharding.spec)
    here = current()
    if isinstance(sharding.mesh, Mesh) and here.mesh is not sharding.mesh:
        here = here.replace(mesh=sharding.mesh)
    with here.entered():
        return _placed(
            *operands, fun=fun, sharding=general, at=at, named=named, fixed=fixed, rest=rest
        )


@fused(arrays=VARIADIC)
def _placed(
    *operands: Any, fun: Any, sharding: Any, at: tuple, named: tuple, fixed: tuple, rest: tuple
) -> Any:
    values = [drop_sharding(_summed(x, sharding.spec.unreduced)) for x in operands]
    args = list(fixed)
    for i, x in zip(at, values, strict=False):
        args[i] = x
    kwargs = dict(zip(named, values[len(at) :], strict=True)) | dict(rest)
    out = fun(*args, **kwargs)
    if sharding.spec.unreduced and not operands:  # a constant is a full value, not a part of it
        whole = sharding.spec.update(unreduced=NO_AXES)
        out = reshard(out, sharding=fitted(NamedSharding(sharding.mesh, whole), type_of(out).ndim))
    return reshard(out, sharding=fitted(sharding, type_of(out).ndim))


def fitted(sharding: NamedSharding, ndim: int) -> NamedSharding:
    """The sharding without entries of None for dimensions that a value does not have, as in JAX."""
    beyond = sharding.spec.partitions[ndim:]
    if not beyond or any(p is not None for p in beyond):
        return sharding
    return sharding.with_spec(sharding.spec.update(partitions=sharding.spec.partitions[:ndim]))


def _summed(x: Any, unreduced: frozenset[Any]) -> Any:
    """The value with its partial sums added, except along `unreduced` axes."""
    t = type_of(x)
    rest = _sums_of(t) & unreduced
    if t.mesh is None or t.spec is None or rest == _sums_of(t):
        return x
    return reshard(x, sharding=NamedSharding(t.mesh, t.spec.update(unreduced=rest)))


def _check_sums(sharding: NamedSharding, operands: list[Any], name: str) -> None:
    """A result can be unreduced only over axes that shard every operand, if there are any."""
    if not operands:
        return
    types = [type_of(x) for x in operands]
    held = [{*t.spec.axes, *t.spec.unreduced} if t.spec is not None else set[Any]() for t in types]
    missing = [a for a in sharding.spec.unreduced if not all(a in h for h in held)]
    if missing:
        raise ShardingTypeError(
            f"{name}: out_sharding {sharding.spec} leaves {join(sorted(missing, key=str))} "
            "unreduced, but not all operands are sharded over it; got "
            f"{', '.join(t.str_short(True) for t in types)}. Leave `unreduced` out, or "
            "shard the summed dimensions of each operand over it."
        )


def _name(fun: Any) -> str:
    return fun.name if isinstance(fun, Op) else fun.__name__.removeprefix("_")


def _has_shape(x: Any) -> bool:
    return is_array(x) or isinstance(x, np.ndarray)


def _frozen(x: Any) -> Any:
    return tuple(map(_frozen, x)) if isinstance(x, list | tuple) else x


def own_sharding(x: Any, shape: tuple[int, ...]) -> NamedSharding | None:
    """The sharding of `x` over explicit mesh axes; None if a shape differs from that of `x`.

    x: a value, or a description of an array.
    """
    t = type_of(x) if is_array(x) else None
    found = getattr(x, "sharding", None)
    if t is None or t.mesh is None:
        named = isinstance(found, NamedSharding) and found.mesh.explicit_axes and found.spec.axes
        return found if named and tuple(x.shape) == shape else None
    if t.shape != shape:
        return None
    concrete = isinstance(found, NamedSharding) and isinstance(found.mesh, Mesh)
    return found if concrete and t is x.aval else t.explicit_sharding


def own_place(x: Any, shape: tuple[int, ...]) -> Any:
    """The sharding that `x` is committed to, if values of a given shape fit it.

    None if `x` is uncommitted, if another shape would need a different partition, or while
    tracing, when the sharding is unknown.
    """
    sharding = getattr(x, "sharding", None) if current().interpreter.eager else None
    if not isinstance(sharding, Sharding) or not getattr(x, "committed", True):
        return None
    if sharding.partial_axes[0] or isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        return None
    if tuple(x.shape) == shape:
        return sharding
    if not sharding.is_fully_replicated:
        return None
    return sharding.with_spec(PartitionSpec()) if isinstance(sharding, NamedSharding) else sharding


def where_it_was(x: Any, made: Any) -> Any:
    """`made` where `x` is committed: programs place results in default memory."""
    place = own_place(x, made.shape)
    return made if place is None else eval_trace().place(made, place)
