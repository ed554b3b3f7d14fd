"""The meshes of a program: in its module text, and in its collectives.

A program may use several meshes: of its arguments, of constraints, of maps. All are over its
devices, possibly in different orders. A report names the axes of the mesh that its line uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.explain.attribution import Spec
from shardwise._src.explain.communication import Collective, mesh_axes
from shardwise._src.explain.device_axes import part_of
from shardwise._src.runtime.compiler.shardy import AxisPart, ValueSharding
from shardwise._src.types.mesh import AbstractMesh, Mesh

Names = dict[str, tuple[Any, ...]]  # axis name in the module text → axis names of the mesh
_SYMBOL = re.compile(
    r"sdy\.mesh @(\w+) = <\[(.*?)\](?:, device_ids=\[([\d, ]*)\])?>$", re.MULTILINE
)
_AXIS = re.compile(r'"(.*?)"=(\d+)(?=, "|$)')


@dataclass(frozen=True)
class Frame:
    """A mesh of a program.

    number: index among the program's meshes, 0 for the leading one; order: the program's number of
    each mesh device; () if they are in the program's order.
    """

    number: int
    mesh: Any
    order: tuple[int, ...] = ()

    def axes(self, c: Collective) -> tuple[Any, ...] | None:
        """The axes along which a collective communicates; None if it is not along axes."""
        if not self.order:
            return mesh_axes(c, self.mesh)
        place = {device: i for i, device in enumerate(self.order)}
        groups, pairs = [
            tuple([tuple([place.get(p, len(place)) for p in group]) for group in groups])
            for groups in (c.groups, c.pairs)
        ]
        return mesh_axes(replace(c, groups=groups, pairs=pairs), self.mesh)


class Frames:
    """All meshes of a program, and their symbols in the module text.

    meshes: that it may use, the leading one first; if empty, there are no frames.
    """

    def __init__(self, text: str, meshes: Iterable[Any], devices: Sequence[Any]):
        self.devices = devices
        met: dict[Any, tuple[Any, tuple[int, ...]]] = {}
        for mesh in meshes:
            order = _order(mesh, devices)
            if order is not None:
                met.setdefault((mesh.shape_tuple, order), (mesh, order))
        self.all = [Frame(0, *pair) for pair in list(met.values())[:1]]
        self.symbols: dict[str, tuple[Frame, Names]] = {}
        for symbol, axes, ids in _SYMBOL.findall(text):
            sizes = [(name, int(size)) for name, size in _AXIS.findall(axes)]
            order = tuple([int(i) for i in ids.split(",")]) if ids else ()
            for pair in met.values():
                names = _names(*pair, sizes, order)
                if names is not None:
                    self.symbols[symbol] = self._frame(*pair), names
                    break

    def _frame(self, mesh: Any, order: tuple[int, ...]) -> Frame:
        for frame in self.all:
            if (frame.mesh, frame.order) == (mesh, order):
                return frame
        self.all.append(Frame(len(self.all), mesh, order))
        return self.all[-1]

    def of(self, sharding: Any) -> Frame | None:
        """The mesh of a sharding."""
        mesh = getattr(sharding, "mesh", None)
        if mesh is None:
            return None
        key = mesh.shape_tuple, _order(mesh, self.devices)
        return next((f for f in self.all if (f.mesh.shape_tuple, f.order) == key), None)

    def named(self, place: ValueSharding) -> tuple[Frame | None, Spec]:
        """The sharding of a value by mesh axis names; as in the module text if it has no mesh."""
        symbol, dims = place
        if symbol not in self.symbols:
            return None, dims
        frame, names = self.symbols[symbol]
        found = [[_renamed(a, names, frame.mesh) for a in axes] for axes in dims]
        if any(None in axes for axes in found):
            return None, ()
        return frame, tuple([tuple([n for some in axes for n in some or ()]) for axes in found])


def _renamed(axis: str | AxisPart, names: Names, mesh: Any) -> Sequence[Any] | None:
    """A module-text axis or sub-axis, by mesh axis names; None if not expressible by these."""
    if not isinstance(axis, AxisPart):
        return names.get(axis, (axis,))
    return part_of(names.get(axis.name, (axis.name,)), mesh, axis.before, axis.size)


def _order(mesh: Any, devices: Sequence[Any]) -> tuple[int, ...] | None:
    """() if the mesh is in the program's order; None if its devices are not the program's."""
    if isinstance(mesh, AbstractMesh):
        return () if mesh.size == len(devices) else None
    if not isinstance(mesh, Mesh) or mesh.size != len(devices):
        return None
    if mesh.flat_devices == tuple(devices):
        return ()
    places = {d: i for i, d in enumerate(devices)}
    found = [places.get(d) for d in mesh.flat_devices]
    return None if None in found else tuple([i for i in found if i is not None])


def _names(
    mesh: Any, devices: tuple[int, ...], axes: Sequence[tuple[str, int]], order: tuple[int, ...]
) -> Names | None:
    """Mesh axis names by names in the text, which may merge several axes; None if no match."""
    known = {str(name): name for name in mesh.axis_names}
    names: Names = {}
    for text, size in axes:
        parts = [text] if text in known else text.split(":")
        group = names[text] = tuple([known[p] for p in parts if p in known])
        if len(group) != len(parts) or size != math.prod([mesh.shape[n] for n in group]):
            return None
    flat = [name for group in names.values() for name in group]
    if sorted(map(str, flat)) != sorted(known):
        return None
    if flat == list(mesh.axis_names):
        return names if order == devices else None
    count = mesh.size
    grid = np.array(devices or range(count)).reshape(mesh.axis_sizes)
    turned = grid.transpose([mesh.axis_names.index(name) for name in flat]).ravel().tolist()
    return names if tuple(turned) == (order or tuple(range(count))) else None
