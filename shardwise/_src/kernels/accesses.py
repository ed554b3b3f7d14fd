"""Loads from kernel refs and stores to them, as ops on the versions of a ref.

    kernel_load(version, *starts, sizes=…)          → the elements
    kernel_store(version, value, *starts, sizes=…)  → the next version
    kernel_memory()                                 → the first version of memory of its own

A version is an array, so that loops, branches and derivatives treat kernel refs like all others
(refs/refs.py). On CPU an access is a dynamic slice; compilers of kernels read the ops themselves.

The parameters: along each dimension `sizes` elements, `strides` apart; dimensions that are not
`kept` have one element, which loads drop. If `masked`, the last operands are a mask and, of a load,
the other elements. `mode`: how a store combines a value with the elements: "set", or one of
`MODES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.control.call import batch_as_call, described_call
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op, is_linear
from shardwise._src.core.program import Equation, Literal
from shardwise._src.kernels.simulation import filled
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape, zeros
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, dynamic_update_slice
from shardwise._src.ops.indexing.index_windows import slice_windows
from shardwise._src.ops.shape import along, pad, slice_
from shardwise._src.transforms.batch import to_dim, without_dim
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims

INT32 = np.dtype("int32")
MODES: dict[str, Callable[[Any, Any], Any]] = {
    "add": ew.add,
    "max": ew.max,
    "min": ew.min,
    "and": ew.bitwise_and,
    "or": ew.bitwise_or,
    "xor": ew.bitwise_xor,
    "xchg": lambda old, new: new,
}


def _load_type(op: Op, x: ArrayType, *rest: ArrayType, **p: Any) -> ArrayType:
    shape = tuple([n for n, keep in zip(p["sizes"], p["kept"], strict=True) if keep])
    return x.update(shape=shape)


def _names(x: ArrayType, p: dict[str, Any]) -> tuple[tuple, tuple]:
    """The factors of a ref's dimensions, and of those of the accessed elements."""
    names = along(x, [d for d, n in enumerate(p["sizes"]) if n != x.shape[d]])
    return names, tuple([f for f, keep in zip(names, p["kept"], strict=True) if keep])


def _load_dims(op: Op, x: ArrayType, *rest: ArrayType, **p: Any) -> Dims:
    names, inner = _names(x, p)
    more = [inner] * (len(rest) - x.ndim)
    return Dims((names, *[()] * x.ndim, *more), (inner,), worked="kept")


def _store_dims(op: Op, x: ArrayType, value: ArrayType, *rest: ArrayType, **p: Any) -> Dims:
    names, inner = _names(x, p)
    more = [inner] * (len(rest) - x.ndim)
    return Dims((names, inner, *[()] * x.ndim, *more), (names,), worked="kept")


def _region(x: Any, starts: Sequence[Any], sizes: Any, strides: Any) -> Any:
    spans = tuple([(n - 1) * s + 1 if n else 0 for n, s in zip(sizes, strides, strict=True)])
    return dynamic_slice(x, *starts, slice_sizes=spans) if spans else x


def _shifts(x: Any, starts: Sequence[Any], sizes: Any, strides: Any) -> list[Any]:
    """How far slices move regions of several elements inside of an array: for each dimension, less
    than the size of the region; None for one element."""
    found = []
    for start, n, s, size in zip(starts, sizes, strides, type_of(x).shape, strict=True):
        last, most = np.int32(size - (n - 1) * s - 1), np.int32((n - 1) * s)
        inside = ew.max(ew.min(start, last), np.int32(0))
        shift = ew.max(ew.min(ew.sub(start, inside), most), ew.neg(most))
        found.append(shift if n > 1 else None)
    return found


def _moved(y: Any, shifts: Sequence[Any]) -> Any:
    """The region moved by these distances: `y[i + shift]`, and zeros where this is outside."""
    t = type_of(y)
    most = [0 if shift is None else n - 1 for shift, n in zip(shifts, t.shape, strict=True)]
    wider = pad(y, lit(0, y), padding_config=tuple([(n, n, 0) for n in most]))
    rows = zip(shifts, most, strict=True)
    starts = [np.int32(0) if s is None else ew.add(s, np.int32(n)) for s, n in rows]
    return dynamic_slice(wider, *starts, slice_sizes=t.shape)


def _loaded(x: Any, *rest: Any, sizes: Any, strides: Any, kept: Any, masked: bool) -> Any:
    starts, more = rest[: len(sizes)], rest[len(sizes) :]
    y = _region(x, starts, sizes, strides)
    if masked and 0 not in sizes:  # elements that are not read may be outside
        y = _moved(y, _shifts(x, starts, sizes, strides))
    if any(s != 1 for s in strides):
        shape = type_of(y).shape
        y = slice_(y, start_indices=(0,) * len(shape), limit_indices=shape, strides=strides)
    y = reshape(y, shape=tuple([n for n, keep in zip(sizes, kept, strict=True) if keep]))
    return ew.where(more[0], y, more[1]) if masked else y


def _stored(
    x: Any, value: Any, *rest: Any, sizes: Any, strides: Any, kept: Any, masked: bool, mode: str
) -> Any:
    starts, more = rest[: len(sizes)], rest[len(sizes) :]
    if 0 in sizes:
        return x
    value = reshape(value, shape=sizes)
    mask = reshape(more[0], shape=sizes) if masked else None
    old = (
        _region(x, starts, sizes, strides) if mode != "set" or masked or _spread(strides) else None
    )
    if _spread(strides):
        config = tuple([(0, 0, s - 1) for s in strides])
        if mask is None:
            mask = ew.eq(zeros(type_of(value).update(dtype=INT32)), np.int32(0))
        value = pad(value, lit(0, value), padding_config=config)
        mask = pad(mask, np.False_, padding_config=config)
    if masked:
        shifts = [None if s is None else ew.neg(s) for s in _shifts(x, starts, sizes, strides)]
        value, mask = _moved(value, shifts), _moved(mask, shifts)
    if mode != "set":
        value = MODES[mode](old, value)
    if mask is not None:
        value = ew.where(mask, value, old)
    return dynamic_update_slice(x, value, *starts) if starts else value


def _spread(strides: Sequence[int]) -> bool:
    return any(s != 1 for s in strides)


def _by_slices(fun: Callable[..., Any]) -> Callable[..., str]:
    def lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **p: Any) -> str:
        return e.inline(e.staged(fun, ins, **p), *xs)[0]

    return lower


def unmapped_types(args: Sequence[Any], dims: Sequence[int | None]) -> list[ArrayType]:
    """The types of operands without their mapped dimensions."""
    pairs = zip(map(type_of, args), dims, strict=True)
    return [t if d is None else without_dim(t, d) for t, d in pairs]


def _batch_as_slices(
    fun: Callable[..., Any], op: Op, mapped: Any, args: Any, dims: Any, p: dict[str, Any]
) -> tuple[Any, Any]:
    types = tuple(unmapped_types(args, dims))
    program = program_of(lambda *xs: [fun(*xs, **p)], types, fun.__name__)
    (out,), (dim,) = batch_as_call(op, mapped, args, dims, program=program)
    return out, dim


def _with_dim(p: dict[str, Any], d: int, size: int) -> tuple[dict[str, Any], int]:
    """The parameters for a ref with all elements of another dimension, and that of the elements."""
    rows = {"sizes": size, "strides": 1, "kept": True}
    more = {name: (*p[name][:d], x, *p[name][d:]) for name, x in rows.items()}
    return p | more, sum(p["kept"][:d])


def _batch_load(op: Op, mapped: Any, args: Any, dims: Any, **p: Any) -> tuple[Any, Any]:
    n, d, size = len(p["sizes"]), dims[0], mapped.size
    if d is None or any(at is not None for at in dims[1 : n + 1]):
        return _batch_as_slices(_loaded, op, mapped, args, dims, p)
    new, out = _with_dim(p, d, size)
    x, starts = args[0], list(args[1 : n + 1])
    more = [to_dim(y, at, out, size) for y, at in zip(args[n + 1 :], dims[n + 1 :], strict=True)]
    return op(x, *starts[:d], np.int32(0), *starts[d:], *more, **new), out


def _batch_store(op: Op, mapped: Any, args: Any, dims: Any, **p: Any) -> tuple[Any, Any]:
    n, size = len(p["sizes"]), mapped.size
    if any(at is not None for at in dims[2 : n + 2]):
        return _batch_as_slices(_stored, op, mapped, args, dims, p)
    d = 0 if dims[0] is None else dims[0]
    new, out = _with_dim(p, d, size)
    x, starts = to_dim(args[0], dims[0], d, size), list(args[2 : n + 2])
    values = [args[1], *args[n + 2 :]]
    value, *more = [
        to_dim(y, at, out, size) for y, at in zip(values, [dims[1], *dims[n + 2 :]], strict=True)
    ]
    return op(x, value, *starts[:d], np.int32(0), *starts[d:], *more, **new), d


def _load_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, *rest = primals
    out = op(*primals, **p)
    n = len(p["sizes"])
    if tangents[0] is None and not (p["masked"] and tangents[n + 2] is not None):
        return out, None
    t = zeros(type_of(x).strong()) if tangents[0] is None else tangents[0]
    if p["masked"]:
        other = tangents[n + 2]
        rest[n + 1] = zeros(type_of(rest[n + 1]).strong()) if other is None else other
    return out, op(t, *rest, **p)


def _is_whole(t: ArrayType, starts: Sequence[Any], p: dict[str, Any]) -> bool:
    """Whether an access is of all elements of a ref."""
    if p["sizes"] != t.shape or _spread(p["strides"]):
        return False
    values = [a.value if isinstance(a, Literal) else a for a in starts]
    return all(isinstance(i, int | np.integer) and i == 0 for i in values)


def is_whole_store(eqn: Equation) -> bool:
    """Whether an equation replaces all elements of a ref."""
    p, n = eqn.params, eqn.invars[0].aval.ndim if eqn.invars else 0
    return (
        eqn.op is kernel_store
        and p["mode"] == "set"
        and not p["masked"]
        and _is_whole(eqn.invars[0].aval, eqn.invars[2 : n + 2], p)
    )


def _load_transpose(op: Op, ct: Any, x: Any, *rest: Any, **p: Any) -> list[Any]:
    n, masked = len(p["sizes"]), p["masked"]
    starts, more = rest[:n], list(rest[n:])
    back: list[Any] = [None] * (1 + len(rest))
    if is_linear(x) and _is_whole(x.aval, starts, p):
        own = ew.where(more[0], ct, lit(0, ct)) if masked else ct
        back[0] = reshape(own, shape=x.aval.shape)
    elif is_linear(x):
        back[0] = kernel_store(zeros(x.aval), ct, *starts, *more[:1], **p | {"mode": "add"})
    if masked and is_linear(more[1]):
        back[n + 2] = ew.where(more[0], lit(0, ct), ct)
    return back


def _store_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    x, value, *rest = primals
    out = op(*primals, **p)
    if tangents[0] is None and tangents[1] is None:
        return out, None
    if p["mode"] not in ("set", "xchg", "add"):
        raise NotImplementedError(
            f"[kernel_store] of mode {p['mode']!r} has no derivative: which value is stored "
            "depends on all of them. Use `custom_jvp` or `custom_vjp` around the kernel."
        )
    pairs = zip((x, value), tangents, strict=False)
    ts = [zeros(type_of(v).strong()) if t is None else t for v, t in pairs]
    return out, op(*ts, *rest, **p)


def _store_transpose(op: Op, ct: Any, x: Any, value: Any, *rest: Any, **p: Any) -> list[Any]:
    n = len(p["sizes"])
    starts, mask = rest[:n], rest[n:]
    back: list[Any] = [None] * (2 + len(rest))
    static = {k: p[k] for k in ("sizes", "strides", "kept")}
    if not p["masked"] and p["mode"] in ("set", "add") and _is_whole(type_of(ct), starts, p):
        if is_linear(x) and p["mode"] == "add":
            back[0] = ct
        if is_linear(value):
            back[1] = reshape(ct, shape=value.aval.shape)
        return back
    if is_linear(x):
        none = zeros(
            type_of(ct).update(shape=value.aval.shape if is_linear(value) else type_of(value).shape)
        )
        back[0] = ct if p["mode"] == "add" else op(ct, none, *rest, **p)
    if is_linear(value):
        more = (*mask, zeros(value.aval)) if p["masked"] else ()
        back[1] = kernel_load(ct, *starts, *more, **static, masked=p["masked"])
    return back


def _windows(first: int, op: Op, args: Any, **p: Any) -> tuple | None:
    """The accessed elements, for checks of bounds. first: which operand is the first start."""
    count = len(p["sizes"])
    if p["masked"] or not count or 0 in p["sizes"]:
        return None
    spans = tuple([(n - 1) * s + 1 for n, s in zip(p["sizes"], p["strides"], strict=True)])
    return slice_windows(op, (args[0], *args[first : first + count]), slice_sizes=spans)


kernel_load = Op(
    "kernel_load",
    elements=Elements.MOVED,
    type_rule=_load_type,
    dims=_load_dims,
    lower=_by_slices(_loaded),
    windows=partial(_windows, 1),
    jvp=_load_jvp,
    transpose=_load_transpose,
    batch=_batch_load,
)
kernel_store = Op(
    "kernel_store",
    type_rule=lambda op, x, value, *rest, **p: x,
    dims=_store_dims,
    lower=_by_slices(_stored),
    windows=partial(_windows, 2),
    jvp=_store_jvp,
    transpose=_store_transpose,
    batch=_batch_store,
)


kernel_atomic_cas = described_call("kernel_atomic_cas")


def compare_and_swap(
    version: Any, compared: Any, value: Any, starts: Sequence[Any], static: dict[str, Any]
) -> list[Any]:
    """The next version, with `value` where elements of a region were equal to `compared`, and the
    elements from before."""

    def run(version: Any, compared: Any, value: Any, *starts: Any) -> list[Any]:
        old = kernel_load(version, *starts, **static, masked=False)
        more = static | {"masked": True, "mode": "set"}
        return [kernel_store(version, value, *starts, ew.eq(old, compared), **more), old]

    operands = version, compared, value, *starts
    program = program_of(run, tuple(map(type_of, operands)), "atomic_cas")
    return list(kernel_atomic_cas(*operands, program=program, **static))


known_multiple = described_call("kernel_multiple_of")
new_memory = described_call("kernel_memory")


def multiple_of(x: Any, values: tuple[int, ...]) -> Any:
    """`x`, of which is known that it is a multiple of these: compilers of kernels use it."""
    program = program_of(lambda y: [y], (type_of(x),), "multiple_of")
    return known_multiple(x, program=program, values=values)[0]


def kernel_memory(t: ArrayType, space: str, fill: Any = 0) -> Any:
    """The first version of memory that a kernel allocates: its values are not specified.

    space: the name of its memory space. fill: its values on CPU (`Simulation.fill`).
    """
    program = program_of(lambda: [filled(t, fill)], (), "kernel_memory")
    return new_memory(program=program, space=space)[0]
