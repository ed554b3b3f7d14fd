"""Hashes of counters: `threefry2x32`, `threefry4x32`, `philox2x32`, `philox4x32`.

Each takes the words of a key, then two or four words to hash, all uint32 arrays, and returns as
many hashed words, elementwise:

    high, low = threefry2x32(k1, k2, x1, x2)

Rounds are unrolled, so that XLA compiles them to one kernel.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.ops.families import common_shape, elementwise_batch, elementwise_dims, operand
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims

U32 = np.dtype(np.uint32)
U64 = np.dtype(np.uint64)
COUNTS = {3: "three", 4: "four", 6: "six", 8: "eight"}


class _Writer:
    """Arithmetic on uint32 arrays of one type, in StableHLO."""

    def __init__(self, e: Any, out: ArrayType):
        self.e, self.out = e, out
        self.wide = out.update(dtype=U64)
        self.numbers: dict[int, str] = {}

    def number(self, n: int) -> str:
        if n not in self.numbers:
            self.numbers[n] = self.e.constant(n, self.out)
        return self.numbers[n]

    def do(self, name: str, a: str, b: str) -> str:
        return self.e.apply(name, self.out, a, b)

    def xor(self, first: str, *others: str) -> str:
        for x in others:
            first = self.do("xor", first, x)
        return first

    def mix(self, a: str, b: str, places: int) -> tuple[str, str]:
        """a + b, and the exclusive or of this sum with the rotated b."""
        a = self.do("add", a, b)
        left = self.do("shift_left", b, self.number(places))
        right = self.do("shift_right_logical", b, self.number(32 - places))
        return a, self.do("xor", a, self.do("or", left, right))

    def product(self, a: str, factor: int) -> tuple[str, str]:
        """The upper and lower halves of a 64-bit product."""
        e, wide = self.e, self.wide
        x = e.apply("multiply", wide, e.cast(a, self.out, U64), e.constant(factor, wide))
        x = e.apply("shift_right_logical", wide, x, e.constant(32, wide))
        return e.cast(x, wide, U32), self.do("multiply", a, self.number(factor))


def _batch(op: Op, mapped: Any, args: Any, dims: Any) -> tuple[list, list]:
    out, dim = elementwise_batch(op, mapped, args, dims)
    return out, [dim] * len(out)


def _counter_hash(name: str, keys: int, words: int, rounds: Callable) -> Op:
    """An op that hashes `words` words with a key of `keys` words."""

    def type_rule(op: Op, *xs: ArrayType) -> tuple[ArrayType, ...]:
        if len(xs) != keys + words or any(t.dtype != U32 for t in xs):
            raise TypeError(
                f"[{name}] takes {COUNTS[keys + words]} uint32 operands; got {join_types(xs)}."
            )
        return (array_type(common_shape(name, xs), U32),) * words

    def dims(op: Op, *xs: ArrayType) -> Dims:
        found = elementwise_dims(op, *xs)
        return Dims(found.inputs, found.outputs * words)

    def lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str) -> list[str]:
        given = [operand(e, x, t, outs[0]) for x, t in zip(xs, ins, strict=True)]
        return rounds(_Writer(e, outs[0]), given[:keys], given[keys:])

    return Op(
        name,
        pointwise=True,
        multiple=True,
        type_rule=type_rule,
        dims=dims,
        lower=lower,
        batch=_batch,
    )


# -- threefry: additions, rotations and xors; the key is added again after every four rounds --

_PARITY = 0x1BD11BDA  # the paper's constant for the key schedule
_PLACES_OF_2 = (13, 15, 26, 6, 17, 29, 16, 24)
_PLACES_OF_4 = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


def _threefry(w: _Writer, keys: list[str], xs: list[str]) -> list[str]:
    schedule = [*keys, w.xor(*keys, w.number(_PARITY))]
    xs = [w.do("add", x, k) for x, k in zip(xs, keys, strict=True)]
    for i in range(20):
        if len(xs) == 2:
            xs = [*w.mix(*xs, _PLACES_OF_2[i % 8])]
        else:
            first, second = _PLACES_OF_4[i % 8]
            b, d = (1, 3) if i % 2 == 0 else (3, 1)
            xs[0], xs[b] = w.mix(xs[0], xs[b], first)
            xs[2], xs[d] = w.mix(xs[2], xs[d], second)
        if i % 4 == 3:
            group = i // 4 + 1
            xs = [w.do("add", x, schedule[(group + n) % len(schedule)]) for n, x in enumerate(xs)]
            xs[-1] = w.do("add", xs[-1], w.number(group))
    return xs


threefry2x32 = _counter_hash("threefry2x32", 2, 2, _threefry)
threefry4x32 = _counter_hash("threefry4x32", 4, 4, _threefry)


# -- philox: halves of products, and xors with a key that grows by a constant in each round --

_GROWTH = (0x9E3779B9, 0xBB67AE85)


def _grown(w: _Writer, keys: list[str], i: int) -> list[str]:
    if i == 0:
        return keys
    return [w.do("add", k, w.number(g)) for k, g in zip(keys, _GROWTH, strict=False)]


def _philox2(w: _Writer, keys: list[str], xs: list[str]) -> list[str]:
    for i in range(10):
        keys = _grown(w, keys, i)
        high, low = w.product(xs[0], 0xD256D193)
        xs = [w.xor(high, xs[1], keys[0]), low]
    return xs


def _philox4(w: _Writer, keys: list[str], xs: list[str]) -> list[str]:
    for i in range(10):
        keys = _grown(w, keys, i)
        high0, low0 = w.product(xs[0], 0xD2511F53)
        high1, low1 = w.product(xs[2], 0xCD9E8D57)
        xs = [w.xor(high1, xs[1], keys[0]), low1, w.xor(high0, xs[3], keys[1]), low0]
    return xs


philox2x32 = _counter_hash("philox2x32", 1, 2, _philox2)
philox4x32 = _counter_hash("philox4x32", 2, 4, _philox4)
