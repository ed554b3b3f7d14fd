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
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Linear, Op
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
    """The 64-bit arguments of a sample, with random directions."""

    def __init__(self, op: Op, sample: Sample, rng: np.random.Generator):
        self.op = op
        self.rng = rng
        self.params = {k: wide_param(v) for k, v in sample.params.items()}
        self.args = [wide(a) for a in sample.args]
        self.active = [i for i, a in enumerate(self.args) if is_inexact(type_of(a).dtype)]
        self.function = functools.partial(_results, op, self.params)

    def direction(self) -> list[np.ndarray]:
        return [normal(self.rng, self.args[i]) for i in self.active]

    def moved(self, direction: Sequence[np.ndarray], step: float) -> list[Any]:
        args = list(self.args)
        for i, d in zip(self.active, direction, strict=True):
            args[i] = args[i] + step * d
        return args

    def spread(self, values: Sequence[Any]) -> list[Any]:
        """One value per argument; None if it is not differentiable."""
        out: list[Any] = [None] * len(self.args)
        for i, v in zip(self.active, values, strict=True):
            out[i] = v
        return out


def _results(op: Op, params: dict[str, Any], *args: Any) -> list[Any]:
    out = op(*args, **params)
    return list(out) if op.multiple else [out]


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
    out_types = _out_types(op, point)
    outs = [i for i, t in enumerate(out_types) if is_inexact(t.dtype)]
    weights = [normal(rng, np.zeros(out_types[i].shape, out_types[i].dtype)) for i in outs]
    n, k = len(point.args), len(point.active)
    parts = (slice(0, n), slice(n, n + k), slice(n + k, n + 2 * k), slice(n + 2 * k, None))
    bundle = Bundle(report, [*point.args, *point.direction(), *point.direction(), *weights])
    _add_functions(bundle, point, outs, out_types, parts, sample.order)
    subsets = _linear_candidates(op, point)
    for s in subsets:
        bundle.add(_name(s), _direct_transpose(point, outs, s, parts), quiet=True)
    for _ in range(ROUNDS):
        directions = point.direction(), point.direction()
        _compare_round(bundle, point, outs, directions, weights, sample, report)
        weights = [normal(rng, w) for w in weights]
    for s in subsets:
        _compare_direct(bundle, point, outs, s, weights, sample, report)


def _out_types(op: Op, point: _Point) -> list[Any]:
    found = op.type_rule(op, *[type_of(a) for a in point.args], **point.params)
    return list(found) if op.multiple else [found]


def _add_functions(
    bundle: Bundle, point: _Point, outs: list[int], out_types: list, parts: tuple, order: int
) -> None:
    xs, ts, us, ws = parts

    def tangent(*args: Any) -> list[Any]:
        return _tangent(point.function, args[xs], point.spread(args[ts]), outs)

    def second(*args: Any) -> list[Any]:
        def once(*primals: Any) -> list[Any]:
            return _tangent(point.function, primals, point.spread(args[ts]), outs)

        return _tangent(once, args[xs], point.spread(args[us]), list(range(len(outs))))

    def cotangent(*args: Any) -> list[Any]:
        cts = dict(zip(outs, args[ws], strict=True))
        _, linear = linearize(point.function, list(args[xs]))
        found = transposed(linear, [cts.get(i) for i in range(len(out_types))])
        types = [type_of(args[xs][i]) for i in point.active]
        return filled([found[i] for i in point.active], types, "cotangent")

    bundle.add("value in 64 bits", lambda *args: point.function(*args[xs]))
    bundle.add("jvp", tangent)
    bundle.add("transpose", cotangent)
    if order >= 2 and "jvp" in bundle.programs:
        bundle.add("jvp of jvp", second)


def _tangent(fun: Callable, primals: Any, tangents: Any, outs: list[int]) -> list[Any]:
    values, found = push_forward(fun, list(primals), tangents, current().interpreter)
    return filled([found[i] for i in outs], [type_of(values[i]) for i in outs], "tangent")


def transposed(linear: LinearFunction, cts: Sequence[Any]) -> list[Any]:
    """Cotangents of the arguments; None for zero."""
    given = [ct for ct, active in zip(cts, linear.active_out, strict=True) if active]
    found = iter(transpose(linear.program, linear.captured, given))
    return [next(found) if active else None for active in linear.active_in]


def _compare_round(
    bundle: Bundle, point: _Point, outs: list[int], directions: tuple, weights: list,
    sample: Sample, report: Report,
) -> None:
    t, u = directions
    run = functools.partial(_run, bundle, t, u, weights)
    here = run(point.args)
    if "value in 64 bits" not in here:
        return
    changes = _differences(run, point, t, "value in 64 bits")
    slopes = [changes[i] for i in outs]
    looseness = sample.tolerance or 0.0
    if "jvp" in here:
        for i, came, wanted in zip(outs, here["jvp"], slopes, strict=True):
            report.compare(f"jvp (result {i})", came, wanted, max(FIRST, looseness))
    if "transpose" in here:
        left, right = product(slopes, weights), product(t, here["transpose"])
        if not np.isclose(left, right, rtol=max(FIRST, looseness), atol=max(FIRST, looseness)):
            report.add("transpose", f"Σ t·(Jᵀ w) = {right:.9g}", f"Σ (J t)·w = {left:.9g}")
    if "jvp of jvp" in here:
        curves = _differences(run, point, u, "jvp")
        for i, came, wanted in zip(outs, here["jvp of jvp"], curves, strict=True):
            report.compare(f"jvp of jvp (result {i})", came, wanted, max(SECOND, looseness))


def _run(bundle: Bundle, t: list, u: list, weights: list, args: list) -> dict[str, list]:
    return bundle.run([*args, *t, *u, *weights])


def _differences(run: Callable, point: _Point, direction: list, name: str) -> list[np.ndarray]:
    ahead = run(point.moved(direction, STEP))[name]
    behind = run(point.moved(direction, -STEP))[name]
    return [
        (a - b) / (2 * STEP) if is_inexact(a.dtype) else np.zeros_like(a)
        for a, b in zip(ahead, behind, strict=True)
    ]


def product(left: Sequence[Any], right: Sequence[Any]) -> float:
    """The real inner product of two lists of values, in which None is zero."""
    pairs = [(wide(a), wide(b)) for a, b in zip(left, right, strict=True)
             if a is not None and b is not None]
    return float(sum(np.real(np.sum(a * b)) for a, b in pairs))


# -- the transpose rule itself, called with `Linear` arguments --


def _linear_candidates(op: Op, point: _Point) -> list[tuple[int, ...]]:
    """Subsets of operands in which the op may be linear: single ones, all, pairs of up to three."""
    if op.transpose is None:
        return []
    active = point.active
    sizes = {1, len(active)} | ({2} if len(active) <= 3 else set())
    return [s for size in sorted(sizes) for s in itertools.combinations(active, size)]


def _name(subset: tuple[int, ...]) -> str:
    return f"transpose of operands {subset}"


def _direct_transpose(
    point: _Point, outs: list[int], subset: tuple[int, ...], parts: tuple
) -> Callable:
    xs, _, _, ws = parts
    rule = point.op.transpose

    def run(*args: Any) -> list[Any]:
        values = [Linear(type_of(a)) if i in subset else a for i, a in enumerate(args[xs])]
        cts = args[ws]
        if point.op.multiple:
            by_result = dict(zip(outs, cts, strict=True))
            count = len(_out_types(point.op, point))
            ct: Any = [by_result.get(i) for i in range(count)]
        else:
            (ct,) = cts
        if rule is None:
            raise point.op.missing("transpose", "reverse-mode differentiation")
        found = rule(point.op, ct, *values, **point.params)
        if len(found) != len(values):
            raise ValueError(
                f"the rule returned {len(found)} cotangents for {len(values)} operands"
            )
        types = [values[i].aval for i in subset]
        return filled([found[i] for i in subset], types, "cotangent")

    return run


def _compare_direct(
    bundle: Bundle, point: _Point, outs: list[int], subset: tuple[int, ...], weights: list,
    sample: Sample, report: Report,
) -> None:
    one, other = point.direction(), point.direction()
    run = functools.partial(_run, bundle, one, other, weights)
    if "value in 64 bits" not in bundle.programs:
        return
    values = [run(_replaced(point, subset, a, one, b, other))["value in 64 bits"]
              for a, b in ((1, 0), (0, 1), (2, -3))]
    first, second, mixed = ([v[i] for i in outs] for v in values)
    expected = [2 * a - 3 * b for a, b in zip(first, second, strict=True)]
    if not all(np.allclose(m, e, rtol=1e-9, atol=1e-9)
               for m, e in zip(mixed, expected, strict=True)):
        return  # not linear in these operands
    if all(not v.any() for v in [*first, *second]):
        return  # zero everywhere: trivially linear
    name = _name(subset)
    if name in bundle.errors:
        report.raised(name, bundle.errors[name])
        return
    cts = run(point.args)[name]
    tangents = [one[point.active.index(i)] for i in subset]
    left, right = product(first, weights), product(tangents, cts)
    if not np.isclose(left, right, rtol=FIRST, atol=FIRST):
        report.add(name, f"Σ v·(Jᵀ w) = {right:.9g}", f"Σ (J v)·w = {left:.9g}")


def _replaced(
    point: _Point, subset: tuple[int, ...], a: float, one: list, b: float, other: list
) -> list[Any]:
    """The arguments, with those of `subset` replaced by a·one + b·other."""
    args = list(point.args)
    for i in subset:
        at = point.active.index(i)
        args[i] = np.asarray(a * one[at] + b * other[at])
    return args
