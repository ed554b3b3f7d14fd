"""Corrects for dtypes that XLA's CPU backend widens, but the target machine supports natively.

CPU has no arithmetic in bf16 or f8: programs compiled for it multiply, add and send such values as
f32 or f16. A machine that lists a dtype in its table supports it natively; for such a machine,
collectives and matrix products are counted with the dtype in the user's equation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from shardwise._src.core.program import Equation
from shardwise._src.explain.communication import Collective
from shardwise._src.explain.hlo import ArrayShape
from shardwise._src.explain.machines import Machine
from shardwise._src.types.dtypes import is_float, short_name


def as_sent(c: Collective, equations: Sequence[Equation], machine: Machine) -> Collective:
    """A collective with the dtypes that it would have on the machine.

    equations: the equations that it implements; if there are as many as arrays, one per array.
    """
    own = [_only([a.aval for a in (*e.invars, *e.outvars)], machine) for e in equations]
    if not equations or not any(own):
        return c
    if len(own) != len(c.arrays):
        own = [own[0] if len(set(own)) == 1 else ""] * len(c.arrays)
    pairs = zip(c.arrays, own, strict=True)
    return replace(c, arrays=tuple([_narrowed(array, dtype) for array, dtype in pairs]))


def product_dtype(dtype: str, equation: Equation, machine: Machine) -> str:
    """The dtype in which a machine computes a product that CPU computes in a wider one."""
    own = _only([a.aval for a in equation.invars], machine)
    return _narrowed(ArrayShape(dtype, (8,)), own).dtype


def hlo_name(dtype: Any) -> str:
    """The HLO name of a dtype: `f8e4m3fn`, `s32`."""
    return hlo_text(short_name(dtype))


def hlo_text(name: str) -> str:
    """The HLO name of a dtype, from its short one."""
    name = name.replace("_", "")
    return f"s{name[1:]}" if name[:1] == "i" and name[1:].isdigit() else name


def _only(types: Iterable[Any], machine: Machine) -> str:
    """The HLO name of the values' common dtype; '' if absent or if the machine lacks it."""
    found = {hlo_name(t.dtype) for t in types if is_float(t.dtype)}
    name = found.pop() if len(found) == 1 else ""
    return name if name in machine.flops else ""


def _narrowed(array: ArrayShape, dtype: str) -> ArrayShape:
    """An array of floating-point numbers in a narrower dtype; unchanged for ''."""
    narrow = replace(array, dtype=dtype) if dtype else array
    wide = array.dtype in ("f16", "f32") and narrow.bytes < array.bytes
    return narrow if wide else array
