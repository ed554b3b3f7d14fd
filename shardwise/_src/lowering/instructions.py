"""StableHLO instructions that several rules emit, or that XLA does not partition correctly.

`Instructions` emits them directly, except where XLA is wrong even on one device. For programs over
several devices, `xla_workarounds.WithWorkarounds` emits forms that the partitioner handles
correctly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.lowering.interleaving import Pair, interleaved, pair_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import ints
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type, reduce_precision
from shardwise._src.ops.convolution import parameters_text
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_rules import attribute, clamped, flag
from shardwise._src.ops.logical import bitwise_and, bitwise_or, le, lt, ne, select_n
from shardwise._src.ops.pooling import scattered, wider, windowed
from shardwise._src.ops.shape import padded_shape
from shardwise._src.runtime.backend import JAXLIB
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import finfo, is_complex, is_float, max_value, min_value

TWO_BITS = ("int2", "uint2")
MAX_PRODUCTS = 128  # or slices, that are emitted one by one
INT8 = np.dtype(np.int8)
BOOL = np.dtype(bool)


class Instructions:
    """Methods that emit single instructions; each returns the SSA name of its result.

    `x` and other names are SSA names, `t` is the type of `x`, `out` the type of the result.
    """

    ty: Callable[[ArrayType], str]
    let: Callable[[str], str]
    lets: Callable[[str, int], list[str]]
    lines: list[str]
    platform: Platform
    hoisted: dict[int, str]
    pairs: dict[str, Pair]  # concatenations, by name, whose elements may alternate after a reshape
    fresh: Callable[[], str]
    region: Callable[[Callable[[], None]], str]
    constant: Callable[[Any, ArrayType], str]
    scalar: Callable[[Any, Any], str]
    via: Callable[..., list[str]]

    # -- elements moved --

    def broadcast(self, x: str, t: ArrayType, out: ArrayType, dims: Sequence[int]) -> str:
        """dims: the dimensions of the result that correspond to those of `x`."""
        types = f"({self.ty(t)}) -> {self.ty(out)}"
        return self.let(f"stablehlo.broadcast_in_dim {x}, dims = {ints(dims)} : {types}")

    def iota(self, out: ArrayType, dimension: int) -> str:
        return self.let(f"stablehlo.iota dim = {dimension} : {self.ty(out)}")

    def dim(self, n: Any, out: ArrayType) -> str:
        """The value of a symbolic dimension."""
        raise TypeError(
            f"the symbolic dimension {n} has a value in exported functions only: call "
            "`shardwise.export.export(jit(f))`."
        )

    def reshape(self, x: str, t: ArrayType, out: ArrayType) -> str:
        pair = self.pairs.get(x)
        return (pair and interleaved(self, pair, out)) or self.plain_reshape(x, t, out)

    def plain_reshape(self, x: str, t: ArrayType, out: ArrayType) -> str:
        """`reshape` without workarounds, for cases that the partitioner handles correctly."""
        return self.let(f"stablehlo.reshape {x} : ({self.ty(t)}) -> {self.ty(out)}")

    def slice(
        self,
        x: str,
        t: ArrayType,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> str:
        steps = strides or (1,) * t.ndim
        rows = list(zip(starts, limits, steps, strict=True))
        out = array_type(tuple([-((a - b) // s) for a, b, s in rows]), t.dtype)
        texts = ", ".join(f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}" for a, b, s in rows)
        return self.let(f"stablehlo.slice {x} [{texts}] : ({self.ty(t)}) -> {self.ty(out)}")

    def concatenate(
        self, xs: Sequence[str], ins: Sequence[ArrayType], out: ArrayType, dimension: int
    ) -> str:
        """On the CPU, repeated operands go through a barrier; XLA error `two-bits`.

        That backend (jaxlib 0.12) fuses the computation of an operand into each of its uses, so
        that the code of a chain of x = concatenate(x, x)[i : i + n] doubles at each step.
        """
        seen: dict[str, str] = {}
        names = []
        for x, t in zip(xs, ins, strict=True):
            if seen.get(x) == x and self.platform.is_xla_cpu:
                seen[x] = self.barrier(x, t)
            names.append(seen.setdefault(x, x))
        if out.dtype.name in TWO_BITS:
            names = [self.cast(x, t, INT8) for x, t in zip(names, ins, strict=True)]
            wide = [t.update(dtype=INT8) for t in ins]
            return self.cast(
                self.concatenate(names, wide, out.update(dtype=INT8), dimension),
                out.update(dtype=INT8),
                out.dtype,
            )
        types = ", ".join(map(self.ty, ins))
        name = self.let(
            f"stablehlo.concatenate {', '.join(names)}, dim = {dimension} : ({types}) -> "
            f"{self.ty(out)}"
        )
        if pair := pair_of(self, xs, ins, dimension):
            self.pairs[name] = pair
        return name

    def cast(self, x: str, t: ArrayType, dtype: Any) -> str:
        """Converts a value to another dtype, with one `convert`."""
        if t.dtype == dtype:
            return x
        out = t.update(dtype=dtype)
        return self.let(f"stablehlo.convert {x} : ({self.ty(t)}) -> {self.ty(out)}")

    def barrier(self, x: str, t: ArrayType) -> str:
        """A barrier, which makes XLA treat the value as a different one. Unreduced values are
        returned unchanged, because XLA would sum them at the barrier."""
        if t.spec is not None and t.spec.unreduced:
            return x
        return self.let(f"stablehlo.optimization_barrier {x} : {self.ty(t)}")

    def pad(self, x: str, value: str, t: ArrayType, config: Sequence[tuple]) -> str:
        """config: `(low, high, interior)` of each dimension. XLA error `two-bits`."""
        if t.dtype.name in TWO_BITS:
            wide, fill = self.cast(x, t, INT8), self.cast(value, array_type((), t.dtype), INT8)
            out = array_type(padded_shape(t.shape, config), INT8)
            return self.cast(self.pad(wide, fill, t.update(dtype=INT8), config), out, t.dtype)
        low, high, inner = zip(*config, strict=True) if config else ((), (), ())
        scalar = array_type((), t.dtype)
        out = array_type(padded_shape(t.shape, config), t.dtype)
        return self.let(
            f"stablehlo.pad {x}, {value}, low = {ints(low)}, high = {ints(high)}, interior = "
            f"{ints(inner)} : ({self.ty(t)}, {self.ty(scalar)}) -> {self.ty(out)}"
        )

    def dynamic_slice(
        self, x: str, starts: Sequence[str], ins: Sequence[ArrayType], sizes: Sequence[int]
    ) -> str:
        """XLA errors `merged-slices`: of two consecutive windows, only one start is clamped;
        and `lost-factor`.

        ins: the types of `x` and of the starts.
        """
        if JAXLIB < (0, 12):
            starts = self.inside(starts, ins, sizes)
        return self.window(self._product(x, ins[0], sizes), starts, ins, sizes)

    def _product(self, x: str, t: ArrayType, sizes: Sequence[int]) -> str:
        """XLA error `lost-factor`: an element of a possible window times a number."""
        affected = t.ndim == 1 and sizes[0] == 1 and t.dtype.name in ("int32", "uint32")
        return self.barrier(x, t) if affected else x

    def window(
        self, x: str, starts: Sequence[str], ins: Sequence[ArrayType], sizes: Sequence[int]
    ) -> str:
        """`dynamic_slice` for starts that are within bounds."""
        types = ", ".join(map(self.ty, ins))
        return self.let(
            f"stablehlo.dynamic_slice {', '.join([x, *starts])}, sizes = {ints(sizes)} : "
            f"({types}) -> {self.ty(array_type(tuple(sizes), ins[0].dtype))}"
        )

    def inside(
        self, starts: Sequence[str], ins: Sequence[ArrayType], sizes: Sequence[int]
    ) -> list[str]:
        """The starts of a window of these sizes, clamped to the bounds of `ins[0]`."""
        found = []
        for start, t, n, size in zip(starts, ins[1:], ins[0].shape, sizes, strict=True):
            low, high = self.scalar(0, t.dtype), min(n - size, int(max_value(t.dtype)))
            if high:
                limit = self.scalar(high, t.dtype)
                low = self.let(f"stablehlo.clamp {low}, {start}, {limit} : {self.ty(t)}")
            found.append(low)
        return found

    def dynamic_update_slice(
        self, x: str, update: str, starts: Sequence[str], ins: Sequence[ArrayType]
    ) -> str:
        """ins: the types of `x`, the update and the starts."""
        update = self._computed(update, ins[1])
        names, types = ", ".join([x, update, *starts]), ", ".join(map(self.ty, ins))
        return self.let(f"stablehlo.dynamic_update_slice {names} : ({types}) -> {self.ty(ins[0])}")

    def _computed(self, update: str, t: ArrayType) -> str:
        """XLA error `update-in-place`: an update computed from the value that it overwrites."""
        return self.barrier(update, t) if JAXLIB >= (0, 11) and self.platform.is_xla_cpu else update

    def gather(
        self,
        x: str,
        indices: str,
        ins: Sequence[ArrayType],
        out: ArrayType,
        dims: Any,
        sizes: Sequence[int],
        *,
        indices_are_sorted: bool,
        clip: bool,
    ) -> str:
        """XLA errors `merged-slices` and `lost-factor`, if a single window is taken.

        dims: `GatherDimensionNumbers`. clip: whether windows may be out of bounds.
        """
        if clip and JAXLIB < (0, 12):
            limits = tuple([ins[0].shape[d] - sizes[d] for d in dims.start_index_map])
            indices = self.via(clamped, (ins[1],), indices, limits=limits)[0]
        if ins[1].size == ins[1].shape[-1]:
            x = self._product(x, ins[0], sizes)
        numbers = attribute(
            "gather",
            {
                "offset_dims": dims.offset_dims,
                "collapsed_slice_dims": dims.collapsed_slice_dims,
                "operand_batching_dims": dims.operand_batching_dims,
                "start_indices_batching_dims": dims.start_indices_batching_dims,
                "start_index_map": dims.start_index_map,
            },
            ins[1].ndim - 1,
        )
        places = f": {', '.join(map(str, sizes))}" if sizes else ""
        return self.let(
            f'"stablehlo.gather"({x}, {indices}) <{{dimension_numbers = {numbers}, '
            f"indices_are_sorted = {flag(indices_are_sorted)}, slice_sizes = array<i64{places}>}}> "
            f": ({self.ty(ins[0])}, {self.ty(ins[1])}) -> {self.ty(out)}"
        )

    # -- elements computed --

    def apply(self, name: str, t: ArrayType, *xs: str) -> str:
        """An instruction whose operands and result are of type `t`."""
        return self.let(f"stablehlo.{name} {', '.join(xs)} : {self.ty(t)}")

    def compare(self, kind: str, x: str, y: str, t: ArrayType, order: str = "") -> str:
        """Compares operands of type `t`. order: `, TOTALORDER`, or the default one."""
        ty, flags = self.ty(t), self.ty(array_type(t.shape, BOOL))
        return self.let(f"stablehlo.compare {kind}, {x}, {y}{order} : ({ty}, {ty}) -> {flags}")

    def select(self, which: str, x: str, y: str, t: ArrayType) -> str:
        """The elements of `x` where `which` holds, else those of `y`; both are of type `t`."""
        flags = self.ty(array_type(t.shape, BOOL))
        return self.let(f"stablehlo.select {which}, {x}, {y} : {flags}, {self.ty(t)}")

    def bitcast(self, x: str, t: ArrayType, out: ArrayType) -> str:
        return self.let(f"stablehlo.bitcast_convert {x} : ({self.ty(t)}) -> {self.ty(out)}")

    def convertible(self, x: str, t: ArrayType, dtype: Any) -> tuple[str, ArrayType]:
        """An operand for `convert` to a dtype of 16 bits or fewer, and its type.

        XLA error `rounded-twice`: from float64 via float32, on the CPU. Before jaxlib 0.12, XLA's
        code for a `convert` outside of a fusion rounds to float4 via float16, and returns NaN for
        small negative numbers if the dtype has no -0.
        """
        if t.dtype == np.float64 and dtype.name in ("float16", "bfloat16"):
            if self.platform.is_xla_cpu:
                x, t = self.via(_to_odd, (t,), x)[0], t.update(dtype=np.dtype(np.float32))
            return x, t
        if JAXLIB >= (0, 12) or not is_float(t.dtype):
            return x, t
        if dtype.name == "float4_e2m1fn" and t.dtype.itemsize > 2:
            return self.via(_multiple, (t,), x)[0], t
        if dtype.name.endswith("fnuz"):
            if t.dtype.itemsize == 2:
                wide = np.dtype(np.float32)
                x, t = self.cast(x, t, wide), t.update(dtype=wide)
            least = float(finfo(dtype).smallest_subnormal) / 2
            return self.via(_above, (t,), x, least=least)[0], t
        return x, t

    def log1p(self, x: str, t: ArrayType) -> str:
        """XLA error `log-of-half`: float64 near -0.4 on the CPU. There log(1 + x) is accurate
        enough, and is computed as well."""
        out = self.apply("log_plus_one", t, x)
        if t.dtype != np.float64 or not self.platform.is_xla_cpu:
            return out
        whole = self.apply("log", t, self.apply("add", t, x, self.constant(1, t)))
        low = self.compare("LT", x, self.constant(-0.29, t), t)
        return self.select(low, whole, out, t)

    # -- elements combined --

    def reduce(self, x: str, t: ArrayType, axes: Sequence[int], body: str, identity: Any) -> str:
        """body: the name of a binary instruction; identity: its identity element, a host scalar."""
        scalar = self.ty(array_type((), t.dtype))
        init = self.scalar(identity, t.dtype)
        out = array_type(tuple([n for d, n in enumerate(t.shape) if d not in axes]), t.dtype)
        return self.let(
            f"stablehlo.reduce({x} init: {init}) applies stablehlo.{body} across dimensions = "
            f"{ints(axes)} : ({self.ty(t)}, {scalar}) -> {self.ty(out)}"
        )

    def reduce_by(
        self,
        body: Callable,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        identities: Sequence,
        axes: Sequence[int],
    ) -> list[str]:
        """`stablehlo.reduce` of several operands of one shape.

        body:       `(e, types, *firsts, *seconds) → names of the results`, over scalars.
        identities: host scalars, or names of scalars.
        """
        scalars = [array_type((), t.dtype) for t in ins]
        inits = self._initial(identities, ins)
        shape = tuple([n for d, n in enumerate(ins[0].shape) if d not in axes])
        region = self.binary_region(ins, body)
        types = ", ".join(map(self.ty, [*ins, *scalars]))
        outs = ", ".join([self.ty(array_type(shape, t.dtype)) for t in ins])
        places = f": {', '.join(map(str, axes))}" if axes else ""
        return self.lets(
            f'"stablehlo.reduce"({", ".join([*xs, *inits])}) <{{dimensions = array<i64{places}>}}> '
            f"{region} : ({types}) -> ({outs})",
            len(ins),
        )

    def _initial(self, identities: Sequence, ins: Sequence[ArrayType]) -> list[str]:
        pairs = zip(identities, ins, strict=True)
        return [v if isinstance(v, str) else self.scalar(v, t.dtype) for v, t in pairs]

    def reduce_window(
        self,
        body: Callable,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        identities: Sequence,
        window: Any,
    ) -> list[str]:
        """Reduces all windows (`ops.pooling.Window`); the other arguments are as in `reduce_by`.

        Positions outside of the operand are left out. XLA error `cut-windows`: negative padding,
        which is emitted as a slice first.
        """
        inits = self._initial(identities, ins)
        counts = window.counts(ins[0].shape)
        bounds, window = window.crop(ins[0].shape)
        if any(a >= b for a, b in bounds):
            outs = [(array_type((), t.dtype), array_type(counts, t.dtype)) for t in ins]
            return [self.broadcast(x, t, out, ()) for x, (t, out) in zip(inits, outs, strict=True)]
        shape = tuple([b - a for a, b in bounds])
        if shape != ins[0].shape:
            starts, limits = zip(*bounds, strict=True)
            xs = [self.slice(x, t, starts, limits) for x, t in zip(xs, ins, strict=True)]
            ins = [array_type(shape, t.dtype) for t in ins]
        scalars = [array_type((), t.dtype) for t in ins]
        types = ", ".join(map(self.ty, [*ins, *scalars]))
        outs = ", ".join([self.ty(array_type(counts, t.dtype)) for t in ins])
        return self.lets(
            f'"stablehlo.reduce_window"({", ".join([*xs, *inits])}) <{{base_dilations = '
            f"{_numbers(window.base_dilation)}, padding = {_pairs(window.padding)}, "
            f"window_dilations = {_numbers(window.window_dilation)}, window_dimensions = "
            f"{_numbers(window.sizes)}, window_strides = {_numbers(window.strides)}}}> "
            f"{self.binary_region(ins, body)} : ({types}) -> ({outs})",
            len(ins),
        )

    def select_and_scatter(
        self, t: str, x: str, ins: Sequence[ArrayType], out: ArrayType, largest: bool, window: Any
    ) -> str:
        """`t` added at the largest, or smallest, element of each window of `x`.

        On the CPU that is a NaN, if there is one. On accelerators, elements are compared by one
        instruction, which may choose any element of a window with NaN: the partitioner splits no
        other form, and gathers the batch.

        If the platform requires dimensions without windows, those that are missing are added. Most
        platforms do not select the first of equal elements in windows with padding: there the
        operand is padded first, and on CPU small windows become slices.
        """
        is_padded = any(row != (0, 0) for row in window.padding)
        if is_padded and not self.platform.orders_padded_windows:
            return self._padded_select_and_scatter(t, x, ins, out, largest, window)
        if out.ndim - len(windowed(window)) < self.platform.dims_without_windows:
            wide = [k.update(shape=(1, *k.shape)) for k in (*ins, out)]
            rows = zip((t, x), ins, wide[:2], strict=True)
            t, x = [self.plain_reshape(*row) for row in rows]
            found = Instructions.select_and_scatter(
                self, t, x, wide[:2], wide[2], largest, wider(window)
            )
            return self.plain_reshape(found, wide[2], out)

        def chosen(e: Any, types: Any, x: str, y: str) -> list[str]:
            first = e.compare("GE" if largest else "LE", x, y, types[0])
            if not e.platform.is_xla_cpu:
                return [first]
            return [e.apply("or", flag, first, e.compare("NE", x, x, types[0]))]

        flag = array_type((), BOOL)
        select = self.binary_region(ins[1:], chosen, [flag])
        regions = f"{select[:-1]}, {self.folding(ins[0], 'add')[1:]}"
        scalar = array_type((), ins[0].dtype)
        types = ", ".join([self.ty(k) for k in (ins[1], ins[0], scalar)])
        return self.let(
            f'"stablehlo.select_and_scatter"({x}, {t}, {self.scalar(0, ins[0].dtype)}) <{{padding '
            f"= {_pairs(window.padding)}, window_dimensions = {_numbers(window.sizes)}, "
            f"window_strides = {_numbers(window.strides)}}}> {regions} : ({types}) -> "
            f"{self.ty(out)}"
        )

    def _padded_select_and_scatter(
        self, t: str, x: str, ins: Sequence[ArrayType], out: ArrayType, largest: bool, window: Any
    ) -> str:
        if self.platform.is_xla_cpu and math.prod(window.sizes) <= MAX_PRODUCTS:
            return self.via(scattered, ins, t, x, largest=largest, window=window)[0]
        pads = [(low, high, 0) for low, high in window.padding]
        value = min_value(out.dtype) if largest else max_value(out.dtype)
        shape = padded_shape(out.shape, pads)
        x = self.pad(x, self.scalar(value, out.dtype), ins[1], pads)
        whole = window._replace(padding=((0, 0),) * len(pads))
        wide = out.update(shape=shape)
        found = self.select_and_scatter(
            t, x, (ins[0], ins[1].update(shape=shape)), wide, largest, whole
        )
        crop = [(-low, -high, 0) for low, high, _ in pads]
        return self.pad(found, self.scalar(0, out.dtype), wide, crop)

    def convolution(
        self, x: str, y: str, ins: Sequence[ArrayType], out: ArrayType, p: dict[str, Any]
    ) -> str:
        """p: the parameters of the op `conv_general_dilated`."""
        types = ", ".join(map(self.ty, ins))
        return self.let(
            f"stablehlo.convolution({x}, {y}) {parameters_text(p)} : ({types}) -> {self.ty(out)}"
        )

    def scatter(
        self,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        dims: Any,
        body: str,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> str:
        """xs:   the operand, the index vectors, which are along the last dimension, and the
              updates; `ins` are their types.
        dims: `ScatterDimensionNumbers`.
        body: the name of the instruction that combines two elements; empty to replace.
        """
        xs = [*xs[:2], self._computed(xs[2], ins[2])]
        numbers = attribute(
            "scatter",
            {
                "update_window_dims": dims.update_window_dims,
                "inserted_window_dims": dims.inserted_window_dims,
                "input_batching_dims": dims.operand_batching_dims,
                "scatter_indices_batching_dims": dims.scatter_indices_batching_dims,
                "scatter_dims_to_operand_dims": dims.scatter_dims_to_operand_dims,
            },
            ins[1].ndim - 1,
        )
        region = self._combining(ins[0], body)
        types = ", ".join(map(self.ty, ins))
        return self.let(
            f'"stablehlo.scatter"({", ".join(xs)}) <{{indices_are_sorted = '
            f"{flag(indices_are_sorted)}, scatter_dimension_numbers = {numbers}, unique_indices = "
            f"{flag(unique_indices)}}}> {region} : ({types}) -> {self.ty(ins[0])}"
        )

    def _combining(self, t: ArrayType, body: str) -> str:
        """`folding` for a scatter; complex numbers are compared by their parts for compilers that
        do not."""
        direction = {"maximum": "GT", "minimum": "LT"}.get(body)
        if direction is None or not is_complex(t.dtype) or self.platform.is_xla_cpu:
            return self.folding(t, body)

        def fold(e: Any, types: Any, x: str, y: str) -> list[str]:
            return [ew.complex_extremum(e, types[0], x, y, direction)]

        return self.binary_region((t,), fold)

    def folding(self, t: ArrayType, body: str) -> str:
        """The region of a binary instruction; empty: it returns its second operand."""

        def fold(e: Any, types: Any, x: str, y: str) -> list[str]:
            return [e.apply(body, types[0], x, y) if body else y]

        return self.binary_region((t,), fold)

    def binary_region(
        self, types: Sequence[ArrayType], body: Callable, outs: Sequence[ArrayType] | None = None
    ) -> str:
        """`({ ^bb0(...): ... })`: a body that takes two scalars for each of the types.

        outs: the types of its results, if there is not one for each.
        """
        scalars = [array_type((), t.dtype) for t in types]
        names = [self.fresh() for _ in range(2 * len(scalars))]

        def write() -> None:
            outside, self.hoisted = self.hoisted, {}  # outer names are not visible in here
            results = body(self, scalars, *names)
            self.hoisted = outside
            kinds = ", ".join(map(self.ty, outs or scalars))
            self.lines.append(f"stablehlo.return {', '.join(results)} : {kinds}")

        pairs = zip(names, scalars * 2, strict=True)
        given = ", ".join(f"{n}: {self.ty(s)}" for n, s in pairs)
        return f"({{\n^bb0({given}):\n{self.region(write)}\n}})"


def _multiple(x: Any) -> Any:
    """The nearest number representable in float4; larger numbers are unchanged."""
    size = ew.abs(x)
    low, middle = lt(size, lit(2, x)), lt(size, lit(4, x))
    by = select_n(low, select_n(middle, lit(0.5, x), lit(1, x)), lit(2, x))
    back = select_n(low, select_n(middle, lit(2, x), lit(1, x)), lit(0.5, x))
    return ew.mul(ew.round(ew.mul(x, by), rounding_method=1), back)


def _to_odd(x: Any) -> Any:
    """float64 to float32, rounded to odd: between two numbers, the one whose last bit is 1. A
    second rounding then has the same result as rounding x directly.
    """
    single = reduce_precision(x, exponent_bits=8, mantissa_bits=23)
    nearest = convert_element_type(single, dtype=np.dtype(np.float32))
    bits = bitcast_convert_type(nearest, dtype=np.dtype(np.int32))
    past = convert_element_type(lt(ew.abs(x), ew.abs(single)), dtype=np.dtype(np.int32))
    odd = bitwise_or(ew.sub(bits, past), lit(1, bits))
    between = bitwise_and(ne(single, x), ew.eq(x, x))
    return bitcast_convert_type(select_n(between, bits, odd), dtype=np.dtype(np.float32))


def _above(x: Any, *, least: float) -> Any:
    """Replaces numbers of magnitude at most `least` by 0."""
    return select_n(le(ew.abs(x), lit(least, x)), x, lit(0, x))


def _numbers(values: Sequence[int]) -> str:
    """A list of integers, as an attribute."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def _pairs(rows: Sequence[Sequence[int]]) -> str:
    text = f"{[list(row) for row in rows]}" if rows else ""
    return f"dense<{text}> : tensor<{len(rows)}x2xi64>"
