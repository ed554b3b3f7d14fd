"""`xmap`: a function of values with named dimensions, mapped over all of them together.

    xmap(lambda x: x / lax.psum(x, "i"), in_axes=["i", ...], out_axes=["i", ...])

The function is staged once, for one index of each name. Batching removes the names again, one by
one: this defines the program's meaning, on one device. If `axis_resources` maps a name to axes of a
mesh, each device does so for its shard of the indices, in a `shard_map`: a collective over the name
is then over the axes of the mesh and the indices on each device. If it maps a name to a serial
loop, a `scan` iterates over the chunks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.signatures import called, check_function
from shardwise._src.arguments.values import as_input, checked_results
from shardwise._src.base.context import Context, NamedAxis, current
from shardwise._src.base.errors import JAXTypeError
from shardwise._src.control.call import call
from shardwise._src.core.infer import type_of
from shardwise._src.core.program_tools import walk
from shardwise._src.jit.jit import jit
from shardwise._src.maps.axis_strategies import Layout, Way, serially, ways_of
from shardwise._src.maps.shard_map import over_parts, reject_keywords
from shardwise._src.maps.xmap_axes import NamedDims, of_arguments, of_results, parsed_tree
from shardwise._src.messages.argument_names import argument_names, name_of, parameters_of
from shardwise._src.messages.formatting import join, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, paths_in
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.create import iota
from shardwise._src.ops.elementwise import mul
from shardwise._src.ops.families import add
from shardwise._src.ops.sharded.collective import INT32, number
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.refs.refs import Ref, is_ref, reject_returned, value_of, values_of, write_back
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import Axis, batch_program, without_dim
from shardwise._src.transforms.stage import stage
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding


def xmap(
    fun: Callable[P, T],
    in_axes: Any,
    out_axes: Any,
    *,
    axis_sizes: Mapping[Any, int] | None = None,
    axis_resources: Mapping[Any, Any] | None = None,
    donate_argnums: int | Sequence[int] = (),
    backend: str | None = None,
) -> Callable[P, T]:
    """Maps `fun` over named dimensions, which collectives in it can use.

    Args:
      fun: of positional arguments, which may be refs. It sees them without their named dimensions.
      in_axes: which dimensions of each argument have names: `{0: "batch"}`, or `["batch", ...]`,
        where the list without `...` also fixes the number of dimensions; or a prefix of the pytree
        of positional arguments with such entries. `{}`: none.
      out_axes: where the named dimensions go in each result, likewise. A result that differs along
        a named axis must have it; other results may have it, and are broadcast.
      axis_sizes: the sizes of axes that no argument has.
      axis_resources: what each axis runs over: the name of an axis of the mesh in scope, the name
        of a loop (`serial_loop`), a `SerialLoop`, or a tuple of them. An axis without resources is
        vectorized on each device. Values do not depend on it.
      donate_argnums: arguments whose memory may be reused.
      backend: the platform it runs on.

    Returns:
      The mapped function, compiled once for each signature of arguments; with `lower`.

    Raises:
      ValueError: if sizes differ or are not known, a size is not a multiple of what it runs over, a
        name in `out_axes` or `axis_resources` is not one of an argument.
      TypeError: if a result differs along an axis that it does not have.
      JAXTypeError: if a value has two axes that run over the same resource.
      NameError: if a resource is not in scope.
    """
    check_function("xmap", fun)
    what = f"xmap of {name_of(fun)}"
    sizes, resources = dict(axis_sizes or {}), dict(axis_resources or {})
    _check_names(what, in_axes, out_axes, sizes, resources)

    def whole(*args: Any) -> Any:
        return _Call(what, fun, in_axes, out_axes, sizes, resources, args).results()

    run = jit(functools.wraps(fun)(whole), donate_argnums=donate_argnums, backend=backend)

    @functools.wraps(fun)
    @hides_frames
    def mapped(*args: Any, **kwargs: Any) -> Any:
        reject_keywords(what, kwargs, "in_axes has names")
        return run(*args)

    mapped.__dict__["lower"] = run.lower
    return mapped


def _check_names(
    what: str, in_axes: Any, out_axes: Any, sizes: dict[Any, int], resources: dict[Any, Any]
) -> None:
    known = {*sizes}
    for entry in parsed_tree(f"{what}: in_axes", in_axes):
        known.update(entry.dims)
    used: dict[str, list[Hashable]] = {
        "out_axes": [n for e in parsed_tree(f"{what}: out_axes", out_axes) for n in e.dims],
        "axis_resources": [*resources],
    }
    for where, names in used.items():
        if missing := [n for n in names if n not in known]:
            raise ValueError(
                f"{what}: {where} has the axis {missing[0]!r}, which neither in_axes nor "
                f"axis_sizes has; they have {join(known) or 'none'}."
            )
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or size < 0:
            raise ValueError(
                f"{what}: axis_sizes must be non-negative ints; got {short_repr(size)} for "
                f"{name!r}."
            )
        sizes[name] = int(size)
    for name, over in resources.items():
        rows = over if isinstance(over, tuple | list) else ()
        if twice := [r for i, r in enumerate(rows) if r in rows[:i]]:
            raise ValueError(f"{what}: axis_resources has {twice[0]!r} twice for {name!r}.")


class _Index:
    """The index along an axis that runs in a loop, while the function is staged."""

    value: Any = None


class _Call:
    """A call that is being staged."""

    def __init__(
        self,
        what: str,
        fun: Callable[..., Any],
        in_axes: Any,
        out_axes: Any,
        sizes: dict[Any, int],
        resources: dict[Any, Any],
        args: tuple[Any, ...],
    ):
        self.what, self.fun, self.in_axes, self.out_axes = what, fun, in_axes, out_axes
        leaves, self.tree = flatten(args)
        self.names = argument_names(args, {}, parameters_of(fun))
        self.refs = {i: x for i, x in enumerate(leaves) if is_ref(x)}
        self.values = [
            value_of(x) if is_ref(x) else as_input(x, what, lambda i=i: self.names[i])
            for i, x in enumerate(leaves)
        ]
        self.dims = of_arguments(f"{what}: in_axes", in_axes, args, parameters_of(fun))
        self.ways = ways_of(what, self._sizes(sizes), resources)
        for name, dims in zip(self.names, self.dims, strict=True):
            self._check_apart(name, dims.dims)
        self.serial = [way for way in self.ways if way.loops]
        # The named dimensions of the values, and of the indices along axes that run in loops.
        self.rows = [*[d.dims for d in self.dims], *[{way.name: 0} for way in self.serial]]
        self.loops = tuple(dict.fromkeys(loop for way in self.ways for loop in way.loops))
        self.axes: list[NamedAxis] = []
        self.out_tree: Any = None
        self.out_dims: list[NamedDims] = []

    def _sizes(self, given: dict[Any, int]) -> dict[Any, int]:
        """The size of each axis; raises if two differ, or a value has too few dimensions."""
        found: dict[Any, tuple[int, str]] = {}

        def note(axis: Any, size: int, where: str) -> None:
            first = found.setdefault(axis, (size, where))
            if first[0] != size:
                raise ValueError(
                    f"{self.what}: the axis {axis!r} must have one size; it has {first[1]}, and "
                    f"{where}."
                )

        for value, name, dims in zip(self.values, self.names, self.dims, strict=True):
            t = type_of(value)
            dims.check(f"{self.what}: in_axes", name, t)
            for axis, d in dims.dims.items():
                note(
                    axis,
                    t.shape[d],
                    f"{t.shape[d]} in dimension {d} of {name}, of type {t.str_short(True)}",
                )
        for axis, size in given.items():
            note(axis, size, f"{size} in axis_sizes")
        for entry in parsed_tree(f"{self.what}: in_axes", self.in_axes):
            if missing := [axis for axis in entry.dims if axis not in found]:
                raise ValueError(
                    f"{self.what}: the size of the axis {missing[0]!r} is unknown, as no array of "
                    "the arguments has it. Give it in axis_sizes."
                )
        return {axis: size for axis, (size, _) in found.items()}

    def _check_apart(self, where: str, axes: Any) -> None:
        """Raises if axes of one value run over the same resource."""
        present = [way for way in self.ways if way.name in axes]
        users: dict[Any, Any] = {}
        for way in present:
            for resource, _ in way.mesh_axes + way.loops:
                if resource in users:
                    raise JAXTypeError(
                        f"{self.what}: the axes {users[resource]!r} and {way.name!r} both run over "
                        f"{resource!r}, and {where} has both of them. Give them different "
                        "resources."
                    )
                users[resource] = way.name

    def results(self) -> Any:
        axes = tuple(dict.fromkeys(a for way in self.ways for a, _ in way.mesh_axes))
        if axes:
            found = over_parts(
                self.what,
                name_of(self.fun),
                self._on_device,
                self.values,
                self.names,
                [self._spec(dims.dims) for dims in self.dims],
                lambda program: [self._spec(dims.dims) for dims in self.out_dims],
                NamedSharding(current().mesh_for_values, PartitionSpec()),
                axes,
                False,
            )
        else:
            found = self._on_device(*self.values)
        count = self.out_tree.num_leaves
        write_back([*self.refs.values()], found[count:])
        return self.out_tree.unflatten(found[:count])

    def _spec(self, dims: dict[Any, int]) -> PartitionSpec:
        rows: list[Any] = [None] * max([d + 1 for d in dims.values()], default=0)
        for way in self.ways:
            if way.name in dims and way.mesh_axes:
                rows[dims[way.name]] = tuple([axis for axis, _ in way.mesh_axes])
        return PartitionSpec(*rows)

    def _on_device(self, *parts: Any) -> list[Any]:
        """The results for one device's shards of the arguments."""
        indices = [self._indices(way) for way in self.serial]
        given = [*parts, *indices]
        pairs = zip(self.rows, given, strict=True)
        layouts = [Layout(row, self.ways, type_of(x).ndim) for row, x in pairs]
        xs = [layout.apart(x) for layout, x in zip(layouts, given, strict=True)]
        inside = [layout.loops for layout in layouts]
        found, _ = serially(self.loops, inside, xs, self._at_once)
        outs = []
        for x, dims in zip(found, self.out_dims, strict=True):
            loops = {key for way in self.ways if way.name in dims.dims for key, _ in way.loops}
            ndim = type_of(x).ndim - len(loops)
            outs.append(Layout(dims.dims, self.ways, ndim).together(x))
        return outs

    def _indices(self, way: Way) -> Any:
        """The indices of a device along an axis."""
        own = iota(dtype=INT32, shape=(way.on_each,), dimension=0)
        if not way.mesh_axes:
            return own
        names, sizes = zip(*way.mesh_axes, strict=True)
        first = mul(number(names, sizes), np.int32(way.on_each))
        return add(own, broadcast_in_dim(first, shape=(way.on_each,), dims=()))

    def _at_once(self, xs: Sequence[Any]) -> tuple[list[Any], list[Sequence[Any]]]:
        """The results when all indices are vectorized; their dimensions are first in `xs`."""
        types = []
        for x, dims in zip(xs, self.rows, strict=True):
            t = type_of(x)
            for _ in dims:
                t = without_dim(t, 0)
            types.append(t)
        self._check_inside(types)
        program, captured = self._staged(types)
        every = [*[{}] * len(captured), *self.rows]
        marks = [[way.name in dims for way in self.ways] for dims in every]
        for i, way in reversed([*enumerate(self.ways)]):
            wanted = tuple([way.name in dims.dims for dims in self.out_dims])
            whole = None if way.op_name == way.name else self.axes[i]
            axis = Axis(way.at_once, way.op_name, whole=whole)
            program, found = batch_program(program, axis, tuple([m[i] for m in marks]), wanted)
            for j, (has, want) in enumerate(zip(found, wanted, strict=True)):
                if has and not want:
                    raise self._varies(j, way)
        values = map(reshard_like, [*captured, *xs], program.in_types)
        loops: list[Sequence[Any]] = [
            [key for way in self.ways if way.name in dims.dims for key, _ in way.loops]
            for dims in self.out_dims
        ]
        return call(*values, program=program), loops

    def _varies(self, i: int, way: Way) -> TypeError:
        count = self.out_tree.num_leaves
        if i < count:
            what, where = path_in("result", self.out_tree, i), "out_axes"
        else:
            what, where = f"the value written to {self.names[[*self.refs][i - count]]}", "in_axes"
        return TypeError(
            f"{self.what}: {what} varies along {way.name!r}, which its {where}, "
            f"{self.out_dims[i].text}, do not have. Put the axis there, or combine the values "
            f"with a collective, such as `shardwise.lax.psum(x, {way.name!r})`."
        )

    def _staged(self, types: Sequence[ArrayType]) -> tuple[Any, list[Any]]:
        """The program for one index of each name."""
        indices = [_Index() for _ in self.serial]
        self.axes = [
            way.axis(indices[self.serial.index(way)] if way.loops else None) for way in self.ways
        ]

        def flat(*xs: Any) -> list[Any]:
            count = len(self.values)
            for index, x in zip(indices, xs[count:], strict=True):
                index.value = x
            try:
                return self._called(xs[:count])
            finally:
                for index in indices:
                    index.value = None

        with self._scope().with_axes("xmap", *self.axes).entered():
            return self._stage(flat, types)

    def _scope(self) -> Context:
        """The context of the function: the mesh axes that its axes run over are not in scope."""
        here, hidden = current(), {axis for way in self.ways for axis, _ in way.mesh_axes}
        return here.replace(axes=tuple([a for a in here.axes if a.name not in hidden]))

    def _stage(self, flat: Callable[..., list[Any]], types: Sequence[ArrayType]) -> Any:
        names = [*self.names, *[f"the index along {way.name!r}" for way in self.serial]]
        return stage(flat, types, transform="xmap", name=name_of(self.fun), names=names)

    def _called(self, xs: Sequence[Any]) -> list[Any]:
        """The results, and then the last values of the refs among the arguments."""
        own = {i: Ref(xs[i]) for i in self.refs}
        given = [own.get(i, x) for i, x in enumerate(xs)]
        outs, tree = flatten(called(self.what, self.fun, self.tree.unflatten(given), {}))
        reject_returned(self.what, outs)
        outs = checked_results(outs, tree, self.what)
        skeleton = tree.unflatten(range(tree.num_leaves))
        found = of_results(f"{self.what}: out_axes", self.out_axes, skeleton)
        for path, x, dims in zip(paths_in("result", tree), outs, found, strict=True):
            dims.check(f"{self.what}: out_axes", path, type_of(x), named=len(dims.dims))
            self._check_apart(path, dims.dims)
        self.out_tree, self.out_dims = tree, [*found, *[self.dims[i] for i in own]]
        return [*outs, *values_of([*own.values()])]

    def _check_inside(self, types: Sequence[ArrayType]) -> None:
        """Raises if a value in the function has two axes that run over the same resource."""
        resources = [r for way in self.ways for r, _ in way.mesh_axes + way.loops]
        if len({*resources}) == len(resources):
            return
        pairs = zip(types, self.rows, strict=True)
        varying = [t.update(varying=t.varying.union(dims)) for t, dims in pairs]
        axes = [NamedAxis(way.name, way.size, True) for way in self.ways]
        with self._scope().with_axes("xmap", *axes).entered():
            count = len(self.values)
            program, _ = self._stage(lambda *xs: self._called(xs[:count]), varying)
        for eqn in walk(program):
            for v in eqn.outvars:
                self._check_apart(f"a result of [{eqn.op.name}] in it", v.aval.varying)
