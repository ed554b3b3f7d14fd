"""Meshes: grids of devices with named axes.

    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    with mesh: ...          # the mesh in scope, for this thread; also a decorator, @mesh
    mesh.abstract_mesh      # the same axes without devices

Meshes are interned: equal devices, names and types give the same object, so comparing and
hashing thousands of devices costs one identity check. A trace uses only the `AbstractMesh` of a
mesh: a program traced for one mesh serves every mesh of that shape.
"""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from functools import cached_property
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast, final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from shardwise._src.base.caches import Interned
from shardwise._src.base.config import disallow_mesh_context_manager
from shardwise._src.base.context import CURRENT, Context, current
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import join, pluralize
from shardwise._src.types.abstract import AbstractDevice, checked_kind
from shardwise._src.types.devices import (
    Device,
    check_distinct,
    is_addressable,
    process_of,
    process_of_client,
)
from shardwise._src.types.frozen import Frozen
from shardwise._src.types.html_repr import HTML
from shardwise._src.types.mesh_axes import AxisName, AxisType, axis_names_of, split_pairs, types_of

Args = ParamSpec("Args")
Result = TypeVar("Result")
MESHES_REMEMBERED = 64


class BaseMesh(Frozen):
    """The common base of meshes with and without devices: named axes with sizes and types."""

    axis_names: tuple[AxisName, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    shape_tuple: tuple[tuple[AxisName, int], ...]
    size: int
    named_shardings: dict[tuple[Any, str | None], Any]  # by spec and memory kind
    _sizes: dict[AxisName, int]

    def _set_axes(
        self, sizes: tuple[int, ...], names: tuple[AxisName, ...], types: tuple[AxisType, ...]
    ) -> None:
        pairs = tuple(zip(names, sizes, strict=True))
        self.__dict__.update(
            axis_names=names,
            axis_sizes=sizes,
            axis_types=types,
            shape_tuple=pairs,
            size=math.prod(sizes),
            named_shardings={},  # the interned shardings over this mesh; see `sharding`
            _sizes=dict(pairs),
        )

    @property
    def shape(self) -> dict[AxisName, int]:
        """Axis name → size, in order: a copy that the caller may modify."""
        return self._sizes.copy()

    def axis_size(self, name: AxisName) -> int:
        """The size of one axis."""
        try:
            return self._sizes[name]
        except KeyError:
            axes = join(self.axis_names)
            raise ValueError(f"{self} has no axis {name!r}; its axes are {axes}.") from None

    @property
    def empty(self) -> bool:
        """Whether there are no devices; for an abstract mesh, no axes."""
        return self.size == 0

    def axes_of_type(self, axis_type: AxisType) -> tuple[AxisName, ...]:
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return tuple(name for name, its_type in pairs if its_type is axis_type)

    @cached_property
    def auto_axes(self) -> tuple[AxisName, ...]:
        return self.axes_of_type(AxisType.Auto)

    @cached_property
    def explicit_axes(self) -> tuple[AxisName, ...]:
        return self.axes_of_type(AxisType.Explicit)

    @cached_property
    def manual_axes(self) -> tuple[AxisName, ...]:
        return self.axes_of_type(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        return self._all(self.auto_axes)

    @property
    def are_all_axes_explicit(self) -> bool:
        return self._all(self.explicit_axes)

    @property
    def are_all_axes_manual(self) -> bool:
        return self._all(self.manual_axes)

    def _all(self, axes: tuple[AxisName, ...]) -> bool:
        return 0 < len(axes) == len(self.axis_names)

    @cached_property
    def _text(self) -> str:
        parts = [f"{name!r}: {size}" for name, size in self.shape_tuple]
        if len(self.auto_axes) < len(self.axis_names):
            types = ", ".join(t.name for t in self.axis_types)
            comma = "," if len(self.axis_types) == 1 else ""
            parts.append(f"axis_types=({types}{comma})")
        if (kind := getattr(self, "abstract_device", None)) is not None:
            parts.append(repr(kind))
        return f"{type(self).__name__}({', '.join(parts)})"

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str | None:
        return HTML["mesh"](self)


@final
class Mesh(BaseMesh):
    """Devices in a grid with named axes.

    Mesh(devices, axis_names, axis_types=None)
        devices:    array or nested list of devices; it is copied.
        axis_names: a name for each dimension of `devices`; or a single name, not in a tuple.
        axis_types: an `AxisType` for each, or one for all; Auto by default.
    """

    instead = "make a new one with Mesh(...) or mesh.update(...)"
    devices: NDArray[np.object_]  # read-only
    flat_devices: tuple[Device, ...]  # in row-major order: the logical device order

    def __new__(
        cls,
        devices: Any,
        axis_names: AxisName | Sequence[AxisName],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> Mesh:
        grid: NDArray[np.object_] = np.array(devices, dtype=object)
        names = axis_names_of(axis_names)
        first: Any = grid.flat[0] if grid.size else None
        if isinstance(first, list):
            lengths = [len(cast("Any", row)) for row in grid.flat]
            raise ValueError(
                f"Mesh got nested lists of devices with the lengths {_some(lengths)}; lists at the "
                "same level must have the same length."
            )
        if grid.ndim != len(names):
            raise ValueError(
                f"Mesh got devices in {pluralize(grid.ndim, 'dimension')}, shape {grid.shape}, "
                f"but {pluralize(len(names), 'axis name')}, {names!r}; "
                "there must be one name for each dimension."
            )
        types = types_of(axis_types, names, AxisType.Auto)
        flat = tuple(grid.flat)
        if flat == (None,) and grid.ndim == 0:  # np.empty((), object): the mesh without devices
            flat = ()
        return _interned_mesh(grid, flat, names, types)

    def update(
        self,
        devices: Any = None,
        axis_names: AxisName | Sequence[AxisName] | None = None,
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> Mesh:
        """Returns the mesh with some of its fields replaced."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    @cached_property
    def device_ids(self) -> NDArray[np.intp]:
        """The `id` of each device, as an array of the mesh's shape."""
        ids = np.array([device.id for device in self.flat_devices], np.intp)
        ids = ids.reshape(self.devices.shape if self.flat_devices else 0)
        ids.setflags(write=False)
        return ids

    @cached_property
    def local_devices(self) -> list[Device]:
        """The devices of this process, in mesh order."""
        return [d for d in self.flat_devices if is_addressable(d)]

    @cached_property
    def is_multi_process(self) -> bool:
        """Whether some of the devices belong to another process."""
        return len(self.local_devices) != len(self.flat_devices)

    @cached_property
    def local_mesh(self) -> Mesh:
        """The smallest subgrid with all devices of this process; it may contain no others."""
        if not self.is_multi_process:
            return self
        return self.process_mesh(process_of_client(self.flat_devices[0]))

    def process_mesh(self, process_index: int) -> Mesh:
        """The smallest subgrid with all devices of one process; it may contain no others."""
        owned = np.array([process_of(d) == process_index for d in self.flat_devices], bool)
        owned = owned.reshape(self.devices.shape)
        if not owned.any():
            raise ValueError(f"process {process_index} has no devices in {self}.")
        places = np.argwhere(owned)
        box = tuple(map(slice, places.min(axis=0), places.max(axis=0) + 1))
        if not owned[box].all():
            raise ValueError(
                f"the devices of process {process_index} do not form a contiguous subgrid of "
                f"{self}: they are at {_some(places.tolist())}. Order the devices so that "
                "each process has a block of the mesh, as make_mesh does."
            )
        return Mesh(self.devices[box], self.axis_names, self.axis_types)

    @cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """The axes, without the devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    def __enter__(self) -> Mesh:
        if disallow_mesh_context_manager.value:
            raise RuntimeError(
                f"{self} cannot be entered with `with mesh:`, as the flag "
                "disallow_mesh_context_manager is on. Write `with shardwise.set_mesh(mesh):`."
            )
        here = current()
        mesh = entered_as(self, here)
        token = CURRENT.set(here.replace(mesh=mesh, exact=not here.interpreter.eager))
        _entered.set((self, token, _entered.get()))
        return self

    def __exit__(self, *exc_info: object) -> None:
        innermost = _entered.get()
        if innermost is None or innermost[0] is not self:
            inside = "no mesh is" if innermost is None else f"{innermost[0]} is the innermost one"
            raise RuntimeError(
                f"cannot leave {self}: {inside} entered here. "
                "Exit meshes in the reverse order of entering them, in the same thread."
            )
        _, token, outer = innermost
        _entered.set(outer)
        CURRENT.reset(token)

    def __call__(self, fun: Callable[Args, Result]) -> Callable[Args, Result]:
        """As a decorator: the function runs with this mesh in scope."""

        @functools.wraps(fun)
        def with_mesh(*args: Args.args, **kwargs: Args.kwargs) -> Result:
            with self:
                return fun(*args, **kwargs)

        return with_mesh

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("Mesh", self.devices, self.axis_names, [t.name for t in self.axis_types])


# The meshes that this thread (or async task) has entered, innermost first, each with the token
# that leaves it. A mesh is shared by all threads, so it cannot store this itself.
_Entered: TypeAlias = "tuple[Mesh, Token[Context], _Entered | None]"
_entered: ContextVar[_Entered | None] = ContextVar("shardwise_entered_meshes", default=None)


_MeshKey: TypeAlias = tuple[Any, ...]
_meshes: WeakValueDictionary[_MeshKey, Mesh] = WeakValueDictionary()
_lock = threading.RLock()


def _interned_mesh(
    grid: NDArray[np.object_],
    flat: tuple[Device, ...],
    names: tuple[AxisName, ...],
    types: tuple[AxisType, ...],
) -> Mesh:
    key = (grid.shape, flat, names, types)
    with _lock:
        found = _meshes.get(key)
        if found is not None:
            return found
        check_distinct("Mesh", flat)
        mesh = object.__new__(Mesh)
        mesh._set_axes(grid.shape, names, types)  # pyright: ignore[reportPrivateUsage]
        grid.setflags(write=False)
        mesh.__dict__.update(devices=grid, flat_devices=flat)
        if not flat:
            mesh.__dict__.update(size=0)
        _meshes[key] = mesh
        return mesh


def _without_devices(name: str) -> property:
    def fail(self: AbstractMesh) -> Any:
        raise ValueError(
            f"{self} has no {name}: an AbstractMesh has axes but no devices. Use a Mesh where "
            "devices matter; inside a traced function only names and sizes are known."
        )

    return property(fail)


@final
class AbstractMesh(BaseMesh):
    """Named axes with sizes and types, but without devices.

    AbstractMesh(axis_sizes, axis_names, axis_types=None)
    AbstractMesh(((name, size), ...), axis_types=None)
        axis_types:      an `AxisType` for each axis, or one for all; Explicit by default.
        abstract_device: the device kind that the mesh is for, an `AbstractDevice`; None for any, as
                         in the `abstract_mesh` of a Mesh: a trace with it serves all meshes.
    """

    instead = "make a new one with AbstractMesh(...) or mesh.update(...)"
    abstract_device: AbstractDevice | None

    def __new__(
        cls,
        axis_sizes: Sequence[Any],
        axis_names: AxisName | Sequence[AxisName] = None,
        axis_types: AxisType | Sequence[AxisType] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> AbstractMesh:
        if not isinstance(cast("Any", axis_sizes), Sequence):
            raise TypeError(f"AbstractMesh takes a sequence of axis sizes, got {axis_sizes!r}.")
        if axis_names is None:
            axis_sizes, axis_names = split_pairs(axis_sizes)
        names = axis_names_of(axis_names)
        if len(axis_sizes) != len(names):
            raise ValueError(
                f"AbstractMesh got {pluralize(len(axis_sizes), 'axis size')}, "
                f"{tuple(axis_sizes)!r}, but {pluralize(len(names), 'axis name')}, {names!r}."
            )
        sizes = tuple(operator.index(size) for size in axis_sizes)
        types = types_of(axis_types, names, AxisType.Explicit)
        key = (sizes, names, types, checked_kind(abstract_device))
        found = _abstract_meshes.recent.get(key) or _abstract_meshes.find(key)
        if found is not None:
            return found
        mesh = object.__new__(AbstractMesh)
        mesh._set_axes(sizes, names, types)
        size = mesh.size if names else 0  # as `get_abstract_mesh` without a mesh
        mesh.__dict__.update(abstract_device=abstract_device, size=size)
        return _abstract_meshes.keep(key, mesh)

    devices = _without_devices("devices")
    flat_devices = _without_devices("devices")
    device_ids = _without_devices("device_ids")
    local_devices = _without_devices("local_devices")
    is_multi_process = _without_devices("is_multi_process")
    local_mesh = _without_devices("local_mesh")
    process_mesh = _without_devices("process_mesh")

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def update(
        self,
        axis_sizes: Sequence[int] | None = None,
        axis_names: AxisName | Sequence[AxisName] | None = None,
        axis_types: AxisType | Sequence[AxisType] | None = None,
        **abstract_device: AbstractDevice | None,
    ) -> AbstractMesh:
        """The mesh with some of its fields replaced; also `abstract_device`, which may be None."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            **{"abstract_device": self.abstract_device} | abstract_device,
        )

    def update_axis_types(self, name_to_type: dict[AxisName, AxisType]) -> AbstractMesh:
        """Returns the mesh with new types for the named axes."""
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=[name_to_type.get(name, old) for name, old in pairs])

    def __enter__(self) -> AbstractMesh:
        raise ValueError(
            f"{self} cannot be entered: it has no devices. Enter a Mesh, or put an abstract mesh "
            "in scope with use_abstract_mesh."
        )

    def __exit__(self, *exc_info: object) -> None:
        pass

    def __reduce__(self) -> tuple[Any, ...]:
        kinds = [t.name for t in self.axis_types]
        fields = self.axis_sizes, self.axis_names, kinds, self.abstract_device
        return reduced("AbstractMesh", *fields[: 3 if self.abstract_device is None else 4])


_abstract_meshes: Interned[AbstractMesh] = Interned(__name__, "abstract meshes", MESHES_REMEMBERED)


# ------------------------------------------------------------------------------ arguments


def _some(items: list[Any]) -> str:
    return f"{items[:8]} and more" if len(items) > 8 else repr(items)


def _read_mesh(devices: Any, names: Any, types: list[str]) -> Mesh:
    return Mesh(devices, names, tuple(AxisType[t] for t in types))


def _read_abstract(sizes: Any, names: Any, types: list[str], device: Any = None) -> AbstractMesh:
    return AbstractMesh(sizes, names, [AxisType[t] for t in types], abstract_device=device)


def entered_as(mesh: Mesh, here: Context) -> Mesh | AbstractMesh:
    """Returns the mesh that is in scope after entering one: inside a map, the mesh of the map.

    Raises:
      ValueError: if it would shadow a named axis.
      RuntimeError: if it is another mesh than that of an enclosing `xmap`.
    """
    outer = here.mesh
    names = () if outer is None else outer.axis_names
    for name, size, *_ in here.axes:
        if name in mesh.axis_names and name not in names:
            raise ValueError(
                f"entering {mesh} would shadow the axis {name!r} of size {size}, which something "
                "other than a mesh (a map or a serial loop) has put in scope. Rename one of them."
            )
    if outer is None or not outer.abstract_mesh.manual_axes:
        return mesh
    if here.in_xmap and outer.shape_tuple != mesh.shape_tuple:
        raise RuntimeError(f"entering {mesh}: {_other_mesh('xmap', mesh, outer)}")
    return outer


def within(mesh: Mesh | AbstractMesh, outer: Mesh | AbstractMesh, what: str) -> Mesh | AbstractMesh:
    """`mesh` if `outer` is in scope; or `outer`, if it is the same mesh with some manual axes.

    what: the caller, for the error message.
    """
    if not outer.abstract_mesh.manual_axes:
        return mesh
    if outer.shape_tuple != mesh.shape_tuple:
        raise ValueError(f"{what}: {_other_mesh('map', mesh, outer)}")
    return outer


def _other_mesh(kind: str, mesh: Mesh | AbstractMesh, outer: Mesh | AbstractMesh) -> str:
    return (
        f"an enclosing {kind} runs this code on each device of {outer}, and {mesh} is another "
        "mesh. Inside a map no other mesh can be used: use axes of that mesh that are not yet "
        "manual, or `shardwise.vmap`."
    )


read_by("Mesh", _read_mesh)
read_by("AbstractMesh", _read_abstract)
