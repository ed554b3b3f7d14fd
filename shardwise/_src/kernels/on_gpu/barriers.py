"""Barriers between the accesses of memory by the threads of a program.

A thread sees what another thread of its program wrote only after a barrier, and may read what
another one writes until then. So reads after writes are preceded by a barrier, and writes after
reads, unless each element is surely read and written by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from shardwise._src.kernels.emitted.emitted_programs import Region


class Access(NamedTuple):
    """An access of memory that a kernel may write to, among the lines of a function.

    barrier:  the line before it, if one is needed.
    kind:     "load", "store" or "atomic".
    place:    equal for accesses of the same elements by the same threads.
    by:       an equation that writes the same elements each time, by the same threads.
    is_whole: whether it is of all elements of a ref, without a mask.
    """

    barrier: str
    buffer: Any
    kind: str
    place: Any
    by: Any
    is_whole: bool


class _Past(NamedTuple):
    """The accesses of a buffer since the last barrier.

    written: "store", "atomic" or "". by: the equation that did so, if only that one did.
    """

    written: str = ""
    by: Any = None
    read: frozenset[Any] = frozenset()

    def needs_barrier(self, x: Access) -> bool:
        again = x.by is not None and self.by is x.by
        after_write = self.written and not again and not x.kind == self.written == "atomic"
        return bool(after_write or (x.kind != "load" and self.read - {x.place}))

    def after(self, x: Access) -> _Past:
        if x.kind == "load":
            return self._replace(read=self.read | {x.place})
        return self._replace(written=x.kind, by=self._same(x.by))

    def _same(self, by: Any) -> Any:
        return by if not self.written or self.by is by else None

    def or_(self, other: _Past) -> _Past:
        """Either of two."""
        if not self.written or not other.written:
            written, by = self.written or other.written, self.by or other.by
        else:
            written = self.written if self.written == other.written else "store"
            by = self._same(other.by)
        return _Past(written, by, self.read | other.read)


Pasts = dict[Any, _Past]  # by buffer


def with_barriers(lines: Iterable[Any], past: Pasts) -> tuple[list[str], Pasts]:
    """The lines, with barriers in place of accesses. past: before the lines; returned: after."""
    found: list[str] = []
    past = dict(past)
    for x in lines:
        if isinstance(x, Access):
            if past.get(x.buffer, _Past()).needs_barrier(x):
                found.append(x.barrier)
                past = {}
            past[x.buffer] = past.get(x.buffer, _Past()).after(x)
        elif isinstance(x, Region):
            more, past = _in_region(x, past)
            found += more
        else:
            found.append(x)
    return found, past


def _in_region(region: Region, past: Pasts) -> tuple[list[str], Pasts]:
    if region.is_loop:  # an iteration may follow another one
        again = past
        for block in region.blocks:
            again = with_barriers(block, again)[1]
        past = _any_of([past, again])
    found, own, ends = [], past, []
    for head, block in zip(region.heads, region.blocks, strict=True):
        lines, own = with_barriers(block, own if region.is_loop else past)
        found += [head, *lines]
        ends.append(own)
    if region.is_loop or len(ends) == 1:  # or no block runs
        ends.append(past)
    return [*found, region.tail], _any_of(ends)


def _any_of(ends: Sequence[Pasts]) -> Pasts:
    found: Pasts = {}
    for end in ends:
        for buffer, own in end.items():
            found[buffer] = found[buffer].or_(own) if buffer in found else own
    return found
