"""`ArrayType`: everything that a trace knows about a value.

Shape, dtype and weak type as in JAX; `spec` and `mesh` if the sharding is part of the type
(explicit mesh axes); `varying`, `unreduced` and `reduced`, three sets of manual axes: along which
the value differs, along which it is a sum that is not taken yet, and along which its cotangent is.
Types are interned: two equal types are the same object, so caches compare identities.

    array_type((8, 4), np.dtype("float32"))      # prints f32[8,4]
    ... with spec P("x", None) over an explicit mesh   # prints f32[8@x,4]
    ... with varying names {"i"}                        # prints f32[8,4]{V:i}
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from shardwise._src.base.caches import Interned
from shardwise._src.base.context import current
from shardwise._src.base.errors import ShapeError
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.called import by_name
from shardwise._src.messages.formatting import joined
from shardwise._src.types.abstract import ManualAxisType
from shardwise._src.types.dtypes import as_named, float0, is_inexact, short_name
from shardwise._src.types.mesh import AbstractMesh, BaseMesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.types.symbolic import Symbolic

NO_NAMES: frozenset[Any] = frozenset()
NO_MESH = AbstractMesh((), ())
TYPES_REMEMBERED = 8192
MOST_BYTES = 2**63 - 1  # maximum size of an array


class ArrayType:
    """The type of a value: `ArrayType((8, 4), "float32")`. Equal types are identical objects.

    shape:      logical sizes.
    dtype:      NumPy dtype, of 64 bits too if they are off, or an extended dtype (typed keys).
    weak_type:  whether the dtype yields in promotion (it came from a Python scalar).
    spec, mesh: the sharding, if explicit mesh axes make it part of the type; else None.
    varying:    named axes along which the value differs.
    unreduced:  manual axes along which each device holds a partial sum.
    reduced:    manual axes along which the value is the same, and its cotangent is unreduced. Along
                all other axes it is the same, too, and so is its cotangent.
    """

    __slots__ = (
        "shape",
        "dtype",
        "weak_type",
        "spec",
        "mesh",
        "varying",
        "unreduced",
        "reduced",
        "ndim",
        "size",
        "__weakref__",
    )
    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    spec: PartitionSpec | None
    mesh: AbstractMesh | None
    varying: frozenset[Any]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]
    ndim: int
    size: int

    def __new__(
        cls,
        shape: Iterable[Any],
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: NamedSharding | None = None,
        vma: Iterable[Any] = (),
        manual_axis_type: ManualAxisType | None = None,
    ) -> ArrayType:
        manual = manual_axis_type or ManualAxisType(varying=frozenset(vma))
        spec = None if sharding is None else sharding.spec
        mesh = None if sharding is None else sharding.mesh.abstract_mesh
        sizes = tuple([operator.index(n) for n in shape])
        names = manual.varying, manual.unreduced, manual.reduced
        return array_type(sizes, as_named(dtype), weak_type, spec, mesh, *names)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("type", *[getattr(self, name) for name in _FIELDS])

    def __repr__(self) -> str:
        return str_short(self)

    def __str__(self) -> str:
        return str_short(self, False)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def sharding(self) -> NamedSharding:
        """The sharding in the type; if absent, a replicated one, as in JAX.

        In a traced function, it is over the mesh in scope, else over a mesh without axes.
        """
        here = current()
        scope = None if here.interpreter.eager else here.mesh
        mesh = NO_MESH if scope is None else scope.abstract_mesh
        return self.explicit_sharding or NamedSharding(mesh, PartitionSpec(*[None] * self.ndim))

    @property
    def explicit_sharding(self) -> NamedSharding | None:
        """The sharding that is part of the type, or None."""
        if self.mesh is None or self.spec is None:
            return None
        return NamedSharding(self.mesh, self.spec)

    @property
    def manual_axis_type(self) -> ManualAxisType:
        return ManualAxisType(varying=self.varying, unreduced=self.unreduced, reduced=self.reduced)

    mat = manual_axis_type

    def update(self, **fields: Any) -> ArrayType:
        """Returns the type with some of its fields replaced; `sharding` has a spec and a mesh.

        A spec belongs to a shape: if a new shape is given without a spec, the spec and the mesh
        are dropped.
        """
        if "sharding" in fields:
            place = fields.pop("sharding")
            fields |= {"spec": place.spec, "mesh": place.mesh.abstract_mesh}
        merged = {name: getattr(self, name) for name in _FIELDS} | fields
        if "shape" in fields and "spec" not in fields and fields["shape"] != self.shape:
            merged["spec"] = merged["mesh"] = None
        return array_type(*merged.values())

    def strong(self) -> ArrayType:
        return self.update(weak_type=False) if self.weak_type else self

    strip_weak_type = strong  # JAX's name

    def vary(self, names: Iterable[Any]) -> ArrayType:
        """The type of the value as also varying along these axes, unless it is unreduced there."""
        more = self.varying.union(names) - self.unreduced
        return self.update(varying=more, reduced=self.reduced - more)

    def to_tangent_aval(self) -> ArrayType:
        """The type of tangents: float0 for integers and booleans."""
        return self.strong() if is_inexact(self.dtype) else self.update(dtype=float0)

    def str_short(self, short_dtypes: bool = False) -> str:
        return str_short(self, short_dtypes)


_FIELDS = ("shape", "dtype", "weak_type", "spec", "mesh", "varying", "unreduced", "reduced")
# By fields, also before normalization.
_table: Interned[ArrayType] = Interned(__name__, "array types", TYPES_REMEMBERED)
_recent = _table.recent


def array_type(
    shape: tuple[int, ...],
    dtype: Any,
    weak_type: bool = False,
    spec: PartitionSpec | None = None,
    mesh: AbstractMesh | None = None,
    varying: frozenset[Any] = NO_NAMES,
    unreduced: frozenset[Any] = NO_NAMES,
    reduced: frozenset[Any] = NO_NAMES,
) -> ArrayType:
    """Returns the unique type with these fields; for the forms of `spec` see `explicit_spec`."""
    key = (shape, dtype, weak_type, spec, mesh, varying, unreduced, reduced)
    found = _recent.get(key) or _table.find(key)
    if found is not None:
        return found
    if mesh is not None or spec is not None:
        given = PartitionSpec() if spec is None else spec
        exact = None if mesh is None else explicit_spec(mesh, given, len(shape))
        its_mesh = None if mesh is None or exact is None else mesh.abstract_mesh
        if exact is not spec or its_mesh is not mesh:
            found = array_type(
                shape, dtype, weak_type, exact, its_mesh, varying, unreduced, reduced
            )
            return _table.keep(key, found)
    new = object.__new__(ArrayType)
    new.shape = tuple([n if isinstance(n, Symbolic) else int(n) for n in shape])
    if any([n.__class__ is int and n < 0 for n in new.shape]):
        raise ShapeError(by_name(f"the sizes of a shape must not be negative; got {new.shape}."))
    new.dtype = dtype
    new.weak_type = weak_type
    new.spec = spec
    new.mesh = mesh
    new.varying = varying
    new.unreduced = unreduced
    new.reduced = reduced
    new.ndim = len(shape)
    new.size = math.prod(new.shape)
    return _table.keep(key, new)


# ------------------------------------------------------------- shardings over explicit mesh axes


def explicit_spec(mesh: BaseMesh, spec: PartitionSpec, ndim: int) -> PartitionSpec | None:
    """Normalizes a spec for a type: one entry per dimension, with Explicit axes only.

    None if the mesh has no Explicit axes; the spec is then not part of types.
    """
    explicit = mesh.explicit_axes
    if not explicit:
        return None
    entries = [tuple([a for a in axes if a in explicit]) for axes in spec.dims(ndim)]
    unreduced, reduced = spec.unreduced.intersection(explicit), spec.reduced.intersection(explicit)
    return PartitionSpec(*entries, unreduced=unreduced, reduced=reduced)


def says_nothing(sharding: Any) -> bool:
    """Whether this equals the sharding of a type without explicit axes."""
    mesh = getattr(sharding, "mesh", None)
    return isinstance(mesh, AbstractMesh) and not (mesh.explicit_axes or sharding.spec.axes)


def with_sharding(t: ArrayType, sharding: Any) -> ArrayType:
    """The type of a value with this sharding: it records only the splits over Explicit axes."""
    if isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes:
        return t.update(spec=sharding.spec, mesh=sharding.mesh.abstract_mesh)
    return t if t.mesh is None else t.update(spec=None, mesh=None)


# ------------------------------------------------------------------------------------- printing


def str_short(t: ArrayType, short_dtypes: bool = True) -> str:
    """`f32[8@x,4]{V:i}`; a weak type starts with `~`."""
    name = short_name(t.dtype) if short_dtypes else str(t.dtype)
    dims = t.spec.dims(t.ndim) if t.spec is not None and t.mesh is not None else ((),) * t.ndim
    sizes = ",".join(_dim_text(n, axes) for n, axes in zip(t.shape, dims, strict=True))
    return f"{'~' if t.weak_type else ''}{name}[{sizes}]{_names_text(t)}"


def check_countable(t: ArrayType) -> None:
    """Raises ValueError if XLA cannot count an array's bytes, which would abort the process."""
    known = [n for n in t.shape if not isinstance(n, Symbolic)]
    if math.prod(known) * t.dtype.itemsize > MOST_BYTES or max(known, default=0) > MOST_BYTES:
        raise ValueError(
            f"A value of type {str_short(t)} is too large: an array has at most 2**63 - 1 bytes, "
            "on all of its devices together. Check its shape."
        )


def inside_of_maps(t: ArrayType) -> ArrayType:
    """The type here of an outside value: it is replicated along manual axes."""
    scope = current().mesh
    mesh = None if scope is None else scope.abstract_mesh
    if mesh is None or t.mesh is None or t.spec is None or t.mesh is mesh:
        return t
    manual = {*mesh.manual_axes}
    if mesh.shape_tuple != t.mesh.shape_tuple or not manual > {*t.mesh.manual_axes}:
        return t
    rows = [tuple([a for a in names if a not in manual]) for names in t.spec.dims(t.ndim)]
    return t.update(mesh=mesh, spec=t.spec.update(partitions=rows))


def in_row(types: Iterable[ArrayType]) -> str:
    """`f32[3], i32[]`: types, for messages."""
    return ", ".join([str_short(t) for t in types])


def same_but_weak(types: Sequence[ArrayType], others: Sequence[ArrayType]) -> bool:
    """Whether types are equal, apart from weak types."""
    return types == others or [t.strong() for t in types] == [t.strong() for t in others]


def in_parens(types: Iterable[ArrayType]) -> str:
    """`(f32[3], i32[])`: types, for messages."""
    return f"({in_row(types)})"


def join_types(types: Iterable[ArrayType]) -> str:
    """`f32[3] and i32[]`: types, for messages."""
    return joined([str_short(t) for t in types])


def _names_text(t: ArrayType) -> str:
    """`{V:i, U:y}`: the names along which the value varies, is unreduced, or is reduced."""
    spec = PartitionSpec() if t.spec is None else t.spec
    sums = t.unreduced | spec.unreduced, t.reduced | spec.reduced
    rows = zip("VUR", (t.varying, *sums), strict=True)
    texts = [f"{sign}:{','.join(sorted(map(str, names)))}" for sign, names in rows if names]
    return "{" + ", ".join(texts) + "}" if texts else ""


def _dim_text(size: int, axes: tuple[Any, ...]) -> str:
    if not axes:
        return str(size)
    return f"{size}@{axes[0]}" if len(axes) == 1 else f"{size}@({','.join(axes)})"


read_by("type", array_type)
