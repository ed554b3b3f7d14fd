"""Ops that draw samples by rejection: of Poisson and binomial distributions (gamma:
`random_gamma.py`).

Candidates are drawn for all elements simultaneously until each element has accepted one; elements
that are done keep their values. So there is one `while` loop over entire arrays, which is
partitioned like any elementwise op.

    random_poisson(keys, rate, dtype=int32)    # i32[*keys.shape, *rest], for rates of that shape

Samples equal those of `jax.random` for the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.barrier import kept as once
from shardwise._src.ops.basis import batch_leading, broadcast_in_dim, reshape
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import full
from shardwise._src.ops.elementwise import (
    abs,
    add,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    ceil,
    div,
    eq,
    floor,
    ge,
    gt,
    le,
    log,
    log1p,
    lt,
    mul,
    ne,
    neg,
    sqrt,
    sub,
    where,
)
from shardwise._src.ops.families import BOOL, FLOATING, check_domain, lit
from shardwise._src.ops.loops import iterate
from shardwise._src.ops.random.bits import (
    Generator,
    generator,
    is_key,
    unit_bits,
    unit_floats,
    words_of,
)
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.rules import zero_jvp
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.ops.special.special_functions import erf_inv, lgamma
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import KeyDType, is_integer

FLOAT32 = np.dtype(np.float32)

# -- draws, from keys as integers --


@dataclass(frozen=True)
class Source:
    """Draws for keys `u32[..., *physical_shape]`, according to the parameters of an op."""

    dtype: KeyDType
    partitionable: bool

    @property
    def generator(self) -> Generator:
        return generator(self.dtype)

    def split(self, keys: Any, count: int) -> list[Any]:
        new = self.generator.split(keys, (count,), self.partitionable)
        shape = type_of(keys).shape
        axis = len(shape) - len(self.dtype.physical_shape)
        return [reshape(slice_in_dim(new, i, i + 1, axis), shape=shape) for i in range(count)]

    def uniform(self, keys: Any, shape: tuple, dtype: Any) -> Any:
        """Floats in [0, 1): `shape` for each key."""
        bits = self.generator.bits(keys, shape, unit_bits(dtype), self.partitionable)
        return unit_floats(once(bits), dtype)

    def normal(self, keys: Any, dtype: Any) -> Any:
        return normal_floats(self.uniform(keys, (), dtype))


def normal_floats(unit: Any) -> Any:
    """Normal samples from uniform samples in [0, 1), by the inverse distribution function."""
    dtype = type_of(unit).dtype
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
    span = np.subtract(np.array(1, dtype), low, dtype=dtype)
    inside = _larger(lit(low, unit), add(mul(unit, lit(span, unit)), lit(low, unit)))
    return mul(lit(np.sqrt(2), unit), erf_inv(inside))


def _larger(x: Any, y: Any) -> Any:
    return where(gt(x, y), x, y)


# -- ops that draw an array for each key --


def _check_rates(name: str, keys: ArrayType, *rates: ArrayType) -> None:
    shape = rates[0].shape
    fits = (
        is_key(keys)
        and keys.shape == shape[: keys.ndim]
        and all(t.shape == shape and t.dtype == rates[0].dtype for t in rates)
    )
    if not fits:
        raise TypeError(
            f"[{name}] takes keys, and parameters whose first dimensions are those of the keys; "
            f"got {join_types((keys, *rates))}."
        )


def _rates_dims(op: Op, keys: ArrayType, *rates: ArrayType, **params: Any) -> Dims:
    names = letters(rates[0].ndim)
    return Dims((names[: keys.ndim], *[names] * len(rates)), (names,))


def _rest(keys: Any, rates: Any) -> tuple[int, ...]:
    """The dimensions of the parameters that the keys lack; keys are integers here."""
    return type_of(rates).shape[type_of(keys).ndim - 1 :]


def _drawing(active: Any, keys: Any) -> Any:
    """For each element, whether its key still draws. A key draws for all of its elements until all
    have accepted a candidate, and later draws replace earlier ones. Elements of other keys have no
    influence, so batching does not change any sample.
    """
    shape = type_of(active).shape
    own = type_of(keys).ndim - 1
    some = reduce_or(active, axes=tuple(range(own, len(shape))))
    return broadcast_in_dim(some, shape=shape, dims=tuple(range(own)))


def _drawn(
    e: Any, start: Callable, step: Callable, ins: Any, xs: Sequence[str], source: Source
) -> list[str]:
    """The state after a loop: a mask, the keys as integers, then arrays of the parameters' type."""
    k, t = words_of(ins[0]), array_type(ins[1].shape, ins[1].dtype)
    state = e.via(start, (k, *[t] * (len(ins) - 1)), *xs)
    types = (t.update(dtype=BOOL), k, *[t] * (len(state) - 2))
    return iterate(e, step, types, state, source=source)


def _drawing_op(name: str, type_rule: Callable, lower: Callable) -> Op:
    """An op that draws an array for each key, without a derivative."""
    return Op(
        name,
        elements=Elements.KNOWN,
        consumes_key=True,
        is_expensive=True,
        type_rule=type_rule,
        dims=_rates_dims,
        lower=lower,
        jvp=zero_jvp,
        batch=batch_leading,
    )


# -- random_poisson: for rates in float32 --
#
# For rates below 10, uniform samples are multiplied until the product is below exp(-rate) (Knuth);
# for larger rates, transformed rejection. Source: Hörmann, "The transformed rejection method for
# generating Poisson random variables", 1993.


def _poisson_type(
    op: Op, keys: ArrayType, rate: ArrayType, *, dtype: Any, partitionable: bool = True
) -> ArrayType:
    _check_rates("random_poisson", keys, rate)
    if rate.dtype != FLOAT32 or not is_integer(dtype):
        raise TypeError(
            "[random_poisson] takes float32 rates and returns integers; got "
            f"{rate.str_short(True)} and dtype {dtype}."
        )
    return array_type(rate.shape, dtype)


def _small(rate: Any) -> Any:
    return bitwise_or(ne(rate, rate), lt(rate, lit(10, rate)))


def _knuth_start(keys: Any, rate: Any) -> list[Any]:
    rate = where(_small(rate), rate, lit(0, rate))
    zero = full(0, type_of(rate).shape, FLOAT32)
    return [gt(zero, neg(rate)), keys, rate, zero, zero]


def _knuth_step(
    active: Any, keys: Any, rate: Any, count: Any, log_product: Any, *, source: Source
) -> list[Any]:
    keys, new = source.split(keys, 2)
    count = where(active, add(count, lit(1, count)), count)
    u = source.uniform(new, _rest(keys, rate), FLOAT32)
    log_product = add(log_product, log(u))
    return [gt(log_product, neg(rate)), keys, rate, count, log_product]


def _hormann_start(keys: Any, rate: Any) -> list[Any]:
    rate = where(_small(rate), lit(1e5, rate), rate)
    shape = type_of(rate).shape
    return [full(True, shape, BOOL), keys, rate, full(-1, shape, FLOAT32)]


def _hormann_step(active: Any, keys: Any, rate: Any, kept: Any, *, source: Source) -> list[Any]:
    def c(x: float) -> Any:
        return lit(x, rate)

    b = add(c(0.931), mul(c(2.53), sqrt(rate)))
    a = add(c(-0.059), mul(c(0.02483), b))
    inverse_alpha = add(c(1.1239), div(c(1.1328), sub(b, c(3.4))))
    v_r = sub(c(0.9277), div(c(3.6224), sub(b, c(2))))
    keys, key_u, key_v = source.split(keys, 3)
    shape = _rest(keys, rate)
    u = sub(source.uniform(key_u, shape, FLOAT32), c(0.5))
    v = source.uniform(key_v, shape, FLOAT32)
    edge = sub(c(0.5), abs(u))
    k = floor(add(add(mul(add(div(mul(c(2), a), edge), b), u), rate), c(0.43)))
    s = log(div(mul(v, inverse_alpha), add(div(a, mul(edge, edge)), b)))
    t = sub(add(neg(rate), mul(k, log(rate))), lgamma(add(k, c(1))))
    quick = bitwise_and(ge(edge, c(0.07)), le(v, v_r))
    reject = bitwise_or(lt(k, c(0)), bitwise_and(lt(edge, c(0.013)), gt(v, edge)))
    accept = bitwise_or(quick, bitwise_and(bitwise_not(reject), le(s, t)))
    kept = where(bitwise_and(accept, _drawing(active, keys)), k, kept)
    return [bitwise_and(active, bitwise_not(accept)), keys, rate, kept]


def _poisson_end(rate: Any, knuth: Any, hormann: Any, *, dtype: Any) -> Any:
    small = convert_element_type(sub(knuth, lit(1, knuth)), dtype=dtype)
    out = where(_small(rate), small, convert_element_type(hormann, dtype=dtype))
    return where(eq(rate, lit(0, rate)), lit(0, out), out)


def _poisson_lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, dtype: Any, partitionable: bool = True
) -> str:
    source = Source(ins[0].dtype, partitionable)
    knuth = _drawn(e, _knuth_start, _knuth_step, ins, xs, source)[3]
    hormann = _drawn(e, _hormann_start, _hormann_step, ins, xs, source)[3]
    t = array_type(ins[1].shape, FLOAT32)
    return e.via(_poisson_end, (t, t, t), xs[1], knuth, hormann, dtype=dtype)[0]


random_poisson = _drawing_op("random_poisson", _poisson_type, _poisson_lower)


# -- random_binomial: successes among `count` trials of probability `p` up to 1/2 --
#
# For up to 10 expected successes, geometric waiting times are added; otherwise, transformed
# rejection. Source: Hörmann, "The generation of binomial random variates", 1993.

_STIRLING_TAIL = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def _binomial_type(
    op: Op, keys: ArrayType, count: ArrayType, p: ArrayType, *, partitionable: bool = True
) -> ArrayType:
    check_domain("random_binomial", FLOATING, (count, p))
    _check_rates("random_binomial", keys, count, p)
    return array_type(count.shape, count.dtype)


def _few(count: Any, p: Any) -> Any:
    """The elements for which waiting times are added."""
    bad = bitwise_or(ne(count, count), lt(count, lit(0, count)))
    return bitwise_or(bad, le(mul(count, p), lit(10, p)))


def _waiting_start(keys: Any, count: Any, p: Any) -> list[Any]:
    count = where(_few(count, p), floor(count), lit(0, count))
    zero = full(0, type_of(p).shape, type_of(p).dtype)
    return [le(zero, count), keys, count, p, zero, zero]


def _waiting_step(
    active: Any, keys: Any, count: Any, p: Any, successes: Any, trials: Any, *, source: Source
) -> list[Any]:
    new, keys = source.split(keys, 2)
    successes = where(active, add(successes, lit(1, p)), successes)
    u = source.uniform(new, _rest(keys, p), type_of(p).dtype)
    trials = add(trials, ceil(div(log(u), log1p(neg(p)))))
    return [le(trials, count), keys, count, p, successes, trials]


def _btrs_start(keys: Any, count: Any, p: Any) -> list[Any]:
    few, shape = _few(count, p), type_of(p).shape
    count = where(few, lit(1e4, count), floor(count))
    p = where(few, lit(0.5, p), p)
    return [full(True, shape, BOOL), keys, count, p, full(-1, shape, type_of(p).dtype)]


def _btrs_step(
    active: Any, keys: Any, count: Any, p: Any, kept: Any, *, source: Source
) -> list[Any]:
    def c(x: float) -> Any:
        return lit(x, p)

    one = c(1)
    spread = sqrt(mul(mul(count, p), sub(one, p)))
    b = add(c(1.15), mul(c(2.53), spread))
    a = add(add(c(-0.0873), mul(c(0.0248), b)), mul(c(0.01), p))
    v_r = sub(c(0.92), div(c(4.2), b))
    alpha = mul(add(c(2.83), div(c(5.1), b)), spread)
    keys, key_u, key_v = source.split(keys, 3)
    shape, dtype = _rest(keys, p), type_of(p).dtype
    u = sub(source.uniform(key_u, shape, dtype), c(0.5))
    v = source.uniform(key_v, shape, dtype)
    edge = sub(c(0.5), abs(u))
    quick = bitwise_and(ge(edge, c(0.07)), le(v, v_r))
    middle = add(mul(count, p), c(0.5))
    k = floor(add(mul(add(div(mul(c(2), a), edge), b), u), middle))
    reject = bitwise_or(lt(k, c(0)), gt(k, count))
    v = log(div(mul(v, alpha), add(div(a, mul(edge, edge)), b)))
    accept = bitwise_or(quick, bitwise_and(bitwise_not(reject), le(v, _log_ratio(k, count, p))))
    kept = where(bitwise_and(accept, _drawing(active, keys)), k, kept)
    return [bitwise_and(active, bitwise_not(accept)), keys, count, p, kept]


def _log_ratio(k: Any, count: Any, p: Any) -> Any:
    """The logarithm of P(k) / P(mode)."""
    one, half = lit(1, p), lit(0.5, p)
    odds = div(p, sub(one, p))
    m = floor(mul(add(count, one), p))
    m_left, k_left = add(sub(count, m), one), add(sub(count, k), one)
    terms = add(
        add(
            mul(add(m, half), log(div(add(m, one), mul(odds, m_left)))),
            mul(add(count, one), log(div(m_left, k_left))),
        ),
        mul(add(k, half), log(div(mul(odds, k_left), add(k, one)))),
    )
    terms = add(add(terms, _stirling_tail(m)), _stirling_tail(sub(count, m)))
    return sub(sub(terms, _stirling_tail(k)), _stirling_tail(sub(count, k)))


def _stirling_tail(k: Any) -> Any:
    """The remainder of Stirling's formula for log(k!); from a table up to k = 9."""
    one = lit(1, k)
    inside = where(lt(k, lit(0, k)), lit(0, k), k)
    square = mul(add(inside, one), add(inside, one))
    series = sub(lit(1 / 360, k), div(lit(1 / 1260, k), square))
    value = div(sub(lit(1 / 12, k), div(series, square)), add(inside, one))
    for i, tail in reversed(list(enumerate(_STIRLING_TAIL))):
        value = where(lt(inside, lit(i + 1, k)), lit(tail, k), value)
    return value


def _binomial_end(count: Any, p: Any, waiting: Any, btrs: Any) -> Any:
    return where(_few(count, p), sub(waiting, lit(1, waiting)), btrs)


def _binomial_lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, partitionable: bool = True
) -> str:
    source = Source(ins[0].dtype, partitionable)
    waiting = _drawn(e, _waiting_start, _waiting_step, ins, xs, source)[4]
    btrs = _drawn(e, _btrs_start, _btrs_step, ins, xs, source)[4]
    t = array_type(ins[1].shape, ins[1].dtype)
    return e.via(_binomial_end, (t, t, t, t), *xs[1:], waiting, btrs)[0]


random_binomial = _drawing_op("random_binomial", _binomial_type, _binomial_lower)
