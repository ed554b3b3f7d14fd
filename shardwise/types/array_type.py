"""`ArrayType`: everything a trace knows of a value.

Shape, dtype and weakness as in NumPy with JAX's promotion; `spec` and `mesh` where the sharding is
part of the type (explicit mesh axes); `varying`, the named axes along which the value differs.
Types are interned: two equal types are the same object, so caches compare identities.

    array_type((8, 4), np.dtype("float32"))      # prints f32[8,4]
    ... with spec P("x", None) over an explicit mesh   # prints f32[8@x,4]
    ... with varying names {"i"}                        # prints f32[8,4]{V:i}
"""

from __future__ import annotations

import math
from typing import Any

from shardwise.types.dtypes import short_name
from shardwise.types.mesh import AbstractMesh
from shardwise.types.partition_spec import PartitionSpec
from shardwise.types.sharding import NamedSharding

NO_NAMES: frozenset[Any] = frozenset()


class ArrayType:
    """The type of a value. Make with `array_type`; equal types are identical.

    shape:      logical sizes.
    dtype:      canonical NumPy dtype, or an extended dtype (typed keys).
    weak_type:  whether the dtype gives way in promotion (it came from a Python scalar).
    spec, mesh: the sharding, where explicit mesh axes make it part of the type; else None.
    varying:    named axes along which the value differs; elsewhere it is replicated.
    """

    __slots__ = (
        "shape", "dtype", "weak_type", "spec", "mesh", "varying", "ndim", "size", "__weakref__",
    )
    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    spec: PartitionSpec | None
    mesh: AbstractMesh | None
    varying: frozenset[Any]
    ndim: int
    size: int

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.shape, self.dtype, self.weak_type, self.spec, self.mesh, self.varying)
        return array_type, fields

    def __repr__(self) -> str:
        return str_short(self)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def sharding(self) -> NamedSharding | None:
        if self.mesh is None or self.spec is None:
            return None
        return NamedSharding(self.mesh, self.spec)

    def update(self, **fields: Any) -> ArrayType:
        """The type with some of its fields changed."""
        names = ("shape", "dtype", "weak_type", "spec", "mesh", "varying")
        merged = {name: getattr(self, name) for name in names} | fields
        return array_type(*merged.values())

    def strong(self) -> ArrayType:
        return self.update(weak_type=False) if self.weak_type else self

    def str_short(self, short_dtypes: bool = False) -> str:
        return str_short(self, short_dtypes)


_table: dict[tuple[Any, ...], ArrayType] = {}


def array_type(
    shape: tuple[int, ...],
    dtype: Any,
    weak_type: bool = False,
    spec: PartitionSpec | None = None,
    mesh: AbstractMesh | None = None,
    varying: frozenset[Any] = NO_NAMES,
) -> ArrayType:
    key = (shape, dtype, weak_type, spec, mesh, varying)
    found = _table.get(key)
    if found is not None:
        return found
    new = object.__new__(ArrayType)
    new.shape = tuple(int(n) for n in shape)
    new.dtype = dtype
    new.weak_type = weak_type
    new.spec = spec
    new.mesh = mesh
    new.varying = varying
    new.ndim = len(shape)
    new.size = math.prod(new.shape)
    return _table.setdefault(key, new)


def str_short(t: ArrayType, short_dtypes: bool = True) -> str:
    """`f32[8@x,4]{V:i}`; a weak type starts with `~`."""
    name = short_name(t.dtype) if short_dtypes else str(t.dtype)
    dims = t.spec.dims(t.ndim) if t.spec is not None and t.mesh is not None else ((),) * t.ndim
    sizes = ",".join(_dim_text(n, axes) for n, axes in zip(t.shape, dims, strict=True))
    names = "{V:" + ",".join(sorted(map(str, t.varying))) + "}" if t.varying else ""
    return f"{'~' if t.weak_type else ''}{name}[{sizes}]{names}"


def _dim_text(size: int, axes: tuple[Any, ...]) -> str:
    if not axes:
        return str(size)
    return f"{size}@{axes[0]}" if len(axes) == 1 else f"{size}@({','.join(axes)})"
