"""Lowers programs for absent devices: replaces each `AbstractMesh` by a mesh of described devices,
which have no hardware behind them.

    args = described(args)
    lowered = lowered_there(jit(f).trace(*args))

Shardings of arguments are replaced before the function is traced; shardings requested by `jit` and
by the program itself, after tracing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.base.context import current
from shardwise._src.jit.described_devices import described as to_described
from shardwise._src.jit.described_devices import described_mesh
from shardwise._src.jit.stages import Lowered, Traced
from shardwise._src.lowering.layouts_and_memory import bare
from shardwise._src.running.program_placement import constraint_shardings, is_abstract
from shardwise._src.runtime.target_machines import Target
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.types.devices import is_described
from shardwise._src.types.mesh import AbstractMesh, Mesh


def described(tree: Any) -> Any:
    """The pytree with `ShapeDtypeStruct`s over abstract meshes moved to such described meshes."""

    def one(x: Any) -> Any:
        if not isinstance(x, ShapeDtypeStruct) or not is_abstract(x.sharding):
            return x
        return x.update(sharding=to_described(x.format if x.layout is not None else x.sharding))

    return tree_map(one, tree)


def lowered_there(traced: Traced, target: Target | None = None) -> Lowered:
    """Lowers the program; for described devices if all of its shardings are abstract.

    target: a machine that it is for, instead of the devices of its arguments.

    If the program has real devices, abstract shardings refer to their mesh, as in a call.
    """
    asked = [*(traced.in_shardings or ()), *(traced.out_shardings or ())]
    within = constraint_shardings(traced.program)
    scope = current().mesh
    met = [s.mesh for s in map(bare, (*asked, *within)) if is_abstract(s)]
    if isinstance(scope, AbstractMesh) and any([is_described(s.devices) for s in traced.sigs]):
        met.append(scope)
    if not met or isinstance(scope, Mesh) or any(_real(traced, [*asked, *within])):
        return traced.lowered_for(target)
    ins, outs = [
        None if some is None else [to_described(s) for s in some]
        for some in (traced.in_shardings, traced.out_shardings)
    ]
    with current().replace(mesh=described_mesh(met[0])).entered():
        there = replace(traced, in_shardings=ins, out_shardings=outs)
        return there.lowered_for(target)


def _real(traced: Traced, asked: Sequence[Any]) -> Iterator[bool]:
    """For each argument, constant and sharding: whether it determines real devices."""
    held = [c._sig for c in traced.program.consts if c.__class__ is Array]
    for sig in (*traced.sigs, *held):
        yield sig.committed and not is_described(sig.devices)
    for sharding in map(bare, asked):
        yield (
            sharding is not None
            and not is_abstract(sharding)
            and (not is_described(sharding.devices))
        )
