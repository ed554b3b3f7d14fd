"""Attention of one query per sequence to keys and values in pages, as decoding needs it.

The pages of a sequence lie anywhere in a pool. Their indices are prefetched, so that the index
function of a block reads which page is next. The softmax is that of `flash_kernels`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import is_integer, require
from shardwise._src.kernels.library.block_values import product, wide
from shardwise._src.kernels.library.flash_kernels import (
    MASKED,
    add_keys,
    begin_rows,
    check_heads,
    end_rows,
)
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise.typing import ArrayLike


def paged_attention(
    query: ArrayLike,
    k_pages: ArrayLike,
    v_pages: ArrayLike,
    lengths: ArrayLike,
    page_indices: ArrayLike,
    *,
    scale: float | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
    """Attention of one query per sequence to the keys and values in the sequence's pages.

    Args:
      query: floats (B, N, H): of N heads.
      k_pages, v_pages: (K, pages, page size, H), of the same dtype. N is a multiple of K: each key
        head serves N / K query heads.
      lengths: integers (B,): the number of keys of each sequence.
      page_indices: integers (B, P): its pages, in order; those beyond its length are not read.
      scale: 1 / sqrt(H) by default.
      check, params: as those of `kernels.call`.

    Returns:
      An array like `query`; 0 for sequences of length 0. The softmax is computed in float32 at
      least.

    Raises:
      ValueError: for shapes and dtypes that do not fit.
    """
    args = q, k, v, lengths, pages = [
        snp.asarray(x) for x in (query, k_pages, v_pages, lengths, page_indices)
    ]
    is_right = q.ndim == 3 and k.ndim == 4 and k.shape == v.shape and q.shape[2] == k.shape[3]
    is_right = is_right and lengths.shape == q.shape[:1] == pages.shape[:1] and pages.ndim == 2
    is_right = is_right and is_integer(lengths) and is_integer(pages)
    text = (
        "the arguments must be (B, N, H), twice (K, pages, page size, H), and integers (B,) and "
        "(B, P); got {}, {}, {}, {}, {}."
    )
    require(is_right, "paged_attention", text, *args)
    check_heads("paged_attention", q.shape[1], k.shape[0], q, k, v)
    if not q.size or not pages.size:
        return snp.zeros_like(q)
    (b, n, h), (heads, _, size, _) = q.shape, k.shape
    rows, dtype = power_above(n // heads, 16), wide(q.dtype)
    grouped = kernels.Block((None, None, rows, h), lambda b, n, step, *_: (b, n, 0, 0))
    page = kernels.Block((None, None, size, h), partial(_page, size))
    f = kernels.call(
        partial(paged_attention_kernel, float(1 / np.sqrt(h) if scale is None else scale)),
        sw.ShapeDtypeStruct((b, heads, n // heads, h), q.dtype),
        grid=(("b", b), ("n", heads), ("step", pages.shape[1])),
        in_specs=[grouped, page, page],
        out_specs=grouped,
        scratch=[kernels.VMEM((rows, width), dtype) for width in (1, 1, h)],
        prefetch=2,
        parallel=("b", "n"),
        name="paged_attention",
        check=check,
        params=params,
    )
    grouped_queries = q.reshape(b, heads, n // heads, h)
    return f(lengths.astype("int32"), pages.astype("int32"), grouped_queries, k, v).reshape(q.shape)


def _page(size: int, b, n, step, lengths, pages):
    """Page 0 in the steps beyond the length, which do not use it."""
    return n, snp.where(step * size < lengths[b], pages[b, step], 0), 0, 0


def paged_attention_kernel(scale: float, lengths, pages, q, k, v, out, *state):
    step, length = kernels.program_id("step"), lengths[kernels.program_id("b")]
    start = step * k.shape[0]

    @kernels.when(step == 0)
    def _():
        begin_rows(*state)

    @kernels.when(start < length)
    def _():
        scores = product(q[...], k[...].T) * scale
        position = start + lax.broadcasted_iota("int32", scores.shape, 1)
        add_keys(snp.where(position < length, scores, MASKED), v, *state)

    @kernels.when(step == kernels.num_programs("step") - 1)
    def _():
        out[...] = end_rows(*state)[0].astype(out.dtype)
