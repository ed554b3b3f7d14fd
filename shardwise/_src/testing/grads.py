"""Checks of derivatives against finite differences: of the library, and user-defined ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.pytree import flatten
from shardwise._src.testing.derivatives import normal, product, transposed
from shardwise._src.testing.running import filled
from shardwise._src.testing.sample import wide
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.transforms.linearize import linearize
from shardwise._src.types.dtypes import float0, is_inexact

_STEPS = {8: 1e-5, 4: 2e-3, 2: 5e-2}
_TOLERANCES = {8: 1e-5, 4: 3e-2, 2: 0.3}


Tolerance = float | Mapping[Any, float]


def check_grads(
    f: Callable,
    args: Sequence[Any],
    order: int,
    modes: str | Sequence[str] = ("fwd", "rev"),
    atol: Tolerance | None = None,
    rtol: Tolerance | None = None,
    eps: float | None = None,
) -> None:
    """Checks the derivatives of `f` at `args` in random directions.

    f:     takes arrays, or pytrees of arrays, and returns a pytree of arrays.
    args:  a tuple of arguments; arguments that are not inexact are constant.
    order: of the highest derivative; each mode is applied to the result of the other.
    modes: "fwd" for jvp, "rev" for vjp.
    atol, rtol, eps: tolerances and the step; the defaults depend on the dtypes. A dict has a
           tolerance per dtype: that of the narrowest argument is used. A given tolerance is
           multiplied by the number of elements that are compared, as in JAX.
    Raises AssertionError naming the derivative that differs.
    """
    modes = (modes,) if isinstance(modes, str) else modes
    unknown = set(modes) - {"fwd", "rev"}
    if unknown:
        raise ValueError(f"modes must be among 'fwd' and 'rev'; got {sorted(unknown)}.")
    checker = _Checker(f, args, atol, rtol, eps)
    checker.check(checker.flat, modes, order, "f")


def check_jvp(
    f: Callable,
    f_jvp: Callable,
    args: Sequence[Any],
    atol: Tolerance | None = None,
    rtol: Tolerance | None = None,
    eps: float = 1e-4,
    err_msg: str = "",
) -> None:
    """Checks a function that returns values and tangents against finite differences of `f`.

    f:     takes arrays, or pytrees of arrays, and returns a pytree of arrays.
    f_jvp: takes tuples of arguments and tangents, and returns a pair of the value of `f` and its
           tangent, like `partial(jvp, f)`. Tangents of non-inexact arguments have dtype float0.
    atol, rtol: the defaults depend on the dtypes. eps: the step.
    Raises AssertionError, beginning with `err_msg`, naming the mismatch.
    """
    checker = _Checker(f, args, atol, rtol, eps, err_msg)
    xs, tree = checker.xs, checker.tree
    tangents, outs, slopes = checker.differences(checker.flat)
    given = _with_float0(tangents, xs)
    values, moved_by = f_jvp(tree.unflatten(xs), tree.unflatten(given))
    checker.same_values(flatten(values)[0], outs, "f_jvp")
    for i, (came, out) in enumerate(zip(flatten(moved_by)[0], outs, strict=True)):
        if is_inexact(out.dtype):
            checker.same(np.asarray(came), slopes[i], f"tangent of f_jvp, result {i}")


def check_vjp(
    f: Callable,
    f_vjp: Callable,
    args: Sequence[Any],
    atol: Tolerance | None = None,
    rtol: Tolerance | None = None,
    eps: float = 1e-4,
    err_msg: str = "",
) -> None:
    """Checks a function that returns values and pullbacks against finite differences of `f`.

    f_vjp: takes arguments and returns a pair of the value of `f` and a function from its cotangents
           to a tuple of cotangents of the arguments, like `partial(vjp, f)`.
    The other arguments are as in `check_jvp`. Raises AssertionError likewise.
    """
    checker = _Checker(f, args, atol, rtol, eps, err_msg)
    tangents, outs, slopes = checker.differences(checker.flat)
    value, pull = f_vjp(*checker.tree.unflatten(checker.xs))
    values, out_tree = flatten(value)
    checker.same_values(values, outs, "f_vjp")
    cts = checker.directions(outs)
    back = flatten(pull(out_tree.unflatten(_with_float0(cts, outs))))[0]
    checker.same_products("cotangents of f_vjp", (slopes, cts), (tangents, back))


def _with_float0(directions: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
    """The directions, with zeros of dtype float0 for None."""
    pairs = zip(directions, xs, strict=True)
    return [np.zeros(x.shape, float0) if d is None else d for d, x in pairs]


def _tolerance(given: Tolerance | None, dtype: Any) -> float:
    """The tolerance for a dtype: the default one if none is given for it."""
    if isinstance(given, Mapping):
        given = {np.dtype(key): value for key, value in given.items()}.get(dtype)
    return _TOLERANCES[_width(dtype)] if given is None else given


def _width(dtype: Any) -> int:
    """The number of bytes of a real number of the dtype."""
    return min(max(dtype.itemsize // (2 if dtype.kind == "c" else 1), 2), 8)


class _Checker:
    """Compares derivatives of a function at some arguments with finite differences.

    xs, tree: the leaves of the arguments, as arrays, and their treedef. head: begins messages.
    """

    def __init__(
        self,
        f: Callable,
        args: Sequence[Any],
        atol: Tolerance | None,
        rtol: Tolerance | None,
        eps: float | None,
        head: str = "",
    ):
        leaves, self.tree = flatten(tuple(args))
        self.f, self.xs = f, [EAGER.array(x) for x in leaves]
        dtypes = [x.dtype for x in self.xs if is_inexact(x.dtype)]
        narrow = min(dtypes, key=_width, default=np.dtype(float))
        self.eps = eps or _STEPS[_width(narrow)]
        self.tolerances = [(t is not None, _tolerance(t, narrow)) for t in (atol, rtol)]
        self.head = f"{head}\n" if head else ""
        self.rng = np.random.default_rng(0)

    def flat(self, *xs: Any) -> list[Any]:
        """`f` as a function of leaves."""
        return flatten(self.f(*self.tree.unflatten(list(xs))))[0]

    def check(self, fun: Callable, modes: Sequence[str], order: int, name: str) -> None:
        if order == 0:
            return
        tangents, outs, slopes = self.differences(fun)
        if "fwd" in modes:

            def forward(*args: Any) -> list[Any]:
                values, found = push_forward(fun, args, tangents, current().interpreter)
                return filled(found, [type_of(v) for v in values], "tangent")

            for i, (came, wanted) in enumerate(zip(forward(*self.xs), slopes, strict=True)):
                self.same(np.asarray(came), wanted, f"jvp of {name}, result {i}")
            self.check(forward, modes, order - 1, f"jvp of {name}")
        if "rev" in modes:
            cts = self.directions(outs)

            def backward(*args: Any) -> list[Any]:
                _, linear = linearize(fun, args)
                found = transposed(linear, cts)
                return filled(found, [type_of(a).strong() for a in args], "cotangent")

            self.same_products(f"vjp of {name}", (slopes, cts), (tangents, backward(*self.xs)))
            self.check(backward, modes, order - 1, f"vjp of {name}")

    def directions(self, xs: Sequence[Any]) -> list[Any]:
        """A random value with the type of each inexact value; None for the others."""
        return [self.like(x) if is_inexact(x.dtype) else None for x in xs]

    def like(self, x: Any) -> Any:
        value = normal(self.rng, np.zeros(x.shape, x.dtype))
        return EAGER.array(value.astype(x.dtype))

    def differences(self, fun: Callable) -> tuple[list, list, list]:
        """A random direction, the results of `fun`, and their derivatives along it."""
        tangents = self.directions(self.xs)
        outs = [np.asarray(o) for o in fun(*self.xs)]
        rows = list(zip(self.xs, tangents, strict=True))
        ahead, behind = (
            fun(*[x if t is None else moved(x, t, step) for x, t in rows])
            for step in (self.eps, -self.eps)
        )
        slopes = [
            (wide(a) - wide(b)) / (2 * self.eps) if is_inexact(o.dtype) else np.zeros(o.shape)
            for o, a, b in zip(outs, ahead, behind, strict=True)
        ]
        return tangents, outs, slopes

    def same_values(self, values: Sequence[Any], outs: Sequence[Any], name: str) -> None:
        for i, (came, wanted) in enumerate(zip(values, outs, strict=True)):
            self.same(np.asarray(came), wide(wanted), f"value of {name}, result {i}", "f's value")

    def same_products(self, what: str, wanted: tuple[list, list], came: tuple[list, list]) -> None:
        """Compares two inner products of pairs of lists."""
        left, right = product(*wanted), product(*came)
        self.same(np.asarray(right), np.asarray(left), f"{what}, inner product")

    def same(
        self, came: np.ndarray, expected: np.ndarray, what: str, other: str = "finite differences"
    ) -> None:
        atol, rtol = [t * came.size if given else t for given, t in self.tolerances]
        if not np.allclose(wide(came), expected, rtol=rtol, atol=atol, equal_nan=True):
            whats = "derivatives differ" if other == "finite differences" else "it differs"
            raise AssertionError(
                f"{self.head}{what}: {whats} from {other}.\n"
                f"  got:      {came}\n  expected: {expected}"
            )


def moved(x: Any, direction: Any, step: float) -> Any:
    value = wide(x) + step * wide(direction)
    return EAGER.array(value.astype(np.asarray(x).dtype))
