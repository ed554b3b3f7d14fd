"""The axes of a collective, as passed by users: one name, or a tuple of several."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from shardwise._src.base.caches import Interned
from shardwise._src.base.context import NamedAxis, current
from shardwise._src.core.infer import type_of
from shardwise._src.messages.formatting import brief, short_repr
from shardwise._src.numpy.statistics.named_reductions import NamedAxes, in_scope
from shardwise._src.ops.sharded.exchange import is_even, span
from shardwise._src.types.partition_spec import AxisName

AxisNames = AxisName | Sequence[AxisName]
Groups = Sequence[Sequence[int]] | None


SCOPES_REMEMBERED = 1024


def collective_axes(
    name: str, axis_name: Any, groups: Any = None, positional: bool = False
) -> CollectiveAxes:
    """The axes of one call. name: the function's; positional: whether ints are dimensions."""
    key = name, axis_name, current().key
    known = groups is None and axis_name.__class__ is str
    found = _known.recent.get(key) if known else None
    if found is not None:
        return found
    given = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    positions = tuple([a for a in given if isinstance(a, int)]) if positional else ()
    names = tuple([a for a in given if not isinstance(a, int)]) if positions else given
    who = f"shardwise.lax.{name}"
    made = CollectiveAxes(who, in_scope(who, names), positions, groups)
    return _known.keep(key, made) if known else made


class CollectiveAxes(NamedAxes):
    """The resolved axes of one call.

    who:       the function, with its full name.
    positions: dimensions of the operand, if there are integers among the names.
    groups:    groups of indices, or None; count: how many values take part together.
    """

    def __init__(
        self,
        who: str,
        found: Sequence[NamedAxis],
        positions: tuple[int, ...] = (),
        groups: Any = None,
    ):
        super().__init__(who, found)
        self.positions = positions
        self.groups = None if groups is None else self._checked(groups)
        self.count = span(self.sizes, self.groups)

    def _checked(self, groups: Any) -> Any:
        try:
            found = tuple([tuple([operator.index(i) for i in group]) for group in groups])
        except TypeError:
            raise TypeError(
                f"{self.who}: axis_index_groups must be lists of indices, such as "
                f"[[0, 1], [2, 3]]; got {brief(groups)}."
            ) from None
        if self.positions:
            raise ValueError(
                f"{self.who}: axis_index_groups partition the indices along named axes; got "
                f"{self.shown} and dimensions {self.positions}. Call it once for each."
            )
        count = span(self.sizes)
        if sorted(i for group in found for i in group) != list(range(count)):
            raise ValueError(
                f"{self.who}: axis_index_groups must contain each of the {count} indices "
                f"of {self.shown} once; got {list(map(list, found))}."
            )
        return found

    @property
    def shown(self) -> str:
        names = ", ".join(map(repr, self.names))
        return f"axis {names}" if len(self.names) == 1 else f"axes {names or 'none'}"

    @property
    def even(self) -> bool:
        return is_even(self.groups)

    def need_even(self) -> None:
        if not self.even:
            raise ValueError(
                f"{self.who}: axis_index_groups must have the same size, as all results have the "
                f"same shape; got {[list(group) for group in self.groups or ()]}."
            )

    def dimension(self, what: str, x: Any, axis: Any, more: int = 0) -> int:
        """A dimension of the operand, or of it with `more` dimensions. what: the argument."""
        t = type_of(x)
        place = self.index(what, axis)
        ndim = t.ndim + more
        if not -ndim <= place < ndim:
            raise ValueError(
                f"{self.who}: {what}={place} is not a dimension of "
                f"{'the result, which has one more than ' if more else ''}{t.str_short(True)}: "
                + (f"it must be from {-ndim} to {ndim - 1}." if ndim else "it has none.")
            )
        return place % ndim

    def index(self, what: str, i: Any) -> int:
        """An integer argument, such as the index of one of the values."""
        try:
            return operator.index(i)
        except TypeError:
            raise TypeError(
                f"{self.who}: {what} must be an integer; got {short_repr(i)}."
            ) from None


_known: Interned[CollectiveAxes] = Interned(__name__, "axes of collectives", SCOPES_REMEMBERED)
