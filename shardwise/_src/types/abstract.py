"""Devices described without hardware, and the manual-axis types of values in `shard_map`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardwise._src.base.lazy import public


@public("shardwise.sharding")
@dataclass(frozen=True, slots=True)
class AbstractDevice:
    """A kind of device, for an `AbstractMesh`.

    device_kind: the vendor's name for it. num_cores: None if unknown. platform: "cpu", "gpu" or
    "tpu".
    """

    device_kind: str
    num_cores: int | None
    platform: str


def checked_kind(kind: Any) -> AbstractDevice | None:
    """Returns the device kind of an `AbstractMesh`, checked."""
    if not isinstance(kind, AbstractDevice | None):
        raise TypeError(f"AbstractMesh: abstract_device must be an AbstractDevice; got {kind!r}.")
    return kind


@public("shardwise.sharding")
@dataclass(frozen=True, slots=True, kw_only=True)
class ManualAxisType:
    """The part of a value's type in `shard_map` that describes the manual mesh axes.

    varying:   axes along which the value differs.
    unreduced: axes along which each device holds a partial sum.
    reduced:   axes whose sum has been taken; the cotangents are partial sums along them.

    Raises:
      ValueError: if an axis is in two of them.
    """

    varying: frozenset[Any] = frozenset()
    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()

    def __post_init__(self) -> None:
        rows = ("varying", "unreduced"), ("varying", "reduced"), ("unreduced", "reduced")
        for name in ("varying", "unreduced", "reduced"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        for one, other in rows:
            if both := getattr(self, one) & getattr(self, other):
                raise ValueError(
                    f"ManualAxisType: {one} and {other} must have no axis in common; got "
                    f"{sorted(both, key=str)} in both."
                )

    @property
    def empty(self) -> bool:
        return not self.vur

    @property
    def vur(self) -> frozenset[Any]:
        """The union of all three sets of axes."""
        return self.varying | self.unreduced | self.reduced

    def update(self, **axes: Any) -> ManualAxisType:
        """A copy with the given fields replaced."""
        mine = {"varying": self.varying, "unreduced": self.unreduced, "reduced": self.reduced}
        return ManualAxisType(**mine | axes)

    def cast(self, names: Any, to: str) -> ManualAxisType:
        """With these axes in the set `to`; in none of the sets if `to` is "invarying"."""
        sets = {s: getattr(self, s).difference(names) for s in ("varying", "unreduced", "reduced")}
        return ManualAxisType(**sets | ({to: sets[to].union(names)} if to in sets else {}))

    def to_ct_mat(self) -> ManualAxisType:
        """The `ManualAxisType` of cotangents."""
        return self.update(unreduced=self.reduced, reduced=self.unreduced)

    def invarying(self, mesh: Any) -> frozenset[Any]:
        """The remaining manual axes of a mesh."""
        return frozenset(mesh.manual_axes) - self.vur
