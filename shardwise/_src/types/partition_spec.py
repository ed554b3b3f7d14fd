"""`PartitionSpec`, or `P`: which mesh axes split each dimension of an array.

    P("x", None)          # dimension 0 over the axis x, dimension 1 unsharded
    P(("x", "y"))         # dimension 0 over x (major) and y (minor); the others unsharded
    P(None, unreduced={"y"})    # unreduced: the value is the sum along y

Specs are interned: equal specs are the same object, so hashing and comparing use identity.
`P("x")` and `P("x", None)` place an array the same way but are different specs. A spec is
independent of meshes; `sharding` checks that its axes exist and divide the dimensions.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, ClassVar, TypeAlias, cast, final

from shardwise._src.base.caches import Interned
from shardwise._src.base.lazy import public
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import join, pluralize
from shardwise._src.types.frozen import Frozen

AxisName: TypeAlias = Any  # any hashable value but None; usually a string
NO_AXES: frozenset[AxisName] = frozenset()
SPECS_REMEMBERED = 4096


@final
class Unconstrained(Frozen):
    """The type of `P.UNCONSTRAINED`: the compiler may choose how to split this dimension."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("UNCONSTRAINED")  # it stays a singleton


UNCONSTRAINED = Unconstrained()


@final
@public("shardwise.sharding")
class UnreducedKind(enum.Enum):
    """How per-device values along `unreduced` axes combine into the value: they are added."""

    sum = "sum"
    max = "max"
    min = "min"


@final
@public("shardwise.sharding")
class PartitionSpec(Frozen):
    """A sequence with an entry per dimension: axis name, tuple of names, None or UNCONSTRAINED.

    partitions: the entries, normalized: `("x",)` is stored as `"x"` and `()` as None.
    unreduced:  axes along which the devices hold partial sums of the value.
    reduced:    axes along which the cotangent is unreduced.
    unreduced_kind: None without unreduced axes, else `UnreducedKind.sum`. Specs may have others;
        shardings may not, as there are no partial maxima or minima.
    """

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    instead = "make a new one with P(...) or spec.update(...)"

    partitions: tuple[Any, ...]
    unreduced: frozenset[AxisName]
    reduced: frozenset[AxisName]
    unreduced_kind: UnreducedKind | None
    axes: tuple[AxisName, ...]  # every axis that splits a dimension, in order, with repetitions
    _dims: dict[int, tuple[tuple[AxisName, ...], ...]]

    def __init_subclass__(cls) -> None:
        raise TypeError("PartitionSpec cannot be subclassed: equal specs are one object.")

    def __new__(
        cls,
        *partitions: Any,
        unreduced: Iterable[AxisName] = NO_AXES,
        reduced: Iterable[AxisName] = NO_AXES,
        unreduced_kind: UnreducedKind | None = None,
    ) -> PartitionSpec:
        kind = None if unreduced_kind is None else _kind(unreduced_kind, unreduced)
        try:
            key = (partitions, unreduced, reduced, kind)
            found = _table.recent.get(key) or _table.find(key)
        except TypeError:  # lists and sets are unhashable: normalized first
            return _interned(partitions, unreduced, reduced, kind)
        if found is not None:
            return found
        found = _interned(partitions, unreduced, reduced, kind)
        return _table.keep(key, found)

    def dims(self, ndim: int) -> tuple[tuple[AxisName, ...], ...]:
        """The axes of each of `ndim` dimensions, major to minor; none for UNCONSTRAINED."""
        found = self._dims.get(ndim)
        if found is not None:
            return found
        if len(self.partitions) > ndim:
            raise ValueError(
                f"{self} has {pluralize(len(self), 'entry', 'entries')}, but the array has only "
                f"{pluralize(ndim, 'dimension')}. Remove entries from the end of the spec."
            )
        named = tuple(_names(entry) for entry in self.partitions)
        return self._dims.setdefault(ndim, named + ((),) * (ndim - len(named)))

    def update(self, **fields: Any) -> PartitionSpec:
        """The spec with some of `partitions`, `unreduced`, `reduced`, `unreduced_kind` replaced."""
        partitions = fields.pop("partitions", self.partitions)
        axes: dict[str, Any] = {"unreduced": self.unreduced, "reduced": self.reduced} | fields
        if axes["unreduced"]:
            axes.setdefault("unreduced_kind", self.unreduced_kind)
        return PartitionSpec(*partitions, **axes)

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.partitions)

    def __getitem__(self, item: Any) -> Any:
        return self.partitions[item]

    def index(self, value: Any) -> int:
        """The first dimension whose entry is `value`."""
        return self.partitions.index(value)

    def count(self, value: Any) -> int:
        """The number of dimensions with the entry `value`."""
        return self.partitions.count(value)

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            unreduced, reduced = self.unreduced | other.unreduced, self.reduced | other.reduced
            kind = self.unreduced_kind or other.unreduced_kind
            return PartitionSpec(
                *self, *other, unreduced=unreduced, reduced=reduced, unreduced_kind=kind
            )
        if isinstance(other, tuple):
            return self.update(partitions=self.partitions + cast("tuple[Any, ...]", other))
        return NotImplemented

    def __radd__(self, other: Any) -> PartitionSpec:
        if isinstance(other, tuple):
            return self.update(partitions=cast("tuple[Any, ...]", other) + self.partitions)
        return NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        kind = () if self._is_sum() else (self.unreduced_kind,)
        return reduced("PartitionSpec", self.partitions, self.unreduced, self.reduced, *kind)

    def _is_sum(self) -> bool:
        return self.unreduced_kind in (None, UnreducedKind.sum)

    def __repr__(self) -> str:
        texts = [repr(entry) for entry in self.partitions]
        for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                texts.append(f"{name}={{{', '.join(sorted(map(repr, axes)))}}}")
        if not self._is_sum():
            texts.append(f"unreduced_kind={self.unreduced_kind}")
        return f"P({', '.join(texts)})"


P = PartitionSpec

# By normalized entries, and by the entries before normalization.
_table: Interned[PartitionSpec] = Interned(__name__, "partition specs", SPECS_REMEMBERED)


def _interned(
    partitions: tuple[Any, ...],
    unreduced: Iterable[AxisName],
    reduced: Iterable[AxisName],
    kind: UnreducedKind | None = None,
) -> PartitionSpec:
    """Returns the unique spec with these entries, which need not be normalized. kind: None: sum."""
    entries = tuple(_normal(entry) for entry in partitions)
    key = (entries, _axis_set("unreduced", unreduced), _axis_set("reduced", reduced), kind)
    found = _table.find(key)
    return found if found is not None else _table.keep(key, _make(*key))


def _make(
    partitions: tuple[Any, ...],
    unreduced: frozenset[AxisName],
    reduced: frozenset[AxisName],
    kind: UnreducedKind | None,
) -> PartitionSpec:
    axes = tuple(name for entry in partitions for name in _names(entry))
    _check_disjoint(axes, unreduced, reduced)
    spec = object.__new__(PartitionSpec)
    spec.__dict__.update(
        partitions=partitions, unreduced=unreduced, reduced=reduced, axes=axes, _dims={}
    )
    spec.__dict__["unreduced_kind"] = kind or (UnreducedKind.sum if unreduced else None)
    return spec


def _names(entry: Any) -> tuple[AxisName, ...]:
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return cast("tuple[AxisName, ...]", entry) if isinstance(entry, tuple) else (entry,)


def _normal(entry: Any) -> Any:
    if isinstance(entry, (tuple, list)):
        names = tuple(cast("Iterable[AxisName]", entry))
        for name in names:
            _check_name(name, f"the tuple {names!r} of a PartitionSpec")
        return names if len(names) > 1 else names[0] if names else None
    if entry is not None and entry is not UNCONSTRAINED:
        _check_name(entry, "a PartitionSpec")
    return entry


def _check_name(name: Any, where: str) -> None:
    if name is None or name is UNCONSTRAINED or isinstance(name, tuple):
        raise ValueError(f"{where} may contain only axis names, got {name!r}.")
    if isinstance(name, PartitionSpec) or not isinstance(name, Hashable):
        raise TypeError(
            f"{where} got {name!r} of type {type(cast('Any', name)).__name__}; "
            "each entry must be an axis name, a tuple of axis names, None or P.UNCONSTRAINED."
        )


def _axis_set(argument: str, axes: Any) -> frozenset[AxisName]:
    if not isinstance(axes, (set, frozenset)):
        raise TypeError(
            f"{argument}= of a PartitionSpec takes a set of axis names, got {axes!r} of type "
            f"{type(axes).__name__}; write {argument}={{'x'}}."
        )
    names = frozenset(cast("Iterable[AxisName]", axes))
    for name in names:
        _check_name(name, f"{argument}= of a PartitionSpec")
    return names


def _kind(kind: Any, unreduced: Any) -> UnreducedKind | None:
    """A user's kind, as in keys: None for sums."""
    name = getattr(kind, "name", "")  # also for another library's enum
    if not isinstance(kind, enum.Enum) or name not in UnreducedKind.__members__:
        raise TypeError(
            "unreduced_kind= of a PartitionSpec takes a sharding.UnreducedKind, got "
            f"{kind!r} of type {type(kind).__name__}."
        )
    if not unreduced:
        raise ValueError(
            f"unreduced_kind={name} of a PartitionSpec requires unreduced axes: "
            "add unreduced={...}, or leave it out."
        )
    return None if name == "sum" else UnreducedKind[name]


def check_sums(spec: PartitionSpec, error: type[Exception], what: str = "") -> None:
    """Raises for partial maxima and minima, which values cannot have."""
    if not spec._is_sum():  # pyright: ignore[reportPrivateUsage]
        name = cast("UnreducedKind", spec.unreduced_kind).name
        raise error(
            f"{what}unreduced_kind={name} of a PartitionSpec: unreduced axes are for partial "
            f"sums; partial {name}ima are not supported. Leave both out and reduce "
            f"directly: `shardwise.numpy.{name}(x, axis)` also reduces sharded dimensions, and "
            f"`shardwise.lax.p{name}(x, axis_name)` along a mapped axis."
        )


def _check_disjoint(
    axes: tuple[AxisName, ...], unreduced: frozenset[AxisName], reduced: frozenset[AxisName]
) -> None:
    for argument, names in (("unreduced", unreduced), ("reduced", reduced)):
        both = sorted(names & set(axes), key=str)
        if both:
            raise ValueError(
                f"{argument}={set(names)!r} of a PartitionSpec names {join(both)}, "
                f"over which a dimension is already sharded: {axes!r}. An axis may be used only "
                "once in a spec."
            )
    if unreduced & reduced:
        raise ValueError(
            f"unreduced={set(unreduced)!r} and reduced={set(reduced)!r} of a PartitionSpec both "
            f"name {join(sorted(unreduced & reduced, key=str))}. An axis may be used only once in "
            "a spec."
        )


read_by("UNCONSTRAINED", lambda: UNCONSTRAINED)
read_by("PartitionSpec", _interned)
