"""Derivatives with respect to stored elements: sparse arrays with the same indices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from shardwise._src.autodiff import grad as dense
from shardwise._src.autodiff import jacobian as dense_jacobian
from shardwise._src.runtime.pytree import flatten
from shardwise._src.sparse.base import JAXSparse, each
from shardwise._src.sparse.sparsify import is_sparse


def _derivative(
    transform: Callable,
    fun: Callable,
    argnums: int | Sequence[int],
    has_aux: bool,
    kwargs: dict[str, Any],
    gives_value: bool = False,
) -> Callable:
    one = not isinstance(argnums, Sequence)
    nums = [index(argnums)] if one else [index(i) for i in argnums]

    @functools.wraps(fun)
    def of(*args: Any, **named: Any) -> Any:
        places = [i if i >= 0 else len(args) + i for i in nums]
        pairs = [flatten(args[i], is_sparse) for i in places]

        def of_data(*data: Any) -> Any:
            given = [*args]
            for i, (leaves, tree), found in zip(places, pairs, data, strict=True):
                new = [
                    x.with_data(d) if is_sparse(x) else d
                    for x, d in zip(leaves, found, strict=True)
                ]
                given[i] = tree.unflatten(new)
            return fun(*given, **named)

        data = [[x.data if is_sparse(x) else x for x in leaves] for leaves, _ in pairs]
        options = {"argnums": tuple(range(len(places))), "has_aux": has_aux, **kwargs}
        out = transform(of_data, **options)(*data)
        found = out[1] if gives_value else out[0] if has_aux else out
        rows = zip(pairs, found, strict=True)
        grads = tuple(
            [
                tree.unflatten([_placed(x, g) for x, g in zip(leaves, gs, strict=True)])
                for (leaves, tree), gs in rows
            ]
        )
        result = grads[0] if one else grads
        return (out[0], result) if gives_value else (result, out[1]) if has_aux else result

    return of


def _placed(x: Any, g: Any) -> Any:
    """A derivative of data as a sparse array like x, with leading batch dimensions."""
    if not isinstance(x, JAXSparse):
        return g
    return each(x.with_data, g.ndim - x.data.ndim)(g)


def grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable:
    """The gradient, like `shardwise.grad`; for an argument with sparse arrays, sparse arrays
    with the same indices: the derivatives with respect to the stored elements."""
    return _derivative(dense.grad, fun, argnums, has_aux, kwargs)


def value_and_grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable:
    """Like `shardwise.value_and_grad`, with gradients as for `grad`."""
    return _derivative(dense.value_and_grad, fun, argnums, has_aux, kwargs, True)


def jacfwd(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable:
    """`shardwise.jacfwd` of a function with one dense result, with respect to the stored elements:
    a batch of sparse arrays."""
    return _derivative(dense_jacobian.jacfwd, fun, argnums, has_aux, kwargs)


def jacrev(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable:
    """`shardwise.jacrev`; see `jacfwd`."""
    return _derivative(dense_jacobian.jacrev, fun, argnums, has_aux, kwargs)


jacobian = jacrev
