"""Instructions that XLA's partitioner gets wrong, emitted in a form that it handles correctly.

`WithWorkarounds` is the emitter of programs over several devices. Each of its methods works around
the errors that it names; docs/values.md demonstrates each of them with a program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.lowering.emitter import Emitter
from shardwise._src.lowering.instructions import MAX_PRODUCTS, TWO_BITS
from shardwise._src.lowering.total_order_floats import key_of, loses_nan, ordered, unordered
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.convolution import products_of_groups, sums_of_groups
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import BOOL, lit
from shardwise._src.ops.indexing.gather_scatter import GatherDimensionNumbers, gather
from shardwise._src.ops.logical import bitwise_and, ge, lt, select_n
from shardwise._src.ops.pooling import Window, scattered, windowed
from shardwise._src.ops.shape import concatenate
from shardwise._src.runtime.backend import JAXLIB
from shardwise._src.types.array_type import ArrayType, array_type


class Part(NamedTuple):
    """A slice without strides: its operand, bounds for each dimension, and its block."""

    x: str
    t: ArrayType
    bounds: tuple[tuple[int, int], ...]
    lines: list[str]

    def is_full(self) -> bool:
        return all(b - a == n for (a, b), n in zip(self.bounds, self.t.shape, strict=True))

    def is_followed_by(self, other: Part, d: int) -> bool:
        """Whether `other` is the next slice of the same operand along a dimension."""
        rest = [[*part.bounds[:d], *part.bounds[d + 1 :]] for part in (self, other)]
        adjacent = self.bounds[d][1] == other.bounds[d][0]
        return self.x == other.x and adjacent and rest[0] == rest[1]

    def until(self, other: Part, d: int) -> Part:
        """The slice from the start of this one to the end of `other`."""
        bounds = list(self.bounds)
        bounds[d] = (bounds[d][0], other.bounds[d][1])
        return self._replace(bounds=tuple(bounds))


class WithWorkarounds(Emitter):
    """The emitter of a program over several devices."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._zeros: set[str] = set()  # names of scalars
        self._copies: dict[tuple, tuple[list[str], str]] = {}  # of sliced values, see `_copy`
        self._slices: dict[str, Part] = {}  # by name

    def constant(self, value: Any, aval: ArrayType) -> str:
        name = super().constant(value, aval)
        if not aval.shape and not any(np.asarray(value).astype(aval.dtype).tobytes()):
            self._zeros.add(name)
        return name

    # -- elements moved --

    def pad(self, x: str, value: str, t: ArrayType, config: Sequence[tuple]) -> str:
        """XLA error `pad`: only plain padding and plain cropping are correct.

        Interior padding becomes a new dimension, which is padded and merged.
        """
        if t.dtype.name in TWO_BITS:
            return super().pad(x, value, t, config)  # which calls back with a wider dtype
        if not any(inner for _, _, inner in config):
            return self._cropped_and_padded(x, value, t, config)
        shape, config = t.shape, list(config)
        for d, (low, high, inner) in enumerate(config):
            if not inner or shape[d] < 2:
                config[d] = (low, high)
                continue
            apart = (*shape[: d + 1], 1, *shape[d + 1 :])
            t2 = array_type(apart, t.dtype)
            x = super().reshape(x, array_type(shape, t.dtype), t2)
            grown = [(0, inner if i == d + 1 else 0, 0) for i in range(len(apart))]
            x = self._filled(x, value, t2, grown)
            t2 = array_type((*apart[: d + 1], 1 + inner, *apart[d + 2 :]), t.dtype)
            shape = (*shape[:d], shape[d] * (1 + inner), *shape[d + 1 :])
            x = super().reshape(x, t2, array_type(shape, t.dtype))
            config[d] = (low, high - inner)
        plain = [(row[0], row[1], 0) for row in config]
        return self._cropped_and_padded(x, value, array_type(shape, t.dtype), plain)

    def _cropped_and_padded(self, x: str, value: str, t: ArrayType, config: Sequence[tuple]) -> str:
        starts, limits, rows = [], [], []
        for n, (low, high, _) in zip(t.shape, config, strict=True):
            start, limit = min(max(-low, 0), n), max(min(n + high, n), 0)
            limit = max(start, limit)
            # Cropping beyond the operand is taken from the other side's padding.
            added = n + low + high - (limit - start)
            before = min(max(low, 0), added)
            rows.append((before, added - before, 0))
            starts.append(start)
            limits.append(limit)
        if any(a or b != n for a, b, n in zip(starts, limits, t.shape, strict=True)):
            x = self.slice(x, t, starts, limits)
            t = array_type(tuple([b - a for a, b in zip(starts, limits, strict=True)]), t.dtype)
        if any(row != (0, 0, 0) for row in rows):
            x = self._filled(x, value, t, rows)
        return x

    def _filled(self, x: str, value: str, t: ArrayType, config: Sequence[tuple]) -> str:
        """XLA error `shared-padding`: two paddings of one operand with different values.

        So all are padded with 0, and the padding is then filled by a select.
        """
        if value in self._zeros or JAXLIB >= (0, 12):
            return super().pad(x, value, t, config)
        x = super().pad(x, self.scalar(0, t.dtype), t, config)
        shape = tuple([n + low + high for n, (low, high, _) in zip(t.shape, config, strict=True)])
        inside = tuple([(low, low + n) for n, (low, _, _) in zip(t.shape, config, strict=True)])
        kinds = (t.update(shape=shape), t.update(shape=()))
        return self.via(_inside_or, kinds, x, value, inside=inside)[0]

    def broadcast(self, x: str, t: ArrayType, out: ArrayType, dims: Sequence[int]) -> str:
        """Dimensions of size 1 of unreduced values are removed first: XLA would take the sum
        between the two instructions that it makes of this."""
        if t.spec is None or not t.spec.unreduced or not t.ndim:
            return super().broadcast(x, t, out, dims)
        kept = [i for i, d in enumerate(dims) if t.shape[i] == out.shape[d]]
        spec = t.spec.update(partitions=[t.spec.dims(t.ndim)[i] for i in kept])
        few = t.update(shape=tuple([t.shape[i] for i in kept]), spec=spec)
        if len(kept) < t.ndim:
            x = self.placed_by_type(super().reshape(x, t, few), few)
        return super().broadcast(x, few, out, [dims[i] for i in kept])

    def reshape(self, x: str, t: ArrayType, out: ArrayType) -> str:
        """XLA error `reshape-of-ones`: dimensions of size 1 between others that are regrouped."""
        if t.spec is not None and t.spec.unreduced:  # between two ops, XLA would take the sum
            return super().reshape(x, t, out)
        if all(map(self.divides, t.shape)) and all(map(self.divides, out.shape)):
            return super().reshape(x, t, out)
        few, fewer = [array_type(tuple([n for n in s.shape if n != 1]), s.dtype) for s in (t, out)]
        if few.shape == fewer.shape:
            return super().reshape(x, t, out)
        if few.shape != t.shape:
            x = self.barrier(super().reshape(x, t, few), few)
        x = super().reshape(x, few, fewer)
        return x if fewer.shape == out.shape else super().reshape(x, fewer, out)

    def slice(
        self,
        x: str,
        t: ArrayType,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> str:
        """XLA errors `gathered-and-sliced`, `shared-reshards` and `slice-of-reshape`: of a value
        that also has another use; and `one-step`: a stride that selects only one element.

        Slices are taken from a copy of the value: XLA recognizes a rotation by its two slices. A
        slice that may equal the operand's instruction in the partitioner gets its own copy.
        """
        if strides is not None:
            rows = [
                (a, a + 1, 1) if 0 < b - a <= s else (a, b, s)
                for a, b, s in zip(starts, limits, strides, strict=True)
            ]
            starts, limits, strides = zip(*rows, strict=True) if rows else ((), (), ())
        strided = strides is not None and any(s != 1 for s in strides)
        full = not any(b - a != n for n, a, b in zip(t.shape, starts, limits, strict=True))
        if strided or full:
            return super().slice(x, t, starts, limits, strides)
        bounds = tuple(zip(starts, limits, strict=True))
        copy = self._copy(x, t, bounds if self._may_be_whole(t, bounds) else None)
        part = super().slice(copy, t, starts, limits)
        self._slices[part] = Part(x, t, bounds, self.lines)
        return part

    def _copy(self, x: str, t: ArrayType, purpose: Any) -> str:
        """A value behind a barrier, one for each purpose in a block."""
        lines, copy = self._copies.get((x, purpose), ([], x))
        if lines is not self.lines:  # another block
            copy = self.barrier(x, t)
            self._copies[x, purpose] = self.lines, copy
        return copy

    def _may_be_whole(self, t: ArrayType, bounds: Sequence[tuple[int, int]]) -> bool:
        """Whether each device's shard of a slice may be its shard of the operand."""
        counts = [k for k in range(2, self.devices + 1) if self.devices % k == 0]
        return all(
            [
                a == 0 and (b == n or any(-(-b // k) == -(-n // k) for k in counts))
                for (a, b), n in zip(bounds, t.shape, strict=True)
            ]
        )

    def concatenate(
        self, xs: Sequence[str], ins: Sequence[ArrayType], out: ArrayType, dimension: int
    ) -> str:
        """XLA error `shared-reshards`: adjacent slices, which XLA merges into one, are merged here
        if that slice needs its own copy. A rotation takes both slices from one copy, so that XLA
        recognizes it.
        """
        found: list[tuple[str, ArrayType]] = []
        for run in self._runs(list(zip(xs, ins, strict=True)), dimension):
            first, last = self._slice_here(run[0][0]), self._slice_here(run[-1][0])
            both = first and last and first.until(last, dimension)
            if both and len(run) > 1 and self._may_be_whole(both.t, both.bounds):
                run = [self._part(both)]
            found += run
        if len(found) == 1:
            return found[0][0]
        xs, ins = zip(*found, strict=True)
        if len(xs) == 2:
            xs = self._rotated(xs[0], xs[1], dimension) or xs
        return super().concatenate(xs, ins, out, dimension)

    def _runs(
        self, operands: Sequence[tuple[str, ArrayType]], dimension: int
    ) -> list[list[tuple[str, ArrayType]]]:
        """The operands of a concatenation, with runs of adjacent slices grouped in one list."""
        runs: list[list[tuple[str, ArrayType]]] = []
        before = None
        for x, t in operands:
            part = self._slice_here(x)
            if before and part and before.is_followed_by(part, dimension):
                runs[-1].append((x, t))
            else:
                runs.append([(x, t)])
            before = part
        return runs

    def _rotated(self, tail: str, head: str, dimension: int) -> list[str] | None:
        """The two slices of a rotation, taken from one copy if they would be from two."""
        first, last = self._slice_here(head), self._slice_here(tail)
        if not (first and last and self._may_be_whole(first.t, first.bounds)):
            return None
        if not (first.is_followed_by(last, dimension) and first.until(last, dimension).is_full()):
            return None
        copy = self._copy(first.x, first.t, ("rotation", dimension, first.bounds))
        rows = [zip(*part.bounds, strict=True) for part in (last, first)]
        return [super(WithWorkarounds, self).slice(copy, first.t, a, b) for a, b in rows]

    def _slice_here(self, x: str) -> Part | None:
        """The slice of this name, if it is in this block."""
        part = self._slices.get(x)
        return part if part and part.lines is self.lines else None

    def _part(self, part: Part) -> tuple[str, ArrayType]:
        """A slice, and its type."""
        shape = tuple([b - a for a, b in part.bounds])
        starts, limits = zip(*part.bounds, strict=True)
        x = part.x if part.is_full() else self.slice(part.x, part.t, starts, limits)
        return x, array_type(shape, part.t.dtype)

    def constraint(self, name: str, place: str, t: ArrayType) -> str:
        """XLA error `lost-factor`: two windows of a vector that a device takes, before and after a
        product."""
        few = t.ndim == 1 and t.shape[0] <= self.devices
        if not (few and t.dtype.name in ("int32", "uint32")):
            return super().constraint(name, place, t)
        return self.barrier(super().constraint(self.barrier(name, t), place, t), t)

    def dynamic_slice(
        self, x: str, starts: Sequence[str], ins: Sequence[ArrayType], sizes: Sequence[int]
    ) -> str:
        """XLA error `gathered-and-sliced`; also, a gather takes rows of an array while sharded,
        but a `dynamic_slice` gathers the full array.
        """
        t = ins[0]
        moving = tuple([d for d, n in enumerate(sizes) if n != t.shape[d]])
        if any(sizes[d] == 1 for d in moving):
            kept = [t, *[ins[1 + d] for d in moving]]
            names = [starts[d] for d in moving]
            return self.via(_gathered, kept, x, *names, moving=moving, sizes=tuple(sizes))[0]
        return super().dynamic_slice(self.barrier(x, t), starts, ins, sizes)

    def dynamic_update_slice(
        self, x: str, update: str, starts: Sequence[str], ins: Sequence[ArrayType]
    ) -> str:
        """XLA error `unclamped-update`: a start out of bounds along a split dimension."""
        inside = self.inside(starts, [ins[0], *ins[2:]], ins[1].shape)
        return super().dynamic_update_slice(x, update, inside, ins)

    def gather(
        self,
        x: str,
        indices: str,
        ins: Sequence[ArrayType],
        out: ArrayType,
        dims: Any,
        sizes: Sequence[int],
        **flags: bool,
    ) -> str:
        """XLA errors `narrow-indices`: 8-bit and 16-bit indices crash the process;
        and `uneven-indices`: in uneven shards, with windows of several dimensions, compilation may
        fail.
        """
        if sum(n > 1 for n in sizes) > 1:
            uneven = [d for d, n in enumerate(ins[1].shape[:-1]) if not self.divides(n)]
            indices = self.replicate_dims(indices, ins[1], uneven)
        if ins[1].dtype.itemsize < 4:
            wide = np.dtype("int32")
            indices = self.cast(indices, ins[1], wide)
            ins = (ins[0], ins[1].update(dtype=wide))
        return super().gather(x, indices, ins, out, dims, sizes, **flags)

    # -- elements combined --

    def reduce(self, x: str, t: ArrayType, axes: Sequence[int], body: str, identity: Any) -> str:
        """XLA errors `extremes-without-nan` and `no-xor`: reductions over devices but for sums."""
        bitwise = body == "xor" or (body in ("and", "or") and t.dtype != BOOL)
        if bitwise and not self.platform.reduces_by_any_function:
            x = self.replicate_dims(x, t, axes)
        if not loses_nan(self.platform, body, t) or not t.size:
            return super().reduce(x, t, axes, body, identity)
        if self._is_within([(0, axes)]):
            x = super().reduce(self._kept_within(x, t, axes), t, axes, body, identity)
            self.lines[-1] = self.meshes.extremes.note(self.lines[-1])
            return x
        x, keys = ordered(self, x, t, body)
        first = key_of(np.asarray(identity, t.dtype), keys.dtype)
        x = super().reduce(x, keys, axes, body, first)
        shape = tuple([n for d, n in enumerate(t.shape) if d not in axes])
        return unordered(self, x, keys.update(shape=shape), t.dtype)

    def _is_within(self, reads: Any) -> bool:
        """Whether a maximum or minimum is within a device."""
        return not self.platform.is_xla_cpu and self.meshes.extremes.within(reads)

    def _kept_within(self, x: str, t: ArrayType, dims: Sequence[int]) -> str:
        """An operand of a reduction that was found to be within a device, constrained to that: XLA
        simplifies programs before it propagates shardings, and may find others."""
        return x if self.meshes.extremes.between is None else self.replicate_dims(x, t, dims)

    def reduce_by(
        self,
        body: Callable,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        identities: Sequence,
        axes: Sequence[int],
    ) -> list[str]:
        """XLA error `no-other-sums`: most platforms support few reductions across devices. Other
        functions reduce on each device, gather, and reduce again.
        """
        if len(xs) > 1 or not axes or self.platform.reduces_by_any_function:
            return super().reduce_by(body, xs, ins, identities, axes)
        beside = array_type(ins[0].shape, np.dtype("int32"))
        numbers = self.iota(beside, axes[0])

        def both(e: Any, types: Any, x: str, i: str, y: str, j: str) -> list[str]:
            larger = e.let(f"stablehlo.maximum {i}, {j} : {e.ty(types[1])}")
            return [*body(e, types[:1], x, y), larger]

        found = super().reduce_by(both, [*xs, numbers], [*ins, beside], [*identities, -1], axes)
        shape = tuple([n for d, n in enumerate(ins[0].shape) if d not in axes])
        kinds = ", ".join([self.ty(array_type(shape, t.dtype)) for t in (*ins, beside)])
        # Both must be used; otherwise the second would be dropped.
        return self.lets(f"stablehlo.optimization_barrier {', '.join(found)} : {kinds}", 2)[:1]

    def reduce_window(
        self,
        body: Callable,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        identities: Sequence,
        window: Any,
    ) -> list[str]:
        """XLA errors `shared-halo`: two windows over one operand, with different identities, if
        they extend across the boundary between two devices; and `split-windows`: with holes along
        split dimensions.
        """
        if JAXLIB < (0, 12) and not self._are_within_shards(window, ins[0].shape):
            xs = [self.barrier(x, t) for x, t in zip(xs, ins, strict=True)]
        dims = windowed(window) if window.is_holed() else []
        xs = [self.replicate_dims(x, t, dims) for x, t in zip(xs, ins, strict=True)]
        found = super().reduce_window(body, xs, ins, identities, window)
        counts = window.counts(ins[0].shape)
        outs = [array_type(counts, t.dtype) for t in ins]
        return [self.replicate_dims(x, t, dims) for x, t in zip(found, outs, strict=True)]

    def _are_within_shards(self, window: Window, shape: tuple[int, ...]) -> bool:
        """Whether each window is on one device, for any split of the operand."""
        if window.is_holed() or any(row != (0, 0) for row in window.padding):
            return False
        return all(
            size == stride and (size == 1 or (n % size == 0 and self.divides(n // size)))
            for n, size, stride in zip(shape, window.sizes, window.strides, strict=True)
        )

    def select_and_scatter(
        self, t: str, x: str, ins: Sequence[ArrayType], out: ArrayType, largest: bool, window: Any
    ) -> str:
        """XLA error `split-windows`: not split along these dimensions. On the CPU, small ones
        become slices and pads, which are.
        """
        if self.platform.is_xla_cpu and math.prod(window.sizes) <= MAX_PRODUCTS:
            return self.via(scattered, ins, t, x, largest=largest, window=window)[0]
        dims = windowed(window)
        t, x = self.replicate_dims(t, ins[0], dims), self.replicate_dims(x, ins[1], dims)
        found = super().select_and_scatter(t, x, ins, out, largest, window)
        return self.replicate_dims(found, out, dims)

    def convolution(
        self, x: str, y: str, ins: Sequence[ArrayType], out: ArrayType, p: dict[str, Any]
    ) -> str:
        """XLA error `split-convolution`: only batch and features may be split; of grouped ones,
        only the batch, or nothing. On the CPU, small ones become matrix products; elsewhere only
        derivatives without strides, since libtpu crashes on products of strided slices.
        """
        left, right, to = p["dimension_numbers"]
        whole = [[*left[2:]], [*right[2:]], [*to[2:]]]
        if p["feature_group_count"] > 1 and not self.platform.is_xla_cpu:
            whole = [[*left[1:]], [*right], [*to[1:]]]
        elif p["feature_group_count"] * p["batch_group_count"] > 1:
            plain = self.platform.is_xla_cpu or {*p["window_strides"], *p["rhs_dilation"]} <= {1}
            if plain and products_of_groups(ins, out, p) <= MAX_PRODUCTS:
                return self.via(sums_of_groups, ins, x, y, dtype=out.dtype, **p)[0]
            whole = [[*left], [*right], [*to]]
        x, y = (self.replicate_dims(*side) for side in zip((x, y), ins, whole[:2], strict=True))
        return self.replicate_dims(super().convolution(x, y, ins, out, p), out, whole[2])

    def scatter(
        self, xs: Sequence[str], ins: Sequence[ArrayType], dims: Any, body: str, **flags: bool
    ) -> str:
        """XLA errors `scattered-padding`: updates in uneven shards, whose padding is scattered too;
        `split-index-vectors`;
        `scatter-into-part`: a single update, into a shard of an operand; `extremes-without-nan`.
        """
        x, indices, updates = xs
        along = [d for d in range(ins[2].ndim) if d not in dims.update_window_dims]
        if JAXLIB < (0, 12) and all(ins[2].shape[d] == 1 for d in along):
            x = self.barrier(x, ins[0])
        uneven = [i for i, d in enumerate(along) if not self.divides(ins[2].shape[d])]
        if uneven or JAXLIB < (0, 12):
            indices = self.replicate_dims(indices, ins[1], [*uneven, ins[1].ndim - 1])
        if uneven:
            updates = self.replicate_dims(updates, ins[2], [along[i] for i in uneven])
        if not loses_nan(self.platform, body, ins[0]):
            return super().scatter([x, indices, updates], ins, dims, body, **flags)
        if self._is_within([(1, None), (2, along)]):
            indices = self._kept_within(indices, ins[1], range(ins[1].ndim))
            updates = self._kept_within(updates, ins[2], along)
            found = super().scatter([x, indices, updates], ins, dims, body, **flags)
            self.lines[-1] = self.meshes.extremes.note(self.lines[-1])
            return found
        x, keys = ordered(self, x, ins[0], body)
        updates, update_keys = ordered(self, updates, ins[2], body)
        kinds = [keys, ins[1], update_keys]
        out = super().scatter([x, indices, updates], kinds, dims, body, **flags)
        return unordered(self, out, keys, ins[0].dtype)


def _inside_or(x: Any, value: Any, *, inside: tuple) -> Any:
    """The elements within these bounds along each dimension; elsewhere `value`."""
    shape = type_of(x).shape
    chosen = None
    for d, (low, high) in enumerate(inside):
        if (low, high) == (0, shape[d]):
            continue
        places = iota(dtype=np.dtype("int32"), shape=shape, dimension=d)
        here = bitwise_and(ge(places, lit(low, places)), lt(places, lit(high, places)))
        chosen = here if chosen is None else bitwise_and(chosen, here)
    return select_n(chosen, broadcast_in_dim(value, shape=shape, dims=()), x)


def _gathered(x: Any, *starts: Any, moving: tuple, sizes: tuple) -> Any:
    """A dynamic slice, implemented by a gather."""
    columns = [reshape(s, shape=(1,)) for s in starts]
    vector = concatenate(*columns, dimension=0) if len(columns) > 1 else columns[0]
    numbers = GatherDimensionNumbers(tuple(range(len(sizes))), (), moving)
    return gather(x, vector, dimension_numbers=numbers, slice_sizes=sizes, mode="clip")
