"""Minimization of functions of vectors, under SciPy's name.

    found = minimize(lambda x: ((x - 1) ** 2).sum(), x0, method="BFGS")
    found.x, found.success

Source of the algorithms: J. Nocedal, S. J. Wright, "Numerical optimization", 2nd edition, 2006:
6.1 (BFGS), 7.4 and 7.5 (L-BFGS), 3.5 and 3.6 (line search by the strong Wolfe conditions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.autodiff.grad import value_and_grad
from shardwise._src.control.while_api import while_loop
from shardwise._src.linalg.norms import norm as norm_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.creation import asarray, zeros
from shardwise._src.numpy.floats import isfinite
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.products.contractions import dot, matmul, outer
from shardwise._src.numpy.triangles import eye
from shardwise._src.numpy.unary import absolute, sqrt
from shardwise._src.ops.elementwise import complex as make_complex
from shardwise._src.types.annotations import Array
from shardwise._src.types.dtypes import canonicalize, finfo, is_complex
from shardwise._src.values.binary import maximum, minimum
from shardwise._src.values.convert import cast

HIGHEST = "highest"
_DECREASE, _CURVATURE = 1e-4, 0.9  # of the Wolfe conditions
_ZOOMS = 30  # maximum number of trials between two ends


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    x, fun, jac: the final point, and the value and the gradient there.
    success: whether the gradient is small enough.
    status: 0 if so; 1 after too many steps; for BFGS 3 and 5 if the line search failed (between
      two ends, or to find any); for L-BFGS 2 and 3 after too many values and gradients, 4 if the
      value hardly decreased, 5 if the line search failed.
    hess_inv: for BFGS, an estimate of the inverse Hessian.
    nfev, njev, nit: numbers of function evaluations, gradients and steps.
    """

    x: Array
    success: bool | Array
    status: int | Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: int | Array
    njev: int | Array
    nit: int | Array


def _dot(x: Any, y: Any) -> Any:
    return dot(x, y, precision=HIGHEST)


# -- line search --


class _Point(NamedTuple):
    """A step length, with the value and the derivative there."""

    a: Any
    f: Any
    d: Any


class _Search(NamedTuple):
    """low: the best point between the ends, or the previous point; high: the other end."""

    a: Any  # the next trial
    low: _Point
    high: _Point
    zooming: Any
    done: Any
    trials: Any
    zooms: Any
    step: Any
    f: Any
    g: Any


def _either(test: Any, x: Any, y: Any) -> Any:
    return type(x)(*[where(test, a, b) for a, b in zip(x, y, strict=True)])


def _between(low: _Point, high: _Point) -> Any:
    """The minimum of the cubic through both ends, if well inside; else the midpoint."""
    width = high.a - low.a
    first = low.d + high.d + 3 * (low.f - high.f) / where(width == 0, 1, width)
    inner = first * first - low.d * high.d
    second = sqrt(maximum(inner, 0)) * where(width < 0, -1, 1)
    a = high.a - width * (high.d + second - first) / (high.d - low.d + 2 * second)
    near, far = minimum(low.a, high.a), maximum(low.a, high.a)
    margin = 0.1 * (far - near)
    good = (inner >= 0) & (a >= near + margin) & (a <= far - margin)
    return where(good, a, (low.a + high.a) / 2)


def _line_search(fun: Any, x: Any, p: Any, f0: Any, g0: Any, start: Any, most: int) -> Any:
    """(step, value, gradient, trials, failure); failure: 0 none, 1 between ends, 3 otherwise."""
    d0 = _dot(g0, p)
    slack = 2 * finfo(f0.dtype).eps * absolute(f0)  # for rounding errors
    zero = d0 * 0
    origin = _Point(zero, f0, d0)

    def goes_on(s: _Search) -> Any:
        return ~s.done & (s.trials < most + s.zooms) & (s.zooms < _ZOOMS)

    def step(s: _Search) -> _Search:
        f, g = value_and_grad(fun)(x + s.a * p)
        here = _Point(s.a, f, _dot(g, p))
        known = s.zooming | (s.trials > 0)  # whether `low` was evaluated
        # NaN counts as too high.
        high = ~(f <= f0 + _DECREASE * s.a * d0 + slack) | (known & (f > s.low.f + slack))
        good = ~high & (absolute(here.d) <= -_CURVATURE * d0)
        turned = ~high & (here.d * where(s.zooming, s.high.a - s.low.a, 1) >= 0)
        other = _either(high, here, _either(turned, s.low, s.high))
        low = _either(high, s.low, here)
        zooming = s.zooming | high | turned
        a = where(zooming, _between(low, other), 2 * s.a)
        return _Search(
            a,
            low,
            other,
            zooming,
            good,
            s.trials + 1,
            s.zooms + s.zooming.astype(np.int32),
            where(good, s.a, s.step),
            where(good, f, s.f),
            where(good, g, s.g),
        )

    none = f0 != f0
    none = none & ~none
    count = none.astype(np.int32)
    found = while_loop(
        goes_on, step, _Search(start + zero, origin, origin, none, none, count, count, zero, f0, g0)
    )
    failure = where(found.done, 0, where(found.zooming, 1, 3)).astype(np.int32)
    return found.step, found.f, found.g, found.trials, failure


# -- the methods --


def _options(method: str, options: Mapping[str, Any] | None, known: Mapping[str, Any]) -> Any:
    given = dict(options or {})
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise ValueError(
            f"minimize: {method} has no option {unknown[0]!r}; its options are {', '.join(known)}."
        )
    return {**known, **{k: v for k, v in given.items() if v is not None}}


def _small(g: Any, o: Mapping[str, Any]) -> Any:
    return norm_of(o["as_given"](g), ord=o["norm"]) < o["gtol"]


def _split(z: Any) -> Any:
    return concatenate([z.real, z.imag])


def _joined(v: Any) -> Any:
    n = v.size // 2
    return make_complex(v[:n], v[n:])


def _updated(H: Any, s: Any, y: Any, rho: Any) -> Any:
    """(I - ρ s yᵀ) H (I - ρ y sᵀ) + ρ s sᵀ, one factor at a time: in the expanded product, errors
    of the size of H remain in the direction of s, where the result may be much smaller."""
    H = H - rho * outer(s, matmul(H, y, precision=HIGHEST))
    H = H - rho * outer(matmul(H, y, precision=HIGHEST), s)
    return H + rho * outer(s, s)


def _bfgs(fun: Any, x: Any, o: Mapping[str, Any]) -> OptimizeResults:
    most = 200 * x.size if o["maxiter"] is None else o["maxiter"]

    def step(state: Any) -> Any:
        x, f, g, H, before, k, count, _, _ = state
        p = -matmul(H, g, precision=HIGHEST)
        first = 1.01 * 2 * (f - before) / _dot(g, p)
        first = where((first > 0) & (first <= 1), first, 1)
        a, f_new, g_new, trials, failure = _line_search(
            fun, x, p, f, g, first, o["line_search_maxiter"]
        )
        s, y = a * p, g_new - g
        rho = 1 / _dot(y, s)
        H = where(isfinite(rho), _updated(H, s, y, rho), H)
        return x + s, f_new, g_new, H, f, k + 1, count + trials, _small(g_new, o), failure

    f, g = value_and_grad(fun)(x)
    zero = (f * 0).astype(np.int32)
    H, before = eye(x.size, dtype=x.dtype), f + norm_of(g) / 2
    x, f, g, H, _, k, count, done, failure = while_loop(
        lambda s: ~s[7] & (s[8] == 0) & (s[5] < most),
        step,
        (x, f, g, H, before, zero, zero + 1, _small(g, o), zero),
    )
    status = where(done, 0, where(failure > 0, 2 + failure, 1)).astype(np.int32)
    return OptimizeResults(x, done, status, f, g, H, count, count, k)


def _lbfgs(fun: Any, x: Any, o: Mapping[str, Any]) -> OptimizeResults:
    most = [o[name] for name in ("maxiter", "maxfun", "maxgrad")]
    if most == [None] * 3:
        most[0] = 200 * x.size

    def direction(g: Any, S: Any, Y: Any, rho: Any, gamma: Any) -> Any:
        """From the last steps S and gradient changes Y; rho is 0 for missing ones."""
        q, parts = -g, []
        for i in reversed(range(o["maxcor"])):
            parts.append(rho[i] * _dot(S[i], q))
            q = q - parts[-1] * Y[i]
        q = gamma * q
        for i in range(o["maxcor"]):
            q = q + (parts.pop() - rho[i] * _dot(Y[i], q)) * S[i]
        return q

    def step(state: Any) -> Any:
        x, f, g, S, Y, rho, gamma, k, count, _, _ = state
        p = direction(g, S, Y, rho, gamma)
        a, f_new, g_new, trials, failure = _line_search(fun, x, p, f, g, 1.0, o["maxls"])
        s, y = a * p, g_new - g
        product = _dot(y, s)
        good = product > 0
        inverse = where(good, 1 / where(good, product, 1), 0)
        S, Y = [concatenate([old[1:], new[None]]) for old, new in ((S, s), (Y, y))]
        rho = concatenate([rho[1:], inverse[None]])
        gamma = where(good, product / where(good, _dot(y, y), 1), gamma)
        done = _small(g_new, o)
        status = where(f - f_new < o["ftol"], 4, 0)
        for code, (number, limit) in enumerate(zip((k, count, count), most, strict=True), 1):
            if limit is not None:
                status = where((number >= limit) & ((status == 0) | (status == 4)), code, status)
        status = where(done, 0, where(failure > 0, 5, status)).astype(np.int32)
        return x + s, f_new, g_new, S, Y, rho, gamma, k + 1, count + trials, done, status

    f, g = value_and_grad(fun)(x)
    zero = (f * 0).astype(np.int32)
    history = zeros((o["maxcor"], x.size), x.dtype)
    x, f, g, *_, k, count, done, status = while_loop(
        lambda s: ~s[9] & (s[10] == 0),
        step,
        (x, f, g, history, history, history[:, 0], f * 0 + 1, zero, zero + 1, _small(g, o), zero),
    )
    return OptimizeResults(x, done, status, f, g, None, count, count, k)


_METHODS: dict[str, tuple[Callable[..., OptimizeResults], dict[str, Any]]] = {
    "bfgs": (_bfgs, {"maxiter": None, "norm": np.inf, "gtol": 1e-5, "line_search_maxiter": 10}),
    "l-bfgs-experimental-do-not-rely-on-this": (
        _lbfgs,
        {
            "maxiter": None,
            "norm": np.inf,
            "maxcor": 10,
            "ftol": 2.220446049250313e-09,
            "gtol": 1e-5,
            "maxfun": None,
            "maxgrad": None,
            "maxls": 20,
        },
    ),
}


@hides_frames
def minimize(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Finds a local minimum of a function of a vector.

    Args:
      fun: `fun(x, *args)` returns a real scalar, and is differentiable.
      x0: the initial guess, a vector; integers become floats. For L-BFGS it may be complex.
      args: further arguments of `fun`.
      method: "BFGS", or "l-bfgs-experimental-do-not-rely-on-this", which stores only a few vectors.
      tol: the option `gtol`, if that is absent (JAX ignores it).
      options: `gtol`, `norm`: it stops when this norm of the gradient is less; `maxiter`: steps;
        for BFGS `line_search_maxiter`; for L-BFGS `maxcor`, the number of stored vectors, `ftol`,
        `maxfun`, `maxgrad` and `maxls`.

    Returns:
      `OptimizeResults`. It supports `vmap` and `jit`, but, like all loops of unknown length, no
      reverse-mode differentiation.
    """
    if not isinstance(args, tuple):
        raise TypeError(f"minimize: args must be a tuple; got {type(args).__name__}.")
    if method.lower() not in _METHODS:
        raise ValueError(f"minimize: method must be one of {[*_METHODS]}; got {method!r}.")
    run, known = _METHODS[method.lower()]
    if isinstance(x0, dict):
        raise TypeError(
            "minimize: x0 must be a vector of real values; got a dict. "
            "`shardwise.flatten_util.ravel_pytree` converts a pytree to a vector, and the vector "
            "back."
        )
    (x,) = inexact(x0)
    is_split = is_complex(x.dtype)
    if x.ndim != 1 or (is_split and run is _bfgs):
        raise ValueError(
            "minimize: x0 must be a vector, and for BFGS of real values; got shape "
            f"{x.shape} of {x.dtype}."
        )
    chosen = _options(method.lower(), options, known)
    if tol is not None and "gtol" not in (options or {}):
        chosen["gtol"] = tol
    chosen["as_given"] = _joined if is_split else lambda g: g
    if is_split:  # real and imaginary parts are separate variables
        found = run(lambda v: asarray(fun(_joined(v), *args)), _split(x), chosen)
        found = found._replace(x=_joined(found.x), jac=_joined(found.jac).conj())
    else:
        found = run(lambda v: asarray(fun(v, *args)), x, chosen)
    whole = np.dtype(canonicalize(int).name)
    counts = {
        name: cast(getattr(found, name), whole, True) for name in ("status", "nfev", "njev", "nit")
    }
    return found._replace(**counts)
