"""Type casts between process-local values and global arrays.

    x = host_local_array_to_global_array(batch, mesh, P("data"))      # the batches of all processes
    y = global_array_to_host_local_array(x, mesh, P("data"))          # this process's part of it

No element moves between processes, and a shard that is already on its device stays there. A
dimension grows by the ratio of the sizes of the mesh axes that split it, in the global mesh and in
this process's part of it, `mesh.local_mesh`. Both are ops: they can be staged, differentiated (each
is the other's transpose) and mapped. A compiled program is the same in all processes, so it can
only cast the types of its values: if a shape would change, the op cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import signature
from shardwise._src.base.caches import cached
from shardwise._src.core.eval_context import eval_context
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.runtime import backend
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers import transfer
from shardwise._src.transfers.between_devices import of_shards
from shardwise._src.types.array_type import ArrayType, with_sharding
from shardwise._src.types.dtypes import float0
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

Shape = tuple[int, ...]


@cached(256)
def _of_process(sharding: NamedSharding) -> NamedSharding:
    """The same spec over this process's part of the mesh."""
    mesh: Any = sharding.mesh
    return NamedSharding(mesh.process_mesh(backend.process_index()), sharding.spec)


def _resized(shape: Shape, before: Any, after: Any) -> Shape:
    """The global shape under another sharding that has shards of the same size.

    Raises:
      ValueError: the shards would not be even.
    """
    tiles, others = before.tiling(len(shape)).dims, after.tiling(len(shape)).dims
    for dim, (n, k) in enumerate(zip(shape, tiles, strict=True)):
        if n % k:
            raise ValueError(
                f"dimension {dim} of size {n} is sharded over {k} devices under {before}, which do "
                "not divide it, but all shards must have the same size. Pad it, or use "
                "make_array_from_process_local_data with a global_shape."
            )
    return tuple([n // k * m for n, k, m in zip(shape, tiles, others, strict=True)])


def _sides(op: Op, sharding: NamedSharding) -> tuple[NamedSharding, NamedSharding]:
    """The shardings of the operand and the result."""
    local = _of_process(sharding)
    return (local, sharding) if op is to_global else (sharding, local)


def _type(op: Op, x: ArrayType, *, sharding: NamedSharding) -> ArrayType:
    before, after = _sides(op, sharding)
    shape = _resized(x.shape, before, after)
    return with_sharding(x.update(shape=shape, spec=None, mesh=None), after)


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, sharding: NamedSharding) -> str:
    if ins[0].shape != outs[0].shape:
        raise NotImplementedError(
            f"{op.name}: {ins[0].str_short(True)} would become {outs[0].str_short(True)} in a "
            "compiled program, but the same program runs in all processes, so it cannot have "
            "process-local values. Call it outside of jit; compile the code before and after it."
        )
    return x


def _jvp(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    return op(x, **params), None if t is None else op(t, **params)


def _batch(op: Op, mapped: Any, args: Any, dims: Any, *, sharding: Any) -> tuple[Any, int]:
    """The batch dimension is not sharded."""
    (x,), (d,) = args, dims
    entries = [*sharding.spec, *[None] * (type_of(x).ndim - 1 - len(sharding.spec))]
    entries.insert(d, None)
    return op(x, sharding=sharding.with_spec(PartitionSpec(*entries))), d


def _transpose(op: Op, ct: Any, x: Any, *, sharding: NamedSharding) -> list[Any]:
    return [(to_local if op is to_global else to_global)(ct, sharding=sharding)]


def _eager(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Array:
    before, after = _sides(op, params["sharding"])
    with eval_context():
        x = transfer.relayout(transfer.move(args[0], before), None)
    return _relabelled(x, _type(op, x.aval, **params), after)


def _relabelled(x: Array, t: ArrayType, sharding: Any) -> Array:
    """Another array from the shards of this process."""
    if sharding is x.sharding:
        return x
    raws = x._single_buffers(x.sharding.addressable_positions)
    return of_shards(signature(t, sharding, True), raws)


def _record(name: str) -> Op:
    return Op(
        name,
        type_rule=_type,
        lower=_lower,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
        eager=_eager,
        shardings=("sharding",),
        elements=Elements.MOVED,
    )


to_global = _record("host_local_array_to_global_array")
to_local = _record("global_array_to_host_local_array")


@hides_frames
def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Global arrays over the devices of all processes, from process-local values.

    A type cast: nothing is sent. See also `make_array_from_process_local_data`, which takes uneven
    shapes, and meshes in which the devices of a process are not contiguous.

    Args:
      local_inputs: a pytree of arrays, NumPy arrays or numbers, with the same shapes in all
        processes; along mesh axes that a spec does not name, the values must also be the same.
        Arrays that already span several processes are returned unchanged.
      global_mesh: the devices; those of each process form a block of it.
      pspecs: a PartitionSpec, or a pytree of them that is a prefix of local_inputs.

    Returns:
      The pytree with arrays of sharding NamedSharding(global_mesh, spec): f32[4] in each of two
      processes becomes f32[8] if the spec splits it over both, and f32[4] under PartitionSpec().

    Raises:
      ValueError: a dimension is not divisible by its number of devices; the mesh has no devices of
        this process, or not in one block; a spec is None, or does not fit.
    """
    what = "host_local_array_to_global_array"
    return _cast(what, "local_inputs", local_inputs, global_mesh, pspecs, to_global)


@hides_frames
def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Process-local arrays, from this process's shards of global arrays.

    A type cast if the arrays are sharded as the specs say; other arrays are resharded first.

    Args:
      global_inputs: a pytree of arrays. Those on devices of this process alone are returned
        unchanged.
      global_mesh, pspecs: as for `host_local_array_to_global_array`.

    Returns:
      The pytree with arrays of sharding NamedSharding(global_mesh.local_mesh, spec).

    Raises:
      ValueError: as for `host_local_array_to_global_array`.
    """
    what = "global_array_to_host_local_array"
    return _cast(what, "global_inputs", global_inputs, global_mesh, pspecs, to_local)


def _cast(what: str, root: str, tree: Any, mesh: Any, pspecs: Any, op: Op) -> Any:
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{what}: global_mesh must be a Mesh; got {short_repr(mesh)}.")
    leaves, treedef = flatten(tree)
    specs = broadcast_prefix(pspecs, tree, f"{what}: pspecs", _is_spec, root)
    paths = leaf_paths(tree)
    out: list[Any] = []
    for path, x, spec in zip(paths, leaves, specs, strict=True):
        if not _is_spec(spec):
            raise ValueError(
                f"{what}: the spec of {root}{path} is {short_repr(spec)}. It must be a "
                "PartitionSpec; PartitionSpec() is for a value that is the same in all processes."
            )
        if x.__class__ is Array and x.is_fully_addressable == (op is to_local):
            out.append(x)  # it is converted already
            continue
        if getattr(x, "dtype", None) == float0:
            x = np.zeros(np.shape(x), np.bool_)
        try:
            sharding = NamedSharding(mesh, spec)
            op.type_rule(op, type_of(x), sharding=sharding)
        except ValueError as error:
            t = type_of(x).str_short(True)
            raise ValueError(f"{what}: {root}{path} of type {t}: {error}") from None
        out.append(op(x, sharding=sharding))
    return treedef.unflatten(out)


def _is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)
