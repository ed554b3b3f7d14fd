"""Resources for the axes of an `xmap`: the axes of the mesh in scope, and serial loops.

For example:

    with Mesh(devices, ("x",)), serial_loop("l", 4):
        xmap(f, ..., axis_resources={"batch": ("x", "l")})(xs)
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.context import NamedAxis, current
from shardwise._src.base.lazy import public
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import short_repr
from shardwise._src.types.mesh import AbstractMesh, Mesh

NO_MESH = Mesh(np.empty((), object), ())


@public("shardwise.experimental.maps")
class Loop(NamedTuple):
    """A serial loop in scope."""

    name: Any
    length: int


@public("shardwise.experimental.maps")
class SerialLoop:
    """A separate loop for one axis of an `xmap`, which runs in `length` chunks, one by one.

        xmap(f, in_axes=["a"], out_axes=["a"], axis_resources={"a": SerialLoop(20)})(x)

    length: the number of chunks; the size of the axis must be a multiple of it.
    """

    __slots__ = ("length",)
    length: int

    def __init__(self, length: int):
        self.length = _checked("SerialLoop", length)

    def __repr__(self) -> str:
        return f"SerialLoop({self.length})"


def _checked(who: str, length: Any) -> int:
    try:
        found = operator.index(length)
    except TypeError:
        found = 0
    if found < 1:
        raise ValueError(
            f"{who}: length, the number of parts, must be a positive int; got {short_repr(length)}."
        )
    return found


@contextmanager
def serial_loop(name: Hashable, length: int) -> Generator[None]:
    """Puts a serial loop in scope, for `axis_resources` of `xmap`.

    An axis that uses it runs in `length` chunks, one after the other, each vectorized: this
    trades time for memory. Axes that share a loop step through their chunks together.

    Args:
      name: the name in `axis_resources`.
      length: the number of chunks; sizes of axes that use it must be multiples.

    Raises:
      ValueError: if a mesh axis, a map or another loop in scope has the name, or if the length
        is not a positive int.
    """
    length = _checked("serial_loop", length)
    here = current()
    taken = {axis.name for axis in here.axes}
    if here.mesh is not None:
        taken.update(here.mesh.axis_names)
    if name in taken:
        raise ValueError(
            f"serial_loop: {name!r} is already the name of an axis in scope, which the loop would "
            "shadow. Rename one of them."
        )
    new = NamedAxis(name, length, is_loop=True)
    with here.replace(axes=(*here.axes, new)).entered():
        yield


def loops_in_scope() -> tuple[Loop, ...]:
    return tuple([Loop(axis.name, axis.size) for axis in current().axes if axis.is_loop])


@public("shardwise.experimental.maps")
class ResourceEnv(NamedTuple):
    """What axes may run over."""

    physical_mesh: Mesh | AbstractMesh
    loops: tuple[Loop, ...]

    def with_mesh(self, mesh: Mesh) -> ResourceEnv:
        """The same with another mesh, whose axes may not shadow a loop."""
        hidden = [loop.name for loop in self.loops if loop.name in mesh.axis_names]
        if hidden:
            raise ValueError(
                f"{mesh} would shadow the serial loop {hidden[0]!r}. Rename one of them."
            )
        return self._replace(physical_mesh=mesh)

    def with_extra_loop(self, loop: Loop) -> ResourceEnv:
        """The same with an additional loop, whose name must be new."""
        if loop.name in self.resource_axes:
            raise ValueError(
                f"the serial loop {loop.name!r} would shadow an axis of that name. Rename one of "
                "them."
            )
        return self._replace(loops=(*self.loops, loop))

    @property
    def physical_resource_axes(self) -> set[Any]:
        return {*self.physical_mesh.axis_names}

    @property
    def loop_resource_axes(self) -> set[Any]:
        return {loop.name for loop in self.loops}

    @property
    def resource_axes(self) -> set[Any]:
        return self.physical_resource_axes | self.loop_resource_axes

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """Name → size, of the axes of the mesh and then the loops."""
        return OrderedDict([*self.physical_mesh.shape.items(), *self.loops])

    @property
    def local_shape(self) -> OrderedDict[Any, int]:
        """The same, for the part of the mesh on this process's devices."""
        mesh = self.physical_mesh
        local = mesh.local_mesh if isinstance(mesh, Mesh) and not mesh.empty else mesh
        return OrderedDict([*local.shape.items(), *self.loops])


EMPTY_ENV = ResourceEnv(NO_MESH, ())


class _Here:
    """`thread_resources`: the resources in scope of this thread."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("thread_resources")

    def __repr__(self) -> str:
        return f"thread_resources({self.env})"

    @property
    def env(self) -> ResourceEnv:
        mesh = current().mesh
        return ResourceEnv(NO_MESH if mesh is None else mesh, loops_in_scope())


thread_resources = _Here()
read_by("thread_resources", lambda: thread_resources)
