"""Functions of the library, with the same functions of NumPy's names, and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise.kernels import library


@dataclass(frozen=True)
class Case:
    """kernel: takes arrays and options of the library. wanted: the same function without them."""

    kernel: Callable[..., Any]
    wanted: Callable[..., Any]
    args: tuple[Any, ...]
    by_rows: bool = True


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    numbers = np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape)
    return (numbers * (5 if np.dtype(dtype).kind in "iu" else 1)).astype(dtype)


def norm(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-6, mean: bool = False
) -> Any:
    x = x - x.mean(-1, keepdims=True) if mean else x
    y = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def wanted_layer_norm(*args: Any) -> Any:
    return norm(*args, eps=1e-5, mean=True)


def wanted_matmul(x: Any, y: Any, bias: Any, residual: Any) -> Any:
    return jnp.tanh(0.5 * (x @ y) + bias) + residual


def fused_matmul(x: Any, y: Any, bias: Any, residual: Any, **options: Any) -> Any:
    more = {"bias": bias, "residual": residual, "activation": jnp.tanh, "x_scale": 0.5}
    return library.matmul(x, y, blocks=(4, 4, 4), **more, **options)


def wanted_cumsum(x: Any) -> Any:
    return jnp.flip(jnp.cumsum(jnp.flip(x, 1), 1), 1) - x


def reverse_cumsum(x: Any, **options: Any) -> Any:
    return library.cumsum(x, exclusive=True, reverse=True, blocks=(4, 4), **options)


INDICES = np.array([3, 0, 3, -1, 6, 1, 9, 3, 0], np.int32)  # of 7 rows: -1 and 9 are outside
INSIDE = (INDICES >= 0) & (INDICES < 7)


def wanted_scatter(x: Any, updates: Any) -> Any:
    return jnp.asarray(x).at[INDICES[INSIDE]].add(updates[INSIDE])


def with_options(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda *args, **options: function(*args, **fixed, **options)


CASES = {
    "softmax": Case(with_options(library.softmax, blocks=(4, 16)), nn.softmax, (normal(5, 7),)),
    "long softmax": Case(with_options(library.softmax, blocks=(4, 4)), nn.softmax, (normal(5, 7),)),
    "long log_softmax": Case(
        with_options(library.log_softmax, blocks=(2, 4)), nn.log_softmax, (normal(3, 6),)
    ),
    "layer_norm": Case(
        with_options(library.layer_norm, blocks=2),
        wanted_layer_norm,
        (normal(5, 7), normal(7), normal(7) + 1),
    ),
    "rms_norm": Case(with_options(library.rms_norm, blocks=2), norm, (normal(5, 7), normal(7))),
    "cumsum": Case(reverse_cumsum, wanted_cumsum, (normal(5, 7),)),
    "matmul": Case(
        fused_matmul,
        wanted_matmul,
        (normal(5, 7), normal(7, 6), normal(6), normal(5, 6)),
        by_rows=False,
    ),
    "scatter_add": Case(
        lambda x, updates, **options: library.scatter_add(
            x, INDICES, updates, blocks=(4, 4), **options
        ),
        wanted_scatter,
        (normal(7, 6), normal(9, 6)),
        by_rows=False,
    ),
    "histogram": Case(
        lambda weights, **options: library.histogram(INDICES, 7, weights, blocks=4, **options),
        lambda weights: wanted_scatter(np.zeros(7, np.float32), weights),
        (normal(9),),
        by_rows=False,
    ),
}
