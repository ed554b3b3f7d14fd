"""Strategies for the named axes of an `xmap`: over devices, in serial loops, or vectorized.

An axis of size 24 over a mesh axis of size 2 and a loop of 3 steps is split as [2, 3, 4]: each
device has 12 indices, of which it computes 4 together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.context import NamedAxis, current
from shardwise._src.base.errors import JAXTypeError
from shardwise._src.control.scan_api import scan
from shardwise._src.core.infer import type_of
from shardwise._src.maps.axis_resources import SerialLoop, loops_in_scope
from shardwise._src.messages.formatting import join, short_repr
from shardwise._src.ops.basis import reshape, transpose
from shardwise._src.ops.shape import slice_in_dim

Pairs = tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class Way:
    """How one axis runs. mesh_axes, loops: with their sizes."""

    name: Any
    size: int
    mesh_axes: Pairs = ()
    loops: Pairs = ()

    @property
    def on_each(self) -> int:
        """How many indices a device has."""
        return self.size // math.prod([n for _, n in self.mesh_axes])

    @property
    def at_once(self) -> int:
        return self.on_each // math.prod([n for _, n in self.loops])

    @property
    def op_name(self) -> Any:
        """The name, in ops, of the vectorized part: differs from all mesh axes."""
        return (self.name, "part") if self.mesh_axes or self.loops else self.name

    def axis(self, index: Any) -> NamedAxis:
        """The axis as it is in scope. index: contains the current index, if there are loops."""
        if self.op_name == self.name:
            return NamedAxis(self.name, self.size)
        parts = (*self.mesh_axes, (self.op_name, self.at_once))
        return NamedAxis(self.name, self.size, False, parts, index if self.loops else None)


def ways_of(what: str, sizes: Mapping[Any, int], resources: Mapping[Any, Any]) -> list[Way]:
    """How each axis runs; raises if a resource is not in scope, or does not divide its axis."""
    mesh = current().mesh
    devices = {} if mesh is None else mesh.shape
    taken = () if mesh is None else mesh.abstract_mesh.manual_axes
    loops = dict(loops_in_scope())
    found = []
    for name, size in sizes.items():
        asked = resources.get(name, ())
        rows = tuple(asked) if isinstance(asked, tuple | list) else (asked,)
        over, serial = [], []
        for i, r in enumerate(rows):
            if r.__class__ is int:
                raise TypeError(
                    f"{what}: axis_resources maps {name!r} to the number {r}. For a loop of "
                    f"{r} steps pass `SerialLoop({r})`; for devices, pass the name of a mesh axis."
                )
            if isinstance(r, SerialLoop):
                serial.append(((name, i), r.length))
            elif not isinstance(r, Hashable):
                raise TypeError(
                    f"{what}: axis_resources must contain names of mesh axes or loops, "
                    f"`SerialLoop`s, or tuples of them; got {short_repr(r)} for {name!r}."
                )
            elif r in loops:
                serial.append((r, loops[r]))
            elif r in taken:
                raise JAXTypeError(
                    f"{what}: axis_resources maps {name!r} to the mesh axis {r!r}, over "
                    "which an enclosing map already runs. Choose another, or none."
                )
            elif r in devices:
                over.append((r, devices[r]))
            else:
                there = join([*devices, *loops]) or "none"
                raise NameError(
                    f"{what}: axis_resources maps {name!r} to the resource {r!r}, which is not in "
                    f"scope; resources in scope: {there}. Enter a mesh that has it, by `with "
                    f"mesh:`, or a `serial_loop({r!r}, length)`."
                )
        count = math.prod([n for _, n in over + serial])
        if size % count:
            raise ValueError(
                f"{what}: the axis {name!r} has size {size}, which is not a multiple of {count}, "
                f"the size of its resources, {join(rows)}. Pad it, or use fewer resources."
            )
        found.append(Way(name, size, tuple(over), tuple(serial)))
    return found


# -- values for the loops and for batching: loop dimensions first, then vectorized ones --


class Layout:
    """The positions of a device-local value's dimensions: `dims` says which are named."""

    def __init__(self, dims: Mapping[Any, int], ways: Sequence[Way], ndim: int):
        by_dim = {dims[way.name]: way for way in ways if way.name in dims}
        self.rows = []  # of each dimension, the labels and sizes of its factors
        for d in range(ndim):
            way = by_dim.get(d)
            self.rows.append(
                [("rest", d, -1)]
                if way is None
                else [
                    *[("loop", key, n) for key, n in way.loops],
                    ("at once", way.name, way.at_once),
                ]
            )
        self.loops = [key for row in self.rows for kind, key, _ in row if kind == "loop"]
        natural = [(kind, key) for row in self.rows for kind, key, _ in row]
        every = [key for way in ways for key, _ in way.loops]
        order = [("loop", key) for key in dict.fromkeys(every) if key in self.loops]
        order += [("at once", way.name) for way in ways if way.name in dims]
        order += [label for label in natural if label[0] == "rest"]
        self.perm = tuple([natural.index(label) for label in order])

    def apart(self, x: Any) -> Any:
        shape = type_of(x).shape
        parts = [n if n >= 0 else shape[d] for d, row in enumerate(self.rows) for _, _, n in row]
        return _turned(_shaped(x, tuple(parts)), self.perm)

    def together(self, x: Any) -> Any:
        back = [0] * len(self.perm)
        for i, p in enumerate(self.perm):
            back[p] = i
        x = _turned(x, tuple(back))
        parts, shape = iter(type_of(x).shape), []
        for row in self.rows:
            shape.append(math.prod([next(parts) for _ in row]))
        return _shaped(x, tuple(shape))


def _shaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if type_of(x).shape == shape else reshape(x, shape=shape)


def _turned(x: Any, perm: tuple[int, ...]) -> Any:
    return x if perm == tuple(range(len(perm))) else transpose(x, perm=perm)


def serially(
    loops: Pairs,
    inside: Sequence[Sequence[Any]],
    xs: Sequence[Any],
    body: Callable[[Sequence[Any]], tuple[list[Any], list[Sequence[Any]]]],
) -> tuple[list[Any], list[Sequence[Any]]]:
    """`body(xs)` for each step of the loops. inside: the loop dimensions that lead each of `xs`.

    Returns the results, and the loops that each has; `body` returns the possible loops of each.
    """
    if not loops:
        return body(xs)
    (key, length), rest = loops[0], loops[1:]
    moving = [i for i, keys in enumerate(inside) if key in keys]
    known: list[list[Sequence[Any]]] = []

    def step(_: Any, slices: list[Any]) -> tuple[Any, list[Any]]:
        given = list(xs)
        for i, x in zip(moving, slices, strict=True):
            given[i] = x
        found, keys = serially(rest, inside, given, body)
        known.append(keys)
        return (), found

    _, ys = scan(step, (), [xs[i] for i in moving], length=length)
    return [y if key in keys else _last(y) for y, keys in zip(ys, known[0], strict=True)], known[0]


def _last(ys: Any) -> Any:
    shape = type_of(ys).shape
    return reshape(slice_in_dim(ys, shape[0] - 1, shape[0], 0), shape=shape[1:])
