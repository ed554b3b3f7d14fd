"""The mesh axes along which a collective communicates: full axes and sub-axes.

    axes_of(groups, (), mesh)   # ("x",), ("x", "y"), (SubAxis("x", before=2, size=4, total=8),)

Positions are indices into `mesh.devices.flat`. Groups that are not along axes have no result: the
groups are reconstructed from the axes found, and must match.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public

Groups = tuple[tuple[int, ...], ...]
_TEXT = re.compile(r"(.+):\((\d+)\)(\d+)", re.DOTALL)


@public("shardwise.explain")
@dataclass(frozen=True, repr=False)
class SubAxis:
    """A sub-axis: of an axis of `total` = before · size · after devices, its groups have devices
    that differ only in the middle index.

    It is written as in Shardy, `x:(2)4`: for an axis of size 8, two groups of four neighbors; with
    `x:(1)4`, the four devices of a group are two apart.
    """

    name: Any
    before: int
    size: int
    total: int

    @property
    def apart(self) -> int:
        """Distance between neighboring devices of a group, along the axis."""
        return self.total // (self.before * self.size)

    def __str__(self) -> str:
        return f"{self.name}:({self.before}){self.size}"

    def __repr__(self) -> str:
        return repr(str(self))

    @property
    def description(self) -> str:
        """`groups of 4 of the 8 devices along x, neighbors`"""
        where = "neighbors" if self.apart == 1 else f"{self.apart} apart"
        return f"groups of {self.size} of the {self.total} devices along {self.name}, {where}"


Axis = Any  # the name of an axis, or a `SubAxis`


def over_text(axes: Iterable[Axis] | None, count: int, kind: str) -> str:
    """`x, y`; for groups of devices that are not along axes, `groups of 2 devices`.

    count: group size; for a collective-permute, which has no groups, the number of participants.
    """
    if axes is None:
        return f"{'' if kind == 'collective-permute' else 'groups of '}{count} devices"
    return ", ".join(map(str, axes)) or "-"


def as_text(axis: Axis) -> Any:
    """The name of an axis; for a sub-axis, its text form."""
    return str(axis) if isinstance(axis, SubAxis) else axis


def is_part(text: Any, names: Iterable[Any]) -> bool:
    """Whether a text has the form of a sub-axis of these axes."""
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    return found is not None and found[1] in [str(name) for name in names]


def axes_of(groups: Groups, pairs: Groups, mesh: Any) -> tuple[Axis, ...] | None:
    """The axes of `mesh` along which groups of positions lie; None if they are not along axes.

    groups: () is one group of all devices. pairs: of sources and targets, in place of groups; the
    result then has the full axes along which any source and its target differ.
    """
    names, sizes = tuple(mesh.shape), tuple(mesh.shape.values())
    everyone = math.prod(sizes)
    if any(position >= everyone for group in (*groups, *pairs) for position in group):
        return None
    if pairs:
        sources, targets = [np.unravel_index(ends, sizes) for ends in zip(*pairs, strict=True)]
        along = zip(names, sources, targets, strict=True)
        return tuple([n for n, a, b in along if (a != b).any()])
    groups = groups or (tuple(range(everyone)),)
    first = next((group for group in groups if 0 in group), ())
    places = np.unravel_index(np.array(first, int), sizes) if sizes else ()
    met = [sorted({*along.tolist()}) for along in places]
    found = [_parts(numbers, n) for numbers, n in zip(met, sizes, strict=True)]
    split = [parts for parts in found if parts is not None]
    if len(split) < len(sizes) or _counted_out(split, sizes) != {*map(frozenset, groups)}:
        return None
    return tuple([
        name if size == n else SubAxis(name, n // (size * apart), size, n)
        for name, n, parts in zip(names, sizes, split, strict=True)
        for apart, size in reversed(parts)
    ])  # fmt: skip


Parts = list[tuple[int, int]]  # for one axis: stride and size of each sub-axis


def _parts(numbers: Sequence[int], whole: int) -> Parts | None:
    """The sub-axes in which these coordinates along an axis differ, smallest stride first.

    numbers: sorted, starting at 0. Returns None if they do not form sub-axes.
    """
    if not numbers:
        return None
    parts: Parts = []
    while len(numbers) > 1:
        apart = numbers[1]
        size = next((i for i, n in enumerate(numbers) if n != i * apart), len(numbers))
        if whole % (apart * size) or any(apart % (a * n) for a, n in parts):
            return None
        parts.append((apart, size))
        numbers = numbers[::size]
    return parts


def _counted_out(split: Sequence[Parts], sizes: Sequence[int]) -> set[frozenset[int]]:
    """The groups of positions that differ along the given sub-axes."""
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    group, starts = [0], [0]
    for parts, size, stride in zip(split, sizes, strides, strict=True):
        along = [0]
        for apart, count in parts:
            along = [n + i * apart for n in along for i in range(count)]
        first, left = [], set(range(size))
        while left:
            first.append(min(left))
            left -= {first[-1] + n for n in along}
        starts = [start + n * stride for start in starts for n in first]
        group = [start + n * stride for start in group for n in along]
    return {frozenset([start + n for n in group]) for start in starts}


# ---- shardings that use sub-axes -----------------------------------------------------------------


def part_of(names: Sequence[Any], mesh: Any, before: int, size: int) -> list[Axis] | None:
    """A sub-axis of several merged axes, as sub-axes of each; None if not possible."""
    found: list[Axis] = []
    start, end = before, before * size
    outside = 1
    for name in names:
        n = mesh.shape[name]
        low, high = max(start, outside), min(end, outside * n)
        if low < high:
            if low % outside or high % low or (outside * n) % high:
                return None
            whole = (low, high) == (outside, outside * n)
            found.append(name if whole else SubAxis(name, low // outside, high // low, n))
        outside *= n
    return found


Dims = tuple[tuple[Axis, ...], ...]


class Refined:
    """Splits axes into the smallest sub-axes present, so that any two are equal or disjoint."""

    def __init__(self, met: Iterable[Axis]):
        self.cuts: dict[Any, tuple[int, list[int]]] = {}
        for part in met:
            if isinstance(part, SubAxis):
                _, cuts = self.cuts.setdefault(part.name, (part.total, [1, part.total]))
                cuts += [part.before, part.before * part.size]
        for name, (whole, cuts) in list(self.cuts.items()):
            ordered = sorted(set(cuts))
            fits = all([b % a == 0 for a, b in itertools.pairwise(ordered)])
            self.cuts[name] = whole, ordered if fits else [1, whole]

    def axes(self, some: Iterable[Axis]) -> tuple[Axis, ...]:
        return tuple([part for axis in some for part in self._parts(axis)])

    def dims(self, spec: Dims | None) -> Dims | None:
        return None if spec is None else tuple([self.axes(some) for some in spec])

    def _parts(self, axis: Axis) -> list[Axis]:
        name = axis.name if isinstance(axis, SubAxis) else axis
        if name not in self.cuts:
            return [axis]
        whole, cuts = self.cuts[name]
        low, high = 1, whole
        if isinstance(axis, SubAxis):
            low, high = axis.before, axis.before * axis.size
        inside = [c for c in cuts if low <= c <= high]
        if len(cuts) == 2 or len(inside) < 2:
            return [axis]
        return [SubAxis(name, a, b // a, whole) for a, b in itertools.pairwise(inside)]
