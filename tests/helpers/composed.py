"""Checks of functions composed of ops: values against a peer, shardings, transforms, derivatives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import shardwise as sw
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.placed import MESH


def close(found: Any, wanted: Any, tol: float = 1e-9, kinds: bool = True) -> None:
    """Asserts equal leaves of pytrees: values, shapes and, unless `kinds` is false, dtype kinds."""
    ours, theirs = [sw.tree.leaves(tuple(x) if isinstance(x, list) else x) for x in (found, wanted)]
    assert len(ours) == len(theirs)
    for x, y in zip(map(np.asarray, ours), map(np.asarray, theirs), strict=True):
        assert x.shape == y.shape and (x.dtype.kind == y.dtype.kind or not kinds), (x, y)
        np.testing.assert_allclose(x, y, tol, tol)


def as_peer(
    expression: str, ours: Any, peer: Any, scope: dict[str, Any], tol: float = 1e-9, **how: bool
) -> None:
    """An expression of a module `m` has the same value with ours, in 64 bits, as with NumPy's or
    SciPy's."""
    wanted = eval(expression, scope, {"m": peer})
    with sw.enable_x64(True):
        close(eval(expression, scope, {"m": ours}), wanted, tol, **how)


def everywhere(fun: Callable[..., Any], *args: Any, tol: float = 1e-8, slopes: bool = True) -> None:
    """`fun` returns the same values under jit, under vmap and for sharded arguments, and its
    derivatives match finite differences. In 64 bits; the everyday run does two of these
    checks."""
    checks: list[Callable[[], None]] = [
        lambda: close(sw.jit(fun)(*args), fun(*args), tol),
        lambda: _mapped(fun, args, tol),
    ]
    checks += [lambda d=d: _split(fun, args, d, tol) for d in range(np.ndim(args[0]))]
    if slopes:
        checks.append(lambda: differentiated(fun, *args))
    code = fun.__code__  # only the file's name, so that the choice is the same in every checkout
    for check in everyday(checks, 2, f"{Path(code.co_filename).name} {code.co_firstlineno}"):
        with sw.enable_x64(True):
            check()


def _mapped(fun: Callable[..., Any], args: Any, tol: float) -> None:
    pairs = [np.stack([a, a * 0.75 + 0.125]).astype(np.asarray(a).dtype) for a in args]
    first, second = [fun(*[p[i] for p in pairs]) for i in (0, 1)]
    both = sw.tree.map(lambda x, y: np.stack([x, y]), first, second)
    close(sw.vmap(fun)(*pairs), both, tol)


def _split(fun: Callable[..., Any], args: Any, d: int, tol: float) -> None:
    spec = P(*[None] * d, ("x", "y") if np.shape(args[0])[d] > 5 else "x")
    placed = sw.device_put(args[0], NamedSharding(MESH, spec))
    close(fun(placed, *args[1:]), fun(*args), tol)


def differentiated(
    fun: Callable[..., Any], *args: Any, step: float = 1e-6, tol: float = 1e-5, order: int = 1
) -> None:
    """The derivatives of `fun` along a direction, to the order 1 or 2, match finite differences."""
    rng = np.random.default_rng(len(args))
    moving = [i for i, a in enumerate(args) if np.asarray(a).dtype.kind in "fc"]
    along = [rng.standard_normal(np.shape(args[i])) for i in moving]

    def loss(t: Any) -> Any:
        given = [*args]
        for i, v in zip(moving, along, strict=True):
            given[i] = args[i] + t * v
        leaves = sw.tree.leaves(fun(*given))
        return sum([(sw.numpy.abs(x) ** 2 * 0.5).sum() for x in leaves if x.dtype.kind in "fc"])

    slope = (loss(step) - loss(-step)) / (2 * step)
    np.testing.assert_allclose(sw.jvp(loss, (0.0,), (1.0,))[1], slope, tol, tol)
    derivative = sw.grad(loss)
    np.testing.assert_allclose(derivative(0.0), slope, tol, tol)
    if order == 2:
        bend = (derivative(step) - derivative(-step)) / (2 * step)
        np.testing.assert_allclose(sw.grad(derivative)(0.0), bend, tol, tol)


def signature(fun: Any) -> list[tuple[Any, ...]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(fun).parameters.values()]
