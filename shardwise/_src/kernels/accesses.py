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
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.control.call import batch_as_call, described_call
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.core.op import Elements, Op, is_linear
from shardwise._src.core.program import Equation, Literal
from shardwise._src.kernels.program_frames import simulation
from shardwise._src.kernels.simulation import filled, read
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
from shardwise._src.values.convert import cast

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


def as_int32(x: Any) -> Any:
    return np.int32(x) if isinstance(x, int | np.integer) else cast(as_arraylike(x), INT32)


class Region(NamedTuple):
    """Along each dimension of a ref: how many elements, how far apart, and whether the accessed
    elements have the dimension. Operands say where it starts."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    kept: tuple[bool, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([n for n, keep in zip(self.sizes, self.kept, strict=True) if keep])

    def load(
        self, version: Any, starts: Sequence[Any], is_known: bool = False, *masked: Any
    ) -> Any:
        """The elements. The kernel's simulation checks what is outside.

        is_known: whether the starts are integers, which have been checked.
        masked: a mask and the other elements, of the elements' shape.
        """
        if is_known or masked or simulation().outside == "moved":
            return kernel_load(version, *starts, *masked, **self._asdict(), masked=bool(masked))
        found = read(version, starts, self.sizes, self.strides, simulation())
        return reshape(found, shape=self.shape)

    def store(
        self, version: Any, value: Any, starts: Sequence[Any], mode: str = "set", mask: Any = None
    ) -> Any:
        """The next version. value, mask: of the elements' shape."""
        more = () if mask is None else (mask,)
        static = self._asdict() | {"masked": mask is not None, "mode": mode}
        return kernel_store(version, value, *starts, *more, **static)


def _region(p: dict[str, Any]) -> Region:
    return Region(p["sizes"], p["strides"], p["kept"])


def _dims(values: int, op: Op, x: ArrayType, *rest: ArrayType, **p: Any) -> Dims:
    """The factors of the ref's dimensions, and of those of the accessed elements.

    values: how many values an access takes: 1 of a store."""
    names = along(x, [d for d, n in enumerate(p["sizes"]) if n != x.shape[d]])
    inner = tuple([f for f, keep in zip(names, p["kept"], strict=True) if keep])
    more = [inner] * (len(rest) - values - x.ndim)
    ins = names, *[inner] * values, *[()] * x.ndim, *more
    return Dims(ins, (names if values else inner,), worked="kept")


def _cut(x: Any, starts: Sequence[Any], sizes: Any, strides: Any) -> Any:
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
    y = _cut(x, starts, sizes, strides)
    if masked and 0 not in sizes:  # elements that are not read may be outside
        y = _moved(y, _shifts(x, starts, sizes, strides))
    if _spread(strides):
        shape = type_of(y).shape
        y = slice_(y, start_indices=(0,) * len(shape), limit_indices=shape, strides=strides)
    y = reshape(y, shape=Region(sizes, strides, kept).shape)
    return ew.where(more[0], y, more[1]) if masked else y


def _stored(
    x: Any, value: Any, *rest: Any, sizes: Any, strides: Any, kept: Any, masked: bool, mode: str
) -> Any:
    starts, more = rest[: len(sizes)], rest[len(sizes) :]
    if 0 in sizes:
        return x
    value = reshape(value, shape=sizes)
    mask = reshape(more[0], shape=sizes) if masked else None
    old = _cut(x, starts, sizes, strides) if mode != "set" or masked or _spread(strides) else None
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


def _lower(fun: Any, op: Op, e: Any, ins: Any, outs: Any, *xs: str, **p: Any) -> str:
    return e.inline(e.staged(fun, ins, **p), *xs)[0]


def _batch(values: int, op: Op, mapped: Any, args: Any, dims: Any, **p: Any) -> tuple[Any, Any]:
    """An access of a ref with another dimension, of which it has all elements.

    values: how many values it takes: 1 of a store."""
    first, size = 1 + values, mapped.size
    last = first + len(p["sizes"])
    is_new = dims[0] is None
    if (is_new and not values) or any(at is not None for at in dims[first:last]):
        fun, pairs = _stored if values else _loaded, zip(map(type_of, args), dims, strict=True)
        types = tuple([t if d is None else without_dim(t, d) for t, d in pairs])
        program = program_of(lambda *xs: [fun(*xs, **p)], types, fun.__name__)
        (found,), (dim,) = batch_as_call(op, mapped, args, dims, program=program)
        return found, dim
    d = 0 if is_new else dims[0]
    out = sum(p["kept"][:d])
    rows = {"sizes": size, "strides": 1, "kept": True}
    new = p | {name: (*p[name][:d], x, *p[name][d:]) for name, x in rows.items()}
    x, starts = to_dim(args[0], dims[0], d, size), args[first:last]
    pairs = [*zip(args, dims, strict=True)]
    given, more = [
        [to_dim(y, at, out, size) for y, at in part] for part in (pairs[1:first], pairs[last:])
    ]
    found = op(x, *given, *starts[:d], np.int32(0), *starts[d:], *more, **new)
    return found, d if values else out


def _jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    """Accesses are linear in the version, and in the value or the other elements."""
    out = op(*primals, **p)
    linear = [0, *([1] if op is kernel_store else [len(p["sizes"]) + 2] if p["masked"] else [])]
    if all(tangents[i] is None for i in linear):
        return out, None
    if p.get("mode", "set") not in ("set", "xchg", "add"):
        raise NotImplementedError(
            f"[kernel_store] of mode {p['mode']!r} has no derivative: which value is stored "
            "depends on all of them. Use `custom_jvp` or `custom_vjp` around the kernel."
        )
    new = list(primals)
    for i in linear:
        new[i] = zeros(type_of(new[i]).strong()) if tangents[i] is None else tangents[i]
    return out, op(*new, **p)


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


def _store_transpose(op: Op, ct: Any, x: Any, value: Any, *rest: Any, **p: Any) -> list[Any]:
    n = len(p["sizes"])
    starts, mask = rest[:n], rest[n:]
    back: list[Any] = [None] * (2 + len(rest))
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
        back[1] = kernel_load(ct, *starts, *more, **_region(p)._asdict(), masked=p["masked"])
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
    type_rule=lambda op, x, *rest, **p: x.update(shape=_region(p).shape),
    dims=partial(_dims, 0),
    lower=partial(_lower, _loaded),
    windows=partial(_windows, 1),
    jvp=_jvp,
    transpose=_load_transpose,
    batch=partial(_batch, 0),
)
kernel_store = Op(
    "kernel_store",
    type_rule=lambda op, x, value, *rest, **p: x,
    dims=partial(_dims, 1),
    lower=partial(_lower, _stored),
    windows=partial(_windows, 2),
    jvp=_jvp,
    transpose=_store_transpose,
    batch=partial(_batch, 1),
)


kernel_atomic_cas = described_call("kernel_atomic_cas")


def compare_and_swap(
    version: Any, compared: Any, value: Any, starts: Sequence[Any], region: Region
) -> list[Any]:
    """The next version, with `value` where elements of a region were equal to `compared`, and the
    elements from before."""

    def run(version: Any, compared: Any, value: Any, *starts: Any) -> list[Any]:
        old = kernel_load(version, *starts, **region._asdict(), masked=False)
        return [region.store(version, value, starts, mask=ew.eq(old, compared)), old]

    operands = version, compared, value, *starts
    program = program_of(run, tuple(map(type_of, operands)), "atomic_cas")
    return list(kernel_atomic_cas(*operands, program=program, **region._asdict()))


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
    return new_memory(program=program, space=space, fill=fill)[0]
