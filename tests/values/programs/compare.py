"""Whether the results of a sharded program match those on one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.values.programs.facts import Fact, kind
from tests.values.programs.make import Program
from tests.values.programs.placements import Placement

SMALLEST = 2.0**-126  # the smallest normal float32; CPU arithmetic treats smaller numbers as 0


def faults(program: Program, placement: Placement, one: Any, many: Any) -> list[str]:
    """A description of the errors in the results `many`; `one`: the results on one device."""
    found = []
    for i, (name, x, y) in enumerate(zip(program.outputs, one, many, strict=True)):
        if (x.shape, x.dtype, x.aval.weak_type) != (y.shape, y.dtype, y.aval.weak_type):
            found.append(f"{name}: {y.aval} for {x.aval}")
            continue
        wanted = placement.sharding(placement.outs[i]) if placement.outs else None
        if wanted is not None and not y.sharding.is_equivalent_to(wanted, y.ndim):
            found.append(f"{name}: on {y.sharding}, not on {wanted}")
        value = np.asarray(x)
        fact = program.facts[name]
        if wrong := differing(value, np.asarray(y), fact):
            found.append(f"{name}: {wrong}")
            continue
        for shard in y.addressable_shards:
            if wrong := differing(value[shard.index], np.asarray(shard.data), fact):
                found.append(f"{name}, shard {shard.index} on {shard.device}: {wrong}")
                break
    return found


def unsound(program: Program, one: Any) -> list[str]:
    """Results on one device that violate the bounds that the program declares."""
    found = []
    for name, x in zip(program.outputs, one, strict=True):
        fact, value = program.facts[name], np.asarray(x)
        if kind(value.dtype) not in "fc" or not value.size:
            continue
        wide = _wide(value)
        finite = np.abs(np.where(np.isfinite(wide), wide, 0))
        if finite.max() > fact.bound * (1 + 1e-6) + fact.error:
            found.append(f"{name}: {finite.max()} is beyond the bound {fact.bound}")
        if fact.whole and kind(value.dtype) == "f" and (finite != np.round(finite)).any():
            found.append(f"{name}: not whole numbers")
    return found


def differing(x: np.ndarray, y: np.ndarray, fact: Fact) -> str:
    """How y differs from x; empty if it does not."""
    if x.shape != y.shape:
        return f"shape {y.shape} for {x.shape}"
    if kind(x.dtype) not in "fc":
        wrong = x != y
    else:
        a, b = _wide(x), _wide(y)
        wrong = _wrong(a.real, b.real, fact) | _wrong(a.imag, b.imag, fact)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{y[place]} for {x[place]} at {place}, {int(wrong.sum())} of {wrong.size} wrong"


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if kind(x.dtype) == "c" else np.float64)


def _wrong(x: np.ndarray, y: np.ndarray, fact: Fact) -> np.ndarray:
    """Where y may not replace x.

    XLA moves some elements by a sum in which all other devices have 0, so that -0 may come back as
    0. CPU arithmetic treats subnormal numbers as 0, but moves preserve them. Nothing
    else may become 0, and 0 must remain 0.
    """
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= fact.error
    tiny = (np.abs(x) < SMALLEST) & (np.abs(y) < SMALLEST)
    lost = tiny & ~((y == 0) & np.signbit(y) & ~np.signbit(x))
    same = (x == y) | (np.isnan(x) & np.isnan(y)) | near
    if fact.signs and not fact.error:
        same &= (np.signbit(x) == np.signbit(y)) | np.isnan(x)
    return ~(same | lost)
