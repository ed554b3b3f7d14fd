"""Attention of one query per sequence to keys and values in pages, as decoding needs it.

The pages of a sequence lie anywhere in a pool. Their indices are prefetched, so that the index
function of a block reads which page is next. The softmax is that of `flash_kernels`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import wide
from shardwise._src.kernels.library.flash_kernels import (
    INT32,
    MASKED,
    add_keys,
    begin_rows,
    check_heads,
    end_rows,
    product,
    require,
)
from shardwise._src.kernels.program_frames import num_programs, program_id, when
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.lax.shape_operators import broadcasted_iota
from shardwise._src.numpy.creation import asarray, zeros_like
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer


def paged_attention(
    query: ArrayLike,
    k_pages: ArrayLike,
    v_pages: ArrayLike,
    lengths: ArrayLike,
    page_indices: ArrayLike,
    *,
    scale: float | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
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
        asarray(x) for x in (query, k_pages, v_pages, lengths, page_indices)
    ]
    is_right = q.ndim == 3 and k.ndim == 4 and k.shape == v.shape and q.shape[2] == k.shape[3]
    is_right = is_right and lengths.shape == q.shape[:1] == pages.shape[:1] and pages.ndim == 2
    is_right = is_right and is_integer(lengths.dtype) and is_integer(pages.dtype)
    wanted = "(B, N, H), twice (K, pages, page size, H), and integers (B,) and (B, P)"
    require(is_right, "paged_attention", wanted, *args)
    check_heads("paged_attention", q.shape[1], k.shape[0], q, k, v)
    if not q.size or not pages.size:
        return zeros_like(q)
    (b, n, h), (heads, _, size, _) = q.shape, k.shape
    rows, dtype = power_above(n // heads, 16), wide(q.dtype)
    grouped = Block((None, None, rows, h), lambda b, n, step, *_: (b, n, 0, 0))
    page = Block((None, None, size, h), partial(_page, size))
    f = call(
        partial(paged_attention_kernel, float(1 / np.sqrt(h) if scale is None else scale)),
        ShapeDtypeStruct((b, heads, n // heads, h), q.dtype),
        grid=(("b", b), ("n", heads), ("step", pages.shape[1])),
        in_specs=[grouped, page, page],
        out_specs=grouped,
        scratch=[VMEM((rows, width), dtype) for width in (1, 1, h)],
        prefetch=2,
        parallel=("b", "n"),
        name="paged_attention",
        check=check,
        params=params,
    )
    grouped_queries = q.reshape(b, heads, n // heads, h)
    return f(lengths.astype(INT32), pages.astype(INT32), grouped_queries, k, v).reshape(q.shape)


def _page(size: int, b: Any, n: Any, step: Any, lengths: Any, pages: Any) -> tuple[Any, ...]:
    """Page 0 in the steps beyond the length, which do not use it."""
    return n, where(step * size < lengths[b], pages[b, step], 0), 0, 0


def paged_attention_kernel(
    scale: float, lengths: Any, pages: Any, q: Any, k: Any, v: Any, out: Any, *state: Any
) -> None:
    step, length = program_id("step"), lengths[program_id("b")]
    start = step * k.shape[0]

    @when(step == 0)
    def _() -> None:
        begin_rows(*state)

    @when(start < length)
    def _() -> None:
        scores = product(q[...], k[...].T) * scale
        position = start + broadcasted_iota(INT32, scores.shape, 1)
        add_keys(where(position < length, scores, MASKED), v, *state)

    @when(step == num_programs("step") - 1)
    def _() -> None:
        out[...] = end_rows(*state)[0].astype(out.dtype)
