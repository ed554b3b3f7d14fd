"""`jet`: higher derivatives along a curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

from shardwise._src.arguments.signatures import called, check_function
from shardwise._src.arguments.values import as_input, checked_results
from shardwise._src.autodiff.jet_interpreter import push_series
from shardwise._src.autodiff.tangents import as_tangent
from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import pluralize
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.shapes import broadcast_to
from shardwise._src.ops.elementwise import mul
from shardwise._src.ops.families import lit
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.dtypes import is_inexact, to_inexact
from shardwise._src.values.convert import cast


@hides_frames
def jet(
    fun: Callable,
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    factorial_scaled: bool = True,
    **_: Any,
) -> tuple[Any, Any]:
    """The value and the derivatives up to order n of `fun` along a curve (Taylor mode).

        f, (f1, f2) = jet(jnp.sin, (0.5,), ((1.0, 0.0),))      # sin, cos and -sin of 0.5

    Args:
      fun: of floating arrays; its result is any pytree of arrays. It may contain loops, branches
        and functions with a `custom_jvp` rule.
      primals: the point: an array for each argument.
      series: for each argument n arrays of its shape (or scalars): the derivatives of the curve.
        Those of booleans, which do not move, are ignored.
      factorial_scaled: False for coefficients of power series, in `series` and in the result:
        derivatives divided by k!.

    Returns:
      The value, and the same pytree with a list of n arrays for each array.

    Raises:
      ValueError: if an argument is not an array, or the lengths in `series` differ.
      TypeError: if an argument is an integer array, or `fun` has a `custom_vjp` rule.

    Source: A. Griewank, A. Walther, Evaluating Derivatives, 2nd ed., chapter 13; coefficients
    follow from each op's first derivative.
    """
    check_function("jet", fun)
    what = f"jet of {name_of(fun)}"
    orders = sorted({len(terms) for terms in series})
    if len(orders) != 1 or len(series) != len(primals):
        lengths = ", ".join(str(len(terms)) for terms in series) or "none"
        raise ValueError(
            f"{what}: series must have the same number of terms for each of "
            f"{pluralize(len(primals), 'primal')}; got lengths {lengths}."
        )
    values = [_array(what, f"primals[{i}]", x) for i, x in enumerate(primals)]
    terms = []
    for i, (x, given) in enumerate(zip(values, series, strict=True)):
        t = type_of(x)
        if t.dtype == bool:
            terms.append([])
            continue
        if not is_inexact(t.dtype):
            raise TypeError(
                f"{what}: primals[{i}] must be floating or complex; got {t.str_short(True)}."
            )
        found = [_array(what, f"series[{i}][{j}]", y) for j, y in enumerate(given)]
        found = [cast(broadcast_to(y, t.shape), t.dtype) for y in found]
        terms.append(
            [
                _scaled(y, 1 / factorial(k)) if factorial_scaled else y
                for k, y in enumerate(found, 1)
            ]
        )
    trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        outs, tree = flatten(called(what, fun, leaves, {}))
        trees.append(tree)
        return checked_results(outs, tree, what)

    order = orders[0]
    outs, moved = push_series(flat, values, terms, order, current().interpreter, name_of(fun))
    rows = []
    for out, coefficients in zip(outs, moved, strict=True):
        t = type_of(out)
        whole = [
            as_tangent(c, t if is_inexact(t.dtype) else t.update(dtype=to_inexact(t.dtype)))
            for c in coefficients
        ]
        rows.append(
            [_scaled(c, factorial(k)) if factorial_scaled else c for k, c in enumerate(whole, 1)]
        )
    return trees[0].unflatten(outs), trees[0].unflatten(rows)


def _array(what: str, path: str, x: Any) -> Any:
    if not flatten(x)[1] == flatten(0)[1]:
        raise ValueError(f"{what}: {path} must be an array; got {type(x).__name__}.")
    return as_input(x, what, lambda: path)


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1 else mul(x, lit(float(factor), x))
