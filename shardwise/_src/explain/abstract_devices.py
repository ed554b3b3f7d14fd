"""Programs for meshes that are not there: what is over an `AbstractMesh` is put over devices that
are only described, so that the program can be lowered.

    args = described(args)
    lowered = lowered_there(jit(f).trace(*args))

Shardings of arguments are replaced before the function is traced, those that `jit` and the program
itself ask for, after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.api.shapes import ShapeDtypeStruct
from shardwise._src.api.stages import Lowered, Traced
from shardwise._src.arrays.array import Array
from shardwise._src.base.context import current
from shardwise._src.lowering.storage import bare
from shardwise._src.running.placement import constraint_shardings, is_abstract
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.types.devices import DescribedDevice, is_described
from shardwise._src.types.layout import Format
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.sharding import NamedSharding


def described_mesh(mesh: AbstractMesh) -> Mesh:
    """A mesh of devices that are not there."""
    kind = mesh.abstract_device.device_kind if mesh.abstract_device is not None else "cpu"
    devices = [DescribedDevice(i, "cpu", kind) for i in range(mesh.size)]
    grid = np.array(devices, dtype=object).reshape(mesh.axis_sizes)
    return Mesh(grid, mesh.axis_names, mesh.axis_types)


def described(tree: Any) -> Any:
    """The same with `ShapeDtypeStruct`s over such meshes in place of those over no devices."""
    there = _There()

    def one(x: Any) -> Any:
        if not isinstance(x, ShapeDtypeStruct) or not is_abstract(x.sharding):
            return x
        return x.update(sharding=there.asked(x.format if x.layout is not None else x.sharding))

    return tree_map(one, tree)


def lowered_there(traced: Traced) -> Lowered:
    """The program lowered: for devices that are not there, if all that it asks for has none.

    Where it has devices, abstract shardings are what they are in a call: those of its mesh.
    """
    asked = [*(traced.in_shardings or ()), *(traced.out_shardings or ())]
    within = constraint_shardings(traced.program)
    scope = current().mesh
    met = [s.mesh for s in map(bare, (*asked, *within)) if is_abstract(s)]
    if isinstance(scope, AbstractMesh) and any([is_described(s.devices) for s in traced.sigs]):
        met.append(scope)
    if not met or isinstance(scope, Mesh) or any(_real(traced, [*asked, *within])):
        return traced.lower()
    there = _There()
    ins, outs = [
        None if some is None else [there.asked(s) for s in some]
        for some in (traced.in_shardings, traced.out_shardings)
    ]
    with current().replace(mesh=there.mesh(met[0])).entered():
        return replace(traced, in_shardings=ins, out_shardings=outs).lower()


def _real(traced: Traced, asked: Sequence[Any]) -> Iterator[bool]:
    """Whether there are devices of each thing that says where the program runs."""
    held = [c._sig for c in traced.program.constants if c.__class__ is Array]
    for sig in (*traced.sigs, *held):
        yield sig.committed and not is_described(sig.devices)
    for sharding in map(bare, asked):
        yield sharding is not None and not is_abstract(sharding) and (
            not is_described(sharding.devices)
        )


class _There:
    """Meshes of devices that are not there, one for each that has none."""

    def __init__(self) -> None:
        self.meshes: dict[AbstractMesh, Mesh] = {}

    def mesh(self, mesh: AbstractMesh) -> Mesh:
        if mesh not in self.meshes:
            self.meshes[mesh] = described_mesh(mesh)
        return self.meshes[mesh]

    def asked(self, place: Any) -> Any:
        """A sharding or format that is asked for, over such a mesh."""
        sharding = bare(place)
        if not is_abstract(sharding):
            return place
        there = NamedSharding(self.mesh(sharding.mesh), sharding.spec, sharding.memory_kind)
        return Format(place.layout, there) if isinstance(place, Format) else there
