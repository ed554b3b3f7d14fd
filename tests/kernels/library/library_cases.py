"""Functions of the library, with the same functions of NumPy's names, and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise.kernels import library
from tests.helpers.everyday import everyday


@dataclass(frozen=True)
class Case:
    """kernel: takes arrays and options of the library. wanted: the same function without them."""

    kernel: Callable[..., Any]
    wanted: Callable[..., Any]
    args: tuple[Any, ...]
    by_rows: bool = True


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    numbers = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return (numbers * (5 if np.dtype(dtype).kind in "iu" else 1)).astype(dtype)


def chosen(count: int, of: str) -> list[str]:
    """Names of cases, of as many functions as possible."""
    return everyday(CASES, count, of=of, by=lambda name: name.split()[0])


def close(found: Any, wanted: Any, bound: float = 1e-4) -> None:
    pairs = zip(sw.tree.leaves(found), sw.tree.leaves(wanted), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(
            np.asarray(a, "float64"), np.asarray(b, "float64"), rtol=bound, atol=bound
        )


# -- norms, matmul, sums --


def norm(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-6, mean: bool = False
) -> Any:
    x = x - x.mean(-1, keepdims=True) if mean else x
    y = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def wanted_matmul(x: Any, y: Any, bias: Any, residual: Any) -> Any:
    return jnp.tanh(0.5 * (x @ y) + bias) + residual


def fused_matmul(x: Any, y: Any, bias: Any, residual: Any, **options: Any) -> Any:
    more = {"bias": bias, "residual": residual, "activation": jnp.tanh, "x_scale": 0.5}
    return library.matmul(x, y, blocks=(4, 4, 4), **more, **options)


def wanted_cumsum(x: Any) -> Any:
    return jnp.flip(jnp.cumsum(jnp.flip(x, 1), 1), 1) - x


INDICES = np.array([3, 0, 3, -1, 6, 1, 9, 3, 0], np.int32)  # of 7 rows: -1 and 9 are outside
INSIDE = (INDICES >= 0) & (INDICES < 7)


def wanted_scatter(x: Any, updates: Any) -> Any:
    return jnp.asarray(x).at[INDICES[INSIDE]].add(updates[INSIDE])


def scatter_add(x: Any, updates: Any, **options: Any) -> Any:
    return library.scatter_add(x, INDICES, updates, blocks=(4, 4), **options)


def histogram(weights: Any, **options: Any) -> Any:
    return library.histogram(INDICES, 7, weights, blocks=4, **options)


# -- attention --


def visible(b, t, s, is_causal=False, window=None, segment_ids=None, lengths=None, **_):
    """Which keys a query attends to: (B, T, S)."""
    row, column = np.arange(t)[:, None], np.arange(s)
    found = np.ones((b, t, s), bool)
    if is_causal:
        found &= column <= row
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window, window)
        found &= (left is None or column >= row - left) & (right is None or column <= row + right)
    if segment_ids is not None:
        of_q, of_k = segment_ids if isinstance(segment_ids, tuple) else (segment_ids,) * 2
        found &= of_q[:, :, None] == of_k[:, None]
    if lengths is not None:
        of_q, of_k = lengths if isinstance(lengths, tuple) else (lengths, lengths)
        found &= True if of_q is None else row < of_q[:, None, None]
        found &= True if of_k is None else column < of_k[:, None, None]
    return found


def attention(q: Any, k: Any, v: Any, scale: Any = None, **options: Any) -> Any:
    """Attention that stores all scores."""
    mask = visible(q.shape[0], q.shape[1], k.shape[1], **options)[:, None]
    k, v = [jnp.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v)]
    scores = jnp.einsum("btnh,bsnh->bnts", q, k) * (scale or q.shape[-1] ** -0.5)
    scores = jnp.where(mask, scores, -1e30)
    weights = jnp.where(mask, jnp.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = weights.sum(-1, keepdims=True)
    return jnp.einsum("bnts,bsnh->btnh", weights / jnp.where(total == 0, 1, total), v)


def heads(b, t, s, n, k, h, dtype=np.float32):
    """Queries, keys and values."""
    shapes = (b, t, n, h), (b, s, k, h), (b, s, k, h)
    return tuple(normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes))


def ids(b, n):
    return np.sort(np.random.default_rng(n).integers(0, 3, (b, n)), 1)


FLASH = {  # sizes B, T, S, N, K, H; options
    "plain": ((2, 40, 24, 2, 2, 16), {}),
    "causal, grouped": ((2, 40, 40, 4, 2, 12), {"is_causal": True}),
    "window": ((1, 70, 33, 2, 1, 8), {"window": (20, 3)}),  # without keys from row 53 on
    "causal, window": ((1, 70, 70, 2, 1, 8), {"is_causal": True, "window": 5, "scale": 0.3}),
    "left window": ((1, 33, 70, 1, 1, 8), {"window": (4, None)}),
    "lengths": ((3, 40, 40, 2, 1, 8), {"lengths": np.array([17, 0, 40]), "is_causal": True}),
    "both lengths": (
        (3, 40, 24, 2, 2, 8),
        {"lengths": (np.array([17, 33, 40]), np.array([8, 24, 0]))},
    ),
    "key lengths": ((2, 20, 40, 2, 2, 8), {"lengths": (None, np.array([3, 33])), "window": 20}),
    "segments": ((2, 40, 40, 2, 1, 8), {"segment_ids": ids(2, 40)}),
    "both segments": (
        (2, 20, 40, 2, 2, 8),
        {"segment_ids": (ids(2, 20), ids(2, 40)), "lengths": (np.array([3, 20]), None)},
    ),
    "one position": ((2, 1, 1, 1, 1, 1), {}),
    "one query": ((2, 1, 40, 2, 1, 8), {}),
}
SMALL = {"blocks": (16, 16)}


# -- products for experts --


def wanted_products(sizes: list[int], x: Any, w: Any) -> Any:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rows = jnp.einsum("mk,mkn->mn", x[: len(groups)], w[groups])
    return jnp.pad(rows, ((0, len(x) - len(groups)), (0, 0)))


def grouped_matmul(sizes: list[int], x: Any, w: Any, **options: Any) -> Any:
    return library.grouped_matmul(x, w, np.array(sizes), blocks=(16, 16, 16), **options)


GROUPED = {  # m, k, n and the sizes of groups
    "ragged": ((40, 20, 24), [5, 0, 17, 3, 0]),
    "even": ((32, 16, 16), [16, 16]),
    "last only": ((33, 16, 40), [0, 0, 33]),
    "no rows": ((7, 40, 5), [0, 0]),
    "many in one block": ((50, 16, 16), [1, 2, 3, 4, 0, 5, 6, 29]),
    "one row": ((1, 3, 2), [0, 1]),
}

CASES = {
    "softmax": Case(partial(library.softmax, blocks=(4, 16)), nn.softmax, (normal(5, 7),)),
    "long softmax": Case(partial(library.softmax, blocks=(4, 4)), nn.softmax, (normal(5, 7),)),
    "long log_softmax": Case(
        partial(library.log_softmax, blocks=(2, 4)), nn.log_softmax, (normal(3, 6),)
    ),
    "layer_norm": Case(
        partial(library.layer_norm, blocks=2),
        partial(norm, eps=1e-5, mean=True),
        (normal(5, 7), normal(7), normal(7) + 1),
    ),
    "rms_norm": Case(partial(library.rms_norm, blocks=2), norm, (normal(5, 7), normal(7))),
    "cumsum": Case(
        partial(library.cumsum, exclusive=True, reverse=True, blocks=(4, 4)),
        wanted_cumsum,
        (normal(5, 7),),
    ),
    "matmul": Case(
        fused_matmul,
        wanted_matmul,
        (normal(5, 7), normal(7, 6), normal(6), normal(5, 6)),
        by_rows=False,
    ),
    "scatter_add": Case(scatter_add, wanted_scatter, (normal(7, 6), normal(9, 6)), by_rows=False),
    "histogram": Case(
        histogram,
        lambda weights: wanted_scatter(np.zeros(7, weights.dtype), weights),
        (normal(9),),
        by_rows=False,
    ),
    **{
        f"flash {name}": Case(
            partial(library.flash_attention, **SMALL, **options),
            partial(attention, **options),
            heads(*sizes),
            by_rows=False,
        )
        for name, (sizes, options) in FLASH.items()
    },
    **{
        f"experts {name}": Case(
            partial(grouped_matmul, sizes),
            partial(wanted_products, sizes),
            (normal(m, k), normal(len(sizes), k, n)),
            by_rows=False,
        )
        for name, ((m, k, n), sizes) in GROUPED.items()
    },
}
