"""The only ambient state: a `Context` record in one `ContextVar`.

A context has the current interpreter (which receives the ops that are bound), the mesh and the
named axes in scope, and the values of the flags. Everything that affects a trace is summarized in
`Context.key`, an interned object that is part of every cache key: comparing keys is comparing
identities. A trace depends only on the axes of the mesh in scope: `Context.trace_key` is the same
for meshes that differ only in their devices, so that a program staged for one can be reused for the
others. Because a `ContextVar` is per thread (and per async task), threads may trace concurrently.

    with current().replace(mesh=mesh).entered():
        ...

The root context is current in threads that have never entered another one. Only it is mutable:
`base.flags.Flag.set` changes its flags in place, so that a global update reaches every thread.
"""

from __future__ import annotations

import copyreg
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple

from shardwise._src.base.caches import Interned
from shardwise._src.base.pickles import read_by, reduced

CONTEXTS_REMEMBERED = 256


class TraceKey:
    """Represents everything in a context that can affect a trace. Interned: `is` is equality."""

    __slots__ = ("parts", "__weakref__")
    parts: tuple[Any, ...]
    _table: ClassVar[Interned[TraceKey]] = Interned(__name__, "trace keys", CONTEXTS_REMEMBERED)

    def __new__(cls, parts: tuple[Any, ...]) -> TraceKey:
        found = cls._table.recent.get(parts) or cls._table.find(parts)
        if found is None:
            key = object.__new__(cls)
            key.parts = parts
            found = cls._table.keep(parts, key)
        return found

    def __repr__(self) -> str:
        return f"TraceKey{self.parts}"


class NamedAxis(NamedTuple):
    """A named axis in scope: of a `vmap`, of a mesh inside of `shard_map`, or of an `xmap`.

    tracked: whether types record which values vary along it.
    parts:   names and sizes of the axes that represent it in ops, major first; empty if ops use it
             directly.
    serial:  if its indices are run serially, an object with the current index as `value`.
    is_loop: whether it is only a resource for the axes of an `xmap`: a loop, not an axis of values.
    """

    name: Any
    size: int
    tracked: bool = False
    parts: tuple[tuple[Any, int], ...] = ()
    serial: Any = None
    is_loop: bool = False


class Context:
    """The environment of the running code. Treat as immutable; derive with `replace`.

    interpreter: receives every op that is bound; has `process`, `call` and `eager`.
    mesh:        the mesh in scope (`with mesh:`, `set_mesh`), or None.
    exact:       whether the mesh was entered inside of a trace, which is then for its devices.
    on_mesh:     whether programs of uncommitted arguments run on the devices of the mesh in scope
                 (`set_mesh`).
    axes:        the named axes in scope, as a tuple of `NamedAxis`.
    flags:       flag name → value, for every flag that differs from its default.
    kernel:      the kernel that is being traced, or None. Its `facts` are part of the key.
    """

    __slots__ = (
        *("interpreter", "mesh", "axes", "flags", "exact", "kernel", "on_mesh"),
        *("key", "trace_key"),
    )

    def __init__(
        self,
        interpreter: Any,
        mesh: Any,
        axes: tuple[Any, ...],
        flags: dict[str, Any],
        exact: bool = False,
        kernel: Any = None,
        on_mesh: bool = False,
    ):
        self.interpreter = interpreter
        self.mesh = mesh
        self.axes = axes
        self.flags = flags
        self.exact = exact
        self.kernel = kernel
        self.on_mesh = on_mesh
        self.key, self.trace_key = _keys(mesh, axes, flags, exact, kernel, on_mesh)

    def replace(self, **fields: Any) -> Context:
        names = ("interpreter", "mesh", "axes", "flags", "exact", "kernel", "on_mesh")
        return Context(**{name: getattr(self, name) for name in names} | fields)

    def under(self, interpreter: Any) -> Context:
        """The same context with another interpreter; the key is shared, so this is cheap."""
        new = object.__new__(Context)
        new.interpreter = interpreter
        new.mesh = self.mesh
        new.axes = self.axes
        new.flags = self.flags
        new.exact = self.exact
        new.kernel = self.kernel
        new.on_mesh = self.on_mesh
        new.key = self.key
        new.trace_key = self.trace_key
        return new

    @contextmanager
    def entered(self) -> Generator[Context]:
        token = CURRENT.set(self)
        try:
            yield self
        finally:
            CURRENT.reset(token)

    @property
    def mesh_for_values(self) -> Any:
        """The mesh in scope; abstract in a trace that is shared by all similar meshes."""
        if self.mesh is None or self.exact or self.interpreter.eager:
            return self.mesh
        return self.mesh.abstract_mesh

    @property
    def mapped_axes(self) -> list[NamedAxis]:
        """The axes in scope, without loops."""
        return [axis for axis in self.axes if not axis.is_loop]

    @property
    def in_xmap(self) -> bool:
        """Whether an axis of an enclosing `xmap` runs over axes of a mesh, or in a loop."""
        return any([axis.parts for axis in self.axes])

    def with_axes(self, who: str, *axes: NamedAxis) -> Context:
        """The same context with additional axes. who: the map that adds them, for errors."""
        new = {axis.name for axis in axes}
        for outer in self.axes:
            if hidden := [name for name, _ in outer.parts if name in new]:
                raise ValueError(
                    f"{who}: an axis named {hidden[0]!r} would shadow the mesh axis that the axis "
                    f"{outer.name!r} of an enclosing map runs over. Rename one of them."
                )
        return self.replace(axes=(*self.axes, *axes))

    def bound(self, name: Any) -> NamedAxis | None:
        """The innermost axis of that name; None if absent."""
        for axis in reversed(self.axes):
            if axis.name == name and not axis.is_loop:
                return axis
        return None

    def axis(self, name: Any, who: str = "") -> NamedAxis:
        """A named axis. who: the calling function, and a colon, for the error."""
        found = self.bound(name)
        if found is not None:
            return found
        names = dict.fromkeys(repr(axis.name) for axis in self.mapped_axes)
        bound = " and ".join(names) or "none"
        of_mesh = name in getattr(self.mesh, "axis_names", ())
        hint = (
            f" {name!r} is an axis of the mesh, which is only bound inside `shardwise.shard_map`."
            if of_mesh
            else ""
        )
        raise NameError(
            f"{who}unbound axis name: {name}. The axes in scope are: {bound}.{hint} To bind an "
            f"axis name, wrap the call in a map: `shardwise.vmap(f, axis_name={name!r})` or "
            "`shardwise.shard_map`."
        )


TRACE_FLAGS: list[str] = []  # names of flags that change a trace; filled as flags are defined


def _keys(
    mesh: Any, axes: tuple[Any, ...], flags: dict[str, Any], exact: bool, kernel: Any, on_mesh: bool
) -> tuple[TraceKey, TraceKey]:
    """The key of a context, and the key of programs staged in it."""
    relevant = tuple((f, flags[f]) for f in TRACE_FLAGS if f in flags) if flags else ()
    rest = (axes, relevant) if kernel is None else (axes, relevant, kernel.facts)
    key = TraceKey(((mesh,) if on_mesh else mesh, *rest))
    if mesh is None or exact:
        return key, key
    return key, TraceKey((getattr(mesh, "abstract_mesh", mesh), *rest))


ROOT = Context(None, None, (), {})
CURRENT: ContextVar[Context] = ContextVar("shardwise_context", default=ROOT)
current = CURRENT.get


def _reduced(found: Any) -> Any:
    """Pickles the `ContextVar`, which functions returned by `checkpoint`, for one, reference."""
    if found is not CURRENT:
        raise TypeError(f"cannot pickle {found!r}: a ContextVar exists in one process only.")
    return reduced("context")


read_by("context", lambda: CURRENT)
copyreg.pickle(ContextVar, _reduced)


def update_root(**fields: Any) -> None:
    """Changes the root context in place (global flags, the eager interpreter)."""
    for name, value in fields.items():
        setattr(ROOT, name, value)
    ROOT.key, ROOT.trace_key = _keys(ROOT.mesh, ROOT.axes, ROOT.flags, ROOT.exact, None, False)
