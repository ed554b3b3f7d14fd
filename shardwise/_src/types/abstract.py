"""What is known of devices that are not there, and of values inside of `shard_map`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardwise._src.base.lazy import public


@public("shardwise.sharding")
@dataclass(frozen=True, slots=True)
class AbstractDevice:
    """A kind of device, for an `AbstractMesh`.

    device_kind: its maker's name for it. num_cores: None where that is not known. platform: "cpu",
    "gpu" or "tpu".
    """

    device_kind: str
    num_cores: int | None
    platform: str


def checked_kind(kind: Any) -> AbstractDevice | None:
    """The kind of device of an `AbstractMesh`."""
    if not isinstance(kind, AbstractDevice | None):
        raise TypeError(f"AbstractMesh: abstract_device must be an AbstractDevice; got {kind!r}.")
    return kind


@public("shardwise.sharding")
@dataclass(frozen=True, slots=True, kw_only=True)
class ManualAxisType:
    """What the type of a value inside of `shard_map` says of the mesh axes that are manual there.

    varying:   axes along which it differs.
    unreduced: axes along which it is one addend of a sum that is to be taken.
    reduced:   axes whose sum is taken, with cotangents that are addends.

    Raises:
      ValueError: where an axis is in two of them.
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
        """All of the axes."""
        return self.varying | self.unreduced | self.reduced

    def update(self, **axes: Any) -> ManualAxisType:
        """The same but for what is given."""
        mine = {"varying": self.varying, "unreduced": self.unreduced, "reduced": self.reduced}
        return ManualAxisType(**mine | axes)

    def to_ct_mat(self) -> ManualAxisType:
        """That of cotangents."""
        return self.update(unreduced=self.reduced, reduced=self.unreduced)

    def invarying(self, mesh: Any) -> frozenset[Any]:
        """The other manual axes of a mesh."""
        return frozenset(mesh.manual_axes) - self.vur
