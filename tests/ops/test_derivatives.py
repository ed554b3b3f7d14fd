"""First derivatives of every op, and second ones in reverse mode, many ops per program.

The derivative of f, which is an op or its gradient g(x) = Jᵀ w, is compared with finite
differences, for f' u, and by the inner product Σ v·(f' u) = Σ u·(f'ᵀ v), without conjugation. A
program of many ops is compiled once. `check_op` checks more, per op: batching, shardings, second
derivatives in forward mode.

Ops that take complex numbers are also checked on these: if no sample has them, on one whose
operands get imaginary parts.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.core.infer import infer, type_of
from shardwise._src.core.op import Op, every_op
from shardwise._src.testing.sample import wide, wide_param
from shardwise._src.types.dtypes import is_complex, is_float, is_inexact
from shardwise.testing import Sample
from tests.helpers.everyday import everyday
from tests.ops.samples import SAMPLES

OPS = every_op()

STEP, TOLERANCE = 1e-6, 1e-5
FIRST, SECOND = 30, 12  # ops per program


# Operands that ops are twice differentiable in, where that excludes some.
BY = {
    "polygamma": (1,),
    "zeta": (1,),
    "igamma": (1,),
    "igammac": (1,),
    "regularized_incomplete_beta": (2,),
}

# Ops on complex numbers with discontinuous derivatives under this comparison.
JUMPS = {"scatter_max", "scatter_min"}

# Ops whose complex results are unique only up to a factor of absolute value 1.
FREE = {"eigh", "svd"}


def chosen(name: str, order: int = 2) -> list[Sample]:
    """A real and a complex sample for derivative checks."""
    found: dict[bool, Sample] = {}
    for sample in SAMPLES[name]:
        kinds = [type_of(a).dtype for a in sample.args]
        smooth = sample.order >= order or name in BY
        if smooth and any(map(is_inexact, kinds)) and not sample.keys:
            found.setdefault(any(map(is_complex, kinds)), sample)
    if [*found] == [False] and name not in JUMPS | FREE:
        found[True] = with_imaginary_parts(found[False])
        if not is_typed(OPS[name], found[True]):
            del found[True]
    return list(found.values())


def with_imaginary_parts(sample: Sample) -> Sample:
    args = []
    for a in sample.args:
        floating = is_float(type_of(a).dtype)
        value = np.asarray(a) if floating else a
        args.append(value + 0.5j * np.roll(value, 1).astype(value.dtype) if floating else a)
    return dataclasses.replace(sample, args=tuple(args))


def is_typed(op: Op, sample: Sample) -> bool:
    try:
        infer(op, tuple(map(type_of, sample.args)), sample.params)
    except (TypeError, ValueError):
        return False
    return True


def groups(order: int, size: int) -> list[list[str]]:
    names = [n for n in sorted(SAMPLES) if OPS[n].jvp is not None and chosen(n, order)]
    return [names[i : i + size] for i in range(0, len(names), size)]


class Outputs:
    """The inexact results of a sample as a function of its inexact operands."""

    def __init__(self, name: str, sample: Sample):
        params = {k: wide_param(v) for k, v in sample.params.items()}
        self.op, self.sample = OPS[name], dataclasses.replace(sample, params=params)
        self.label = f"{name} {sample.describe()}"
        self.rng = np.random.default_rng(zlib.crc32(self.label.encode()))
        self.args = [wide(a) for a in sample.args]
        places = BY.get(name, range(len(self.args)))
        self.active = [i for i in places if is_inexact(type_of(self.args[i]).dtype)]
        self.x = [np.asarray(self.args[i]) for i in self.active]
        self.u = self.direction(self.x)
        self.v = self.direction(sw.eval_shape(self, *self.x))

    def direction(self, values: Any) -> list[np.ndarray]:
        return [self.like(x.shape, is_complex(x.dtype)) for x in values]

    def like(self, shape: tuple, complex_: bool) -> np.ndarray:
        value = self.rng.standard_normal(shape)
        return value + 1j * self.rng.standard_normal(shape) if complex_ else np.asarray(value)

    def moved(self, step: float) -> list[np.ndarray]:
        return [x + step * u for x, u in zip(self.x, self.u, strict=True)]

    def __call__(self, *xs: Any) -> list[Any]:
        args = list(self.args)
        for i, x in zip(self.active, xs, strict=True):
            args[i] = x
        return [o for o in self.sample.apply(self.op, *args) if is_inexact(type_of(o).dtype)]

    def both(self, xs: Any, u: Any, v: Any) -> tuple[Any, Any, Any]:
        outs, along = sw.jvp(self, tuple(xs), tuple(u))
        return outs, along, sw.vjp(self, *xs)[1](v)

    def faults(self, ahead: Any, behind: Any, found: Any) -> list[str]:
        _, along, back = found
        faults = []
        for i, (a, b, came) in enumerate(zip(ahead, behind, along, strict=True)):
            wanted = (np.asarray(a) - np.asarray(b)) / (2 * STEP)
            tolerance = max(TOLERANCE, 10 * (self.sample.tolerance or 0))
            if not np.allclose(came, wanted, rtol=tolerance, atol=tolerance):
                faults.append(f"{self.label}, result {i}: {came}, differences {wanted}")
        left, right = product(self.v, along), product(self.u, back)
        if not np.isclose(left, right, rtol=1e-9, atol=1e-9):
            faults.append(f"{self.label}, in reverse: {right}, forwards {left}")
        return faults


class Gradient(Outputs):
    """The gradient of a sample's results, randomly weighted, in its inexact operands."""

    def __call__(self, *xs: Any) -> list[Any]:
        outs, back = sw.vjp(super().__call__, *xs)
        self.rng = np.random.default_rng(0)  # the same weights in every call
        return [*back(self.direction(outs))]


def product(left: Any, right: Any) -> float:
    return float(np.real(sum(np.sum(a * np.asarray(b)) for a, b in zip(left, right, strict=True))))


def faults(functions: list[Outputs]) -> list[str]:
    run = sw.jit(lambda given: [f.both(*x) for f, x in zip(functions, given, strict=True)])
    ahead, behind, here = (
        run([(f.moved(step), f.u, f.v) for f in functions]) for step in (STEP, -STEP, 0)
    )
    rows = zip(functions, ahead, behind, here, strict=True)
    return [fault for f, a, b, h in rows for fault in f.faults(a[0], b[0], h)]


def span(names: list[str]) -> str:
    return f"{names[0]} to {names[-1]}"


@pytest.mark.parametrize("names", groups(1, FIRST), ids=span)
def test_gradients(names: list[str]):
    with sw.enable_x64(True):
        samples = {n: chosen(n, 1)[::-1] for n in names}  # the complex sample, if an op has one
        pairs = [(n, s) for n in names for s in everyday(samples[n], 1, by=Sample.describe)]
        found = faults([Outputs(*pair) for pair in pairs])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("names", everyday(groups(2, SECOND), 1), ids=span)
def test_gradients_of_gradients(names: list[str]):
    with sw.enable_x64(True):
        found = faults([Gradient(n, s) for n in names for s in chosen(n)])
    assert not found, "\n".join(found)
