"""Scaled dot-product attention.

Dimension letters: B batch, T queries, S keys and values, N query heads, K key and value heads
(N is a multiple of K: each serves N / K query heads), H the head size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.nn.cudnn_attention import attend as cudnn_attention
from shardwise._src.nn.normalize import log_of_sum, normalized, optional
from shardwise._src.ops.basis import broadcast_in_dim, reshape, transpose
from shardwise._src.ops.contract import dot
from shardwise._src.ops.create import iota
from shardwise._src.ops.elementwise import add, bitwise_and, ge, le, lt, mul, stop_gradient, where
from shardwise._src.ops.families import BOOL, lit
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import in_row
from shardwise._src.types.dtypes import finfo, is_float, is_integer
from shardwise._src.types.promotion import promote_types
from shardwise._src.values.convert import broadcast_to, cast

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Array:
    """softmax(scale * query · key + bias) · value, for each head.

    query:      (B, T, N, H), or (T, N, H).
    key, value: (B, S, K, H), or (S, K, H).
    bias:       added to the scores; broadcasts to (B, N, T, S).
    mask:       boolean, which scores to include; broadcasts to (B, N, T, S).
    scale:      1 / sqrt(H) by default.
    is_causal:  whether query t attends only to keys up to t.
    query_seq_lengths, key_value_seq_lengths: integers (B,): the valid lengths within T and S; the
                output of a query beyond its length is 0.
    local_window_size: (left, right): how far from its own position a query attends; or one number
                for both.
    implementation: None or "xla": products and a softmax, on every platform. "cudnn": a kernel of
                cuDNN that does not store the scores, for bfloat16 and float16 on NVIDIA GPUs.
    return_residual: whether to also return the logsumexp of the scores, (B, T, N).

    The scores and the softmax are computed in float32 at least. Returns an array like `query`.
    """
    if implementation not in (None, "xla", "cudnn"):
        raise ValueError(
            "dot_product_attention: implementation must be None, 'xla' or 'cudnn'; got "
            f"{implementation!r}."
        )
    window = local_window_size
    if isinstance(window, int):
        window = (window, window)
    optional = (bias, mask, query_seq_lengths, key_value_seq_lengths)
    given = tuple(x is not None for x in optional)
    arrays = query, key, value, *[x for x in optional if x is not None]
    flags = {"is_causal": bool(is_causal), "residual": bool(return_residual)}
    if implementation == "cudnn":
        return _by_cudnn(*arrays, given=given, scale=scale, window=window, **flags)
    return _attention(*arrays, given=given, scale=scale, window=window, **flags)


@fused
def _attention(
    query: Any,
    key: Any,
    value: Any,
    *rest: Any,
    given: tuple,
    scale: float | None,
    is_causal: bool,
    window: tuple | None,
    residual: bool,
) -> Any:
    bias, mask, q_lengths, kv_lengths = optional(rest, given)
    _check(query, key, value, mask)
    shape = type_of(query).shape
    query, key, value = [_with_rank_4(x) for x in (query, key, value)]
    keep = _visible(type_of(query), type_of(key), mask, is_causal, q_lengths, kv_lengths, window)
    out, sums = _heads(query, key, value, bias, keep, scale, residual)
    out = reshape(_without_padding(out, q_lengths), shape=shape)
    return (out, reshape(sums, shape=shape[:-1])) if residual else out


@fused
def _by_cudnn(
    query: Any,
    key: Any,
    value: Any,
    *rest: Any,
    given: tuple,
    scale: float | None,
    is_causal: bool,
    window: tuple | None,
    residual: bool,
) -> Any:
    bias, mask, *lengths = optional(rest, given)
    _check(query, key, value, mask)
    shape = type_of(query).shape
    query, key, value = [_with_rank_4(x) for x in (query, key, value)]
    for x in lengths:
        if x is not None:
            _check_lengths(x, type_of(query).shape[0])
    both = lengths[0], lengths[1]
    out, *sums = cudnn_attention(
        query, key, value, bias, mask, both, window, is_causal, scale, residual
    )
    out = reshape(_without_padding(out, lengths[0]), shape=shape)
    if not residual:
        return out
    sums = cast(transpose(sums[0], perm=(0, 2, 1)), type_of(key).dtype)
    return out, stop_gradient(reshape(sums, shape=shape[:-1]))


def _without_padding(out: Any, lengths: Any) -> Any:
    """Results with 0 for the queries beyond the lengths."""
    if lengths is None:
        return out
    there = _there(lengths, type_of(out).shape[:2], 1)
    wide = broadcast_in_dim(there, shape=type_of(out).shape, dims=(0, 1))
    return where(wide, out, lit(0, out))


def _check(query: Any, key: Any, value: Any, mask: Any) -> None:
    q, k, v = [type_of(x) for x in (query, key, value)]
    shown = in_row((q, k, v))
    problem = None
    if not q.ndim == k.ndim == v.ndim or q.ndim not in (3, 4):
        problem = "must all have 4 dimensions, or all 3"
    elif k.shape != v.shape:
        problem = "must have equal shapes for key and value"
    elif not q.dtype == k.dtype == v.dtype or not is_float(q.dtype):
        problem = "must have the same floating-point dtype"
    elif q.shape[-1] != k.shape[-1] or q.shape[:-3] != k.shape[:-3]:
        problem = "must have equal batch and head sizes (first and last dimension)"
    elif k.shape[-2] == 0 or q.shape[-2] % k.shape[-2]:
        problem = "must have a number of query heads that is a multiple of that of key heads"
    if problem:
        raise ValueError(f"dot_product_attention: query, key and value {problem}; got {shown}.")
    if mask is not None and type_of(mask).dtype != BOOL:
        raise ValueError(
            f"dot_product_attention: mask must be boolean; got {type_of(mask).str_short(True)}. "
            "Pass an array of numbers to add as `bias`."
        )


def _with_rank_4(x: Any) -> Any:
    shape = type_of(x).shape
    return x if len(shape) == 4 else reshape(x, shape=(1, *shape))


def _heads(
    query: Any, key: Any, value: Any, bias: Any, keep: Any, scale: float | None, residual: bool
) -> tuple[Any, Any]:
    """Grouped attention: G = N / K query heads share each key head."""
    b, t, n, h = type_of(query).shape
    s, k = type_of(key).shape[1:3]
    grouped = (b, k, n // k, t, s)
    queries = reshape(query, shape=(b, t, k, n // k, h))
    wide = promote_types(type_of(query).dtype, FLOAT32)
    # (b, t, k, g, h) and (b, s, k, h) → (b, k, t, g, s) → (b, k, g, t, s)
    scores = dot(queries, key, (((4,), (3,)), ((0, 2), (0, 2))), preferred=wide)
    scores = transpose(scores, perm=(0, 1, 3, 2, 4))
    scores = mul(scores, lit(1 / np.sqrt(h) if scale is None else scale, scores))
    if bias is not None:
        biased = cast(
            _grouped(bias, (b, n, t, s), grouped), promote_types(type_of(bias).dtype, wide)
        )
        scores = cast(add(cast(scores, type_of(biased).dtype), biased), wide)
    if keep is not None:
        low = lit(-0.7 * float(finfo(wide).max), scores)  # not -inf: a row may be fully masked
        scores = where(_grouped(keep, (b, n, t, s), grouped), scores, low)
    scores = cast(scores, FLOAT32)
    weights = cast(normalized(scores, (4,), None), type_of(key).dtype)
    # (b, k, g, t, s) and (b, s, k, h) → (b, k, g, t, h) → (b, t, k, g, h)
    out = dot(weights, value, (((4,), (1,)), ((0, 1), (0, 2))))
    out = reshape(transpose(out, perm=(0, 3, 1, 2, 4)), shape=(b, t, n, h))
    if not residual:
        return out, None
    sums = cast(log_of_sum(scores, None, None, (4,), False, False), type_of(key).dtype)
    sums = reshape(transpose(sums, perm=(0, 3, 1, 2)), shape=(b, t, n))
    return out, stop_gradient(sums)


def _grouped(x: Any, full: tuple, grouped: tuple) -> Any:
    """An array that broadcasts to (b, n, t, s), as (b, k, g, t, s)."""
    return reshape(broadcast_to(x, full), shape=grouped)


def _visible(
    q: Any, k: Any, mask: Any, is_causal: bool, q_lengths: Any, kv_lengths: Any, window: Any
) -> Any:
    """A mask of the included scores that broadcasts to (b, n, t, s); None for all."""
    b, t, n, _ = q.shape
    s = k.shape[1]
    parts = [] if mask is None else [broadcast_to(mask, (b, n, t, s))]
    row = iota(dtype=INT32, shape=(t, s), dimension=0)
    column = iota(dtype=INT32, shape=(t, s), dimension=1)
    if is_causal:
        parts.append(ge(row, column))
    if window is not None:
        left, right = window
        parts.append(le(row, add(column, lit(left, column))))
        parts.append(le(column, add(row, lit(right, row))))
    if q_lengths is not None:
        parts.append(_per_batch(_there(q_lengths, (b, t, s), 1)))
    if kv_lengths is not None:
        parts.append(_per_batch(_there(kv_lengths, (b, t, s), 2)))
    out = None
    for part in parts:
        part = broadcast_to(part, (b, n, t, s))
        out = part if out is None else bitwise_and(out, part)
    return out


def _there(lengths: Any, shape: tuple, dim: int) -> Any:
    """Whether the position along `dim` is below the batch element's length."""
    _check_lengths(lengths, shape[0])
    places = iota(dtype=INT32, shape=shape, dimension=dim)
    return lt(places, broadcast_in_dim(cast(lengths, INT32), shape=shape, dims=(0,)))


def _check_lengths(lengths: Any, batch: int) -> None:
    t = type_of(lengths)
    if t.shape != (batch,) or not is_integer(t.dtype):
        raise ValueError(
            f"dot_product_attention: sequence lengths must be integers of shape {(batch,)}; got "
            f"{t.str_short(True)}."
        )


def _per_batch(x: Any) -> Any:
    b, t, s = type_of(x).shape
    return reshape(x, shape=(b, 1, t, s))
