"""Ordinary differential equations: `experimental.ode.odeint`.

    ys = odeint(lambda y, t, k: -k * y, y0, times, k)

Method: J. R. Dormand, P. J. Prince, "A family of embedded Runge-Kutta formulae", 1980, of order 5
with an error of order 4; interpolation by L. F. Shampine, "Some practical Runge-Kutta formulas",
1986. The first step is that of E. Hairer, S. P. Nørsett, G. Wanner, "Solving ordinary differential
equations I", II.4. Reverse mode solves the adjoint equation backwards (R. T. Q. Chen et al.,
"Neural ordinary differential equations", 2018); it stores the values at the given times.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.autodiff.grad import jvp, vjp
from shardwise._src.autodiff.jvp_vjp import closure_convert
from shardwise._src.control.scan_api import scan
from shardwise._src.control.while_api import while_loop
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.custom.linear_call import linear_call
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.creation import as_operand, asarray
from shardwise._src.numpy.joining import concatenate, stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.unary import absolute, sqrt
from shardwise._src.runtime.pytree import flatten
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import join_types
from shardwise._src.types.dtypes import is_complex, is_float, is_inexact
from shardwise._src.values.binary import maximum, minimum
from shardwise._src.values.convert import promote_inexact

_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (
    35 / 384 - 1951 / 21600,
    0,
    500 / 1113 - 22642 / 50085,
    125 / 192 - 451 / 720,
    -2187 / 6784 + 12231 / 42400,
    11 / 84 - 649 / 6300,
    -1 / 60,
)
_MIDDLE = tuple(
    c / 2
    for c in (
        6025192743 / 30085553152,
        0,
        51252292925 / 65400821598,
        -2691868925 / 45128329728,
        187940372067 / 1594534317056,
        -1776094331 / 19743644256,
        11237099 / 235043384,
    )
)


def _combined(y: Any, dt: Any, weights: Any, ks: Any) -> Any:
    """y + dt Σ weight · k; without y if y is None."""

    def leaf(*xs: Any) -> Any:
        parts = [k * w for k, w in zip(xs[1:] if y is not None else xs, weights, strict=True) if w]
        moved = functools.reduce(operator.add, parts)
        moved = moved * dt.astype(moved.real.dtype)
        return xs[0] + moved if y is not None else moved

    return tree_map(leaf, *([y] if y is not None else []), *ks)


def _norm(error: Any, scales: Any) -> Any:
    """The root mean square of errors relative to their scales."""
    leaves = [absolute(e) / s for e, s in zip(flatten(error)[0], flatten(scales)[0], strict=True)]
    count = sum([type_of(x).size for x in leaves])
    return sqrt(functools.reduce(operator.add, [(x * x).sum() for x in leaves]) / max(count, 1))


def _stepped(func: Any, y: Any, f: Any, t: Any, dt: Any) -> tuple[Any, Any, Any]:
    """The next value, the error, and the derivatives, the last of which is at the next value."""
    ks = [f]
    new = y
    for at, weights in zip(_TIMES, _STAGES, strict=True):
        new = _combined(y, dt, weights, ks)
        ks.append(func(new, t + dt * at))
    return new, _combined(None, dt, _ERROR, ks), ks


def runge_kutta_step(
    func: Callable[..., Any], y0: Array, f0: Array, t0: Array, dt: Array
) -> tuple[Array, Array, Array, Array]:
    """One step of the Dormand-Prince method, from t0 to t0 + dt.

    Args:
      func: `func(y, t)`, the derivative.
      y0, f0: a vector, and its derivative.

    Returns:
      the vector at the end, its derivative, the error, and the seven derivatives, f32[7,n].
    """
    new, error, ks = _stepped(func, asarray(y0), asarray(f0), asarray(t0), asarray(dt))
    return new, ks[-1], error, stack(ks)


def fit_4th_order_polynomial(
    y0: Array, y1: Array, y_mid: Array, dy0: Array, dy1: Array, dt: Array
) -> tuple[Array, ...]:
    """Coefficients of the interpolating polynomial of a step, over [0, 1]; highest power first.

    Args:
      y0, y1, y_mid: values at the ends and in the middle of the step.
      dy0, dy1: derivatives at its ends.
      dt: its length.
    """
    step = asarray(dt).astype(y0.real.dtype)
    d0, d1 = step * dy0, step * dy1
    return (
        2 * (d1 - d0) - 8 * (y0 + y1) + 16 * y_mid,
        5 * d0 - 3 * d1 + 18 * y0 + 14 * y1 - 32 * y_mid,
        -4 * d0 + d1 - 11 * y0 - 5 * y1 + 16 * y_mid,
        d0,
        y0,
    )


def interp_fit_dopri(y0: Array, y1: Array, k: Array, dt: Array) -> Array:
    """`fit_4th_order_polynomial` for a step of `runge_kutta_step` with stacked derivatives k."""
    middle = _combined(y0, asarray(dt), _MIDDLE, list(k))
    return stack(fit_4th_order_polynomial(y0, y1, middle, k[0], k[-1], dt))


def abs2(x: ArrayLike) -> Array:
    """The square of the absolute value."""
    v: Any = asarray(x)
    return v.real * v.real + v.imag * v.imag if is_complex(v.dtype) else v * v


def mean_error_ratio(
    error_estimate: Array, rtol: float, atol: float, y0: Array, y1: Array
) -> Array:
    """The root mean square error of a step from y0 to y1, relative to the tolerance."""
    return _norm(error_estimate, _scales(y0, y1, rtol, atol))


def _scales(before: Any, after: Any, rtol: float, atol: float) -> Any:
    return tree_map(lambda a, b: atol + rtol * maximum(absolute(a), absolute(b)), before, after)


def optimal_step_size(
    last_step: Array,
    mean_error_ratio: Array,
    safety: float = 0.9,
    ifactor: float = 10.0,
    dfactor: float = 0.2,
    order: float = 5.0,
) -> Array:
    """The length of the next step, from the length and error of the last one.

    Args:
      mean_error_ratio: of the last step, which is repeated if its error is too large.
      safety: a factor below 1 for the predicted step size.
      ifactor, dfactor: the largest and the smallest ratio of step sizes.
      order: of the method.
    """
    least = where(mean_error_ratio < 1, 1, dfactor)
    exact = mean_error_ratio == 0
    factor = where(exact, 1, mean_error_ratio) ** (-1 / order)
    return last_step * where(exact, ifactor, minimum(ifactor, maximum(safety * factor, least)))


def initial_step_size(
    fun: Callable[..., Any], t0: Array, y0: Array, order: float, rtol: float, atol: float, f0: Array
) -> Array:
    """The length of a first step from y0 with derivative f0, for a method of this order."""
    return _first_step(fun, asarray(y0), asarray(f0), asarray(t0), rtol, atol, order)


def _first_step(
    func: Any, y: Any, f: Any, t: Any, rtol: float, atol: float, order: float = 4
) -> Any:
    scales = tree_map(lambda v: atol + absolute(v) * rtol, y)
    size = sum([type_of(v).size for v in flatten(y)[0]]) ** 0.5  # norms there are not means
    d0, d1 = _norm(y, scales) * size, _norm(f, scales) * size
    little = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = where(little, 1e-6, 0.01 * d0 / where(little, 1, d1)).astype(t.dtype)
    other = func(_combined(y, h0, (1.0,), [f]), t + h0)
    d2 = _norm(tree_map(operator.sub, other, f), scales) * size / h0
    most = maximum(d1, d2)
    flat = most <= 1e-15
    h1 = where(flat, maximum(1e-6, h0 * 1e-3), (0.01 / where(flat, 1, most)) ** (1 / (order + 1)))
    return minimum(100 * h0, h1).astype(t.dtype)


def _forward(func: Any, options: Any, y0: Any, ts: Any, args: Any) -> Any:
    rtol, atol, mxstep, hmax = options

    def slope(y: Any, t: Any) -> Any:
        return tree_map(lambda f, v: asarray(f).astype(v.dtype), func(y, t, *args), y)

    def reached(carry: Any, target: Any) -> tuple[Any, Any]:
        def goes_on(state: Any) -> Any:
            i, (_, _, t, dt, _, _) = state
            found = (t < target) & (dt > 0)
            return found & (i < mxstep) if mxstep != np.inf else found

        def step(state: Any) -> Any:
            i, (y, f, t, dt, last, curve) = state
            new, error, ks = _stepped(slope, y, f, t, dt)
            slope_there, middle = ks[-1], _combined(y, dt, _MIDDLE, ks)
            ratio = _norm(error, _scales(y, new, rtol, atol))
            size = optimal_step_size(dt, ratio).clip(0, hmax).astype(dt.dtype)
            ends = y, new, middle, f, slope_there
            fitted = tree_map(
                lambda a, b, c, d, e: fit_4th_order_polynomial(a, b, c, d, e, dt), *ends
            )
            moved = new, slope_there, t + dt, size, t, _leaves_of(fitted, y)
            stayed = y, f, t, size, last, curve
            return i + 1, tree_map(lambda a, b: where(ratio <= 1, a, b), moved, stayed)

        _, carry = while_loop(goes_on, step, (0, carry))
        _, _, t, _, last, curve = carry
        place = (target - last) / (t - last)

        def value(*coefficients: Any) -> Any:
            x = place.astype(coefficients[0].real.dtype)
            return functools.reduce(lambda total, c: total * x + c, coefficients)

        return carry, tree_map(value, *curve)

    f0 = slope(y0, ts[0])
    dt = _first_step(slope, y0, f0, ts[0], rtol, atol).clip(0, hmax).astype(ts.dtype)
    curve = tuple([y0] * 5)
    _, ys = scan(reached, (y0, f0, ts[0], dt, ts[0], curve), ts[1:])
    return tree_map(lambda v, rest: concatenate([v[None], rest]), y0, ys)


def _leaves_of(fitted: Any, y: Any) -> Any:
    """Pytrees of coefficients, from a pytree of tuples of coefficients."""
    leaves, tree = flatten(y)
    flat = flatten(fitted)[0]
    return tuple([tree.unflatten(flat[i::5]) for i in range(5)]) if leaves else (y,) * 5


@functools.partial(custom_jvp, nondiff_argnums=(0, 1))
def _solved(func: Any, options: Any, y0: Any, ts: Any, args: Any) -> Any:
    return _forward(func, options, y0, ts, args)


_solved.name = "odeint"


@_solved.defjvp
def _solved_jvp(func: Any, options: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The tangents of the solution, whose transpose solves the adjoint equation."""
    y0, ts, args = primals
    ys = _solved(func, options, y0, ts, args)
    given = [flatten(x)[0] for x in (args, tangents[2])]
    moving = tuple([i for i, x in enumerate(given[0]) if is_inexact(type_of(x).dtype)])

    def tangent(residuals: Any, moved: Any) -> Any:
        ys, ts, leaves = residuals

        def solve(y0: Any, ts: Any, chosen: Any) -> Any:
            return _forward(func, options, y0, ts, _filled(args, leaves, moving, chosen))

        start = tree_map(lambda v: v[0], ys), ts, [leaves[i] for i in moving]
        return jvp(solve, start, moved)[1]

    def adjoint(residuals: Any, ct: Any) -> Any:
        return _adjoint(func, options, args, moving, residuals, ct)

    moved = *tangents[:2], [given[1][i] for i in moving]
    return ys, linear_call(tangent, adjoint, (ys, ts, list(map(asarray, given[0]))), moved)


def _filled(args: Any, leaves: Any, moving: tuple[int, ...], chosen: Any) -> Any:
    """The arguments with the leaves at the positions `moving` replaced."""
    found = list(leaves)
    for i, x in zip(moving, chosen, strict=True):
        found[i] = x
    return flatten(args)[1].unflatten(found)


def _adjoint(
    func: Any, options: Any, args: Any, moving: tuple[int, ...], residuals: Any, ct: Any
) -> Any:
    """Backwards through the times: the state and the cotangents of the state, t and args."""
    ys, ts, leaves = residuals

    def plain(y: Any, t: Any, chosen: Any, leaves: Any) -> Any:
        slope = func(y, t, *_filled(args, leaves, moving, chosen))
        return tree_map(lambda f, v: asarray(f).astype(v.dtype), slope, y)

    chosen = [leaves[i] for i in moving]

    def backwards(state: Any, t: Any, chosen: Any, leaves: Any) -> Any:
        y, y_bar, _, _ = state
        slope, back = vjp(lambda y, t, chosen: plain(y, t, chosen, leaves), y, -t, chosen)
        y_ct, t_ct, chosen_ct = back(y_bar)
        return tree_map(operator.neg, slope), y_ct, t_ct, chosen_ct

    def step(carry: Any, at: Any) -> tuple[Any, Any]:
        y_bar, t_bar, chosen_bar = carry
        y, t, before, ct_here, ct_before = at
        pairs = zip(flatten(plain(y, t, chosen, leaves))[0], flatten(ct_here)[0], strict=True)
        moved = sum([(a * b).sum().real.astype(t.dtype) for a, b in pairs])
        state = (y, y_bar, t_bar - moved, chosen_bar)
        times = concatenate([-t[None], -before[None]])
        found = _solved(backwards, options, state, times, (chosen, leaves))
        _, y_bar, t_bar, chosen_bar = tree_map(lambda v: v[1], found)
        return (tree_map(operator.add, y_bar, ct_before), t_bar, chosen_bar), moved

    def part(x: Any, cut: slice) -> Any:
        return tree_map(lambda v: v[cut], x)

    late, early = slice(None, 0, -1), slice(-2, None, -1)
    start = tree_map(lambda v: v[-1], ct), ts[0] * 0, [x * 0 for x in chosen]
    if ts.shape[0] < 2:
        y_bar, t_first, chosen_bar, rest = *start, ts[:0]
    else:
        steps = part(ys, late), ts[late], ts[early], part(ct, late), part(ct, early)
        (y_bar, t_first, chosen_bar), moved = scan(step, start, steps)
        rest = moved[::-1]
    return y_bar, concatenate([t_first[None], rest]), chosen_bar


def _derivative_like(slope: Any, y: Any) -> Any:
    """The derivative as a pytree like y: per leaf, or from as many elements in the same order."""
    (leaves, tree), found = flatten(y), [asarray(as_operand(x)) for x in flatten(slope)[0]]
    wanted, given = [v.shape for v in leaves], [x.shape for x in found]
    if len(given) == len(wanted) and all(map(_fits, given, wanted)):
        return tree.unflatten(found)
    if sum(x.size for x in found) != sum(v.size for v in leaves):
        raise TypeError(
            "odeint: func must return an array or pytree of arrays like y0, "
            f"{join_types(map(type_of, leaves))}; it returned {join_types(map(type_of, found))}."
        )
    flat = concatenate([x.reshape(-1) for x in found])
    ends = np.cumsum([v.size for v in leaves])
    parts = [flat[end - v.size : end].reshape(v.shape) for end, v in zip(ends, leaves, strict=True)]
    return tree.unflatten(parts)


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a value of the first shape can be broadcast to the second."""
    pairs = zip(reversed(shape), reversed(other), strict=False)
    return len(shape) <= len(other) and all(a in (1, b) for a, b in pairs)


@hides_frames
def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: ArrayLike,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> Any:
    """The solution of dy / dt = func(y, t, *args), y(t[0]) = y0, at given times.

    Args:
      func: returns a pytree like y0, or one with as many elements in the same order, such as a list
        of scalars for a vector. Values that it closes over are differentiated, too.
      y0: a pytree of arrays of floats or complex numbers; integers become floats.
      t: a vector of floats, strictly ascending.
      args: pytrees of arrays.
      rtol, atol: the relative and absolute error tolerance of a step.
      mxstep: the maximum number of steps from one time to the next.
      hmax: the maximum step size.

    Returns:
      A pytree like y0, with a new first dimension for the times. Leaves keep their shardings.

    Raises:
      TypeError: if t is not a float array, or func returns other sizes.
    """
    leaves, tree = flatten(y0)
    y0 = tree.unflatten([asarray(promote_inexact(as_operand(x))[0]) for x in leaves])
    ts = asarray(as_operand(t))
    if ts.ndim != 1 or not ts.shape[0] or not is_float(ts.dtype):
        raise TypeError(f"odeint: t must be a vector of floats; got {type_of(ts).str_short(True)}.")
    given, shape = flatten(args)
    args = shape.unflatten([as_operand(x) for x in given])

    def slope(y: Any, t: Any, *args: Any) -> Any:
        return _derivative_like(func(y, t, *args), y)

    converted, values = closure_convert(slope, y0, ts[0], *args)
    options = float(rtol), float(atol), float(mxstep), float(hmax)
    return _solved(converted, options, y0, ts, (*args, *values))
