"""`to_memory`: transfers a value to the memory of its devices, or to host memory."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from shardwise._src.base.lazy import public
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.rules import batch_in_place, elementwise_dims, linear_jvp, same_type
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.devices import default_memory_kind, memory_kinds


@public("shardwise.memory")
class Space(enum.Enum):
    """A memory space of a device: its own memory, or its host's."""

    Device = enum.auto()
    Host = enum.auto()

    @property
    def wanted(self) -> str | None:
        """The memory kind in which programs leave values of this space."""
        return None if self is Space.Device else "pinned_host"

    def kind(self, device: Any) -> str | None:
        """The memory kind of this space for a device; None for its default one.

        Raises ValueError if the device has no host memory.
        """
        kinds, default = memory_kinds(device), default_memory_kind(device)
        if self is Space.Device:
            return None
        for kind in ("pinned_host", "unpinned_host"):
            if kind in kinds:
                return None if kind == default else kind
        shown = ", ".join(kinds) or "none"
        raise ValueError(f"{device} has no host memory; its memory kinds are: {shown}.")

    def over(self, sharding: Any) -> Any:
        """The sharding, moved to this space."""
        return sharding.with_memory_kind(self.kind(sharding.devices[0]))


def kind_of(sharding: Any) -> str | None:
    """The memory kind that a sharding requests; None for the default one."""
    return getattr(sharding, "_memory_kind", None)


def in_memory(e: Any, name: str, t: ArrayType, kind: str | None) -> str:
    """A value of type `t` in a memory kind, in StableHLO; None for device memory."""
    return e.let(
        f'stablehlo.custom_call @annotate_device_placement({name}) {{backend_config = "", '
        "has_side_effect = true, mhlo.frontend_attributes = "
        f'{{_xla_buffer_placement = "{kind or "device"}"}}}} : ({e.ty(t)}) -> {e.ty(t)}'
    )


def _transpose(op: Op, ct: Any, x: Any, *, space: Space) -> list[Any]:
    """Cotangents are transferred back."""
    back = Space.Host if space is Space.Device else Space.Device
    return [to_memory(ct, space=back)]


def _eager(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    (x,), space = args, params["space"]
    return eval_trace().place(x, space.over(x.sharding))


to_memory = Op(
    "to_memory",
    elements=Elements.MOVED,
    type_rule=same_type,
    dims=elementwise_dims,
    lower=lambda op, e, ins, outs, x, *, space: in_memory(e, x, ins[0], space.wanted),
    jvp=linear_jvp,
    transpose=_transpose,
    batch=batch_in_place,
    eager=_eager,
)
