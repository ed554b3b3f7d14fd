"""Checks of an op's `jvp` and `transpose` rules.

All in 64-bit precision, in one compiled program per sample: the value f(x), the tangent J t, its
derivative along u, and the cotangents Jᵀ w. Finite differences of the value and the tangent check
the first and second derivatives; inner products check the cotangents: Σ (J t)·w = Σ t·(Jᵀ w),
without conjugation, as real parts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Linear, Op, Types
from shardwise._src.testing.running import Bundle, filled
from shardwise._src.testing.sample import Report, Sample, wide, wide_param
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.transforms.linearize import LinearFunction, linearize
from shardwise._src.transforms.transpose import transpose
from shardwise._src.types.dtypes import is_complex, is_inexact

STEP = 1e-6
FIRST = 1e-6  # tolerances of finite differences and inner products
SECOND = 1e-5
ROUNDS = 2  # number of random directions


class _Point:
    """The 64-bit arguments of a sample, with random directions.

    active: the differentiable arguments; outs: the differentiable results.
    """

    def __init__(self, op: Op, sample: Sample, rng: np.random.Generator):
        self.op = op
        self.rng = rng
        self.params = {k: wide_param(v) for k, v in sample.params.items()}
        self.args = [wide(a) for a in sample.args]
        self.active = [i for i, a in enumerate(self.args) if is_inexact(type_of(a).dtype)]

    def function(self, *args: Any) -> list[Any]:
        out = self.op(*args, **self.params)
        return list(out) if self.op.multiple else [out]

    @functools.cached_property
    def out_types(self) -> list[Any]:
        found = self.op.type_rule(self.op, *[type_of(a) for a in self.args], **self.params)
        return list(cast(Types, found)) if self.op.multiple else [found]

    @functools.cached_property
    def outs(self) -> list[int]:
        return [i for i, t in enumerate(self.out_types) if is_inexact(t.dtype)]

    def direction(self) -> list[np.ndarray]:
        return [normal(self.rng, self.args[i]) for i in self.active]

    def moved(self, direction: Sequence[np.ndarray], step: float) -> list[Any]:
        args = list(self.args)
        for i, d in zip(self.active, direction, strict=True):
            args[i] = args[i] + step * d
        return args

    def replaced(
        self, subset: tuple[int, ...], a: float, one: list, b: float, other: list
    ) -> list[Any]:
        """The arguments, with those of `subset` replaced by a·one + b·other."""
        args = list(self.args)
        for i in subset:
            at = self.active.index(i)
            args[i] = np.asarray(a * one[at] + b * other[at])
        return args

    def spread(self, values: Sequence[Any]) -> list[Any]:
        """One value per argument; None if it is not differentiable."""
        given = dict(zip(self.active, values, strict=True))
        return [given.get(i) for i in range(len(self.args))]


def normal(rng: np.random.Generator, like: Any) -> np.ndarray:
    like = np.asarray(like)
    value = rng.standard_normal(like.shape)
    if is_complex(like.dtype):
        return value + 1j * rng.standard_normal(like.shape)
    return np.asarray(value)


def check_derivatives(op: Op, sample: Sample, report: Report, rng: np.random.Generator) -> None:
    """Checks jvp by finite differences, to second order; transpose by inner products."""
    point = _Point(op, sample, rng)
    if not point.active or op.jvp is None or sample.order == 0:
        return
    checks = _Checks(point, sample, report)
    checks.add_functions()
    subsets = _linear_candidates(point)
    for s in subsets:
        checks.bundle.add(_name(s), functools.partial(checks.transpose_of, s), quiet=True)
    for _ in range(ROUNDS):
        checks.compare(point.direction(), point.direction())
        checks.weights = [normal(rng, w) for w in checks.weights]
    for s in subsets:
        checks.compare_transpose(s, point.direction(), point.direction())


class _Checks:
    """The functions of a point, compiled together.

    weights: random cotangents of the differentiable results. A function's arguments are the
    point's, two directions, and the weights: `xs`, `ts`, `us` and `ws` select them.
    """

    def __init__(self, point: _Point, sample: Sample, report: Report):
        self.point, self.sample, self.report = point, sample, report
        types = [point.out_types[i] for i in point.outs]
        self.weights = [normal(point.rng, np.zeros(t.shape, t.dtype)) for t in types]
        n, k = len(point.args), len(point.active)
        self.xs, self.ts, self.us = slice(0, n), slice(n, n + k), slice(n + k, n + 2 * k)
        self.ws = slice(n + 2 * k, None)
        directions = [*point.direction(), *point.direction()]
        self.bundle = Bundle(report, [*point.args, *directions, *self.weights])

    def add_functions(self) -> None:
        point, bundle = self.point, self.bundle

        def tangent(*args: Any) -> list[Any]:
            return _tangent(point.function, args[self.xs], point.spread(args[self.ts]), point.outs)

        def second(*args: Any) -> list[Any]:
            def once(*primals: Any) -> list[Any]:
                return _tangent(point.function, primals, point.spread(args[self.ts]), point.outs)

            outs = list(range(len(point.outs)))
            return _tangent(once, args[self.xs], point.spread(args[self.us]), outs)

        def cotangent(*args: Any) -> list[Any]:
            _, linear = linearize(point.function, list(args[self.xs]))
            found = transposed(linear, self.cotangents(args))
            types = [type_of(args[i]) for i in point.active]
            return filled([found[i] for i in point.active], types, "cotangent")

        bundle.add("value in 64 bits", lambda *args: point.function(*args[self.xs]))
        bundle.add("jvp", tangent)
        bundle.add("transpose", cotangent)
        if self.sample.order >= 2 and "jvp" in bundle.programs:
            bundle.add("jvp of jvp", second)

    def cotangents(self, args: Sequence[Any]) -> list[Any]:
        """The weights as cotangents of all results; None for zero."""
        given = dict(zip(self.point.outs, args[self.ws], strict=True))
        return [given.get(i) for i in range(len(self.point.out_types))]

    def run(self, args: list, t: list, u: list) -> dict[str, list]:
        return self.bundle.run([*args, *t, *u, *self.weights])

    def compare(self, t: list, u: list) -> None:
        """Compares derivatives along two directions with finite differences."""
        outs, report, looseness = self.point.outs, self.report, self.sample.tolerance or 0.0
        first, second = max(FIRST, looseness), max(SECOND, looseness)
        here = self.run(self.point.args, t, u)
        if "value in 64 bits" not in here:
            return
        changes = self.differences(t, u, t, "value in 64 bits")
        slopes = [changes[i] for i in outs]
        if "jvp" in here:
            for i, came, wanted in zip(outs, here["jvp"], slopes, strict=True):
                report.compare(f"jvp (result {i})", came, wanted, first)
        if "transpose" in here:
            left, right = product(slopes, self.weights), product(t, here["transpose"])
            if not np.isclose(left, right, rtol=first, atol=first):
                report.add("transpose", f"Σ t·(Jᵀ w) = {right:.9g}", f"Σ (J t)·w = {left:.9g}")
        if "jvp of jvp" in here:
            curves = self.differences(t, u, u, "jvp")
            for i, came, wanted in zip(outs, here["jvp of jvp"], curves, strict=True):
                report.compare(f"jvp of jvp (result {i})", came, wanted, second)

    def differences(self, t: list, u: list, direction: list, name: str) -> list[np.ndarray]:
        ahead, behind = (
            self.run(self.point.moved(direction, step), t, u)[name] for step in (STEP, -STEP)
        )
        return [
            (a - b) / (2 * STEP) if is_inexact(a.dtype) else np.zeros_like(a)
            for a, b in zip(ahead, behind, strict=True)
        ]

    # -- the transpose rule itself, called with `Linear` arguments --

    def transpose_of(self, subset: tuple[int, ...], *args: Any) -> list[Any]:
        """The cotangents of a subset of the operands."""
        point, rule = self.point, self.point.op.transpose
        values = [Linear(type_of(a)) if i in subset else a for i, a in enumerate(args[self.xs])]
        ct: Any = self.cotangents(args)
        if not point.op.multiple:
            (ct,) = ct
        if rule is None:
            raise point.op.missing("transpose", "reverse-mode differentiation")
        found = rule(point.op, ct, *values, **point.params)
        if len(found) != len(values):
            raise ValueError(
                f"the rule returned {len(found)} cotangents for {len(values)} operands"
            )
        types = [values[i].aval for i in subset]
        return filled([found[i] for i in subset], types, "cotangent")

    def compare_transpose(self, subset: tuple[int, ...], one: list, other: list) -> None:
        """Compares it by inner products, if the op is linear in the subset."""
        point, report, name = self.point, self.report, _name(subset)
        if "value in 64 bits" not in self.bundle.programs:
            return
        values = [
            self.run(point.replaced(subset, a, one, b, other), one, other)["value in 64 bits"]
            for a, b in ((1, 0), (0, 1), (2, -3))
        ]
        first, second, mixed = ([v[i] for i in point.outs] for v in values)
        expected = [2 * a - 3 * b for a, b in zip(first, second, strict=True)]
        if not all(
            np.allclose(m, e, rtol=1e-9, atol=1e-9) for m, e in zip(mixed, expected, strict=True)
        ):
            return  # not linear in these operands
        if all(not v.any() for v in [*first, *second]):
            return  # zero everywhere: trivially linear
        if name in self.bundle.errors:
            report.raised(name, self.bundle.errors[name])
            return
        cts = self.run(point.args, one, other)[name]
        tangents = [one[point.active.index(i)] for i in subset]
        left, right = product(first, self.weights), product(tangents, cts)
        if not np.isclose(left, right, rtol=FIRST, atol=FIRST):
            report.add(name, f"Σ v·(Jᵀ w) = {right:.9g}", f"Σ (J v)·w = {left:.9g}")


def _tangent(fun: Callable, primals: Any, tangents: Any, outs: list[int]) -> list[Any]:
    values, found = push_forward(fun, list(primals), tangents, current().interpreter)
    return filled([found[i] for i in outs], [type_of(values[i]) for i in outs], "tangent")


def transposed(linear: LinearFunction, cts: Sequence[Any]) -> list[Any]:
    """Cotangents of the arguments; None for zero."""
    given = [ct for ct, active in zip(cts, linear.active_out, strict=True) if active]
    found = iter(transpose(linear.program, linear.captured, given))
    return [next(found) if active else None for active in linear.active_in]


def product(left: Sequence[Any], right: Sequence[Any]) -> float:
    """The real inner product of two lists of values, in which None is zero."""
    pairs = [
        (wide(a), wide(b))
        for a, b in zip(left, right, strict=True)
        if a is not None and b is not None
    ]
    return float(sum(np.real(np.sum(a * b)) for a, b in pairs))


def _linear_candidates(point: _Point) -> list[tuple[int, ...]]:
    """Subsets of operands in which the op may be linear: single ones, all, pairs of up to three."""
    if point.op.transpose is None:
        return []
    active = point.active
    sizes = {1, len(active)} | ({2} if len(active) <= 3 else set())
    return [s for size in sorted(sizes) for s in itertools.combinations(active, size)]


def _name(subset: tuple[int, ...]) -> str:
    return f"transpose of operands {subset}"
