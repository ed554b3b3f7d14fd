"""Checks of derivatives against finite differences: of the library, and user-defined ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.pytree import flatten
from shardwise._src.testing.derivatives import normal, transposed
from shardwise._src.testing.running import filled
from shardwise._src.testing.sample import wide
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.transforms.linearize import linearize
from shardwise._src.types.dtypes import float0, is_inexact

_STEPS = {8: 1e-5, 4: 2e-3, 2: 5e-2}
_TOLERANCES = {8: 1e-5, 4: 3e-2, 2: 0.3}


def check_grads(
    f: Callable, args: Sequence[Any], order: int,
    modes: str | Sequence[str] = ("fwd", "rev"), atol: float | None = None,
    rtol: float | None = None, eps: float | None = None,
) -> None:
    """Checks the derivatives of `f` at `args` in random directions.

    f:     takes arrays, or pytrees of arrays, and returns a pytree of arrays.
    args:  a tuple of arguments; arguments that are not inexact are constant.
    order: of the highest derivative; each mode is applied to the result of the other.
    modes: "fwd" for jvp, "rev" for vjp.
    atol, rtol, eps: tolerances and the step; the defaults depend on the dtypes.
    Raises AssertionError naming the derivative that differs.
    """
    modes = (modes,) if isinstance(modes, str) else modes
    unknown = set(modes) - {"fwd", "rev"}
    if unknown:
        raise ValueError(f"modes must be among 'fwd' and 'rev'; got {sorted(unknown)}.")
    flat, xs, _ = _flat(f, args)
    _checker(xs, modes, eps, atol, rtol).check(flat, xs, order, "f")


def check_jvp(
    f: Callable, f_jvp: Callable, args: Sequence[Any], atol: float | None = None,
    rtol: float | None = None, eps: float = 1e-4, err_msg: str = "",
) -> None:
    """Checks a function that returns values and tangents against finite differences of `f`.

    f:     takes arrays, or pytrees of arrays, and returns a pytree of arrays.
    f_jvp: takes tuples of arguments and tangents, and returns a pair of the value of `f` and its
           tangent, like `partial(jvp, f)`. Tangents of non-inexact arguments have dtype float0.
    atol, rtol: the defaults depend on the dtypes. eps: the step.
    Raises AssertionError, beginning with `err_msg`, naming the mismatch.
    """
    flat, xs, tree = _flat(f, args)
    checker = _checker(xs, (), eps, atol, rtol, err_msg)
    tangents = checker.directions(xs)
    outs, slopes = checker.differences(flat, xs, tangents)
    given = [_no_tangent(x) if t is None else t for x, t in zip(xs, tangents, strict=True)]
    values, moved_by = f_jvp(tree.unflatten(xs), tree.unflatten(given))
    for i, (came, wanted) in enumerate(zip(flatten(values)[0], outs, strict=True)):
        checker.same(np.asarray(came), wide(wanted), f"value of f_jvp, result {i}", "f's value")
    for i, (came, out) in enumerate(zip(flatten(moved_by)[0], outs, strict=True)):
        if is_inexact(out.dtype):
            checker.same(np.asarray(came), slopes[i], f"tangent of f_jvp, result {i}")


def check_vjp(
    f: Callable, f_vjp: Callable, args: Sequence[Any], atol: float | None = None,
    rtol: float | None = None, eps: float = 1e-4, err_msg: str = "",
) -> None:
    """Checks a function that returns values and pullbacks against finite differences of `f`.

    f_vjp: takes arguments and returns a pair of the value of `f` and a function from its cotangents
           to a tuple of cotangents of the arguments, like `partial(vjp, f)`.
    The other arguments are as in `check_jvp`. Raises AssertionError likewise.
    """
    flat, xs, tree = _flat(f, args)
    checker = _checker(xs, (), eps, atol, rtol, err_msg)
    tangents = checker.directions(xs)
    outs, slopes = checker.differences(flat, xs, tangents)
    value, pull = f_vjp(*tree.unflatten(xs))
    values, out_tree = flatten(value)
    for i, (came, wanted) in enumerate(zip(values, outs, strict=True)):
        checker.same(np.asarray(came), wide(wanted), f"value of f_vjp, result {i}", "f's value")
    cts = checker.directions(outs)
    filled_in = [_no_tangent(o) if ct is None else ct for o, ct in zip(outs, cts, strict=True)]
    back = flatten(pull(out_tree.unflatten(filled_in)))[0]
    left, right = checker.product(slopes, cts), checker.product(tangents, back)
    checker.same(np.asarray(right), np.asarray(left), "cotangents of f_vjp, inner product")


def _flat(f: Callable, args: Sequence[Any]) -> tuple[Callable[..., list[Any]], list[Any], Any]:
    """`f` as a function of leaves, the leaves as arrays, and the treedef of the arguments."""
    leaves, tree = flatten(tuple(args))

    def flat(*xs: Any) -> list[Any]:
        return flatten(f(*tree.unflatten(list(xs))))[0]

    return flat, [EAGER.array(x) for x in leaves], tree


def _checker(
    xs: Sequence[Any], modes: Sequence[str], eps: float | None, atol: float | None,
    rtol: float | None, head: str = "",
) -> _Checker:
    width = min([_width(x) for x in xs if is_inexact(x.dtype)], default=8)
    tol = _TOLERANCES[width]
    tols = tol if atol is None else atol, tol if rtol is None else rtol
    return _Checker(modes, eps or _STEPS[width], *tols, head)


def _no_tangent(x: Any) -> np.ndarray:
    return np.zeros(x.shape, float0)


def _width(x: Any) -> int:
    """The number of bytes of a real number of the dtype."""
    dtype = x.dtype
    return min(max(dtype.itemsize // (2 if dtype.kind == "c" else 1), 2), 8)


class _Checker:
    def __init__(
        self, modes: Sequence[str], eps: float, atol: float, rtol: float, head: str = ""
    ):
        self.modes, self.eps, self.atol, self.rtol = modes, eps, atol, rtol
        self.head = f"{head}\n" if head else ""  # the start of messages
        self.rng = np.random.default_rng(0)

    def check(self, fun: Callable, xs: list[Any], order: int, name: str) -> None:
        if order == 0:
            return
        tangents = self.directions(xs)
        outs, slopes = self.differences(fun, xs, tangents)
        if "fwd" in self.modes:
            def forward(*args: Any) -> list[Any]:
                values, found = push_forward(fun, args, tangents, current().interpreter)
                return filled(found, [type_of(v) for v in values], "tangent")

            for i, (came, wanted) in enumerate(zip(forward(*xs), slopes, strict=True)):
                self.same(np.asarray(came), wanted, f"jvp of {name}, result {i}")
            self.check(forward, xs, order - 1, f"jvp of {name}")
        if "rev" in self.modes:
            cts = self.directions(outs)

            def backward(*args: Any) -> list[Any]:
                _, linear = linearize(fun, args)
                found = transposed(linear, cts)
                return filled(found, [type_of(a).strong() for a in args], "cotangent")

            left = self.product(slopes, cts)
            right = self.product(tangents, backward(*xs))
            self.same(np.asarray(right), np.asarray(left), f"vjp of {name}, inner product")
            self.check(backward, xs, order - 1, f"vjp of {name}")

    def directions(self, xs: Sequence[Any]) -> list[Any]:
        """A random value with the type of each inexact value; None for the others."""
        return [self.like(x) if is_inexact(x.dtype) else None for x in xs]

    def like(self, x: Any) -> Any:
        value = normal(self.rng, np.zeros(x.shape, x.dtype))
        return EAGER.array(value.astype(x.dtype))

    def differences(self, fun: Callable, xs: list, tangents: list) -> tuple[list, list]:
        outs = [np.asarray(o) for o in fun(*xs)]
        ahead, behind = (
            fun(*[x if t is None else moved(x, t, sign * self.eps)
                  for x, t in zip(xs, tangents, strict=True)])
            for sign in (1, -1)
        )
        slopes = [
            (wide(a) - wide(b)) / (2 * self.eps) if is_inexact(o.dtype) else np.zeros(o.shape)
            for o, a, b in zip(outs, ahead, behind, strict=True)
        ]
        return outs, slopes

    def product(self, left: list, right: list) -> float:
        pairs = [(wide(a), wide(b)) for a, b in zip(left, right, strict=True)
                 if a is not None and b is not None]
        return float(sum(np.real(np.sum(a * b)) for a, b in pairs))

    def same(
        self, came: np.ndarray, expected: np.ndarray, what: str,
        other: str = "finite differences",
    ) -> None:
        if not np.allclose(wide(came), expected, rtol=self.rtol, atol=self.atol):
            whats = "derivatives differ" if other == "finite differences" else "it differs"
            raise AssertionError(
                f"{self.head}{what}: {whats} from {other}.\n"
                f"  got:      {came}\n  expected: {expected}"
            )


def moved(x: Any, direction: Any, step: float) -> Any:
    value = wide(x) + step * wide(direction)
    return EAGER.array(value.astype(np.asarray(x).dtype))
