"""Finds the leaf of a pytree that differs between processes; sends few bytes even if it is large.

All processes send one digest for each of a few ranges of leaves, then for parts of the first range
that differs, down to a single leaf, for which all send the digests of its shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.distributed import host_exchange
from shardwise._src.messages.formatting import brief
from shardwise._src.types.dtypes import is_inexact

FEW = 8  # elements of a value up to which messages show it
RANGES = 32  # of leaves, in one message


@dataclass(frozen=True, slots=True)
class Part:
    """A shard of a leaf.

    holders: the ranks of the processes that have it; () for all.
    digest: equal for equal values; followed by the value itself, if it is small.
    """

    holders: tuple[int, ...]
    digest: str


Parts = Mapping[str, Part]  # by a string of their index in the full array; '' for host values


def digests(held: Mapping[str, tuple[tuple[int, ...], np.ndarray]]) -> Parts:
    """The digests of the shards of a process that other processes have too."""
    return {
        index: Part(holders, _digest(value))
        for index, (holders, value) in held.items()
        if len(holders) != 1
    }


def first_unequal(
    what: str, treedef: Any, types: Sequence[tuple[str, str]], rows: Sequence[Parts]
) -> tuple[int, str] | None:
    """The first leaf that differs between processes, all of which must call this: its index, and
    a human-readable description of the processes' values.

    Raises:
      ValueError: trees or types differ.
    """
    low, high = 0, len(rows)
    step = max(1, -(-high // RANGES))
    said = host_exchange.gather_notes(what, treedef, types, _summaries(rows, low, high, step))
    while True:
        first = _first_range(said)
        if first is None:
            return None
        low, high = low + first * step, min(high, low + (first + 1) * step)
        if high - low == 1:
            break
        step = max(1, -(-(high - low) // RANGES))
        said = host_exchange.meeting(what, _summaries(rows, low, high, step))
    mine = {index: part.digest for index, part in rows[low].items()}
    return low, _unequal(host_exchange.meeting(what, mine))


def _summaries(rows: Sequence[Parts], low: int, high: int, step: int) -> list[dict[str, str]]:
    """For each range of leaves, the digests of its shards, grouped by a hash of their holders."""
    found = []
    for start in range(low, high, step):
        texts: dict[tuple[int, ...], list[str]] = {}
        for i in range(start, min(high, start + step)):
            for index in sorted(rows[i]):
                part = rows[i][index]
                digest = part.digest.partition(" ")[0]
                texts.setdefault(part.holders, []).append(f"{i} {index} {digest}")
        found.append({_hashed(str(k)): _hashed("\n".join(v)) for k, v in texts.items()})
    return found


def _first_range(said: Sequence[Sequence[Mapping[str, str]]]) -> int | None:
    """The first range in which two processes differ."""
    for i, summaries in enumerate(zip(*said, strict=True)):
        seen: dict[str, str] = {}
        for one in summaries:
            if any(seen.setdefault(holders, digest) != digest for holders, digest in one.items()):
                return i
    return None


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest(value: np.ndarray) -> str:
    """A digest that equal values share; followed by the value itself, if it is small."""
    plain = value
    if is_inexact(value.dtype):
        plain = np.where(np.isnan(value), np.asarray(np.nan, value.dtype), value + 0)
    digest = hashlib.sha256(np.asarray(plain, order="C").tobytes()).hexdigest()[:32]
    return f"{digest} {brief(value.tolist())}" if value.size <= FEW else digest


def _unequal(digests: Sequence[Mapping[str, str]]) -> str:
    """A message that describes which processes differ; '' if none."""
    for index in sorted({index for one in digests for index in one}):
        groups: dict[str, list[int]] = {}
        texts: dict[str, str] = {}
        for rank, one in enumerate(digests):
            if index in one:
                digest, _, text = one[index].partition(" ")
                groups.setdefault(digest, []).append(rank)
                texts[digest] = text
        if len(groups) > 1:
            at = f"at {index}, " if index else ""
            if not all(texts.values()):
                return f"{at}{', '.join(map(named, groups.values()))} differ"
            has = [
                f"{named(ranks)} {'has' if len(ranks) == 1 else 'have'} {texts[d]}"
                for d, ranks in groups.items()
            ]
            return at + ", ".join(has)
    return ""


def named(ranks: Sequence[int]) -> str:
    word = "process" if len(ranks) == 1 else "processes"
    return f"{word} {', '.join(map(str, ranks[:16]))}{', …' if len(ranks) > 16 else ''}"
