"""Memory layouts and memory kinds of a program's arguments and results.

A program works on device memory. Arguments in host memory are transferred there when it starts,
and results requested in host memory are transferred when they are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.arrays.signature import Signature
from shardwise._src.core.program import Equation, Program
from shardwise._src.ops.memory_kinds import kind_of, to_memory
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.devices import canonical_memory_kind
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import AutoLayout, Format, Layout, layout_from_text

Order = Layout | AutoLayout | None  # None: the default one


def order_of(format: Any, t: ArrayType) -> Order:
    """The layout that a format requests; the default one if `format` is a bare sharding.

    Raises ValueError or TypeError if it does not fit a value of type `t`.
    """
    if format.__class__ is not Format or format.layout is None:
        return None
    if isinstance(format.layout, AutoLayout):
        return format.layout
    if isinstance(t.dtype, ExtendedDType):
        raise TypeError(f"{format.layout} is for arrays of numbers, not of dtype {t.dtype}.")
    return format.layout.for_rank(t.ndim)


def order_in(asked: Any, sig: Signature, target: Any) -> Order:
    """The layout in which a program takes an argument: the requested or the current one."""
    if asked.__class__ is Format:
        return order_of(asked, sig.type)
    return sig.layout if sig.sharding is target else None


def place_in(order: Layout | None, sig: Signature, target: Any) -> Any:
    """The target for moving an argument before a call; None if it is already there."""
    if sig.sharding is not target:
        return target if order is None else Format(order, target)
    return None if sig.layout is order else Format(order, target)


def bare(format: Any) -> Any:
    """The sharding of a format; a bare sharding is returned unchanged."""
    return format.sharding if format.__class__ is Format else format


def chosen_layouts(orders: Sequence[Order], compiled: Sequence[str]) -> list[Layout | None]:
    """The actual layouts of those that were requested, from the compiler's report on all."""
    found = [
        None if order is None else layout_from_text(text)
        for order, text in zip(orders, compiled, strict=True)
    ]
    return [None if layout is None or layout.is_default else layout for layout in found]


class Slot(NamedTuple):
    """layout: the order of elements; kind: the memory kind. None is the default of either."""

    layout: Order = None
    kind: str | None = None

    def attributes(self) -> list[str]:
        parts = []
        if self.layout is not None:
            order = "auto" if isinstance(self.layout, AutoLayout) else self.layout.as_text()
            parts.append(f'mhlo.layout_mode = "{order}"')
        if self.kind is not None:
            parts.append(f'mhlo.memory_kind = "{self.kind}"')
        return parts


USUAL = Slot()


class Storage(NamedTuple):
    """The slots of constants and arguments, and of results; empty if all are default."""

    ins: tuple[Slot, ...] = ()
    outs: tuple[Slot, ...] = ()

    def check(self, name: str, platform: Platform) -> None:
        """Raises if programs of a platform cannot have such memory kinds."""
        for slot in (*self.ins, *self.outs):
            if slot.kind in platform.kinds_outside_programs:
                raise NotImplementedError(
                    f"{name} has an argument or a result of memory kind {slot.kind!r}: programs "
                    f"for {platform} cannot be compiled with it. Use another one, such as "
                    "'pinned_host', and `device_put` outside of the program."
                )


PLAIN = Storage()


def storage_of(
    in_shardings: Sequence[Any],
    in_layouts: Sequence[Order],
    out_kinds: Sequence[str | None],
    out_layouts: Sequence[Order],
) -> Storage:
    """The storage for these memory kinds and layouts; `PLAIN` if all are default."""
    different = {id(s): s for s in in_shardings}  # many arguments, but few distinct shardings
    kinds = {i: stated_kind(s) for i, s in different.items()}
    ins = _slots([kinds[id(s)] for s in in_shardings], in_layouts)
    outs = _slots(out_kinds, out_layouts)
    return Storage(ins, outs) if ins or outs else PLAIN


def _slots(kinds: Sequence[str | None], layouts: Sequence[Order]) -> tuple[Slot, ...]:
    slots = tuple([Slot(layout, kind) for kind, layout in zip(kinds, layouts, strict=True)])
    return slots if any(slot != USUAL for slot in slots) else ()


def stated_kind(sharding: Any) -> str | None:
    """The memory kind of a sharding; None for the default one."""
    if sharding is None:
        return None
    return canonical_memory_kind(sharding.devices, sharding.memory_kind)


def result_kinds(program: Program) -> list[str | None]:
    """The memory kind in which the program itself leaves each of its results."""
    kinds: dict[Any, str | None] = {}
    for eqn in program.eqns:
        if eqn.op is to_memory or eqn.op.programs or eqn.op.shardings:
            kinds.update(zip(eqn.outvars, _kinds_of(eqn), strict=False))
    return [kinds.get(a) for a in program.outvars]


def _kinds_of(eqn: Equation) -> list[str | None]:
    """The memory kinds of an equation's results; results of its programs may be its own."""
    if eqn.op is to_memory:
        return [eqn.params["space"].wanted]
    kinds: list[str | None] = []
    for name in eqn.op.shardings if not eqn.op.multiple else ():
        kinds = [kind_of(eqn.params[name])]
    for held in map(result_kinds, eqn.programs() if eqn.op.programs else ()):
        if len(held) == len(eqn.outvars) and any(held):
            kinds = held
    return kinds
