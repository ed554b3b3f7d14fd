"""Attention in blocks ("flash attention"): the scores are never stored.

A program of the grid has a block of queries, and visits one block of keys and values after
another. It computes the softmax over the keys so far: of each row the running maximum of the
scores, the sum of their exponentials relative to it, and the sum of the values, weighted by these.
A new maximum rescales both sums. In the end `weighted_sum / total` is the row's result, and
`running_max + log(total)`, the logsumexp of its scores, is what derivatives need: from it, they
compute the weights of any block again.

Dimension letters: B batch, T queries, S keys and values, N query heads, K key and value heads, H
the head size. The kernels have heads before positions, as TPUs need: (B, N, T, H).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.autodiff.grad import jvp
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.custom.linear_call import linear_call
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import Options, sizes_of, wide
from shardwise._src.kernels.program_frames import cdiv, num_programs, program_id, when
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.lax.contraction import dot
from shardwise._src.lax.shape_operators import broadcasted_iota
from shardwise._src.maps.ufuncs import maximum, minimum
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.creation import asarray, full, zeros, zeros_like
from shardwise._src.numpy.joining import stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.padding import pad
from shardwise._src.numpy.shapes import broadcast_to, swapaxes
from shardwise._src.numpy.unary import exp, log
from shardwise._src.ops.elementwise import div
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import in_row
from shardwise._src.types.dtypes import is_float, is_integer
from shardwise._src.values.binary import clip

INT32 = np.dtype("int32")
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
    params: CompilerParams | None = None,
) -> Array:
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
      check, params: as those of `kernels.call`; by default 8 warps for blocks of 128 on GPUs.

    Returns:
      An array like `query`; 0 for queries that attend to no key. The scores and the softmax are
      computed in float32 at least. Blocks without a score, by `is_causal`, `window` and `lengths`,
      are skipped. Derivatives exist to any order, in both modes; the first are kernels, too.

    Raises:
      ValueError: for shapes, dtypes, windows and blocks that do not fit.
    """
    arrays = query, key, value = [asarray(x) for x in (query, key, value)]
    shapes = [x.shape for x in arrays]
    is_right = query.ndim == key.ndim == 4 and shapes[1] == shapes[2]
    is_right = is_right and shapes[0][::3] == shapes[1][::3]
    require(is_right, "flash_attention", "(B, T, N, H), (B, S, K, H) and (B, S, K, H)", *arrays)
    check_heads("flash_attention", query.shape[2], key.shape[2], *arrays)
    (b, t, n, h), s = query.shape, key.shape[1]
    left, right = _window(window)
    after = 0 if is_causal else right
    ids = _pair("segment_ids", segment_ids, (b, t), (b, s))
    counts = _pair("lengths", lengths, (b,), (b,))
    if not query.size or not s:
        return zeros_like(query)
    default = [min(128, power_above(length, 16)) for length in (t, s)]
    sizes = sizes_of("flash_attention", ("queries", "keys"), blocks, default)
    warps = 8 if sizes[0] * sizes[1] > 2**13 else 4  # with 4, large blocks do not fit registers
    plan = Plan(
        Side(t, sizes[0], left, after),
        Side(s, sizes[1], after, left),
        group=n // key.shape[2],
        scale=float(1 / np.sqrt(h) if scale is None else scale),
        is_ragged=lengths is not None,
        options=Options(sizes, check, params or CompilerParams(num_warps=warps)),
    )
    sides = plan.queries, plan.keys, plan.keys
    q, k, v = [
        filled(swapaxes(x, 1, 2), (2, side.padded), (3, power_above(h, 16)))
        for x, side in zip(arrays, sides, strict=True)
    ]
    if segment_ids is not None:
        ids[0] = filled(ids[0], (1, plan.queries.padded))[:, :, None]
        ids[1] = filled(ids[1], (1, plan.keys.padded))[:, None, :]
    bounds = [
        full((b,), side.length, INT32) if x is None else clip(x, 0, side.length)
        for x, side in zip(counts, sides, strict=False)
    ]
    out = attend(plan, q, k, v, tuple(x for x in ids if x is not None), stack(bounds))
    return swapaxes(out[:, :, :t, :h], 1, 2)


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
        return cdiv(self.length, self.block)

    @property
    def padded(self) -> int:
        return self.count * self.block

    def reach(self, other: Side) -> tuple[np.ndarray, np.ndarray]:
        """For each block, the first and the last of the other side's blocks that it sees."""
        start = np.arange(self.count, dtype=INT32) * self.block
        first, last = 0 * start, 0 * start + other.count - 1
        if self.before is not None:
            first = np.maximum(start - self.before, 0) // other.block
        if self.after is not None:
            last = np.minimum(last, (start + self.block - 1 + self.after) // other.block)
        return first, last


@dataclass(frozen=True)
class Plan:
    """What the kernels of a call have in common. group: the query heads of each key head."""

    queries: Side
    keys: Side
    group: int
    scale: float
    is_ragged: bool
    options: Options

    def scores(self, i: Any, j: Any, lengths: Any, q: Any, k: Any, ids: Any) -> Any:
        """The scores of query block i and key block j; MASKED where they do not count."""
        found = product(q[...], k[...].T) * self.scale
        for part in self.visible(i, j, lengths, ids):
            found = where(part, found, MASKED)
        return found

    def visible(self, i: Any, j: Any, lengths: Any, ids: Any) -> Iterator[Any]:
        """Masks of the scores, each for one reason."""
        q, k = self.queries, self.keys
        rows = i * q.block + broadcasted_iota(INT32, (q.block, k.block), 0)
        columns = j * k.block + broadcasted_iota(INT32, (q.block, k.block), 1)
        if q.before is not None:
            yield columns >= rows - q.before
        if q.after is not None:
            yield columns <= rows + q.after
        if self.is_ragged:
            yield rows < lengths[0, program_id("b")]
            yield columns < lengths[1, program_id("b")]
        elif k.padded != k.length:
            yield columns < k.length
        if ids:
            yield ids[0][...] == ids[1][...]


def product(x: Any, y: Any) -> Any:
    return dot(x, y, preferred_element_type=wide(x.dtype))


@fused
def reach_of(lengths: Any, plan: Plan, by_keys: bool) -> Any:
    """The first and the last block of the other side that a block sees: int32[2, B, count]. None
    (-1 is the last) for blocks beyond the length of their side."""
    side, other = (plan.keys, plan.queries) if by_keys else (plan.queries, plan.keys)
    own, others = (lengths[1], lengths[0]) if by_keys else (lengths[0], lengths[1])
    first, last = side.reach(other)
    last = minimum(last, (others[:, None] - 1) // other.block)
    is_inside = np.arange(side.count, dtype=INT32) * side.block < own[:, None]
    return stack([broadcast_to(first, last.shape), where(is_inside, last, -1)])


# -- launches --


def launch(
    plan: Plan, body: Callable[..., None], by_keys: bool, operands: Any, outs: Any, scratch: Any
) -> Any:
    """A program (b, n, i, g, step) has block i of one side, and the blocks that it sees of the
    other side one after another: of query head n, or of all heads of the group of key head n.

    operands: (q, k, v, ids, lengths, *more), where more and outs are like q, by keys outs like k.
    """
    q, k, v, ids, lengths, *more = operands
    side, other = (plan.keys, plan.queries) if by_keys else (plan.queries, plan.keys)
    first, last = side.reach(other)
    group = plan.group if by_keys else 1

    def place(b: Any, n: Any, i: Any, g: Any, step: Any, reach: Any, _: Any) -> tuple[Any, ...]:
        """Heads and blocks of queries and keys. After the last block that one sees, that again."""
        seen = maximum(minimum(reach[0, b, i] + step, reach[1, b, i]), 0)
        if by_keys:
            return n * group + g, seen, n, i
        return n, i, div(n, INT32.type(plan.group)), seen

    def rows(x: Any) -> Block:
        sizes = None, None, plan.queries.block, x.shape[-1]
        return Block(sizes, lambda b, *rest: (b, *place(b, *rest)[:2], 0))

    def columns(x: Any) -> Block:
        sizes = None, None, plan.keys.block, x.shape[-1]
        return Block(sizes, lambda b, *rest: (b, *place(b, *rest)[2:], 0))

    id_blocks = [
        Block((None, plan.queries.block, 1), lambda b, *rest: (b, place(b, *rest)[1], 0)),
        Block((None, 1, plan.keys.block), lambda b, *rest: (b, 0, place(b, *rest)[3])),
    ]
    grid = {"b": q.shape[0], "n": q.shape[1] // group, "i": side.count}
    f = call(
        partial(body, plan),
        [ShapeDtypeStruct(x.shape, x.dtype) for x in outs],
        grid=(*grid.items(), ("g", group), ("step", max(int((last - first).max()) + 1, 1))),
        in_specs=[rows(q), columns(k), columns(v), id_blocks[: len(ids)], *map(rows, more)],
        out_specs=[(columns if by_keys else rows)(x) for x in outs],
        scratch=scratch,
        prefetch=2,
        parallel=("b", "n", "i"),
        name=body.__name__,
        **plan.options.of_call,
    )
    return f(reach_of(lengths, plan=plan, by_keys=by_keys), lengths, q, k, v, list(ids), *more)


def forward(plan: Plan, q: Any, *rest: Any) -> Any:
    """The result (B, N, T, H), and the logsumexp of the scores (B, N, T, 1)."""
    dtype, rows = wide(q.dtype), plan.queries.block
    outs = [q, ShapeDtypeStruct((*q.shape[:-1], 1), dtype)]
    scratch = [VMEM((rows, width), dtype) for width in (1, 1, q.shape[-1])]
    return launch(plan, flash_attention_forward, False, (q, *rest), outs, scratch)


def cotangents(plan: Plan, residuals: Any, ct: Any) -> tuple[Any, Any, Any]:
    """Those of q, k, v, from the arguments and results of `forward`."""
    *operands, out, sums = residuals
    inner = (ct.astype(sums.dtype) * out.astype(sums.dtype)).sum(-1, keepdims=True)
    operands += [ct, sums, inner]
    q, k, v = operands[:3]
    rows, columns = [
        VMEM((side.block, q.shape[-1]), sums.dtype) for side in (plan.queries, plan.keys)
    ]
    (q_ct,) = launch(plan, flash_attention_dq, False, operands, [q], [rows])
    k_ct, v_ct = launch(plan, flash_attention_dkv, True, operands, [k, v], [columns, columns])
    return q_ct, k_ct, v_ct


# -- kernels --


def begin_rows(running_max: Any, total: Any, weighted_sum: Any) -> None:
    running_max[...] = full(running_max.shape, NO_SCORE, running_max.dtype)
    total[...] = zeros(total.shape, total.dtype)
    weighted_sum[...] = zeros(weighted_sum.shape, weighted_sum.dtype)


def add_keys(scores: Any, v: Any, running_max: Any, total: Any, weighted_sum: Any) -> None:
    new = maximum(running_max[...], scores.max(1, keepdims=True))
    weights, before = exp(scores - new), exp(running_max[...] - new)
    total[...] = total[...] * before + weights.sum(1, keepdims=True)
    weighted_sum[...] = weighted_sum[...] * before + product(weights.astype(v.dtype), v[...])
    running_max[...] = new


def end_rows(running_max: Any, total: Any, weighted_sum: Any) -> tuple[Any, Any]:
    """The result, which is 0 / 1 if there was no key, and the logsumexp of the scores."""
    some = where(total[...] == 0, 1, total[...])
    return weighted_sum[...] / some, running_max[...] + log(some)


def flash_attention_forward(
    plan: Plan, reach: Any, lengths: Any, q: Any, k: Any, v: Any, ids: Any, out: Any, sums: Any,
    *state: Any,
) -> None:  # fmt: skip
    b, i, step = program_id("b"), program_id("i"), program_id("step")
    j = reach[0, b, i] + step

    @when(step == 0)
    def _() -> None:
        begin_rows(*state)

    @when(j <= reach[1, b, i])
    def _() -> None:
        add_keys(plan.scores(i, j, lengths, q, k, ids), v, *state)

    @when(step == num_programs("step") - 1)
    def _() -> None:
        result, sums[...] = end_rows(*state)
        out[...] = result.astype(out.dtype)


def flash_attention_dq(
    plan: Plan, reach: Any, lengths: Any, q: Any, k: Any, v: Any, ids: Any, ct: Any, sums: Any,
    inner: Any, out: Any, total: Any,
) -> None:  # fmt: skip
    b, i, step = program_id("b"), program_id("i"), program_id("step")
    j = reach[0, b, i] + step

    @when(step == 0)
    def _() -> None:
        total[...] = zeros(total.shape, total.dtype)

    @when(j <= reach[1, b, i])
    def _() -> None:
        weights = exp(plan.scores(i, j, lengths, q, k, ids) - sums[...])
        moved = weights * (product(ct[...], v[...].T) - inner[...]) * plan.scale
        total[...] += product(moved.astype(k.dtype), k[...])

    @when(step == num_programs("step") - 1)
    def _() -> None:
        out[...] = total[...].astype(out.dtype)


def flash_attention_dkv(
    plan: Plan, reach: Any, lengths: Any, q: Any, k: Any, v: Any, ids: Any, ct: Any, sums: Any,
    inner: Any, k_out: Any, v_out: Any, k_total: Any, v_total: Any,
) -> None:  # fmt: skip
    b, j, g, step = program_id("b"), program_id("i"), program_id("g"), program_id("step")
    i = reach[0, b, j] + step

    @when((g == 0) & (step == 0))
    def _() -> None:
        k_total[...] = zeros(k_total.shape, k_total.dtype)
        v_total[...] = zeros(v_total.shape, v_total.dtype)

    @when(i <= reach[1, b, j])
    def _() -> None:
        weights = exp(plan.scores(i, j, lengths, q, k, ids) - sums[...])
        moved = weights * (product(ct[...], v[...].T) - inner[...]) * plan.scale
        k_total[...] += product(moved.astype(q.dtype).T, q[...])
        v_total[...] += product(weights.astype(ct.dtype).T, ct[...])

    @when((g == num_programs("g") - 1) & (step == num_programs("step") - 1))
    def _() -> None:
        k_out[...] = k_total[...].astype(k_out.dtype)
        v_out[...] = v_total[...].astype(v_out.dtype)


# -- derivatives --


@partial(custom_jvp, nondiff_argnums=(0,))
def attend(plan: Plan, q: Any, k: Any, v: Any, ids: Any, lengths: Any) -> Any:
    return forward(plan, q, k, v, ids, lengths)[0]


@attend.defjvp
def _attend_jvp(plan: Plan, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """A linear function of the tangents, whose transpose is two kernels. Further derivatives are
    those of all these kernels."""
    out, sums = forward(plan, *primals)
    residuals = *primals, out, sums
    return out, linear_call(
        partial(_tangent, plan), partial(cotangents, plan), residuals, tuple(tangents[:3])
    )


def _tangent(plan: Plan, residuals: Any, tangents: Any) -> Any:
    *xs, ids, lengths, _, _ = residuals
    return jvp(lambda *xs: forward(plan, *xs, ids, lengths)[0], xs, list(tangents))[1]


# -- arguments --


def require(is_right: bool, who: str, wanted: str, *arrays: Any) -> None:
    if not is_right:
        shown = in_row([type_of(x) for x in arrays])
        raise ValueError(f"{who}: the arguments must be {wanted}; got {shown}.")


def check_heads(who: str, heads: int, key_heads: int, *arrays: Any) -> None:
    """arrays: queries, keys, values."""
    dtypes = [x.dtype for x in arrays]
    is_right = dtypes == dtypes[:1] * 3 and is_float(dtypes[0])
    require(is_right, who, "of one floating-point dtype", *arrays)
    is_right = key_heads > 0 and heads % key_heads == 0
    require(is_right, who, "of a number of query heads that the key heads divide", *arrays)


def _window(window: Any) -> tuple[Any, Any]:
    pair = window if isinstance(window, tuple) else (window, window)
    if len(pair) != 2 or not all(n is None or (type(n) is int and n >= 0) for n in pair):
        raise ValueError(
            "flash_attention: window is a number of positions, or a pair of them, to the left and "
            f"to the right; got {short_repr(window)}."
        )
    return pair[0], pair[1]


def _pair(what: str, given: Any, *shapes: tuple[int, ...]) -> list[Any]:
    """The integers of queries and of keys; of both, if there is one array."""
    pair = given if isinstance(given, tuple) else (given, given)
    found = [None if x is None else asarray(x) for x in pair]
    for x, shape in zip(found, shapes, strict=False):
        if x is not None and (x.shape != shape or not is_integer(x.dtype)):
            raise ValueError(
                f"flash_attention: {what} must be integers of shape {shape}; got "
                f"{type_of(x).str_short(True)}."
            )
    return [None if x is None else x.astype(INT32) for x in found]


def filled(x: Any, *sizes: tuple[int, int]) -> Any:
    """The array with zeros at the end of dimensions, up to sizes: pairs of both."""
    more = [(0, 0)] * x.ndim
    for d, size in sizes:
        more[d] = (0, size - x.shape[d])
    return pad(x, more) if any(after for _, after in more) else x
