"""Iterative solvers of linear systems, under SciPy's names: cg, bicgstab, gmres.

    x, _ = cg(lambda v: a @ v, b)
    x, info = gmres(a, b, M=preconditioner)

Operators map pytrees of arrays like `b` to such pytrees; their shardings are preserved. The
solution is differentiated implicitly (`lax.custom_linear_solve`): derivatives are solutions of
further systems, and as accurate as these.

Sources: Y. Saad, "Iterative methods for sparse linear systems", 2003; H. A. van der Vorst,
"Bi-CGSTAB", 1992.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.control.while_api import fori_loop, while_loop
from shardwise._src.core.infer import type_of
from shardwise._src.custom.implicit import custom_linear_solve
from shardwise._src.linalg.linear_systems import lstsq
from shardwise._src.numpy.creation import as_operand, asarray, zeros
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.products.contractions import matmul, tensordot
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.statistics.reductions import sum as total
from shardwise._src.numpy.triangles import eye
from shardwise._src.numpy.unary import absolute, sqrt
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.dtypes import finfo, is_complex, real_dtype
from shardwise._src.values.binary import maximum, minimum
from shardwise._src.values.convert import cast, joined, promote_inexact

HIGHEST = "highest"


# -- vectors that are pytrees --


def _map(f: Callable[..., Any], *trees: Any) -> Any:
    tree = flatten(trees[0])[1]
    return tree.unflatten([f(*xs) for xs in zip(*[flatten(t)[0] for t in trees], strict=True)])


def _add(x: Any, y: Any) -> Any:
    return _map(operator.add, x, y)


def _sub(x: Any, y: Any) -> Any:
    return _map(operator.sub, x, y)


def _times(scalar: Any, x: Any) -> Any:
    return _map(lambda v: (_like(scalar, v) * v).astype(v.dtype), x)


def _like(scalar: Any, v: Any) -> Any:
    """A real or complex scalar to multiply `v` by, also under strict promotion."""
    return scalar.astype(v.dtype) if is_complex(v.dtype) else scalar


def _vdot(x: Any, y: Any) -> Any:
    """The sum of conj(x) times y, over sharded arrays without gathering them."""
    return functools.reduce(operator.add, flatten(_map(lambda a, b: total(a.conj() * b), x, y))[0])


def _square(x: Any) -> Any:
    return _vdot(x, x).real


def _as_weak_as(b: Any, x: Any) -> Any:
    """`x` with the weak types of `b`, which the implicit solution removes."""
    return _map(lambda v, x: cast(x, x.dtype, v.weak_type), b, x)


def _operator(what: str, f: Any) -> Callable[[Any], Any]:
    if f is None:
        return lambda x: x
    if callable(f):
        return f
    shape = getattr(f, "shape", None)
    if shape is None or not hasattr(f, "__matmul__"):
        raise TypeError(f"{what} must be a function or a matrix; got {type(f).__name__}.")
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{what} must be a square matrix; got shape {shape}.")
    if isinstance(f, np.ndarray):
        f = asarray(f)
    if type(f).__matmul__ is not type(asarray(0.0)).__matmul__:
        return lambda x: f @ x
    return lambda x: matmul(f, x, precision=HIGHEST)


def _start(name: str, b: Any, x0: Any) -> tuple[Any, Any, int]:
    """The right-hand side and the initial guess, as arrays of one dtype per leaf; their size."""
    leaves, tree = flatten(b)
    given, other = flatten(x0) if x0 is not None else ([None] * len(leaves), tree)
    if other != tree:
        raise ValueError(f"{name}: x0 must be a pytree like b; got {other} and {tree}.")
    pairs = []
    for v, x in zip(leaves, given, strict=True):
        (v,) = promote_inexact(as_operand(v))
        v = asarray(v)
        x = v * 0 if x is None else asarray(as_operand(x)).astype(v.dtype)
        if x.shape != v.shape:
            raise ValueError(f"{name}: x0 must have the shapes of b; got {x.shape} for {v.shape}.")
        pairs.append((v, x))
    size = sum([type_of(v).size for v, _ in pairs])
    return tree.unflatten([v for v, _ in pairs]), tree.unflatten([x for _, x in pairs]), size


def _solved(
    name: str,
    method: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    tol: Any,
    atol: Any,
    maxiter: int | None,
    M: Any,
    symmetric: bool,
) -> Any:
    b, start, size = _start(name, b, x0)
    matvec, other = _operator(f"{name}: A", A), _operator(f"{name}: M", M)
    turns = 10 * size if maxiter is None else maxiter
    real = not any(is_complex(v.dtype) for v in flatten(b)[0])

    def solve(matvec: Any, b: Any) -> Any:
        least = maximum(tol * tol * _square(b), atol * atol)
        return method(matvec, b, start, least, turns, other)

    x = custom_linear_solve(matvec, b, solve, solve, symmetric=symmetric and real)
    return _as_weak_as(b, x)


# -- conjugate gradients --


def _cg(A: Any, b: Any, x0: Any, least: Any, turns: int, M: Any) -> Any:
    def goes_on(state: Any) -> Any:
        *_, size, k = state
        return (size > least) & (k < turns)

    def step(state: Any) -> Any:
        x, r, p, gamma, _, k = state
        q = A(p)
        alpha = gamma / _vdot(p, q).real
        x, r = _add(x, _times(alpha, p)), _sub(r, _times(alpha, q))
        z = M(r)
        new = _vdot(r, z).real
        return x, r, _add(z, _times(new / gamma, p)), new, _square(r), k + 1

    r = _sub(b, A(x0))
    z = M(r)
    return while_loop(goes_on, step, (x0, r, z, _vdot(r, z).real, _square(r), 0))[0]


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solves A x = b by conjugate gradients, for Hermitian positive definite A.

    Args:
      A: a function from pytrees like b to pytrees like b, or a square matrix, or any object with
        `shape` and `@`.
      b: an array of any shape, or a pytree of arrays, real or complex.
      x0: the initial guess; zero by default.
      tol, atol: it stops when the norm of b - A x is at most max(tol · norm(b), atol), or after
        `maxiter` steps: by default ten per element of b.
      M: an approximation of A's inverse, in the forms of A.

    Returns:
      (x, None): x is a pytree like b.
    """
    return _solved("cg", _cg, A, b, x0, tol, atol, maxiter, M, True), None


# -- biconjugate gradients --


def _bicgstab(A: Any, b: Any, x0: Any, least: Any, turns: int, M: Any) -> Any:
    def goes_on(state: Any) -> Any:
        _, r, *_, k, broken = state
        return (_square(r) > least) & (k < turns) & ~broken

    def step(state: Any) -> Any:
        x, r, p, q, rho, alpha, omega, k, _ = state
        new = _vdot(first, r)
        beta = new / rho * alpha / omega
        p = _add(r, _times(beta, _sub(p, _times(omega, q))))
        turned = M(p)
        q = A(turned)
        alpha = new / _vdot(first, q)
        s = _sub(r, _times(alpha, q))
        x = _add(x, _times(alpha, turned))
        z = M(s)
        t = A(z)
        early = _square(s) < least
        omega = where(early, omega * 0, _vdot(t, s) / where(early, 1, _vdot(t, t)))
        x, r = _add(x, _times(omega, z)), _sub(s, _times(omega, t))
        broken = (new == 0) | (omega == 0) | (alpha == 0)
        return x, r, p, q, new, alpha, omega, k + 1, broken

    r = first = _sub(b, A(x0))
    one = _vdot(r, r) * 0 + 1
    return while_loop(goes_on, step, (x0, r, r, r, one, one, one, 0, one.real < 0))[0]


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solves A x = b by the stabilized biconjugate gradient method, for any A; see `cg`."""
    return _solved("bicgstab", _bicgstab, A, b, x0, tol, atol, maxiter, M, False), None


# -- GMRES --


def _arnoldi(A: Any, M: Any, V: Any, k: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """The next vector of the basis V, leaves [restart + 1, …], and its column of A in the basis.

    Classical Gram-Schmidt, twice.
    """
    w = M(A(_map(lambda v: v[k], V)))
    before = sqrt(_square(w))
    h = zeros(flatten(V)[0][0].shape[0], dtype)
    for _ in range(2):
        more = functools.reduce(
            operator.add,
            flatten(_map(lambda v, x: total(v.conj() * x, axis=tuple(range(1, v.ndim))), V, w))[0],
        )
        w = _map(lambda v, x, c=more: x - tensordot(c, v, 1, precision=HIGHEST), V, w)
        h = h + more
    size = sqrt(_square(w))
    there = size > finfo(before.dtype).eps * before
    size = where(there, size, 0)
    V = _map(
        lambda v, x: v.at[k + 1].set(
            where(there, x / _like(where(there, size, 1), v), 0).astype(v.dtype)
        ),
        V,
        w,
    )
    return V, h.at[k + 1].set(size.astype(dtype)), size


def _batched(A: Any, M: Any, V: Any, size: Any, least: Any, restart: int, dtype: Any) -> Any:
    """Coordinates in the basis, by least squares once the basis is complete."""

    def step(state: Any) -> Any:
        V, H, k, _ = state
        V, h, last = _arnoldi(A, M, V, k, dtype)
        return V, H.at[:, k].set(h), k + 1, last

    H = eye(restart + 1, restart, dtype=dtype)
    V, H, k, _ = while_loop(
        lambda state: (state[2] < restart) & (state[3] > 0), step, (V, H, 0, size)
    )
    rhs = zeros(restart + 1, dtype).at[0].set(size.astype(dtype))
    return V, where(arange(restart) < k, lstsq(H, rhs)[0], 0)


def _incremental(A: Any, M: Any, V: Any, size: Any, least: Any, restart: int, dtype: Any) -> Any:
    """Coordinates in the basis, updated by Givens rotations until they are accurate enough."""

    def rotated(h: Any, i: Any, c: Any, s: Any) -> Any:
        x, y = h[i], h[i + 1]
        return h.at[i].set(c * x + s * y).at[i + 1].set(c * y - s.conj() * x)

    def step(state: Any) -> Any:
        V, R, rhs, turns, k, _ = state
        V, h, _ = _arnoldi(A, M, V, k, dtype)
        h = fori_loop(0, k, lambda i, h: rotated(h, i, turns[i, 0], turns[i, 1]), h)
        a, b = h[k], h[k + 1]
        length = sqrt(absolute(a) ** 2 + absolute(b) ** 2)
        safe = where(length > 0, length, 1)
        c = where(length > 0, absolute(a) / safe, 1).astype(dtype)
        sign = where(a == 0, 1, a / _like(where(a == 0, 1, absolute(a)), a))
        s = where(length > 0, sign * b.conj() / _like(safe, b), 0).astype(dtype)
        turns = turns.at[k, 0].set(c).at[k, 1].set(s)
        rhs = rotated(rhs, k, c, s)
        return V, R.at[:, k].set(rotated(h, k, c, s)), rhs, turns, k + 1, absolute(rhs[k + 1])

    R = eye(restart + 1, restart, dtype=dtype)
    rhs = zeros(restart + 1, dtype).at[0].set(size.astype(dtype))
    state = (V, R, rhs, zeros((restart, 2), dtype), 0, size)
    V, R, rhs, _, k, _ = while_loop(
        lambda state: (state[4] < restart) & (state[5] > least), step, state
    )
    rhs = where(arange(restart) < k, rhs[:-1], 0)
    return V, _by_upper(R[:-1], rhs, restart)


def _by_upper(R: Any, rhs: Any, n: int) -> Any:
    def step(i: Any, y: Any) -> Any:
        j = n - 1 - i
        pivot = R[j, j]
        value = (rhs[j] - tensordot(R[j], y, 1, precision=HIGHEST)) / where(pivot == 0, 1, pivot)
        return y.at[j].set(where(pivot == 0, 0, value))

    return fori_loop(0, n, step, rhs * 0)


_METHODS = {"batched": _batched, "incremental": _incremental}


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Any]:
    """Solves A x = b by the generalized minimal residual method, for any A.

    Args:
      A, b, x0, M: as for `cg`.
      tol, atol: it stops when the norm of M (b - A x) is at most max(tol · norm(b), atol), or
        after `maxiter` restarts: by default ten per element of b.
      restart: the dimension of the Krylov space, after which it restarts.
      solve_method: "batched" solves when the space is complete, "incremental" after each vector,
        and restarts once the residual is small.

    Returns:
      (x, info): info is -1 if x is not a number, for example because A returns NaN, else 0.
    """
    if solve_method not in _METHODS:
        raise ValueError(
            f"gmres: solve_method must be 'batched' or 'incremental'; got {solve_method!r}."
        )
    b, start, size = _start("gmres", b, x0)
    dtype, _ = joined(*flatten(b)[0])
    matvec, other = _operator("gmres: A", A), _operator("gmres: M", M)
    dimension, turns = max(min(restart, size), 1), 10 * size if maxiter is None else maxiter
    run = _METHODS[solve_method]

    def solve(matvec: Any, b: Any) -> Any:
        length = sqrt(_square(b))
        least = maximum(tol * length, atol).astype(real_dtype(dtype))
        nonzero = where(length > 0, length, 1)
        within = sqrt(_square(other(b))) * minimum(least / nonzero, 1)  # per restart

        def left(x: Any) -> tuple[Any, Any]:
            r = other(_sub(b, matvec(x)))
            return r, sqrt(_square(r))

        def step(state: Any) -> Any:
            x, r, size, k = state
            unit = _times(1 / size, r)
            V = _map(lambda v: zeros((dimension + 1, *v.shape), v.dtype).at[0].set(v), unit)
            V, y = run(matvec, other, V, size, within, dimension, dtype)
            x = _map(
                lambda v, u: v + tensordot(y, u[:-1], 1, precision=HIGHEST).astype(v.dtype), x, V
            )
            return x, *left(x), k + 1

        x, _, size, _ = while_loop(
            lambda state: (state[2] > least) & (state[3] < turns), step, (start, *left(start), 0)
        )
        return _map(lambda v: where(size >= 0, v, np.nan).astype(v.dtype), x)

    x = _as_weak_as(b, custom_linear_solve(matvec, b, solve, solve))
    return x, where(_square(x) >= 0, 0, -1)
