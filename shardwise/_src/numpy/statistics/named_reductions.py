"""Named axes in reductions: `sum(x, axis=("i", 0))`.

An axis that is not an integer is the name of an axis in scope: of a `vmap`, or of a mesh inside
`shard_map`. Values are reduced along dimensions first, and the result along names, by the
collective that matches the reduction, to minimize communication.

    axes = reduced_axes(("i", -1), ndim=2)        # (1, 'i'): dimensions, then names
    folded(reduce_sum, x, axes)                   # psum(reduce_sum(x, 1), 'i')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

from shardwise._src.base.context import NamedAxis, current
from shardwise._src.base.lazy import public_name
from shardwise._src.core.infer import is_operand, type_of
from shardwise._src.core.op import Op
from shardwise._src.messages.called import called
from shardwise._src.messages.formatting import join
from shardwise._src.ops.basis import reduce_sum, reshape
from shardwise._src.ops.reduce import reduce_and, reduce_max, reduce_min, reduce_or, reduce_prod
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.sharded import collective
from shardwise._src.ops.sharded.varying import pvary

Axes = tuple[Any, ...]  # dimensions, then names


class NamedAxes:
    """Axes in scope, looked up.

    who:     the function to name in messages; None for the one that the user's code called.
    tracked: the axes for which types track whether a value varies.
    """

    def __init__(self, who: str | None, found: Sequence[NamedAxis]):
        in_loop = any([axis.serial is not None for axis in found])
        self.who = who or (called_name() if in_loop else None)  # reads the current stack
        self.found = found
        self.names = tuple([axis.name for axis in found])
        self.sizes = tuple([axis.size for axis in found])
        self.tracked = tuple([axis.name for axis in found if axis.tracked])

    def varied(self, x: Any) -> Any:
        """A value marked as varying along these axes, where types track that."""
        if self.tracked and (sums := self.unreduced(x)):
            self.reject(x, f"is unreduced along {join(sums)}", "take the sum first, by `psum`")
        if self.tracked and (full := [a for a in self.tracked if a in type_of(x).reduced]):
            self.reject(x, f"is reduced along {join(full)}", "make it varying first, by `pcast`")
        return pvary(x, self.tracked) if self.tracked else x

    def unreduced(self, x: Any) -> list[Any]:
        """The axes along which a value is unreduced. It must be so along all of them, or none."""
        own = type_of(x).unreduced if self.tracked else ()
        found = [a for a in self.tracked if a in own]
        if found and len(found) < len(self.names):
            self.reject(x, f"is unreduced along {join(found)} only", "call once for each state")
        return found

    def reject(self, x: Any, state: str, advice: str) -> NoReturn:
        raise ValueError(
            f"{self.who or called_name()}: the operand, of type {type_of(x).str_short(True)}, "
            f"{state}; got the axes {join(self.names)}. {advice.capitalize()}."
        )

    @cached_property
    def params(self) -> dict[str, Any]:
        """The axes as op parameters: each replaced by the axes that represent it."""
        for axis in self.found:
            if axis.serial is not None:
                raise NotImplementedError(
                    f"{self.who}: the axis {axis.name!r} runs in a serial loop, one index after "
                    "another, but a collective needs all of them at once. Remove the loop from "
                    "axis_resources, or map the axis to an axis of a mesh."
                )
        if not any([axis.parts for axis in self.found]):
            return {"names": self.names, "sizes": self.sizes}
        pairs = [pair for a in self.found for pair in a.parts or ((a.name, a.size),)]
        names, sizes = zip(*pairs, strict=True)
        return {"names": names, "sizes": sizes}


def index_along(axis: NamedAxis) -> Any:
    """This instance's index along an axis, as an int32."""
    if axis.serial is not None:
        if axis.serial.value is None:
            raise NotImplementedError(
                f"the index along {axis.name!r}, which runs in a serial loop, is unknown in a "
                "custom derivative rule. Compute it in the function, and pass it to the rule as an "
                "argument."
            )
        return axis.serial.value
    names, sizes = zip(*(axis.parts or ((axis.name, axis.size),)), strict=True)
    return collective.number(names, sizes, varies=axis.tracked)


def in_scope(who: str | None, names: Sequence[Any]) -> list[NamedAxis]:
    """The axes with these names. who: see `NamedAxes`."""
    scope = current()
    found = [scope.bound(name) for name in names]
    if None in found:
        scope.axis(names[found.index(None)], f"{who or called_name()}: ")  # raises
    twice = len(names) > 1 and [a for i, a in enumerate(names) if a in names[:i]]
    if twice:
        raise ValueError(
            f"{who or called_name()}: axis {twice[0]!r} is given twice, in {names}. Name each once."
        )
    return [axis for axis in found if axis is not None]


def named_axes(who: str | None, names: Sequence[Any]) -> NamedAxes:
    """The axes with these names, looked up. who: see `NamedAxes`."""
    return NamedAxes(who, in_scope(who, names))


def is_name(axis: Any) -> bool:
    """Whether an axis is a name: a string, or another name of an axis in scope."""
    if isinstance(axis, str):
        return True
    if is_operand(axis) or hasattr(axis, "__index__"):
        return False
    return any([axis == each.name for each in current().mapped_axes])


def reduced_axes(axis: Any, ndim: int) -> Axes:
    """The axes of a reduction: non-negative dimensions, then names; None means all dimensions."""
    if axis is None:
        return tuple(range(ndim))
    if axis.__class__ is int:
        return (canonical_axis(axis, ndim),)
    given = axis if isinstance(axis, tuple | list) else (axis,)
    names = tuple([a for a in given if is_name(a)])
    found = (*[canonical_axis(a, ndim) for a in given if not is_name(a)], *names)
    if len(set(found)) != len(found):
        raise ValueError(f"duplicate value in 'axis': {tuple(given)}")
    return found


def dimensions(axes: Axes) -> tuple[int, ...]:
    """The axes that are dimensions."""
    return tuple([a for a in axes if a.__class__ is int])


def _named(axes: Axes) -> NamedAxes:
    return named_axes(None, tuple([a for a in axes if a.__class__ is not int]))


def called_name() -> str:
    """The full name of the function that the user's code called."""
    found = called()
    return "" if found is None else public_name(found.module, found.name) or found.name


def count_of(shape: tuple[int, ...], axes: Axes) -> int:
    """The number of values that are reduced to one, for an array of this shape."""
    return math.prod([shape[a] for a in dimensions(axes)]) * math.prod(_named(axes).sizes)


def folded(op: Op, x: Any, axes: Axes) -> Any:
    """A value reduced by `op` along dimensions and names."""
    along = dimensions(axes)
    if along:
        x = op(x, axes=along)
    return x if len(along) == len(axes) else across(op, x, _named(axes))


def across(op: Op, x: Any, axes: NamedAxes, groups: Any = None) -> Any:
    """A value reduced along named axes by the collective that matches `op`."""
    if op is reduce_sum and not groups and axes.unreduced(x):
        return collective.unreduced_psum(x, groups=None, **axes.params)
    return _COLLECTIVES[op](axes.varied(x), groups=groups, **axes.params)


def _multiplied(x: Any, **axes: Any) -> Any:
    one = reshape(x, shape=(1, *type_of(x).shape))
    return reduce_prod(collective.all_gather(one, axis=0, to="invarying", **axes), axes=(0,))


# The collectives for `and` and `or` operate on booleans.
_COLLECTIVES: dict[Op, Callable[..., Any]] = {
    reduce_sum: collective.psum,
    reduce_max: collective.pmax,
    reduce_min: collective.pmin,
    reduce_or: collective.pmax,
    reduce_and: collective.pmin,
    reduce_prod: _multiplied,
}
