"""The semantics of each collective, in NumPy, on the stacked values of all indices.

`meaning(xs)` takes `f64[n, n, 2]`, the values of n indices, and returns the result of each index.
`call(x, names)` is the same in the library, for an index along `names`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise import lax

N = 4
SOURCE = 2
SHIFT = [(i, (i + 1) % N) for i in range(N) if i != 2]
ORDER = [2, 0, 3, 1]


@dataclass(frozen=True)
class Form:
    """One way to call a collective."""

    name: str
    call: Callable[[Any, Any], Any]
    meaning: Callable[[np.ndarray], np.ndarray]

    def derivative(self, xs: np.ndarray, ts: np.ndarray) -> np.ndarray:
        """The derivative along `ts`. Differences are exact: all are locally linear or quadratic."""
        step = 2.0**-10
        return (self.meaning(xs + step * ts) - self.meaning(xs - step * ts)) / (2 * step)

    def cotangent(self, xs: np.ndarray, ws: np.ndarray) -> np.ndarray:
        """The derivative of Σ ws · meaning(xs)."""
        found = np.zeros(xs.shape)
        for place in np.ndindex(*xs.shape):
            unit = np.zeros(xs.shape)
            unit[place] = 1
            found[place] = np.sum(ws * self.derivative(xs, unit))
        return found


def same(x: np.ndarray) -> np.ndarray:
    """The same result for every index."""
    return np.stack([x] * N)


def numbers(xs: np.ndarray) -> np.ndarray:
    return np.arange(N).reshape(N, *[1] * (xs.ndim - 1))


def parts(xs: np.ndarray) -> np.ndarray:
    """By destination, then by source: row k of each value goes to index k."""
    return np.swapaxes(xs, 0, 1)


def permuted(xs: np.ndarray) -> np.ndarray:
    """Index 3 receives nothing, so its result is zeros."""
    found = np.zeros(xs.shape)
    for source, to in SHIFT:
        found[to] = xs[source]
    return found


# Number of rows sent, by sender and receiver; their offsets in the sender and in the receiver.
SENT = np.add.outer(np.arange(N), np.arange(N)).astype(np.int32) % 2
HERE = np.cumsum(SENT, 1, dtype=np.int32) - SENT
THERE = np.cumsum(SENT, 0, dtype=np.int32) - SENT


def ragged(x: Any, names: Any) -> Any:
    """Rows are sent into outputs that initially hold twice the receiver's value."""
    here, sent, there, come = [
        jnp.asarray(table)[lax.axis_index(names)] for table in (HERE, SENT, THERE, SENT.T)
    ]
    return lax.ragged_all_to_all(x, 2 * x, here, sent, there, come, axis_name=names)


def ragged_meaning(xs: np.ndarray) -> np.ndarray:
    found = 2 * xs
    for source, to in np.argwhere(SENT):
        found[to, THERE[source, to]] = xs[source, HERE[source, to]]
    return found


def xeinsum(x: Any, names: Any) -> Any:
    named = names if isinstance(names, str) else ",".join(names)
    return lax.xeinsum(f"ab{{{named}}},ac{{{named}}}->bc", x, x)


def products(xs: np.ndarray) -> np.ndarray:
    return same(np.einsum("nab,nac->bc", xs, xs))


FORMS = [
    Form("psum", lambda x, i: lax.psum(x, i), lambda xs: same(xs.sum(0))),
    Form("pmean", lambda x, i: lax.pmean(x, i), lambda xs: same(xs.mean(0))),
    Form("pmax", lambda x, i: lax.pmax(x, i), lambda xs: same(xs.max(0))),
    Form("pmin", lambda x, i: lax.pmin(x, i), lambda xs: same(xs.min(0))),
    Form(
        "all_gather",
        lambda x, i: lax.all_gather(x, i, axis=1),
        lambda xs: same(np.stack(list(xs), 1)),
    ),
    Form(
        "all_gather",
        lambda x, i: lax.all_gather(x, i, axis=1, tiled=True),
        lambda xs: same(np.concatenate(list(xs), 1)),
    ),
    Form("all_gather_invariant", lambda x, i: lax.all_gather_invariant(x, i), lambda xs: same(xs)),
    Form(
        "all_to_all",
        lambda x, i: lax.all_to_all(x, i, 0, 1),
        lambda xs: np.moveaxis(parts(xs), 1, 2),
    ),
    Form(
        "all_to_all",
        lambda x, i: lax.all_to_all(x, i, 0, 1, tiled=True),
        lambda xs: parts(xs).reshape(N, 1, -1),
    ),
    Form("ragged_all_to_all", ragged, ragged_meaning),
    Form("psum_scatter", lambda x, i: lax.psum_scatter(x, i), lambda xs: xs.sum(0)),
    Form(
        "psum_scatter",
        lambda x, i: lax.psum_scatter(x, i, tiled=True),
        lambda xs: xs.sum(0)[:, None],
    ),
    Form("ppermute", lambda x, i: lax.ppermute(x, i, SHIFT), permuted),
    Form("pshuffle", lambda x, i: lax.pshuffle(x, i, ORDER), lambda xs: xs[ORDER]),
    Form("pswapaxes", lambda x, i: lax.pswapaxes(x, i, 0), parts),
    Form("pbroadcast", lambda x, i: lax.pbroadcast(x, i, SOURCE), lambda xs: same(xs[SOURCE])),
    Form("pcast", lambda x, i: lax.pcast(x, i, to="varying"), lambda xs: xs),
    Form("pvary", lax.pvary, lambda xs: xs),
    Form("axis_index", lambda x, i: x * lax.axis_index(i), lambda xs: xs * numbers(xs)),
    Form("axis_size", lambda x, i: x * lax.axis_size(i), lambda xs: xs * N),
    Form("pdot", lambda x, i: lax.pdot(x, x, i, ((0,), (0,))), products),
    Form("xeinsum", xeinsum, products),
]
