"""Ensures that processes restoring a checkpoint together read the same one, or all raise.

Processes restore together if an array spans devices of several of them. A process that restores
NumPy arrays, or arrays on its own devices only, does so alone and waits for no other process.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from shardwise._src.base.errors import CheckpointError
from shardwise._src.lowering.layouts_and_memory import bare
from shardwise._src.messages.formatting import join
from shardwise._src.ops.sharded.device_put_op import placed_over
from shardwise._src.placement.device_put import process_index
from shardwise._src.runtime import processes
from shardwise._src.runtime.pytree import flatten
from shardwise._src.saving.async_manager import together
from shardwise._src.saving.manifest import Checkpoint
from shardwise._src.saving.tree_metadata import flatten_tree
from shardwise._src.transfers.targets import as_placement, is_sharding_leaf
from shardwise._src.types.sharding_base import Sharding

_numbers: defaultdict[tuple[int, ...], Iterator[int]] = defaultdict(itertools.count)  # of restores


def in_agreement(
    what: str,
    found: Callable[[], Checkpoint],
    span: tuple[int, ...] | None,
    read: Callable[[Checkpoint], Any],
) -> Any:
    """Reads the checkpoint after verifying that all processes of a span have found the same one.

    span: from `span_of`; None if this process restores alone.

    Raises:
      RuntimeError: another process could not read it; the message names the process and the cause.
      CheckpointError: the processes have found different checkpoints.
      any error that `found` and `read` raise.
    """
    if span is None:
        return read(found())
    name = f"checkpoint restore {next(_numbers[span])}"
    seen: list[Checkpoint] = []
    out: list[Any] = []

    def look() -> str:
        seen.append(found())
        return seen[0].digest

    digests = together(f"{name}/found", look, span=span, doing="read")
    others = [rank for rank, digest in zip(span, digests, strict=True) if digest != digests[0]]
    if others:
        word = "process" if len(others) == 1 else "processes"
        raise CheckpointError(
            f"{what}: {seen[0].path} is a different checkpoint in {word} {join(others)} than in "
            f"process {span[0]}. If it was replaced just now, restore it again, and save each step "
            "into its own folder if other programs read it. Otherwise the path is not the same "
            "folder on all machines: name a shared one."
        )
    together(f"{name}/read", lambda: out.append(read(seen[0])), span=span, doing="read")
    return out[0]


def span_of(what: str, shardings: Any, like: Any) -> tuple[int, ...] | None:
    """The processes that hold shards of arrays that no single process holds in full; None if this
    process is not among them."""
    places: list[Any] = []
    if shardings is not None:
        leaves, _ = flatten(shardings, is_sharding_leaf)
        asked = [x for x in leaves if is_sharding_leaf(x)]  # `restored` reports other leaves
        places = [as_placement(x, f"{what}: shardings") for x in asked]
    elif like is not None:
        leaves = flatten_tree(what, "like", like)[1]
        places = [getattr(leaf.value, "sharding", None) for leaf in leaves]
    over = [_over_devices(p) for p in map(bare, places) if isinstance(p, Sharding)]
    spans = [processes.span_of(sharding.devices) for sharding in over if sharding is not None]
    ranks = {rank for span in spans if span is not None for rank in span}
    # `process_index` initializes the devices, which NumPy arrays do not need.
    return tuple(sorted(ranks)) if ranks and process_index() in ranks else None


def _over_devices(sharding: Sharding) -> Sharding | None:
    try:
        found: Sharding = placed_over(sharding, None)
    except ValueError:  # no devices: `restored` reports it, with the array's path
        return None
    return found
