"""Random programs in other modes: over Explicit axes, under `disable_jit` and under `debug_nans`.

    python -m tests.values.programs.modes 0 100      # seeds 0 to 99: failures

Values are those of jit on one device. Under `debug_nans` a program whose results have NaN raises
FloatingPointError, and other programs do not.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import numpy as np

import shardwise as sw
from tests.values.programs.compare import faults
from tests.values.programs.facts import kind
from tests.values.programs.make import Program
from tests.values.programs.placements import Placement, allowed, alone, placements, script
from tests.values.programs.table import program


def places_of(seed: int, found: Program, explicit: bool) -> list[Placement]:
    """Two shardings of a program, with arguments that are placed before the call."""
    ranks = (0,) * len(found.outputs)
    rows = placements(found, seed, ranks, 2)
    full = [
        {n: s if s is not None else (None,) * found.inputs[n].ndim for n, s in p.ins.items()}
        for p in rows
    ]  # over Explicit axes all arguments are
    return [
        replace(p, outs=None, put=True, explicit=explicit, ins=ins if explicit else p.ins)
        for p, ins in zip(rows, full, strict=True)
    ]


def over_explicit_axes(seed: int) -> list[str]:
    found, wrong = program(seed), []
    for place in places_of(seed, found, True):
        fits = allowed(found, place)
        wrong += [
            f"{w}\n{script(fits, place)}"
            for w in faults(fits, place, alone(fits), place.call(fits))
        ]
    return wrong


def without_jit(seed: int) -> list[str]:
    found = program(seed)
    one, f = alone(found), found.function()
    wrong = []
    for place in places_of(seed, found, False):
        args = placed(found, place)
        with sw.disable_jit():
            many = sw.tree.map(sw.numpy.asarray, f(*args))
            again = sw.tree.map(sw.numpy.asarray, sw.jit(f)(*args))
        for results in (many, again):
            wrong += [f"{w}\n{script(found, place)}" for w in faults(found, place, one, results)]
    return wrong


def under_debug_nans(seed: int) -> list[str]:
    found = program(seed)
    one = alone(found)
    nan = [n for n, x in zip(found.outputs, one, strict=True) if has_nan(x)]
    computed = [n for n in nan if n not in found.inputs]
    wrong = []
    for place in places_of(seed, found, False):
        try:
            with sw.debug_nans(True):
                many = place.call(found)
        except FloatingPointError as error:
            if not nan:
                wrong.append(f"{error}, but no result has NaN\n{script(found, place)}")
            continue
        if computed:
            wrong.append(f"no error, but {computed} have NaN\n{script(found, place)}")
        wrong += [f"{w}\n{script(found, place)}" for w in faults(found, place, one, many)]
    return wrong


MODES: dict[str, Callable[[int], list[str]]] = {
    "explicit": over_explicit_axes,
    "disable_jit": without_jit,
    "debug_nans": under_debug_nans,
}


def placed(found: Program, place: Placement) -> list[Any]:
    rows = [(a, place.sharding(place.ins.get(n))) for n, a in found.inputs.items()]
    return [sw.numpy.asarray(a) if s is None else sw.device_put(a, s) for a, s in rows]


def has_nan(x: Any) -> bool:
    value = np.asarray(x)
    return kind(value.dtype) in "fc" and bool(np.isnan(value.astype(np.complex128)).any())


def sweep(mode: str, seeds: range) -> list[str]:
    """The failures of the programs of these seeds, each with its source."""
    wrong = []
    for seed in seeds:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wrong += [f"{mode}, seed {seed}: {w}" for w in MODES[mode](seed)]
        except Exception:
            text = traceback.format_exc(limit=-4)
            wrong.append(f"{mode}, seed {seed}: {text}\n{script(program(seed), None)}")
    return wrong


if __name__ == "__main__":
    first, end = map(int, sys.argv[1:3])
    for mode in sys.argv[3:] or MODES:
        found = sweep(mode, range(first, end))
        print("\n\n".join(found))
        print(f"{mode}: {len(found)} wrong of {end - first} programs")
