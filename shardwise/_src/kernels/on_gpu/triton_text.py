"""Text in Triton's dialect: values, their types, and the lines that make them.

    text = TritonText()
    y = text.let("arith.addf %0, %1 : tensor<8xf32>", (8,), dtype)

A value has the shape that its program gives it. Triton's tensors have sizes that are powers of two:
other sizes are rounded up, and the elements beyond have any values. Whatever mixes elements
(reductions, products, stores) masks them first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.kernels.emitted.emitted_ops import element_text
from shardwise._src.kernels.emitted.emitted_programs import EmittedText
from shardwise._src.kernels.on_gpu.barriers import with_barriers
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.types.dtypes import is_inexact

INT32, INT64, BOOL = np.dtype("int32"), np.dtype("int64"), np.dtype(bool)
FLOAT32 = np.dtype("float32")
# An instruction with one result and no effect, and the names of values.
_MADE = re.compile(r" *(%\d+) = (?!scf|tt\.atomic|\"tt)\S.*(?<!\{)$")
_NAME = re.compile(r"%\w+")


def is_element(dtype: Any) -> bool:
    """Whether Triton has values of a dtype."""
    return element(dtype) not in ("", "i2", "i4")


def element(dtype: Any) -> str:
    return element_text(dtype) or ""


def padded(shape: Sequence[int]) -> tuple[int, ...]:
    """The sizes of the tensor of a shape."""
    return tuple([power_above(n) for n in shape])


def type_text(shape: Sequence[int], of: str) -> str:
    """`tensor<8x4xf32>`, or the type of elements for a scalar."""
    return f"tensor<{''.join(f'{n}x' for n in padded(shape))}{of}>" if shape else of


@dataclass(frozen=True)
class Value:
    """A scalar or tensor. known: of a constant, the number that it consists of."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    known: Any = None

    @property
    def type(self) -> str:
        return type_text(self.shape, element(self.dtype))

    @property
    def sizes(self) -> tuple[int, ...]:
        return padded(self.shape)


class TritonText(EmittedText):
    """Collects the lines of one function."""

    # -- lines --

    def body(self) -> list[str]:
        """The lines, without instructions whose results are not used, and with the constants."""
        used: set[str] = set()
        kept = []
        for text in reversed(with_barriers(self.lines, {})[0]):
            made = _MADE.match(text)
            if made and made[1] not in used:
                continue
            used.update(_NAME.findall(text))
            kept.append(text)
        constants = [f"    {c} = {text}" for text, c in self.constants.items() if c in used]
        return [*constants, *reversed(kept)]

    def named(self, text: str) -> str:
        """The name of the result of an instruction."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def let(self, text: str, shape: Sequence[int], dtype: Any) -> Value:
        return Value(self.named(text), tuple(shape), dtype)

    # -- constants and their sums --

    def constant(self, value: Any, shape: Sequence[int], dtype: Any) -> Value:
        """A value of one number, which is defined at the start of the function."""
        name = self.named_number(value, dtype, shape, type_text(shape, element(dtype)))
        return Value(name, tuple(shape), dtype, np.asarray(value).astype(dtype)[()])

    def integer(self, value: int, dtype: Any = INT32) -> Value:
        return self.constant(value, (), dtype)

    def plus(self, x: Value, y: Value, shape: Sequence[int] = ()) -> Value:
        """The sum of integers that broadcast to a shape."""
        for a, b in ((x, y), (y, x)):
            if a.known == 0:
                return b
        x, y = self.broadcast(x, shape), self.broadcast(y, shape)
        if x.known is not None and y.known is not None:
            return self.constant(int(x.known) + int(y.known), shape, x.dtype)
        return self.binary("arith.addi", x, y)

    def times(self, x: Value, n: int) -> Value:
        """The product of integers and a number."""
        if x.known is not None:
            return self.constant(int(x.known) * n, x.shape, x.dtype)
        return x if n == 1 else self.binary("arith.muli", x, self.constant(n, x.shape, x.dtype))

    # -- shapes --

    def splat(self, x: Value, shape: Sequence[int]) -> Value:
        """A scalar as a tensor."""
        if not shape:
            return x
        if x.known is not None:
            return self.constant(x.known, shape, x.dtype)
        kind = type_text(shape, element(x.dtype))
        return self.let(f"tt.splat {x.name} : {x.type} -> {kind}", shape, x.dtype)

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        """With other sizes, in order; the caller makes sure that elements stay in place."""
        if tuple(shape) == x.shape:
            return x
        if not x.shape:
            return self.splat(x, shape)
        if not shape:
            one = self.reshaped(x, (1,))
            return self.combined("reduce", [one], "axis = 0 : i32", (), lambda a, b: [a])[0]
        to, axis = type_text(shape, element(x.dtype)), _new_axis(x.shape, shape)
        if axis is not None:
            text = f"tt.expand_dims {x.name} {{axis = {axis} : i32}} : {x.type} -> {to}"
        else:
            text = f"tt.reshape {x.name} : {x.type} -> {to}"
        return self.let(text, shape, x.dtype)

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        """With larger sizes for those that are 1; a scalar to any shape."""
        if tuple(shape) == x.shape:
            return x
        if not x.shape:
            return self.splat(x, shape)
        if padded(shape) == x.sizes:
            return Value(x.name, tuple(shape), x.dtype)
        kind = type_text(shape, element(x.dtype))
        return self.let(f"tt.broadcast {x.name} : {x.type} -> {kind}", shape, x.dtype)

    def along(self, x: Value, axis: int, shape: Sequence[int]) -> Value:
        """A vector along one dimension of a shape, where the others have size 1."""
        return self.reshaped(x, [x.shape[0] if d == axis else 1 for d in range(len(shape))])

    def range(self, n: int) -> Value:
        """0, 1, … n - 1."""
        end = power_above(n)
        text = f"tt.make_range {{end = {end} : i32, start = 0 : i32}} : tensor<{end}xi32>"
        return self.let(text, (n,), INT32)

    # -- choices --

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """An instruction of two values of one type."""
        return self.let(f"{op} {x.name}, {y.name} : {x.type}", x.shape, x.dtype)

    def compare(self, kind: str, x: Value, y: Value) -> Value:
        """kind: of arith.cmpi or arith.cmpf."""
        op = "cmpf" if is_inexact(x.dtype) else "cmpi"
        return self.let(f"arith.{op} {kind}, {x.name}, {y.name} : {x.type}", x.shape, BOOL)

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        kinds = f"{mask.type}, {x.type}" if mask.shape else x.type
        return self.let(f"arith.select {mask.name}, {x.name}, {y.name} : {kinds}", x.shape, x.dtype)

    def both(self, x: Value | None, y: Value | None, shape: Sequence[int]) -> Value | None:
        """The conjunction of masks that broadcast to a shape; None if there are none."""
        found = [self.broadcast(m, shape) for m in (x, y) if m is not None]
        return self.binary("arith.andi", *found) if len(found) == 2 else found[0] if found else None

    def inside(self, shape: Sequence[int], axes: Sequence[int]) -> Value | None:
        """Which elements along these axes are of the shape; None if no size was rounded up."""
        mask = None
        for d in axes:
            if power_above(shape[d]) != shape[d]:
                r = self.range(shape[d])
                row = self.compare("slt", r, self.constant(shape[d], r.shape, INT32))
                mask = self.both(mask, self.along(row, d, shape), shape)
        return mask

    def filled(self, x: Value, axes: Sequence[int], fill: Any) -> Value:
        """With a value in place of the elements beyond the shape."""
        mask = self.inside(x.shape, axes) if x.shape else None
        if mask is None:
            return x
        return self.select(mask, x, self.constant(fill, x.shape, x.dtype))

    # -- regions --

    def combined(
        self,
        op: str,
        xs: Sequence[Value],
        attributes: str,
        shape: Sequence[int],
        combine: Callable[..., Sequence[Value]],
    ) -> list[Value]:
        """`tt.reduce` or `tt.scan` with a function of scalars: `combine(*earlier, *later)`."""
        scalars = [Value(self.fresh(), (), x.dtype) for _ in range(2) for x in xs]
        with self.block() as lines:
            self.line(f"^bb0({', '.join(f'{s.name}: {s.type}' for s in scalars)}):")
            found = combine(*scalars)
            self.line(f"tt.{op}.return {', '.join(f.name for f in found)} : {_types(found)}")
        names = ", ".join(x.name for x in xs)
        text, outs = self.results(len(xs))
        results = [Value(name, tuple(shape), x.dtype) for name, x in zip(outs, xs, strict=True)]
        self.line(f'{text}"tt.{op}"({names}) <{{{attributes}}}> ({{')
        self.lines += lines
        self.line(f"}}) : ({_types(xs)}) -> ({_types(results)})")
        return results


def _new_axis(old: Sequence[int], new: Sequence[int]) -> int | None:
    """Where `new` has one more dimension than `old`, of size 1; None if they differ otherwise."""
    for d in range(len(new)):
        if new[d] == 1 and (*new[:d], *new[d + 1 :]) == tuple(old):
            return d
    return None


def _types(values: Sequence[Value]) -> str:
    return ", ".join(x.type for x in values)
