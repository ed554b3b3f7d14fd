"""Promotion: the common dtype of values of several dtypes.

The dtypes form a lattice; the common dtype is the least upper bound. Python scalars, and arrays
made only from them, are *weak*: they yield to any dtype of their kind, so that `x + 1.0` keeps
the dtype of a float16 `x`. In the lattice they are the nodes i*, f* and c*.

    lattice_join((bf16, False), (f32, True))    # (bf16, False): the second is weak
    lattice_join((i32, False), (f16, False))    # (f16, False)
    result_type(x, 2.0, "int8")                 # dtypes, types and values may be mixed

Source: the JAX documentation, "Type promotion semantics". Dtypes themselves are in `dtypes`.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, Literal, overload

import numpy as np

from shardwise._src.base import context
from shardwise._src.base.caches import cached, make_room, register
from shardwise._src.base.config import enable_x64, explicit_x64_dtypes, numpy_dtype_promotion
from shardwise._src.base.errors import TypePromotionError
from shardwise._src.messages.formatting import to_register
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.types.dtypes import (
    SCALAR_TYPES,
    DType,
    ExtendedDType,
    canonicalize,
    exact_dtype,
    is_bool,
    kind_of,
    names_dtype,
    not_narrowed,
    other_modes,
    short_name,
)

Pair = tuple[DType, bool]  # dtype, and whether it is weak


# ------------------------------------------------------------------------------- the lattice
# Each row is an upward path. A star marks a weak node.

_STANDARD = (
    "bool i* i8 i16 i32 i64 f*",
    "i* u8 u16 u32 u64 f*",
    "u8 i16",
    "u16 i32",
    "u32 i64",
    "f* bf16 f32 f64 c128",
    "f* f16 f32 c64 c128",
    "f* c* c64",
)
_WITHOUT_X64 = ("u32 i32",)  # no promotion to 64 bits
_STRICT = ("bool", "i* f* c*")

# These join only with themselves and weak values: promotion never converts them implicitly.
_NARROW_INTEGERS = ("i2", "i4", "u2", "u4")
_NARROW_FLOATS = tuple(short_name(t) for t in SCALAR_TYPES["float"] if np.dtype(t).itemsize == 1)
_DTYPES = {short_name(t): np.dtype(t) for types in SCALAR_TYPES.values() for t in types}
_PYTHON = {"i*": int, "f*": float, "c*": complex}
_WEAK_NODES = {"bool": "bool", "int": "i*", "uint": "i*", "float": "f*", "complex": "c*"}

Lattice = dict[str, frozenset[str]]  # node → itself and every node above it


def _lattice(rows: tuple[str, ...]) -> Lattice:
    steps: dict[str, set[str]] = {}
    for row in rows:
        path = row.split()
        for node in path:
            steps.setdefault(node, set())
        for below, above in pairwise(path):
            steps[below].add(above)

    def reach(node: str) -> frozenset[str]:
        return frozenset({node}).union(*(reach(above) for above in steps[node]))

    return {node: reach(node) for node in steps}


def _standard_lattice(x64: bool) -> Lattice:
    narrow = [f"i* {n}" for n in _NARROW_INTEGERS] + [f"f* {n}" for n in _NARROW_FLOATS]
    return _lattice((*_STANDARD, *narrow, *(() if x64 else _WITHOUT_X64)))


def _strict_lattice() -> Lattice:
    rows = [
        f"{_WEAK_NODES[kind]} {short_name(t)}"
        for kind, types in SCALAR_TYPES.items()
        if kind != "bool"
        for t in types
    ]
    return _lattice((*_STRICT, *rows))


_LATTICES: dict[tuple[str, bool], Lattice] = {
    (mode, x64): _standard_lattice(x64) if mode == "standard" else _strict_lattice()
    for mode in ("standard", "strict")
    for x64 in (False, True)
}


@cached(4096)
def _least_upper_bound(mode: tuple[str, bool], nodes: frozenset[str]) -> str | None:
    lattice = _LATTICES[mode]
    if not nodes <= lattice.keys():
        return None
    common = frozenset(lattice)
    for node in nodes:
        common &= lattice[node]
    return next((node for node in common if common <= lattice[node]), None)


# -------------------------------------------------------------------------------------- join

_joins: dict[tuple[tuple[str, bool], str], dict[tuple[Pair, ...], Pair]] = {
    (mode, explicit): {} for mode in _LATTICES for explicit in explicit_x64_dtypes.choices
}
# The table for the current flags. A trace key represents all flags and is the faster lookup.
_joins_by_key: dict[context.TraceKey, dict[tuple[Pair, ...], Pair]] = {}
CONTEXTS_REMEMBERED = 256
register(
    __name__, "promotions by context", lambda: len(_joins_by_key), _joins_by_key.clear,
    CONTEXTS_REMEMBERED,
)  # fmt: skip
JOINS_REMEMBERED = 4096


def lattice_join(*pairs: Pair) -> Pair:
    """Returns the common dtype of the given (dtype, weak) pairs, and whether it is weak.

    pairs: at least one; the dtypes are NumPy or extended ones, as `dtype_and_weak` returns them.
    Raises TypePromotionError if no such type exists: sub-byte dtypes, extended ones, strict mode.
    Warns if a 64-bit result, of existing 64-bit values, is narrowed because `enable_x64` is off.
    """
    table = _joins_by_key.get(context.current().key)
    if table is None:
        make_room(_joins_by_key, CONTEXTS_REMEMBERED)
        found = _joins[_mode(), explicit_x64_dtypes.value]
        table = _joins_by_key.setdefault(context.current().key, found)
    found = table.get(pairs)
    return _join_and_keep(pairs, table) if found is None else found


def _mode() -> tuple[str, bool]:
    return numpy_dtype_promotion.value, enable_x64.value


def _join_and_keep(pairs: tuple[Pair, ...], table: dict[tuple[Pair, ...], Pair]) -> Pair:
    equal = _join_of_equals(pairs)
    dtype, weak = equal or _join_of_different(pairs)
    found = dtype if equal else canonicalize(dtype)
    if found is not dtype and not_narrowed(partial(_narrowed_message, pairs, dtype, found)):
        found = dtype
    if found is not dtype:  # not cached, so that it warns each time
        return found, weak
    if len(pairs) <= 8:  # long concatenations rarely repeat
        make_room(table, JOINS_REMEMBERED)
        table[pairs] = found, weak
    return found, weak


def _join_of_equals(pairs: tuple[Pair, ...]) -> Pair | None:
    """The result if all dtypes are equal; works for any dtype, which is returned unchanged."""
    first, weak = pairs[0]
    if len(pairs) == 1:
        return first, weak and not is_bool(first)
    all_weak = all(weak for _, weak in pairs)
    all_equal = all(dtype == first for dtype, _ in pairs)
    return (first, False) if all_equal and not all_weak else None


def _join_of_different(pairs: tuple[Pair, ...]) -> Pair:
    mode = _mode()
    # If all are weak, promote as if they were strong: weak int8 and int16 give weak int16.
    all_weak = mode[0] == "standard" and all(weak for _, weak in pairs)
    nodes = [_node(dtype, weak and not all_weak) for dtype, weak in pairs]
    bound = _least_upper_bound(mode, frozenset(nodes))
    if bound is None:
        raise TypePromotionError(_no_promotion_message(pairs))
    if bound in _PYTHON:
        return canonicalize(_PYTHON[bound]), True
    return _DTYPES[bound], all_weak and bound != "bool"


def _node(dtype: DType, weak: bool) -> str:
    return _WEAK_NODES.get(kind_of(dtype), "") if weak else short_name(dtype)


# ------------------------------------------------------------------------ dtypes of arguments

_SCALARS: dict[type[Any], tuple[Any, bool]] = {
    bool: (bool, False),
    int: (int, True),
    float: (float, True),
    complex: (complex, True),
}


def dtype_and_weak(x: Any) -> Pair:
    """The canonical dtype of a value, and whether it is weak.

    x: a Python scalar (weak, unless it is a bool), a NumPy array or scalar, an array of this
       library or another object with `dtype` and perhaps `weak_type`. Objects with `weak_type`
       keep their dtype: a 64-bit array created with x64 on remains 64-bit.
    Raises TypeError for anything else, lists included.
    """
    scalar = _SCALARS.get(x.__class__)
    if scalar is not None:
        return canonicalize(scalar[0]), scalar[1]
    weak = getattr(x, "weak_type", None)
    if weak is not None:
        return x.dtype, weak
    if hasattr(x, "dtype") and not isinstance(x, type):
        return canonicalize(x.dtype), False
    for scalar_type in (int, float, complex):  # a subclass, such as an IntEnum
        if isinstance(x, scalar_type):
            return canonicalize(scalar_type), True
    if isinstance(x, type):  # a class has the methods of its instances
        raise TypeError(_no_value_message(x))
    convert: Any = getattr(x, "__jax_array__", None)
    if convert is not None:
        return dtype_and_weak(convert())
    if hasattr(x, "__array__"):
        return canonicalize(np.asarray(x).dtype), False
    raise TypeError(_no_value_message(x))


def promote_types(a: Any, b: Any) -> DType:
    """Returns the common dtype of two dtypes; see `numpy.promote_types`.

    a, b: dtypes or names of one. int, float and complex are weak: promote_types("int8", int) is
          int8. Nothing is narrowed: two of them alone promote to a 64-bit dtype.
    """
    pairs = _type_pair(a), _type_pair(b)
    if pairs[0] == pairs[1]:
        return pairs[0][0]
    bound = _least_upper_bound(_mode(), frozenset(_node(*pair) for pair in pairs))
    if bound is None:
        raise TypePromotionError(_no_promotion_message(pairs))
    return np.dtype(_PYTHON[bound]) if bound in _PYTHON else _DTYPES[bound]


def _type_pair(dtype: Any) -> Pair:
    if isinstance(dtype, ExtendedDType):
        return dtype, False
    return exact_dtype(dtype), dtype is int or dtype is float or dtype is complex


@overload
def result_type(*args: Any, return_weak_type_flag: Literal[False] = False) -> DType: ...
@overload
def result_type(*args: Any, return_weak_type_flag: Literal[True]) -> Pair: ...
def result_type(*args: Any, return_weak_type_flag: bool = False) -> DType | Pair:
    """Returns the common dtype of the arguments; see `numpy.result_type`.

    args: arrays, scalars, dtypes and names of dtypes; int, float, complex are weak, None is the
          default float.
    Returns the dtype, and with `return_weak_type_flag` also whether it is weak. A weak result is
    the default dtype of its kind.
    """
    if not args:
        raise ValueError("result_type expects at least one array, scalar or dtype; got none.")
    try:
        dtype, weak = lattice_join(*[_dtype_or_value(x) for x in args])
    except TypeError as error:
        pass_on(error)
        raise
    if weak:
        dtype = canonicalize(_DEFAULTS[kind_of(dtype)])
    return (dtype, weak) if return_weak_type_flag else dtype


_DEFAULTS = {"int": int, "uint": np.uint64, "float": float, "complex": complex}


def _dtype_or_value(x: Any) -> Pair:
    if not names_dtype(x):
        return dtype_and_weak(x)
    return canonicalize(x), x is int or x is float or x is complex


def scalar_type_of(x: Any) -> type[Any]:
    """The Python type (bool, int, float or complex) for elements of a value or dtype."""
    dtype, _ = _dtype_or_value(x)
    kind = kind_of(dtype)
    if kind not in _WEAK_NODES:
        raise TypeError(f"elements of {short_name(dtype)} have no Python scalar type.")
    return bool if kind == "bool" else _PYTHON[_WEAK_NODES[kind]]


# ---------------------------------------------------------------------------------- messages


def _given(pairs: tuple[Pair, ...]) -> str:
    names = (f"{'weak ' if weak else ''}{_name(dtype)}" for dtype, weak in pairs)
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} and {last}" if others else last


def _name(dtype: DType) -> str:
    return dtype.name if short_name(dtype) in _DTYPES else short_name(dtype)


def _no_promotion_message(pairs: tuple[Pair, ...]) -> str:
    names = [short_name(dtype) for dtype, _ in pairs]
    opaque = [dtype for dtype, _ in pairs if short_name(dtype) not in _DTYPES]
    if opaque:
        return (
            f"{_given(pairs)} do not promote to a common dtype: elements of {_name(opaque[0])} "
            "are not numbers. They combine only with their own dtype."
        )
    if numpy_dtype_promotion.value == "strict":
        return (
            f"{_given(pairs)} do not mix while numpy_dtype_promotion is 'strict'. Cast one of "
            "them with x.astype(...), or set numpy_dtype_promotion to 'standard' here."
        )
    wide = [n for n in names if n not in _NARROW_INTEGERS + _NARROW_FLOATS]
    target = _DTYPES[wide[0]].name if wide else "float32"
    return (
        f"{_given(pairs)} do not promote to a common dtype: floats of 8 bits or fewer and integers "
        "of 4 bits or fewer combine only with their own dtype and with Python scalars of their "
        "kind or below, so that nothing is widened implicitly. Cast them, for example with "
        f"x.astype({target!r})."
    )


def _narrowed_message(pairs: tuple[Pair, ...], dtype: DType, found: DType, is_error: bool) -> str:
    state = "not available" if is_error else f"narrowed to {found}"
    return (
        f"{_given(pairs)} promote to {dtype}, which is {state} while enable_x64 is off. To keep "
        f"64 bits, compute under enable_x64(True). {other_modes(is_error)}"
    )


def _no_value_message(x: Any) -> str:
    is_sequence = isinstance(x, (list, tuple))
    hint = " Convert a sequence with `shardwise.numpy.asarray` first." if is_sequence else ""
    hint = hint or to_register(x)
    return f"expected an array or a Python or NumPy scalar, got a {x.__class__.__name__}.{hint}"
