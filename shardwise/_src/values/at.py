"""`x.at[idx]`: indexed updates of an immutable array, which return a new array.

    x.at[0].set(1.0)          # x with 1.0 in its first row
    x.at[rows].add(y)         # repeated rows are added repeatedly
    x.at[i].get(mode="fill", fill_value=0)

Every index that `x[idx]` accepts is allowed. A `set` at concrete integers is one
`dynamic_update_slice`; any other update is one `scatter`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from shardwise._src.base.config import numpy_dtype_promotion
from shardwise._src.base.context import current
from shardwise._src.base.named import named
from shardwise._src.base.warn import warn
from shardwise._src.core.fused import fused, record_of
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.indexing.gather_rules import GatherScatterMode, as_scatter
from shardwise._src.ops.indexing.gather_scatter import SCATTERS, dynamic_update_slice
from shardwise._src.ops.shape import rev
from shardwise._src.ops.sharded.sharding_ops import placed, reshard_like, where_it_was
from shardwise._src.types.annotations import Array, ArrayLike, OutSharding
from shardwise._src.types.dtypes import is_bool
from shardwise._src.types.promotion import lattice_join
from shardwise._src.values import binary
from shardwise._src.values.convert import broadcast_to, cast, constant
from shardwise._src.values.index_pattern import ADVANCED, ALL, SCALAR, parse
from shardwise._src.values.indexing import (
    get,
    layout,
    not_wrapped,
    on_one_device,
    several,
    start_operands,
    window,
)

P = ParamSpec("P")
Mode = str | GatherScatterMode | None


class At:
    """The value of `x.at`: index it to select elements."""

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self.array, index)

    def __getattr__(self, name: str) -> Any:
        hint = f" Index first: `x.at[idx].{name}(...)`." if hasattr(AtIndex, name) else ""
        raise AttributeError(f"'At' object has no attribute {name!r}.{hint}", name=name)

    def __repr__(self) -> str:
        return f"At({self.array!r})"


def _alike(
    like: Callable[P, Array],
    name: str,
    method: str,
    doc: str,
    combine: Callable[[Any, Any], Any] | None = None,
) -> Callable[P, Array]:
    """Another method of `AtIndex`, with the signature of `like`.

    method: of `write`. combine: the values are written into ones, and combined with the array.
    """

    def fun(
        self: AtIndex,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Mode = None,
        out_sharding: OutSharding = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        x = self.array if combine is None else _ones(self.array)
        how = mode, indices_are_sorted, unique_indices, wrap_negative_indices, out_sharding
        made = write(method, x, self.index, values, *how)
        return made if combine is None else combine(self.array, made)

    made: Any = named(fun, name, doc, "AtIndex")
    return made


class AtIndex:
    """Indexed elements of an array. Each method returns a new array; the original is unchanged.

    All methods take the keywords of `set`:

    indices_are_sorted:    promises that the indices are in increasing order.
    unique_indices:        promises that no index occurs twice; needed for some derivatives.
    mode:                  for indices out of bounds: "drop" (or "fill"; the default) skips them,
                           "clip" clamps them, "promise_in_bounds" does not check them.
    wrap_negative_indices: whether negative indices count from the end.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any):
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"AtIndex({self.array!r}, {self.index!r})"

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Mode = None,
        fill_value: ArrayLike | None = None,
        out_sharding: OutSharding = None,
        wrap_negative_indices: bool = True,
        strategy: str = "auto",
    ) -> Array:
        """`x[idx]`. With mode "fill", elements out of bounds are `fill_value`: by default NaN, the
        smallest integer (the largest for an unsigned type), or True.

        strategy: must be "auto": the index alone decides between slices and gathers."""
        if strategy != "auto":
            raise NotImplementedError(
                f".at[...].get: strategy must be 'auto', which chooses by the index; got "
                f"{strategy!r}."
            )
        return get(
            self.array,
            self.index,
            mode=mode,
            fill_value=fill_value,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            wrap=wrap_negative_indices,
            out_sharding=out_sharding,
        )

    def set(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Mode = None,
        out_sharding: OutSharding = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x[idx] = values`. If an index occurs several times, one of its values is stored."""
        how = mode, indices_are_sorted, unique_indices, wrap_negative_indices, out_sharding
        return write("set", self.array, self.index, values, *how)

    add = _alike(
        set, "add", "add", "`x[idx] += values`, applied once for each occurrence of an index."
    )
    subtract = _alike(
        set, "subtract", "sub", "`x[idx] -= values`, applied once for each occurrence of an index."
    )
    multiply = _alike(
        set, "multiply", "mul", "`x[idx] *= values`, applied once for each occurrence of an index."
    )
    mul = multiply
    divide = _alike(
        set,
        "divide",
        "mul",
        "`x[idx] /= values`; integers are divided as floats.",
        binary.true_divide,
    )
    power = _alike(set, "power", "mul", "`x[idx] **= values`.", binary.power)
    min = _alike(set, "min", "min", "`x[idx] = minimum(x[idx], values)`.")
    max = _alike(set, "max", "max", "`x[idx] = maximum(x[idx], values)`.")

    def apply(
        self,
        func: Callable[[Array], Array],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Mode = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """`x[idx] = func(x[idx])`, applied once even if an index occurs several times."""
        read_mode = "clip" if mode == "clip" else "promise_in_bounds"
        if not callable(func):
            raise TypeError(f".at[...].apply takes a function; got {short_repr(func)}.")
        old = get(self.array, self.index, mode=read_mode, wrap=wrap_negative_indices)
        new = func(old)
        if type_of(new).dtype != type_of(old).dtype:
            raise TypeError(
                "the function of `.at[...].apply` must preserve the dtype "
                f"{type_of(old).str_short(True)}; it returned {type_of(new).str_short(True)}."
            )
        how = mode, indices_are_sorted, unique_indices, wrap_negative_indices
        return write("set", self.array, self.index, new, *how)


def _ones(x: Any) -> Any:
    t = type_of(x)
    return broadcast_to(constant(1, x), t.shape)


# -- writing --


def write(
    method: str,
    x: Any,
    idx: Any,
    values: Any,
    mode: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap_negative_indices: bool = True,
    out_sharding: Any = None,
) -> Any:
    """`x` with `values` combined into the elements at `idx` by one of the `SCATTERS`."""
    try:
        chosen = "fill" if mode is None else GatherScatterMode.from_any(mode).value
        interpreter = current().interpreter
        eager = interpreter.eager
        if isinstance(values, list | tuple):
            values = np.asarray(values)
        t = type_of(x)
        _check_values(method, t, type_of(values))
        index = parse(
            idx,
            t.shape,
            moving=eager,
            windows=eager and on_one_device(x),
            clip=chosen == "clip",
            wrap=wrap_negative_indices,
            trusted=False,
        )
        if index.outside:
            return x
        if not wrap_negative_indices:
            index = not_wrapped(index)
        static = {"pattern": index.pattern, "method": method}
        if chosen != "fill" or indices_are_sorted or unique_indices:
            static |= {
                "mode": chosen,
                "indices_are_sorted": indices_are_sorted,
                "unique_indices": unique_indices,
            }
        if out_sharding is not None:
            return placed(update, out_sharding, x, values, *index.operands, **static)
        if eager:
            operands = interpreter.index_operands(index.operands, x)
            made = interpreter.call(_UPDATE, (x, values, *operands), static)
            if method == "set" and index.pattern == (ALL,) * len(t.shape):
                return where_it_was(x, made)  # the result does not depend on `x`
            return made
        return update(x, as_arraylike(values), *index.operands, **static)
    except Exception as error:
        pass_on(error)
        raise


def _check_values(method: str, t: Any, v: Any) -> None:
    if v.dtype == t.dtype or _can_hold(t, v):
        if method != "set" and method not in ("min", "max") and is_bool(t.dtype):
            raise TypeError(
                f"`.at[...]` does not support arithmetic ({method}) on boolean arrays; got "
                f"{t.str_short(True)}."
            )
        return
    warn(
        f"`.at[...]` writes values of dtype {v.dtype} into an array of dtype {t.dtype}, which "
        "cannot hold them; they are cast. This will become an error: cast them with "
        "`.astype(x.dtype)`.",
        FutureWarning,
    )


def _can_hold(t: Any, v: Any) -> bool:
    """Whether the dtypes promote to that of `t`: in strict mode as in the standard one."""
    joined = (t.dtype, False), (v.dtype, v.weak_type)
    if numpy_dtype_promotion.value == "standard":
        return lattice_join(*joined)[0] == t.dtype
    with numpy_dtype_promotion("standard"):
        return lattice_join(*joined)[0] == t.dtype


def update(
    x: Any,
    values: Any,
    *operands: Any,
    pattern: tuple,
    method: str,
    mode: str = "fill",
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Any:
    """`x` with values combined into the elements at a parsed index."""
    t = type_of(x)
    values = cast(values, t.dtype, t.weak_type)
    if method == "set" and _is_window(pattern):
        new = _set_window(x, values, operands, pattern)
        return new if t.mesh is None else reshard_like(new, t)  # keeps `x`'s sharding
    plan = layout(t.shape, operands, pattern)
    values = _in_shape(values, plan.result)
    if 0 in plan.shape:
        return x
    if plan.shape != plan.result:
        values = reshape(values, shape=plan.shape)
    return SCATTERS[method](
        x,
        plan.vectors,
        values,
        dimension_numbers=as_scatter(plan.numbers),
        indices_are_sorted=indices_are_sorted or plan.ordered,
        unique_indices=unique_indices or plan.distinct,
        mode=mode,
    )


_update = fused(update)
_UPDATE = record_of(_update)


def _in_shape(values: Any, shape: tuple) -> Any:
    """Values broadcast to the shape of the indexed elements."""
    given = type_of(values).shape
    extra = len(given) - len(shape)
    if extra > 0 and all(n == 1 for n in given[:extra]) and is_array(values):
        values, given = reshape(values, shape=given[extra:]), given[extra:]
    pairs = zip(reversed(given), reversed(shape), strict=False)
    if len(given) > len(shape) or any(n not in (1, m) for n, m in pairs):
        raise ValueError(
            f"values of shape {type_of(values).shape} cannot be broadcast to the shape {shape} of "
            "the elements that the index selects."
        )
    return broadcast_to(values, shape)


def _is_window(pattern: tuple) -> bool:
    """Whether a parsed index selects one contiguous block that is known to be in bounds."""
    for entry in pattern:
        if entry in ADVANCED or entry == SCALAR or entry[0] == "truth":
            return False
        if entry[0] == "slice" and abs(entry[3]) != 1 and several(entry[2]):
            return False
    return True


def _set_window(x: Any, values: Any, operands: tuple, pattern: tuple) -> Any:
    t = type_of(x)
    w = window(t.shape, operands, pattern)
    values = _in_shape(values, tuple(w.result))
    if 0 in w.sizes:
        return x
    if w.backwards:
        values = rev(values, dimensions=tuple([d for _, d in w.backwards]))
    if type_of(values).shape != tuple(w.sizes):
        values = reshape(values, shape=tuple(w.sizes))
    if tuple(w.sizes) == t.shape:
        return values
    return dynamic_update_slice(x, values, *start_operands(w.starts, t.shape))
