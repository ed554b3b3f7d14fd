"""`x[idx]`: NumPy's indexing, basic and advanced, as one program per index pattern.

An index is parsed into a pattern and operands (see `index_pattern`). Integers and slices alone
become `slice` or `dynamic_slice`; an index with arrays is one `gather`, which places the result's
dimensions as NumPy does, without a transpose. `at` writes with the same `Layout`.

    x[0]        # traced:  slice, reshape       eager: one program for all integers
    x[rows, 1:] # traced:  gather
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.fused import body_of, fused, record_of
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.elementwise import add
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_rules import (
    GatherDimensionNumbers,
    GatherScatterMode,
    fill_value_for,
)
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, gather
from shardwise._src.ops.logical import lt, where
from shardwise._src.ops.shape import concatenate, pad, rev, slice_, split
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.dtypes import is_unsigned, max_value
from shardwise._src.types.symbolic import Symbolic, broadcast_shapes
from shardwise._src.values import binary
from shardwise._src.values.convert import cast, strip_weak_type
from shardwise._src.values.index_pattern import (
    ADVANCED,
    ALL,
    ARRAY,
    AT,
    HOST,
    NEW,
    SCALAR,
    Index,
    parse,
)

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
CHUNK = 64  # rows that one program of `unstack` returns


def getitem(x: Any, idx: Any) -> Any:
    """`x[idx]` for every index that NumPy supports; out-of-bounds indices are clamped."""
    interpreter = current().interpreter
    if interpreter.eager:
        return interpreter.getitem(x, idx)
    index = parse(idx, type_of(x).shape)
    return read(x, *index.operands, pattern=index.pattern)


def read(
    x: Any,
    *operands: Any,
    pattern: tuple,
    mode: str | None = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Any:
    """The elements at a parsed index. mode: of `gather`; None trusts the indices."""
    scattered = any(entry in ADVANCED or entry[0] == "truth" for entry in pattern)
    if not scattered and (mode != "fill" or SCALAR not in pattern):
        return _read_window(x, operands, pattern)
    plan = layout(type_of(x).shape, operands, pattern)
    out = gather(
        x,
        plan.vectors,
        dimension_numbers=plan.numbers,
        slice_sizes=plan.sizes,
        indices_are_sorted=indices_are_sorted or plan.ordered,
        unique_indices=unique_indices or plan.distinct,
        mode=mode or "promise_in_bounds",
        fill_value=fill_value,
    )
    return out if plan.shape == plan.result else reshape(out, shape=plan.result)


READ = record_of(fused(read))


# -- integers and slices: a window, then strides, reversal and shape --


def several(size: Any) -> bool:
    """Whether there is, or may be, more than one element."""
    return isinstance(size, Symbolic) or size > 1


class Window(NamedTuple):
    """The block that integers and slices select.

    starts, sizes, strides: for each dimension of the array.
    result:    the shape of the elements, with the new dimensions of the index.
    backwards: (dimension of the array, dimension of the result) of slices in reverse.
    moving:    whether a start is an operand.
    """

    starts: list[Any]
    sizes: list[Any]
    strides: list[int]
    result: list[Any]
    backwards: list[tuple[int, int]]
    moving: bool


def window(shape: tuple, operands: Any, pattern: tuple) -> Window:
    places = iter(operands)
    starts: list[Any] = []
    sizes, strides, out, backwards = [], [], [], []
    moving = False
    for entry in pattern:
        if entry is NEW or entry == NEW:
            out.append(1)
            continue
        d = len(starts)
        n = shape[d]
        size: Any = n
        start, stride = 0, 1
        if entry in (AT, SCALAR):
            start, size, moving = next(places), 1, True
            start = wrapped(start, n) if entry == SCALAR else start
        elif entry[0] == "int":
            start, size = entry[1], 1
        elif entry[0] == "window":
            start, size, moving = next(places), entry[1], True
            out.append(size)
        elif entry[0] == "slice":
            _, start, size, stride = entry
            if stride < 0 and several(size):
                start, stride = start + (size - 1) * stride, -stride
                backwards.append((d, len(out)))
            out.append(size)
            stride = abs(stride) if several(size) else 1
        else:
            out.append(n)
        starts.append(start)
        sizes.append(size)
        strides.append(stride)
    return Window(starts, sizes, strides, out, backwards, moving)


def _read_window(x: Any, operands: tuple, pattern: tuple) -> Any:
    shape = type_of(x).shape
    w = window(shape, operands, pattern)
    if w.moving:
        x = _moving_window(x, shape, w.starts, w.sizes, w.strides)
    elif w.sizes != list(shape):
        x = _fixed_window(x, w.starts, w.sizes, w.strides)
    if w.backwards:
        x = rev(x, dimensions=tuple([d for d, _ in w.backwards]))
    return x if w.result == w.sizes else reshape(x, shape=tuple(w.result))


def _fixed_window(x: Any, starts: list, sizes: list, strides: list) -> Any:
    """A slice. If a symbolic size may be 0, the limit is rounded up to full strides."""
    rows = list(zip(starts, sizes, strides, strict=True))
    unsure = [isinstance(n, Symbolic) and s > 1 and n.least < 1 for _, n, s in rows]
    if any(unsure):
        after = [s - 1 if u else 0 for s, u in zip(strides, unsure, strict=True)]
        x = pad(x, lit(0, x), padding_config=tuple([(0, n, 0) for n in after]))
    return slice_(
        x,
        start_indices=tuple(starts),
        limit_indices=tuple(
            [
                a + n * s if s == 1 or u else a + (n - 1) * s + 1 if n else a
                for (a, n, s), u in zip(rows, unsure, strict=True)
            ]
        ),
        strides=tuple(strides) if any(s != 1 for s in strides) else None,
    )


def _moving_window(x: Any, shape: tuple, starts: list, sizes: list, strides: list) -> Any:
    """Slices the dimensions with strides first, then all others together."""
    if any(s != 1 for s in strides):
        cut = [s != 1 for s in strides]
        x = _fixed_window(
            x,
            [a if c else 0 for a, c in zip(starts, cut, strict=True)],
            [n if c else full for n, full, c in zip(sizes, shape, cut, strict=True)],
            strides,
        )
        starts = [0 if c else a for a, c in zip(starts, cut, strict=True)]
    return dynamic_slice(x, *start_operands(starts, shape), slice_sizes=tuple(sizes))


def start_operands(starts: list, shape: tuple) -> list[Any]:
    """The starts of a window as operands, of one dtype."""
    dtype = index_dtype([a for a in starts if not isinstance(a, int)], shape)
    return [dtype.type(a) if isinstance(a, int) else narrowed(a, dtype) for a in starts]


def index_dtype(operands: Any, shape: tuple) -> np.dtype:
    """int32, unless an index or the array requires int64."""
    wide = any(type_of(i).dtype.itemsize > 4 for i in operands)
    return INT64 if wide or any(n > 2**31 - 1 for n in shape if n.__class__ is int) else INT32


def narrowed(i: Any, dtype: Any) -> Any:
    """Indices as int32 or int64; unsigned ones that do not fit become the maximum."""
    t = type_of(i)
    if is_unsigned(t.dtype) and t.dtype.itemsize >= dtype.itemsize:
        i = ew.min(strip_weak_type(i), np.asarray(max_value(dtype), t.dtype)[()])
    return cast(i, dtype)


def around(i: Any, n: int) -> Any:
    """Indices modulo `n`, as int32 or int64."""
    t, dtype = type_of(i), index_dtype((i,), (n,))
    if not is_unsigned(t.dtype) or t.dtype.itemsize < dtype.itemsize:
        i = cast(i, dtype)
    return cast(binary.remainder(i, np.asarray(n, type_of(i).dtype)[()]), dtype)


def on_one_device(x: Any) -> bool:
    """Whether an eager slice may start at an operand: over several devices, it is static."""
    sharding = getattr(x, "sharding", None)  # NumPy arrays have none
    return sharding is None or len(sharding.devices) == 1


def wrapped(i: Any, n: int) -> Any:
    """Indices as int32 or int64, negative ones counted from the end."""
    t = type_of(i)
    if t.dtype.itemsize < 4 or is_unsigned(t.dtype) or t.weak_type:
        i = narrowed(i, INT64 if t.dtype.itemsize > 4 else INT32)
        if is_unsigned(t.dtype):
            return i
    return where(lt(i, lit(0, i)), add(i, lit(n, i)), i)


# -- arrays among the indices: one gather --


class Layout(NamedTuple):
    """The mapping of a parsed index to a gather or a scatter.

    vectors:  the index vectors.
    numbers:  the dimension numbers of a gather.
    sizes:    the slice sizes.
    shape:    of the gathered elements; `result` also has the new dimensions of the index.
    distinct: whether all index vectors are distinct; ordered: whether they are ascending.
    """

    vectors: Any
    numbers: GatherDimensionNumbers
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    result: tuple[int, ...]
    distinct: bool
    ordered: bool


def layout(shape: tuple, operands: Any, pattern: tuple, wrap: bool = True) -> Layout:
    """Computes the layout of an index for an array of `shape`."""
    arrays, spread = _indices(shape, operands, pattern, wrap)
    block, at = _block(pattern, arrays)
    kinds: list[tuple] = []  # of the result's dimensions: ("new",), ("window" | "stride", d)
    columns: dict[int, tuple] = {}
    sizes, d = list(shape), 0
    for position, entry in enumerate(pattern):
        if position == at:
            kinds += [("block", k) for k in range(len(block))]
        if entry == NEW:
            kinds.append(("new",))
            continue
        if entry[0] == "truth":
            continue
        if position in arrays:
            columns[d], sizes[d] = ("block", arrays[position]), 1
        elif entry[0] == "slice" and entry[3] != 1 and several(entry[2]):
            columns[d], sizes[d] = ("stride", entry), 1
            kinds.append(("stride", d, entry[2]))
        else:
            if entry[0] in ("slice", "window"):
                start = entry[1] if entry[0] == "slice" else spread[position]
                sizes[d] = entry[2] if entry[0] == "slice" else entry[1]
                columns[d] = ("start", start)
            kinds.append(("window", d))
        d += 1
    if at == len(pattern):
        kinds += [("block", k) for k in range(len(block))]
    return _laid_out(shape, block, kinds, columns, sizes, arrays)


def _indices(shape: tuple, operands: Any, pattern: tuple, wrap: bool) -> tuple[dict, dict]:
    """The values of the entries that select elements, by position; and the starts of windows."""
    places = iter(operands)
    arrays: dict[int, Any] = {}
    starts: dict[int, Any] = {}
    d = 0
    for position, entry in enumerate(pattern):
        if entry == NEW:
            continue
        if entry[0] == "truth":
            arrays[position] = np.zeros(entry[1], np.int32)
            continue
        if entry in (ARRAY, SCALAR):
            i = next(places)
            arrays[position] = wrapped(i, shape[d]) if wrap else i
        elif entry in (HOST, AT):
            arrays[position] = next(places)
        elif entry[0] == "int":
            arrays[position] = np.int32(entry[1])
        elif entry[0] == "window":
            starts[position] = next(places)
        d += 1
    return arrays, starts


def _block(pattern: tuple, arrays: dict) -> tuple[tuple[int, ...], int]:
    """The common shape of the arrays, and where in the pattern NumPy places it."""
    shapes = [type_of(a).shape for a in arrays.values()]
    try:
        block = broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(
            f"the arrays of an index must broadcast together; got shapes {shapes}."
        ) from None
    positions = sorted(arrays)
    together = positions and positions[-1] - positions[0] == len(positions) - 1
    return block, positions[0] if together else 0


def _laid_out(
    shape: tuple, block: tuple, kinds: list, columns: dict, sizes: list, arrays: dict
) -> Layout:
    batch: list[int] = []
    axes: dict[Any, tuple[int, ...]] = {"block": ()}
    out: list[int] = []
    result: list[int] = []
    offsets: list[int] = []
    for kind in kinds:
        if kind[0] == "new":
            result.append(1)
            continue
        if kind[0] == "window":
            offsets.append(len(out))
            n = sizes[kind[1]]
        else:
            n = block[kind[1]] if kind[0] == "block" else kind[2]
            place = (len(batch),)
            if kind[0] == "block":
                axes["block"] += place
            else:
                axes[kind[1]] = place
            batch.append(n)
        out.append(n)
        result.append(n)
    used = {d: c for d, c in columns.items() if c[0] != "start" or sizes[d] != shape[d]}
    gone = tuple(d for d, c in sorted(columns.items()) if c[0] != "start")
    _check_not_empty(shape, gone, out)
    vectors = _vectors(used, axes, tuple(batch), shape)
    numbers = GatherDimensionNumbers(tuple(offsets), gone, tuple(sorted(used)))
    distinct = all(not type_of(a).shape for a in arrays.values())
    ordered = distinct and all(c[0] != "stride" or c[1][3] > 0 for c in used.values())
    return Layout(vectors, numbers, tuple(sizes), tuple(out), tuple(result), distinct, ordered)


def _check_not_empty(shape: tuple, gone: tuple, out: list) -> None:
    for d in gone:
        if shape[d] == 0 and 0 not in out:
            raise IndexError(f"an index is out of bounds for dimension {d} with size 0.")


def _vectors(columns: dict, axes: dict, batch: tuple, shape: tuple) -> Any:
    parts = []
    values = [c[1] for c in columns.values() if c[0] != "stride"]
    dtype = index_dtype([v for v in values if is_array(v)], shape)
    for d, (kind, value) in sorted(columns.items()):
        if kind == "stride":
            value, places = _steps(value[1], value[2], value[3], dtype), axes[d]
        elif kind == "start":
            value, places = (dtype.type(value) if isinstance(value, int) else value), ()
        else:
            value = value if is_array(value) else np.asarray(value, dtype)
            places = axes["block"]
            places = places[len(places) - type_of(value).ndim :]
        value = narrowed(value, dtype)
        parts.append(broadcast_in_dim(value, shape=(*batch, 1), dims=places))
    if not parts:
        return broadcast_in_dim(dtype.type(0), shape=(*batch, 0), dims=())
    return concatenate(*parts, dimension=len(batch)) if len(parts) > 1 else parts[0]


def _steps(start: Any, count: Any, stride: int, dtype: Any) -> Any:
    """`count` indices from `start` on, `stride` apart."""
    if not isinstance(start, Symbolic) and not isinstance(count, Symbolic):
        return (start + stride * np.arange(count)).astype(dtype)
    steps = iota(shape=(count,), dtype=dtype, dimension=0)
    return binary.add(lit(start, steps), binary.multiply(steps, lit(stride, steps)))


# -- with modes: `x.at[idx].get(...)` --


def get(
    x: Any,
    idx: Any,
    *,
    mode: Any = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap: bool = True,
    out_sharding: Any = None,
) -> Any:
    """`x[idx]` with a mode for out-of-bounds indices (see `At.get`)."""
    try:
        chosen = None if mode is None else GatherScatterMode.from_any(mode).value
        filling = chosen == "fill"
        t = type_of(x)
        interpreter = current().interpreter
        eager = interpreter.eager
        trusted = chosen in (None, "promise_in_bounds")
        index = parse(idx, t.shape, moving=eager, clip=not filling, wrap=wrap, trusted=trusted)
        if index.outside:
            inside = read(x, *index.operands, pattern=index.pattern)
            value = fill_value_for(t.dtype) if fill_value is None else fill_value
            out = type_of(inside)
            filled = broadcast_in_dim(lit(value, x), shape=out.shape, dims=())
            return cast(filled, t.dtype, t.weak_type)
        if not wrap:
            index = not_wrapped(index)
        static = {
            "pattern": index.pattern,
            "mode": chosen,
            "fill_value": fill_value,
            "indices_are_sorted": indices_are_sorted,
            "unique_indices": unique_indices,
        }
        if out_sharding is not None:
            return placed(read, out_sharding, x, *index.operands, **static)
        if eager:
            operands = interpreter.index_operands(index.operands, x)
            return interpreter.call(READ, (x, *operands), static)
        return read(x, *index.operands, **static)
    except Exception as error:
        pass_on(error)
        raise


def not_wrapped(index: Index) -> Index:
    """Marks index arrays as already wrapped, so that they are used unchanged."""
    pattern = tuple(HOST if e in (ARRAY, SCALAR) else e for e in index.pattern)
    return index._replace(pattern=pattern)


# -- iteration --


@fused(arrays=2)
def _chunk(x: Any, start: Any, size: int, apart: bool) -> list[Any]:
    """`size` rows from `start` on. apart: gather them, which partitions better."""
    t = type_of(x)
    rest = [ALL] * (t.ndim - 1)
    if size == t.shape[0]:
        rows = x
    elif apart:
        numbers = add(np.arange(size, dtype=np.int32), start)
        rows = read(x, numbers, pattern=(HOST, *rest))
    else:
        rows = read(x, start, pattern=(("window", size), *rest))
    each = split(rows, sizes=(1,) * size, axis=0) if size > 1 else [rows]
    return [reshape(row, shape=t.shape[1:]) for row in each]


def unstack(x: Any) -> Any:
    """An iterator over the rows `x[0]`, `x[1]`, …, computed in chunks."""
    n = type_of(x).shape[0]
    interpreter = current().interpreter
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        if interpreter.eager:
            (place,) = interpreter.index_operands([start], x)
            apart = size < n and not on_one_device(x)
            yield from interpreter.call(_CHUNK, (x, place, size, apart), {})
        else:
            rows = read(x, pattern=(("slice", start, size, 1), *[ALL] * (type_of(x).ndim - 1)))
            yield from body_of(_chunk)(rows, 0, size, False)


_CHUNK = record_of(_chunk)
