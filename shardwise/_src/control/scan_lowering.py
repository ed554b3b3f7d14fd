"""The lowering of a scan: a `stablehlo.while` that slices xs and fills ys in place.

The loop's state is a counter, the carry and the ys. Constants and xs are captured. With
`unroll`, one iteration of the loop does several steps; remaining steps follow it, and a
fully unrolled scan has no loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.control.programs import ScanParams
from shardwise._src.core.op import Op
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.symbolic import Symbolic

INDEX = np.dtype("int32")
_INDEX_TYPE = array_type((), INDEX)


def lower_scan(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **params: Any) -> list[str]:
    own = ScanParams(**params)
    consts, carry, stacked = own.parts(xs)
    pairs = list(zip(stacked, own.parts(ins)[2], strict=True))
    writer = _Writer(e, own, consts, pairs, outs[own.num_carry :])
    if isinstance(own.length, Symbolic):
        return writer.loop(list(carry), outs[: own.num_carry], 1)
    if own.length <= own.unroll:
        return writer.unrolled(list(carry))
    return writer.loop(list(carry), outs[: own.num_carry], own.unroll)


def physical(aval: ArrayType) -> ArrayType:
    """The physical type, of the numbers that represent a value."""
    dtype = aval.dtype
    if isinstance(dtype, ExtendedDType):
        return array_type(aval.shape + dtype.physical_shape, dtype.physical_dtype)
    return array_type(aval.shape, dtype)


class _Writer:
    """Writes the steps of one scan."""

    def __init__(self, e: Any, own: ScanParams, consts: Sequence[str], xs: list, y_types: Sequence):
        self.e, self.body, self.consts, self.num_carry = e, own.body, consts, own.num_carry
        self.xs = [(name, physical(t)) for name, t in xs]
        self.ys = [physical(t) for t in y_types]
        # In the loop, some platforms need wider elements.
        self.in_loop = [e.wide_rows(t) for _, t in self.xs], [e.wide_rows(t) for t in self.ys]
        self.length, self.reverse, self.unroll = own.length, own.reverse, own.unroll

    def step(self, carry: Sequence[str], slices: Sequence[str]) -> tuple[list[str], list[str]]:
        """The carry and the ys after one application of the body."""
        args = *self.consts, *carry, *slices
        if self.unroll == 1:
            outs = self.e.inline(self.body, *args, scope="while/body")
        else:
            outs = self.e.call(self.body, *args)
        return outs[: self.num_carry], outs[self.num_carry :]

    # -- one slice --

    def _starts(self, index: str, rank: int) -> list[str]:
        """The starting indices of a slice."""
        zero = self.e.scalar(0, INDEX) if rank > 1 else ""
        return [index] + [zero] * (rank - 1)

    def read(self, index: str) -> list[str]:
        """The slices of all xs at an index."""
        e, found = self.e, []
        for (name, narrow), t in zip(self.xs, self.in_loop[0], strict=True):
            part = t.update(shape=(1, *t.shape[1:]))
            starts = self._starts(index, t.ndim)
            row = e.window(name, starts, [t] + [_INDEX_TYPE] * t.ndim, part.shape)
            row = self._reshaped(row, part, t.shape[1:])
            found.append(e.cast(row, part.update(shape=t.shape[1:]), narrow.dtype))
        return found

    def write(self, buffers: Sequence[str], ys: Sequence[str], index: str) -> list[str]:
        """The buffers, each with one additional y."""
        e, found = self.e, []
        for buffer, y, narrow, t in zip(buffers, ys, self.ys, self.in_loop[1], strict=True):
            y = e.cast(y, narrow.update(shape=t.shape[1:]), t.dtype)
            part = t.update(shape=(1, *t.shape[1:]))
            row = self._reshaped(y, t.update(shape=t.shape[1:]), part.shape)
            starts = ", ".join(self._starts(index, t.ndim))
            types = ", ".join([e.ty(_INDEX_TYPE)] * t.ndim)
            found.append(
                e.let(
                    f"stablehlo.dynamic_update_slice {buffer}, {row}, {starts} : "
                    f"({e.ty(t)}, {e.ty(part)}, {types}) -> {e.ty(t)}"
                )
            )
        return found

    def _reshaped(self, x: str, t: ArrayType, shape: tuple) -> str:
        return self.e.plain_reshape(x, t, t.update(shape=shape))

    # -- the whole loop --

    def unrolled(self, carry: list[str]) -> list[str]:
        """Every step inline."""
        steps = range(self.length)
        rows: list[list[str]] = []
        for i in reversed(steps) if self.reverse else steps:
            slices = [self._static(name, t, i) for name, t in self.xs]
            carry, ys = self.step(carry, slices)
            rows.append(ys)
        if self.reverse:
            rows.reverse()
        columns = zip(*rows, strict=True) if rows else [()] * len(self.ys)
        return carry + [self._stacked(c, t) for c, t in zip(columns, self.ys, strict=True)]

    def _static(self, name: str, t: ArrayType, i: int) -> str:
        row = self.e.slice(name, t, (i,) + (0,) * (t.ndim - 1), (i + 1, *t.shape[1:]))
        return self._reshaped(row, t.update(shape=(1, *t.shape[1:])), t.shape[1:])

    def _stacked(self, ys: Sequence[str], t: ArrayType) -> str:
        e = self.e
        if not ys:
            return e.constant(0, t)
        part = t.update(shape=(1, *t.shape[1:]))
        rows = [self._reshaped(y, t.update(shape=t.shape[1:]), part.shape) for y in ys]
        types = ", ".join([e.ty(part)] * len(rows))
        return e.let(f"stablehlo.concatenate {', '.join(rows)}, dim = 0 : ({types}) -> {e.ty(t)}")

    def loop(self, carry: list[str], carry_types: Sequence[ArrayType], unroll: int) -> list[str]:
        e = self.e
        turns, left = divmod(self.length, unroll)
        rows = zip(self.xs, self.in_loop[0], strict=True)
        self.xs = [(e.cast(x, narrow, t.dtype), narrow) for (x, narrow), t in rows]
        start = [e.scalar(0, INDEX), *carry, *[e.constant(0, t) for t in self.in_loop[1]]]
        types = [_INDEX_TYPE, *carry_types, *self.in_loop[1]]
        names = [e.fresh() for _ in types]
        pairs = ", ".join(f"{n} = {v}" for n, v in zip(names, start, strict=True))
        shown = ", ".join(map(e.ty, types))
        condition = e.region(lambda: self._condition(names[0], turns * unroll))
        turn = e.region(lambda: self._turn(names, unroll, shown))
        text = f"stablehlo.while({pairs}) : {shown}\ncond {{\n{condition}\n}} do {{\n{turn}\n}}"
        state = e.lets(text, len(types))
        for i in range(left):
            following = e.scalar(turns * unroll + i + 1, INDEX)
            state = self._step_at(state, self._position(state[0]), following)
        ends = zip(state[1 + self.num_carry :], self.in_loop[1], self.ys, strict=True)
        return [*state[1 : 1 + self.num_carry], *[e.cast(y, t, n.dtype) for y, t, n in ends]]

    def _condition(self, counter: str, end: int) -> None:
        e, ty = self.e, self.e.ty(_INDEX_TYPE)
        bound, flag = e.scalar(end, INDEX), e.ty(array_type((), np.dtype(bool)))
        go_on = e.let(f"stablehlo.compare LT, {counter}, {bound}, SIGNED : ({ty}, {ty}) -> {flag}")
        e.lines.append(f"stablehlo.return {go_on} : {flag}")

    def _turn(self, state: list[str], unroll: int, shown: str) -> None:
        e, ty = self.e, self.e.ty(_INDEX_TYPE)
        one = e.scalar(1, INDEX)
        for _ in range(unroll):
            following = e.let(f"stablehlo.add {state[0]}, {one} : {ty}")
            state = self._step_at(state, self._position(state[0]), following)
        e.lines.append(f"stablehlo.return {', '.join(state)} : {shown}")

    def _position(self, counter: str) -> str:
        """The position at which the step of this number reads and writes."""
        if not self.reverse:
            return counter
        last = self.e.scalar(self.length - 1, INDEX)
        return self.e.let(f"stablehlo.subtract {last}, {counter} : {self.e.ty(_INDEX_TYPE)}")

    def _step_at(self, state: Sequence[str], index: str, following: str) -> list[str]:
        carry, buffers = state[1 : 1 + self.num_carry], state[1 + self.num_carry :]
        carry, ys = self.step(carry, self.read(index))
        return [following, *carry, *self.write(buffers, ys, index)]
