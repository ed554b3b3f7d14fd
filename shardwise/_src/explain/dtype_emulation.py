"""Values that XLA for CPU widens: what they are on a machine that computes with them as they are.

CPU has no arithmetic of bf16 or f8: programs that are compiled for it multiply, add and send them
as f32 or f16. A machine in whose table a dtype stands does not; for one of these, collectives and
products count with the dtype that the user's equation has.
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
    """A collective with the dtypes that it has on the machine.

    equations: that it is for; where they are as many as its arrays, one of each.
    """
    own = [_only([a.aval for a in (*e.inputs, *e.outputs)], machine) for e in equations]
    if not equations or not any(own):
        return c
    if len(own) != len(c.arrays):
        own = [own[0] if len(set(own)) == 1 else ""] * len(c.arrays)
    pairs = zip(c.arrays, own, strict=True)
    return replace(c, arrays=tuple([_narrowed(array, dtype) for array, dtype in pairs]))


def product_dtype(dtype: str, equation: Equation, machine: Machine) -> str:
    """The dtype in which a machine multiplies what CPU multiplies in a wider one."""
    own = _only([a.aval for a in equation.inputs], machine)
    return _narrowed(ArrayShape(dtype, (8,)), own).dtype


def hlo_name(dtype: Any) -> str:
    """A dtype as HLO writes it: `f8e4m3fn`, `s32`."""
    name = short_name(dtype).replace("_", "")
    return f"s{name[1:]}" if name[:1] == "i" and name[1:].isdigit() else name


def _only(types: Iterable[Any], machine: Machine) -> str:
    """The one dtype of values, as HLO writes it; '' if it is not one that the machine has."""
    found = {hlo_name(t.dtype) for t in types if is_float(t.dtype)}
    name = found.pop() if len(found) == 1 else ""
    return name if name in machine.flops else ""


def _narrowed(array: ArrayShape, dtype: str) -> ArrayShape:
    """An array of floating-point numbers in a narrower dtype; '' is none."""
    narrow = replace(array, dtype=dtype) if dtype else array
    wide = array.dtype in ("f16", "f32") and narrow.bytes < array.bytes
    return narrow if wide else array
