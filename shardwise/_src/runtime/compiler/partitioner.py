"""Custom calls with a partitioning callback: a per-device module for any operand shardings.

    register("shardwise_matrices", write)

`write(config, ins)` gets the call's configuration, and the `Piece` of each operand; it returns the
module of one device, and for each result the index of the operand whose sharding it has, or None
for replicated results. It runs at compile time, so that manually placed arrays, types with
shardings, and shardings chosen by the partitioner are all treated alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxlib import _hlo
from jaxlib import xla_client as xc

from shardwise._src.base.interrupts import uninterrupted


class Piece(NamedTuple):
    """The sharding of an operand or result.

    shape: the global shape; order: device indices, by tile index along each dimension; the last
    dimension has the devices that replicate a tile.
    """

    shape: tuple[int, ...]
    order: np.ndarray

    @property
    def tiles(self) -> tuple[int, ...]:
        return self.order.shape[:-1]

    def part(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shard shape of an array with the same sharding."""
        return tuple([-(-n // k) for n, k in zip(shape, self.tiles, strict=True)])


Writer = Callable[[dict[str, Any], list[Piece]], tuple[str, Sequence[int | None]]]
_REGISTERED: set[str] = set()


def register(target: str, write: Writer) -> None:
    """Registers a custom call with XLA's partitioner."""
    if target in _REGISTERED:
        return

    def part(
        arg_shapes: list[_hlo.Shape],
        arg_shardings: list[xc.HloSharding | None],
        result_shape: _hlo.Shape,
        result_sharding: xc.HloSharding | None,
        config: bytes,
    ) -> tuple[bytes, Sequence[xc.HloSharding | None], xc.HloSharding]:
        asked = json.loads(config)
        given = [
            _piece(*pair, asked["devices"]) for pair in zip(arg_shapes, arg_shardings, strict=True)
        ]
        text, like = write(asked, given)
        held = [None if i is None else arg_shardings[i] for i in like]
        places = [tiles or xc.HloSharding.replicate() for tiles in held]
        if result_shape.is_tuple():
            return text.encode(), arg_shardings, xc.HloSharding.tuple_sharding(result_shape, places)
        return text.encode(), arg_shardings, places[0]

    with uninterrupted():
        xc.register_custom_call_partitioner(target, of_users, part, _of_operands, True)
        _REGISTERED.add(target)


def of_users(sharding: xc.HloSharding, shape: _hlo.Shape, config: bytes) -> xc.HloSharding:
    return sharding


def _of_operands(
    arg_shapes: list[_hlo.Shape],
    shardings: list[xc.HloSharding | None],
    shape: _hlo.Shape,
    config: bytes,
) -> xc.HloSharding | None:
    return shardings[0]


def _piece(shape: _hlo.Shape, sharding: xc.HloSharding | None, devices: int) -> Piece:
    dims = tuple(shape.dimensions())
    if sharding is None or not sharding.is_tiled():
        return Piece(dims, np.arange(devices).reshape(*[1] * len(dims), devices))
    tiles = list(sharding.tile_assignment_dimensions())[: len(dims)]
    order = np.asarray(sharding.tile_assignment_devices())
    return Piece(dims, order.reshape(*tiles, -1))
