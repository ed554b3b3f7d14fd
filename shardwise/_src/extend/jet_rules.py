"""Rules of Taylor mode for user-defined primitives, with JAX's API.

    def_comp(my_tanh, lambda x: 1 - 2 / (exp(2 * x) + 1))

Ops of the library, and primitives with a `jvp` rule, need none: their coefficients follow from
their derivatives. A rule that is set takes precedence for these, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.autodiff.jet_interpreter import jet_rules, zero_series
from shardwise._src.autodiff.taylor_mode import jet
from shardwise._src.numpy.creation import asarray
from shardwise._src.ops.elementwise import exp
from shardwise._src.ops.special.special_functions import lgamma
from shardwise._src.types.annotations import Array, ArrayLike

Series = Sequence[Sequence[Any]]


def jet2(
    fun: Callable[..., Any], primals: Sequence[Any], series: Series, factorial_scaled: bool = False
) -> tuple[Any, Any]:
    """`jet` whose coefficients are those of power series instead of derivatives."""
    return jet(fun, primals, series, factorial_scaled)


def fact(n: ArrayLike) -> Array:
    """n!, computed by the gamma function."""
    return exp(lgamma(asarray(n) + 1.0))


def defzero(prim: Any) -> None:
    """Declares that the results of a primitive are constant: all of their coefficients are zero."""
    jet_rules[prim] = functools.partial(zero_prop, prim)


def zero_prop(
    prim: Any, primals_in: Sequence[Any], series_in: Series, **params: Any
) -> tuple[Any, Any]:
    """The rule of `defzero`."""
    return prim.bind(*primals_in, **params), zero_series


def deflinear(prim: Any) -> None:
    """Declares that a primitive is jointly linear in its operands: each coefficient of the result
    is the primitive applied to the operands' coefficients."""
    jet_rules[prim] = functools.partial(linear_prop, prim)


def linear_prop(
    prim: Any, primals_in: Sequence[Any], series_in: Series, **params: Any
) -> tuple[Any, Any]:
    """The rule of `deflinear`."""
    rows = [prim.bind(*terms, **params) for terms in zip(*series_in, strict=True)]
    found = [*map(list, zip(*rows, strict=True))] if prim.multiple_results else rows
    return prim.bind(*primals_in, **params), found


def def_deriv(prim: Any, deriv: Callable[[Any], Any]) -> None:
    """Sets the derivative of a primitive of one operand, as a function over ops."""
    jet_rules[prim] = functools.partial(deriv_prop, prim, deriv)


def deriv_prop(
    prim: Any, deriv: Callable[[Any], Any], primals_in: Sequence[Any], series_in: Series
) -> tuple[Any, list[Any]]:
    """The rule of `def_deriv`: k v_k = Σ j u_j c_(k-j), where v' = c u'."""
    (x,), (terms,) = primals_in, series_in
    first, others = jet2(deriv, [x], [terms])
    c, count = [first, *others], len(terms)
    found = [
        sum([c[k - j] * terms[j - 1] * j for j in range(1, k + 1)]) / k for k in range(1, count + 1)
    ]
    return prim.bind(x), found


def def_comp(prim: Any, comp: Callable[..., Any], **kwargs: Any) -> None:
    """Sets a function of ops that is equivalent to a primitive.

    kwargs: keyword arguments of the function.
    """
    jet_rules[prim] = functools.partial(_composed, functools.partial(comp, **kwargs))


def _composed(
    comp: Callable[..., Any], primals_in: Sequence[Any], series_in: Series, **params: Any
) -> tuple[Any, Any]:
    return jet2(functools.partial(comp, **params), primals_in, series_in)
