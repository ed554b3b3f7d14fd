"""Samplers of discrete distributions, choices from arrays, and permutations."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.control.scan_api import scan
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.rearrange import take_inside
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reshape, transpose
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.cumulative import cumsum
from shardwise._src.ops.elementwise import (
    add,
    bitwise_or,
    div,
    eq,
    floor,
    log,
    log1p,
    lt,
    mul,
    ne,
    neg,
    sub,
    where,
)
from shardwise._src.ops.families import lit
from shardwise._src.ops.random.bits import draw_bits, drawing_form, split_keys
from shardwise._src.ops.random.rejection import random_binomial, random_poisson
from shardwise._src.ops.reduce import argmax, reduce_max, reduce_min
from shardwise._src.ops.shape import canonical_axis, slice_in_dim
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.ops.sort import sort, top_k
from shardwise._src.random.approximate import approximate_poisson, check_method
from shardwise._src.random.continuous import gumbel_mode, gumbel_sample
from shardwise._src.random.draws import keys_of, randint_sample, unit_sample
from shardwise._src.random.named_shapes import keyed, optionally_keyed
from shardwise._src.random.sampler import sampler
from shardwise._src.random.sampler_arguments import (
    check_key,
    common_sizes,
    int_dtype,
    parameter,
    row_sizes,
    typed_key,
)
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, ShapeLike
from shardwise._src.types.dtypes import canonicalize, is_complex, is_integer, to_inexact
from shardwise._src.types.named_shape import NamedShape
from shardwise._src.values.convert import broadcast_to, cast

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)


# -- categorical --


def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: ShapeLike | None = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Indices along `axis`, with probabilities softmax(logits, axis).

    shape:   the result shape; ends in the shape of `logits` without `axis`, which is the default.
    replace: False to draw without repetition along the leading dimensions of `shape`.
    mode:    the number of bits, as for `gumbel`.
    """
    if out_sharding is not None:
        return placed(categorical, out_sharding, key, logits, axis, shape, replace, mode)
    key, shape = optionally_keyed("categorical", key, shape)
    return _categorical(
        key, logits, operator.index(axis), shape, bool(replace), gumbel_mode("categorical", mode)
    )


@fused(arrays=2)
def _categorical(
    key: Any, logits: Any, axis: int, shape: tuple | None, replace: bool, mode: str
) -> Any:
    key = typed_key("categorical", key)
    t = type_of(logits)
    if not t.shape or is_complex(t.dtype):
        raise ValueError(
            f"categorical: logits must be real with at least one dimension; got "
            f"{t.str_short(True)}."
        )
    logits = cast(logits, to_inexact(t.dtype))
    axis = canonical_axis(axis, t.ndim)
    rest = t.shape[:axis] + t.shape[axis + 1 :]
    shape = rest if shape is None else shape
    if not _ends_in(shape, rest):
        raise ValueError(
            f"categorical: shape must end with that of the logits without axis {axis}, {rest}; got "
            f"{shape}."
        )
    extra = shape[: len(shape) - len(rest)]
    if not replace:
        return _distinct(key, logits, axis, extra, shape, mode)
    inner = list(shape[len(extra) :])
    inner.insert(axis, t.shape[axis])
    noise = gumbel_sample(key, (*extra, *inner), type_of(logits).dtype, mode=mode)
    scores = add(noise, broadcast_to(logits, (*extra, *inner)))
    return _first_largest(scores, len(extra) + axis)


def _first_largest(x: Any, axis: int) -> Any:
    """`argmax` as two reductions: XLA materializes the samples for these, with vector instructions,
    but computes them one by one inside the reduction of `argmax`."""
    shape, dtype = type_of(x).shape, canonicalize(int)
    if not shape[axis]:
        return argmax(x, axes=(axis,), index_dtype=dtype)  # raises
    others = tuple([d for d in range(len(shape)) if d != axis])
    top = broadcast_in_dim(reduce_max(x, axes=(axis,)), shape=shape, dims=others)
    place = iota(dtype=dtype, shape=shape, dimension=axis)
    here = bitwise_or(eq(x, top), ne(x, x))  # NaN counts as the largest
    return reduce_min(where(here, place, lit(shape[axis], place)), axes=(axis,))


def _ends_in(shape: tuple, end: tuple) -> bool:
    last = shape[len(shape) - len(end) :]
    return len(shape) >= len(end) and all(e in (1, n) for n, e in zip(last, end, strict=True))


def _distinct(key: Any, logits: Any, axis: int, extra: tuple, shape: tuple, mode: str) -> Any:
    """A sample without repetition: the largest logits after adding Gumbel noise."""
    t = type_of(logits)
    count = math.prod(extra)
    if count > t.shape[axis]:
        raise ValueError(
            f"categorical: cannot draw {count} distinct categories from {t.shape[axis]} "
            "(replace=False)."
        )
    scores = add(logits, gumbel_sample(key, t.shape, t.dtype, mode=mode))
    order = [i for i in range(t.ndim) if i != axis] + [axis]
    _, places = top_k(transpose(scores, perm=tuple(order)), k=count)
    places = transpose(places, perm=(t.ndim - 1, *range(t.ndim - 1)))
    return reshape(cast(places, canonicalize(int)), shape=shape)


# -- choice and permutation --


def choice(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """A sample from `a` along `axis`, or from range(a) if `a` is an integer.

    shape:   the number of draws; replaces `axis` in the result's shape.
    replace: whether an element can be drawn more than once.
    p:       the probability of each; uniform by default. With `replace=False`, at least as many
             probabilities must be positive as elements are drawn.
    """
    if not isinstance(shape, Sequence | NamedShape):
        raise TypeError(f"choice: shape must be a sequence of integers; got {shape!r}.")
    key, shape = keyed("choice", key, shape)
    if type_of(a).shape == ():
        a = _count("choice", "a", a)
        n = a
    else:
        axis = canonical_axis(axis, type_of(a).ndim)
        n = type_of(a).shape[axis]
    _check_choice(n, math.prod(shape), replace, p)
    mode = gumbel_mode("choice", mode)
    given = [x for x in (None if isinstance(a, int) else a, p) if x is not None]
    return _chosen(
        key,
        *given,
        n=a if isinstance(a, int) else None,
        axis=axis,
        shape=shape,
        replace=bool(replace),
        mode=mode,
    )


def _count(name: str, what: str, x: Any) -> int:
    try:
        return operator.index(x)
    except TypeError:
        raise TypeError(
            f"{name}: {what} must be an array or an integer; got {x!r} of type {type(x).__name__}."
        ) from None


def _check_choice(n: int, draws: int, replace: bool, p: Any) -> None:
    if n <= 0 and draws:
        raise ValueError("choice: cannot draw from an empty `a`.")
    if not replace and draws > n:
        raise ValueError(f"choice: cannot draw {draws} distinct elements from {n} (replace=False).")
    if p is not None and type_of(p).shape != (n,):
        raise ValueError(
            f"choice: p must have one probability for each of the {n} elements; got "
            f"{type_of(p).str_short(True)}."
        )


@fused
def _chosen(
    key: Any, *given: Any, n: int | None, axis: int, shape: tuple, replace: bool, mode: str
) -> Any:
    """given: the array, unless it is range(n), and the probabilities, unless they are equal."""
    key, dtype = typed_key("choice", key), canonicalize(int)
    if len(given) == 1 + (n is None):
        places = _weighted(key, given[-1], shape, replace, mode)
        return cast(places, dtype) if n is not None else take_inside(given[0], places, axis)
    if n is not None and replace:
        bound = np.int32(n) if n < 1 << 31 else np.uint32(n)
        return randint_sample(key, np.int32(0), bound, shape, dtype)
    if n is not None:
        mixed = shuffled(key, iota(dtype=dtype, shape=(n,), dimension=0), 0)
        return reshape(slice_in_dim(mixed, 0, math.prod(shape), 0), shape=shape)
    (a,), size = given, type_of(given[0]).shape[axis]
    if not math.prod(shape):
        return take_inside(a, full(0, shape, INT32), axis)
    if replace:
        return take_inside(a, randint_sample(key, np.int32(0), np.int32(size), shape, INT32), axis)
    mixed = slice_in_dim(permuted(key, a, axis, False), 0, math.prod(shape), axis)
    before, after = type_of(a).shape[:axis], type_of(a).shape[axis + 1 :]
    return reshape(mixed, shape=(*before, *shape, *after))


def _weighted(key: Any, p: Any, shape: tuple, replace: bool, mode: str) -> Any:
    """Indices of shape `shape`, drawn with probabilities `p`."""
    t = type_of(p)
    p = cast(p, to_inexact(t.dtype))
    dtype = type_of(p).dtype
    if not math.prod(shape):
        return full(0, shape, INT32)
    if not replace:
        scores = add(gumbel_sample(key, t.shape, dtype, mode=mode), log(p))
        return reshape(top_k(scores, k=math.prod(shape))[1], shape=shape)
    sums = cumsum(p, axis=0)
    total = reshape(slice_in_dim(sums, t.size - 1, t.size, 0), shape=())
    u = unit_sample(key, shape, dtype)
    return _place_in(sums, mul(total, sub(lit(1, u), u)))


def _place_in(rising: Any, x: Any) -> Any:
    """The number of elements of an increasing sequence below each `x`, by bisection."""
    n = type_of(rising).size
    shape = type_of(x).shape
    place = full(0, shape, INT32)
    step = 1 << (n.bit_length() - 1)
    while step:
        further = add(place, lit(step, place))
        inside = lt(further, lit(n + 1, place))
        at = where(inside, sub(further, lit(1, place)), lit(n - 1, place))
        below = lt(take_inside(rising, at, 0), x)
        place = where(inside, where(below, further, place), place)
        step //= 2
    return place


def permutation(
    key: ArrayLike,
    x: ArrayLike,
    axis: int = 0,
    independent: bool = False,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """`x` with its elements along `axis` in random order, or range(x) if `x` is an integer.

    independent: whether each line along `axis` is permuted independently.
    """
    if out_sharding is not None:
        return placed(permutation, out_sharding, key, x, axis, independent)
    check_key("permutation", key)
    if type_of(x).shape == ():
        if not is_integer(type_of(x).dtype):
            raise TypeError(
                f"permutation: x must be an array or an integer; got {type_of(x).str_short(True)}."
            )
        return _permuted_range(key, _count("permutation", "x", x))
    return _permutation(key, x, canonical_axis(axis, type_of(x).ndim), bool(independent))


@fused(arrays=1)
def _permuted_range(key: Any, n: int) -> Any:
    places = iota(dtype=canonicalize(int), shape=(max(n, 0),), dimension=0)
    return shuffled(typed_key("permutation", key), places, 0)


@fused(arrays=2)
def _permutation(key: Any, x: Any, axis: int, independent: bool) -> Any:
    return permuted(typed_key("permutation", key), x, axis, independent)


def permuted(key: Any, x: Any, axis: int, independent: bool) -> Any:
    t = type_of(x)
    if independent or t.ndim == 1:
        return shuffled(key, x, axis)
    places = iota(dtype=canonicalize(int), shape=(t.shape[axis],), dimension=0)
    return take_inside(x, shuffled(key, places, 0), axis)


def shuffled(key: Any, x: Any, axis: int) -> Any:
    """Sorted by random bits, in as many rounds as make it unlikely that two elements drew the
    same bits in each round.
    """
    t = type_of(x)
    rounds = math.ceil(3 * math.log(max(1, t.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        key, new = keys_of(key, 2)
        x = sort(draw_bits(new, t.shape, 32), x, dimension=axis, num_keys=1)[1]
    return x


# -- counts --


def geometric(
    key: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """The number of trials up to the first success, with probability `p`; at least 1."""
    return geometric_sample.draw(out_sharding, key, p, shape, dtype)


@sampler(int_dtype, common_sizes)
def geometric_sample(key: Any, p: Any, shape: tuple, dtype: Any) -> Any:
    inexact = to_inexact(type_of(p).dtype)
    p = parameter("geometric", p, inexact, shape)
    u = unit_sample(key, shape, inexact)
    u = where(eq(u, lit(0, u)), lit(1, u), u)
    trials = add(floor(div(log(u), log1p(neg(p)))), lit(1, u))
    return convert_element_type(trials, dtype=dtype)


def poisson(
    key: ArrayLike,
    lam: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    method: str = "exact",
    out_sharding: OutSharding = None,
) -> Array:
    """Poisson samples with mean `lam`, which is not negative.

    method: "exact", by rejection; or "approximate", without loops, from a normal sample, with an
        error of the CDF below 1e-4.
    """
    return poisson_sample.draw(
        out_sharding, key, lam, shape, dtype, exact=check_method("poisson", method)
    )


@sampler(int_dtype, common_sizes)
def poisson_sample(key: Any, lam: Any, shape: tuple, dtype: Any, exact: bool) -> Any:
    if not exact:
        given = type_of(lam)
        double = (given.dtype == np.float64 and not given.weak_type) or dtype.itemsize > 4
        wide = np.dtype(np.float64 if double else np.float32)
        lam = broadcast_to(parameter("poisson", lam, wide, shape), shape)
        return cast(approximate_poisson(key, lam, shape), dtype)
    lam = broadcast_to(parameter("poisson", lam, FLOAT32, shape), shape)
    return random_poisson(key, lam, dtype=dtype, **drawing_form())


def binomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """The number of successes among `n` trials with probability `p`, as a float.

    NaN if `n` is negative or `p` is not a probability.
    """
    return binomial_sample.draw(out_sharding, key, n, p, shape, dtype)


@sampler(sizes=common_sizes)
def binomial_sample(key: Any, n: Any, p: Any, shape: tuple, dtype: Any) -> Any:
    inexact = to_inexact(type_of(p).dtype)
    n, p = [broadcast_to(parameter("binomial", x, inexact, shape), shape) for x in (n, p)]
    return cast(_successes(key, n, p), dtype)


def _successes(key: Any, n: Any, p: Any) -> Any:
    rare = lt(p, lit(0.5, p))  # otherwise failures are counted
    q = where(rare, p, sub(lit(1, p), p))
    no_count = bitwise_or(ne(n, n), lt(n, lit(0, n)))
    no_chance = bitwise_or(ne(q, q), lt(q, lit(0, q)))
    q = where(no_chance, lit(0.01, q), q)
    drawn = random_binomial(key, n, q, **drawing_form())
    out = where(rare, drawn, sub(floor(n), drawn))
    out = where(eq(n, lit(np.inf, n)), lit(np.inf, n), out)
    return where(bitwise_or(no_count, no_chance), lit(np.nan, n), out)


def multinomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    unroll: int | bool = 1,
) -> Array:
    """The number of times each of several outcomes is drawn in `n` trials, as floats.

    n: its shape broadcasts to the shape of `p` without its last dimension.
    p: probabilities of the outcomes, `(..., k)`.
    shape:  shape of the result without its last dimension, by default that of `p`.
    unroll: the number of outcomes drawn per step of the loop over them.
    """
    return multinomial_sample.draw(None, key, n, p, shape, dtype, unroll=unroll)


@sampler(sizes=row_sizes)
def multinomial_sample(
    key: Any, n: Any, p: Any, full: tuple, dtype: Any, unroll: int | bool
) -> Any:
    """Draws one outcome after another, each from the remaining trials."""
    last, inexact = len(full) - 1, to_inexact(type_of(p).dtype)
    p = move_axis(broadcast_to(parameter("multinomial", p, inexact, full), full), last, 0)
    n = broadcast_to(parameter("multinomial", n, inexact, full[:-1]), full[:-1])
    after = cumsum(p, axis=0, reverse=True)
    ratios = div(p, where(eq(after, lit(0, p)), lit(1, p), after))
    keys = split_keys(key, full[-1:])

    def one(left: Any, given: Any) -> tuple[Any, Any]:
        ratio, key = given
        ratio = where(lt(lit(1, ratio), ratio), lit(1, ratio), ratio)
        count = _successes(key, left, ratio)
        return sub(left, count), count

    _, counts = scan(one, n, (ratios, keys), unroll=unroll)
    return cast(move_axis(counts, 0, last), dtype)
