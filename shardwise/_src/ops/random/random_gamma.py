"""`random_gamma`: samples of gamma distributions, drawn by rejection as in `rejection.py`.

For example:

    random_gamma(keys, a, log_space=True)      # one key for each element of a
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import batch_leading, broadcast_in_dim, reshape
from shardwise._src.ops.create import full
from shardwise._src.ops.elementwise import (
    add,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    div,
    eq,
    exp,
    ge,
    le,
    log,
    log1p,
    mul,
    neg,
    pow,
    rem,
    sqrt,
    sub,
    where,
)
from shardwise._src.ops.families import BOOL, FLOATING, check_domain, elementwise_dims, lit
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, dynamic_update_slice
from shardwise._src.ops.loops import iterate, repeat
from shardwise._src.ops.random.bits import is_key, random_wrap, words_of
from shardwise._src.ops.random.rejection import Source
from shardwise._src.ops.special.incomplete import random_gamma_grad
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dtypes import KeyDType, finfo

# -- random_gamma: a sample for each key and shape parameter `a`; its logarithm with log_space --
#
# Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. For a < 1, a
# sample for a + 1 is multiplied by u^(1/a), where u is uniform.


def _gamma_type(
    op: Op, keys: ArrayType, a: ArrayType, *, log_space: bool, partitionable: bool = True
) -> ArrayType:
    check_domain("random_gamma", FLOATING, (a,))
    if not is_key(keys) or keys.shape != a.shape:
        raise TypeError(
            f"[random_gamma] takes a key for each parameter; got {join_types((keys, a))}."
        )
    return array_type(a.shape, a.dtype)


def _gamma_constants(a: Any) -> tuple[Any, Any]:
    """d and c of the method, for `a` increased to at least 1."""
    d = sub(where(ge(a, lit(1, a)), a, add(a, lit(1, a))), lit(1 / 3, a))
    return d, div(lit(1 / 3, a), sqrt(d))


def _gamma_start(keys: Any, a: Any, *, source: Source) -> list[Any]:
    t = type_of(a)
    keys, _ = source.split(keys, 2)
    return [
        full(True, t.shape, BOOL),
        *source.split(keys, 3),
        *_gamma_constants(a),
        full(1, t.shape, t.dtype),
    ]


def _gamma_step(
    active: Any, keys: Any, x_keys: Any, u_keys: Any, d: Any, c: Any, kept: Any, *, source: Source
) -> list[Any]:
    """Draws a new x where the cube is not positive; elsewhere tests x, and splits all keys where it
    is rejected."""
    x_keys, new = source.split(x_keys, 2)
    x = source.normal(new, type_of(d).dtype)
    v = add(lit(1, x), mul(x, c))
    again = le(v, lit(0, v))
    square, cube = mul(x, x), mul(mul(v, v), v)
    u = source.uniform(u_keys, (), type_of(d).dtype)
    outside = ge(u, sub(lit(1, u), mul(lit(0.0331, u), mul(square, square))))
    bound = add(mul(square, lit(0.5, x)), mul(d, add(sub(lit(1, v), cube), log(cube))))
    rejected = bitwise_and(outside, ge(log(u), bound))
    accepted = bitwise_and(active, bitwise_not(bitwise_or(again, rejected)))
    renewed = [
        per_key(again, old, new)
        for old, new in zip((keys, x_keys, u_keys), source.split(keys, 3), strict=True)
    ]
    kept = where(accepted, cube, kept)
    return [bitwise_and(active, bitwise_not(accepted)), *renewed, d, c, kept]


def per_key(pred: Any, yes: Any, no: Any) -> Any:
    """Selects between keys."""
    shape = type_of(yes).shape
    wide = broadcast_in_dim(pred, shape=shape, dims=tuple(range(type_of(pred).ndim)))
    return where(wide, yes, no)


def _gamma_end(keys: Any, a: Any, cube: Any, *, source: Source, log_space: bool) -> Any:
    d, _ = _gamma_constants(a)
    _, last = source.split(keys, 2)
    u = source.uniform(last, (), type_of(a).dtype)
    large = ge(a, lit(1, a))
    inverse = div(lit(1, a), a)
    if not log_space:
        boost = where(large, lit(1, a), pow(sub(lit(1, u), u), inverse))
        return mul(mul(d, cube), boost)
    log_u = log1p(neg(u))
    none = bitwise_or(large, eq(log_u, lit(0, u)))
    return add(add(log(d), log(cube)), where(none, lit(0, u), mul(log_u, inverse)))


def _gamma_lower(
    op: Op, e: Any, ins: Any, outs: Any, keys: str, a: str, *, log_space: bool, **p: Any
) -> str:
    partitionable = p.get("partitionable", True)
    source = Source(ins[0].dtype, partitionable)
    k, t = words_of(ins[0]), array_type(ins[1].shape, ins[1].dtype)
    if t.ndim and not source.generator.each:
        zero, params = e.constant(0, t), {"log_space": log_space, "partitionable": partitionable}
        return repeat(
            e, _gamma_at, t.size, (k, t, t), (keys, a, zero), dtype=ins[0].dtype, **params
        )[2]
    state = e.via(_gamma_start, (k, t), keys, a, source=source)
    types = (t.update(dtype=BOOL), k, k, k, t, t, t)
    cube = iterate(e, _gamma_step, types, state, source=source)[-1]
    return e.via(_gamma_end, (k, t, t), keys, a, cube, source=source, log_space=log_space)[0]


def _gamma_at(i: Any, keys: Any, a: Any, out: Any, *, dtype: KeyDType, **params: Any) -> list[Any]:
    """Draws the i-th sample with its own key, if arrays of keys would draw with their first key
    only."""
    at, left = [], i
    for n in reversed(type_of(a).shape):
        at.insert(0, rem(left, np.int32(n)))
        left = div(left, np.int32(n))
    ones, zeros = (1,) * len(at), (np.int32(0),) * len(dtype.physical_shape)
    key = dynamic_slice(keys, *at, *zeros, slice_sizes=(*ones, *dtype.physical_shape))
    key = random_wrap(reshape(key, shape=dtype.physical_shape), dtype=dtype)
    new = random_gamma(key, reshape(dynamic_slice(a, *at, slice_sizes=ones), shape=()), **params)
    return [keys, a, dynamic_update_slice(out, reshape(new, shape=ones), *at)]


def _gamma_jvp(
    op: Op, primals: Any, tangents: Any, *, log_space: bool, **p: Any
) -> tuple[Any, Any]:
    """The derivative with respect to `a` of the quantile that equals the sample."""
    keys, a = primals
    out = random_gamma(keys, a, log_space=log_space, **p)
    if tangents[1] is None:
        return out, None
    if not log_space:
        return out, mul(tangents[1], random_gamma_grad(a, out))
    sample = exp(out)
    tiny = finfo(type_of(out).dtype).tiny
    sample = where(eq(sample, lit(0, sample)), lit(tiny, sample), sample)
    return out, mul(tangents[1], div(random_gamma_grad(a, sample), sample))


random_gamma = Op(
    "random_gamma",
    elements=Elements.KNOWN,
    consumes_key=True,
    is_expensive=True,
    type_rule=_gamma_type,
    dims=elementwise_dims,
    lower=_gamma_lower,
    jvp=_gamma_jvp,
    batch=batch_leading,
)
