"""Attention in blocks ("flash attention"): the scores are never stored.

A program of the grid has a block of queries, and visits one block of keys and values after
another. It computes the softmax over the keys so far: of each row the running maximum of the
scores, the sum of their exponentials relative to it, and the sum of the values, weighted by these.
A new maximum rescales both sums. In the end `weighted_sum / total` is the row's result, and
`running_max + log(total)`, the logsumexp of its scores, is what derivatives need: from it, they
compute the weights of any block again.

`paged_attention`, which decoding needs, has one query per sequence, and keys and values in pages
that lie anywhere in a pool. The indices of pages are prefetched, so that the index function of a
block reads which page is next.

Dimension letters: B batch, T queries, S keys and values, N query heads, K key and value heads, H
the head size. The kernels have heads before positions, as TPUs need: (B, N, T, H).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import is_float, is_integer, require
from shardwise._src.kernels.library.block_choices import Options, options_of
from shardwise._src.kernels.library.block_values import add_exponentials, product, wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.messages.formatting import short_repr
from shardwise.typing import ArrayLike

NO_SCORE = -1e38  # the largest score of no keys
MASKED = 2 * NO_SCORE  # less by so much that its power is 0, even relative to NO_SCORE


def flash_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    is_causal: bool = False,
    window: int | tuple[int, int] | None = None,
    segment_ids: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    lengths: ArrayLike | tuple[ArrayLike | None, ArrayLike | None] | None = None,
    scale: float | None = None,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
    """softmax(scale * query · key) · value for each head, in memory linear in the lengths.

    Args:
      query: floats (B, T, N, H).
      key, value: (B, S, K, H), of the same dtype. N is a multiple of K: each key head serves N / K
        query heads.
      is_causal: whether query t attends only to keys up to t.
      window: (left, right): how far from its own position a query attends, None for any distance;
        one number for both.
      segment_ids: integers (B, T): a query attends to the keys with its number; or a pair of those
        of queries, (B, T), and of keys, (B, S).
      lengths: integers (B,): how many positions of each sequence count; or a pair of those of
        queries and of keys, either of which may be None.
      scale: 1 / sqrt(H) by default.
      blocks: (queries, keys) of a block; 128 by default, or the power of two above T or S.
      check, params: as those of `kernels.call`; by default 8 warps for blocks of 128 on GPUs,
        and one stage for keys of more than 32 KiB.

    Returns:
      An array like `query`; 0 for queries that attend to no key. The scores and the softmax are
      computed in float32 at least. Blocks without a score, by `is_causal`, `window` and `lengths`,
      are skipped. Derivatives exist to any order, in both modes; the first are kernels, too.

    Raises:
      ValueError: for shapes, dtypes, windows and blocks that do not fit.
    """
    q, k, v = arrays = [snp.asarray(x) for x in (query, key, value)]
    is_right = q.ndim == k.ndim == 4 and k.shape == v.shape and q.shape[::3] == k.shape[::3]
    text = "the arguments must be (B, T, N, H), (B, S, K, H) and (B, S, K, H); got {}, {}, {}."
    require(is_right, "flash_attention", text, *arrays)
    (b, t, n, h), (_, s, heads, _) = q.shape, k.shape
    check_heads("flash_attention", n, heads, *arrays)
    left, right = _window(window)
    ids = _pair("segment_ids", segment_ids, (b, t), (b, s))
    counts = _pair("lengths", lengths, (b,), (b,))
    if not q.size or not s:
        return snp.zeros_like(q)
    usual = [min(128, power_above(length, 16)) for length in (t, s)]
    options = options_of("flash_attention", "queries, keys", usual, blocks, check, params)
    rows, columns = options.blocks
    width = power_above(h, 16)
    warps = 8 if rows * columns > 2**13 else 4  # with 4, large blocks do not fit registers
    stages = 1 if columns * width * q.dtype.itemsize > 2**15 else None  # nor in shared memory
    usual_params = kernels.CompilerParams(num_warps=warps, num_stages=stages)
    after = 0 if is_causal else right
    plan = Plan(
        sides=(Side(t, rows, left, after), Side(s, columns, after, left)),
        group=n // heads,
        scale=float(1 / np.sqrt(h) if scale is None else scale),
        is_ragged=lengths is not None,
        options=options._replace(params=params or usual_params),
    )
    t_padded, s_padded = [side.count * side.block for side in plan.sides]
    q, k, v = [
        _filled(snp.swapaxes(x, 1, 2), b, x.shape[2], size, width)
        for x, size in zip(arrays, (t_padded, s_padded, s_padded), strict=True)
    ]
    if segment_ids is not None:
        ids = [_filled(ids[0], b, t_padded)[:, :, None], _filled(ids[1], b, s_padded)[:, None]]
    bounds = [
        snp.full(b, size, "int32") if x is None else snp.clip(x, 0, size)
        for x, size in zip(counts, (t, s), strict=False)
    ]
    out, _ = attend(plan, q, k, v, [x for x in ids if x is not None], snp.stack(bounds))
    return snp.swapaxes(out[:, :, :t, :h], 1, 2)


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


# -- arguments --


def check_heads(who: str, heads: int, key_heads: int, q, k, v):
    text = "the arguments must be of {}; got {}, {}, {}."
    is_right = q.dtype == k.dtype == v.dtype and is_float(q)
    require(is_right, who, text, "one floating-point dtype", q, k, v)
    is_right = key_heads > 0 and heads % key_heads == 0
    require(is_right, who, text, "a number of query heads that the key heads divide", q, k, v)


def _window(window):
    pair = window if isinstance(window, tuple) else (window, window)
    is_right = len(pair) == 2 and all(n is None or (type(n) is int and n >= 0) for n in pair)
    text = "window is a number of positions, or a pair of them, to the left and to the right; got "
    require(is_right, "flash_attention", text + "{}.", short_repr(window))
    return pair


def _pair(what: str, given, *shapes: tuple[int, ...]):
    """The integers of queries and of keys; of both, if there is one array."""
    pair = given if isinstance(given, tuple) else (given, given)
    found = [None if x is None else snp.asarray(x) for x in pair]
    for x, shape in zip(found, shapes, strict=False):
        is_right = x is None or (x.shape == shape and is_integer(x))
        text = "{} must be integers of shape {}; got {}."
        require(is_right, "flash_attention", text, what, shape, x)
    return [None if x is None else x.astype("int32") for x in found]


def _filled(x, *shape: int):
    """The array with zeros at the end of dimensions, up to a shape."""
    return snp.pad(x, [(0, n - size) for n, size in zip(shape, x.shape, strict=True)])


# -- the plan of a call --


@dataclass(frozen=True)
class Side:
    """The queries or the keys: their number, in blocks of `block`.

    Each sees the other side's elements from `before` positions before its own to `after` positions
    after it; None: all.
    """

    length: int
    block: int
    before: int | None
    after: int | None

    @property
    def count(self) -> int:
        return kernels.cdiv(self.length, self.block)

    def reach(self, other: Side) -> tuple[np.ndarray, np.ndarray]:
        """For each block, the first and the last of the other side's blocks that it sees."""
        start = np.arange(self.count, dtype="int32") * self.block
        first, last = 0 * start, 0 * start + other.count - 1
        if self.before is not None:
            first = np.maximum(start - self.before, 0) // other.block
        if self.after is not None:
            last = np.minimum(last, (start + self.block - 1 + self.after) // other.block)
        return first, last


@dataclass(frozen=True)
class Plan:
    """What the kernels of a call have in common. sides: the queries and the keys. group: the query
    heads of each key head."""

    sides: tuple[Side, Side]
    group: int
    scale: float
    is_ragged: bool
    options: Options

    def scores(self, i, j, lengths, q, k, ids):
        """The scores of query block i and key block j; MASKED where they do not count."""
        found, (queries, keys), masks = product(q[...], k[...].T) * self.scale, self.sides, []
        row = i * queries.block + lax.broadcasted_iota("int32", found.shape, 0)
        column = j * keys.block + lax.broadcasted_iota("int32", found.shape, 1)
        if queries.before is not None:
            masks.append(column >= row - queries.before)
        if queries.after is not None:
            masks.append(column <= row + queries.after)
        if self.is_ragged:
            b = kernels.program_id("b")
            masks += [row < lengths[0, b], column < lengths[1, b]]
        elif keys.length % keys.block:
            masks.append(column < keys.length)
        if ids:
            masks.append(ids[0][...] == ids[1][...])
        for mask in masks:
            found = snp.where(mask, found, MASKED)
        return found


@partial(sw.jit, static_argnums=(0, 1))
def reach_of(plan: Plan, by_keys: bool, lengths):
    """The first and the last block of the other side that a block sees: int32[2, B, count]. None
    (-1 is the last) for blocks beyond the length of their side."""
    side, other = plan.sides[::-1] if by_keys else plan.sides
    own, others = lengths[::-1] if by_keys else lengths
    first, last = side.reach(other)
    last = snp.minimum(last, (others[:, None] - 1) // other.block)
    is_inside = np.arange(side.count, dtype="int32") * side.block < own[:, None]
    return snp.stack([snp.broadcast_to(first, last.shape), snp.where(is_inside, last, -1)])


# -- launches --


def launch(plan: Plan, kind: str, operands, outs):
    """A program (b, n, i, g, step) has block i of one side, and the blocks that it sees of the
    other side one after another: of query head n, or of all heads of the group of key head n.

    kind: forward, or the cotangents dq or dkv. operands: (q, k, v, ids, lengths, *more), where more
    and outs are like q, those of dkv like k.
    """
    q, k, v, ids, lengths, *more = operands
    by_keys = kind == "dkv"
    side, other = plan.sides[::-1] if by_keys else plan.sides
    first, last = side.reach(other)
    group = plan.group if by_keys else 1

    def block(letters: str, width: int = 1) -> kernels.Block:
        """Of arrays with these dimensions: batch b; head n and block i of queries, or m and j of
        keys; h, of this width."""
        sizes = {"i": plan.sides[0].block, "j": plan.sides[1].block, "h": width}

        def index(b, n, i, g, step, reach, _):
            # After the last block that one sees, that again.
            seen = snp.maximum(snp.minimum(reach[0, b, i] + step, reach[1, b, i]), 0)
            if by_keys:
                found = {"b": b, "n": n * group + g, "i": seen, "m": n, "j": i, "h": 0}
            else:
                key_head = lax.div(n, np.int32(plan.group))
                found = {"b": b, "n": n, "i": i, "m": key_head, "j": seen, "h": 0}
            return tuple(found[letter] for letter in letters)

        return kernels.Block(tuple(sizes.get(letter) for letter in letters), index)

    steps = max(int((last - first).max()) + 1, 1)
    b, heads = q.shape[0], q.shape[1] // group
    widths = (1, 1, q.shape[-1]) if kind == "forward" else [x.shape[-1] for x in outs]
    of_ids = block("bih"), block("bhj")
    return kernels.call(
        partial(forward_body, plan) if kind == "forward" else partial(vjp_body, plan, by_keys),
        [sw.ShapeDtypeStruct(x.shape, x.dtype) for x in outs],
        grid=(("b", b), ("n", heads), ("i", side.count), ("g", group), ("step", steps)),
        in_specs=[
            *(block("bnih", q.shape[-1]), block("bmjh", k.shape[-1]), block("bmjh", v.shape[-1])),
            *(of_ids[: len(ids)], *[block("bnih", x.shape[-1]) for x in more]),
        ],
        out_specs=[block("bmjh" if by_keys else "bnih", x.shape[-1]) for x in outs],
        scratch=[kernels.VMEM((side.block, width), wide(q.dtype)) for width in widths],
        prefetch=2,
        parallel=("b", "n", "i"),
        name=f"flash_attention_{kind}",
        **plan.options.of_call,
    )(reach_of(plan, by_keys, lengths), lengths, q, k, v, ids, *more)


def forward(plan: Plan, q, *rest):
    """The result (B, N, T, H), and the logsumexp of the scores (B, N, T, 1)."""
    sums = sw.ShapeDtypeStruct((*q.shape[:-1], 1), wide(q.dtype))
    return launch(plan, "forward", (q, *rest), [q, sums])


def cotangents(plan: Plan, args, results, cts):
    """Those of q, k, v, from the arguments, results and cotangents of `forward`."""
    (q, k, v, *_), (out, sums), (ct, sums_ct) = args, results, cts
    inner = (ct.astype(sums.dtype) * out.astype(sums.dtype)).sum(-1, keepdims=True) - sums_ct
    operands = *args, ct, sums, inner
    return *launch(plan, "dq", operands, [q]), *launch(plan, "dkv", operands, [k, v])


attend = with_cotangents(forward, cotangents, needs_result=True)


# -- kernels --


def begin_rows(running_max, total, weighted_sum):
    running_max[...] = NO_SCORE
    total[...] = 0
    weighted_sum[...] = 0


def add_keys(scores, v, running_max, total, weighted_sum):
    weights, factor = add_exponentials(scores, running_max, total)
    weighted_sum[...] = weighted_sum[...] * factor + product(weights.astype(v.dtype), v[...])


def end_rows(running_max, total, weighted_sum):
    """The result, which is 0 / 1 if there was no key, and the logsumexp of the scores."""
    some = snp.where(total[...] == 0, 1, total[...])
    return weighted_sum[...] / some, running_max[...] + snp.log(some)


def forward_body(plan: Plan, reach, lengths, q, k, v, ids, out, sums, *state):
    b, i, step = [kernels.program_id(name) for name in ("b", "i", "step")]
    j = reach[0, b, i] + step

    @kernels.when(step == 0)
    def _():
        begin_rows(*state)

    @kernels.when(j <= reach[1, b, i])
    def _():
        add_keys(plan.scores(i, j, lengths, q, k, ids), v, *state)

    @kernels.when(step == kernels.num_programs("step") - 1)
    def _():
        result, sums[...] = end_rows(*state)
        out[...] = result.astype(out.dtype)


def vjp_body(plan: Plan, by_keys, reach, lengths, q, k, v, ids, ct, sums, inner, *refs):
    """refs: the cotangents of keys and values, or that of queries; and their sums so far."""
    b, own, g, step = [kernels.program_id(name) for name in ("b", "i", "g", "step")]
    seen = reach[0, b, own] + step
    i, j = (seen, own) if by_keys else (own, seen)
    outs, totals = refs[: len(refs) // 2], refs[len(refs) // 2 :]

    @kernels.when((g == 0) & (step == 0))
    def _():
        for total in totals:
            total[...] = 0

    @kernels.when(seen <= reach[1, b, own])
    def _():
        weights = snp.exp(plan.scores(i, j, lengths, q, k, ids) - sums[...])
        moved = weights * (product(ct[...], v[...].T) - inner[...]) * plan.scale
        if by_keys:
            totals[0][...] += product(moved.astype(q.dtype).T, q[...])
            totals[1][...] += product(weights.astype(ct.dtype).T, ct[...])
        else:
            totals[0][...] += product(moved.astype(k.dtype), k[...])

    @kernels.when((g == kernels.num_programs("g") - 1) & (step == kernels.num_programs("step") - 1))
    def _():
        for out, total in zip(outs, totals, strict=True):
            out[...] = total[...].astype(out.dtype)


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
