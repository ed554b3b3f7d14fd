"""`experimental.shard_map.shard_map`, the former API of `shard_map`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from shardwise._src.maps.shard_map import shard_map as shard_map_now
from shardwise._src.messages.formatting import join
from shardwise._src.types.annotations import P, T
from shardwise._src.types.partition_spec import AxisName


def shard_map(
    f: Callable[P, T],
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool | None = None,
    auto: Collection[AxisName] = frozenset(),
    *,
    check_vma: bool | None = None,
) -> Callable[P, T]:
    """`shardwise.shard_map` with positional arguments, two of them under other names.

    Args:
      check_rep: now `check_vma`, which is also accepted; True by default.
      auto: the mesh axes along which `f` is not manual; `axis_names` gets the others.

    Raises:
      TypeError: both check_rep and check_vma are given.
      ValueError: `auto` has axes that the mesh lacks, or all of its axes.
    """
    if check_rep is not None and check_vma is not None:
        raise TypeError(
            "shard_map got both check_rep and check_vma, which mean the same; pass only check_vma."
        )
    checked = True if check_rep is check_vma is None else bool(check_rep or check_vma)
    unknown = [a for a in auto if a not in mesh.axis_names]
    manual = [a for a in mesh.axis_names if a not in auto]
    if unknown or not manual:
        raise ValueError(
            f"shard_map: auto must contain some, but not all, of the axes of {mesh}; got "
            f"{join(auto)}."
        )
    return shard_map_now(
        f,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names={*manual} if auto else (),
        check_vma=checked,
    )
