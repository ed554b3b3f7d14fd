"""`pmap`: a function of single examples, each of which a device of its own computes.

It is `jit` of a `shard_map` over one axis; arguments are brought to `PmapSharding`s, and results
have such. Inside of another map the devices are taken already: it maps as `vmap` does there, which
gives the same values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.api.jit import jit
from shardwise._src.api.mapped_axes import axis_of, size_of
from shardwise._src.api.options import FromProgram
from shardwise._src.api.prefixes import broadcast_prefix, broadcast_to_arguments
from shardwise._src.api.shard_map import over_parts
from shardwise._src.api.signatures import called, check_function
from shardwise._src.api.stages import Lowered
from shardwise._src.api.statics import unhashable
from shardwise._src.api.values import as_input
from shardwise._src.api.vmap import vmap
from shardwise._src.arrays.array import Array
from shardwise._src.base.caches import exact, make_room
from shardwise._src.base.config import disable_jit, eager_pmap
from shardwise._src.base.context import current
from shardwise._src.base.positions import join, split
from shardwise._src.control.shard_map import result_specs
from shardwise._src.core.infer import known, type_of
from shardwise._src.core.program import Program
from shardwise._src.messages.arguments import argument_names, name_of, names_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.trees import path_in, paths_in
from shardwise._src.messages.words import counted, shown
from shardwise._src.moving.transfer import move
from shardwise._src.ops.basis import move_axis, reshape
from shardwise._src.ops.shape import expand_dims
from shardwise._src.refs.refs import is_ref, new_ref
from shardwise._src.runtime import backend as runtime
from shardwise._src.runtime import processes
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import P, T
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.pmap_sharding import PmapSharding
from shardwise._src.types.sharding import NamedSharding

READY = 1024  # kinds of arguments of one function


def pmap(
    fun: Callable[P, T], axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (), devices: Sequence[Any] | None = None,
    backend: str | None = None, axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
    global_arg_shapes: Sequence[Sequence[int] | None] | None = None,
) -> Callable[P, T]:
    """Maps `fun` over an axis of its arguments, with a device for each index.

    Args:
      axis_name: a name for the axis, for collectives.
      in_axes: which axis of each argument is mapped: an int, None (the same for all), or a prefix
        of the tree of positional arguments. Named arguments are mapped over axis 0.
      out_axes: where the mapped axis goes in the results: an int, None (the result of the first
        device, where all are the same), or a prefix of their tree.
      static_broadcasted_argnums: arguments that are no arrays, and part of the program; hashable.
      devices: those that are used, one for each index; by default the first of this process's.
        Inside of another map they are taken already: there it maps as `vmap` does, and devices
        may not be given.
      backend: the platform whose devices are used.
      axis_size: the size of the axis, where no argument says it.
      donate_argnums: arguments whose memory may be reused.
      global_arg_shapes: not needed, as arrays know their shapes; checked where it is given: a shape
        without the mapped axis for each array that is mapped, None for others.

    Returns:
      The mapped function, compiled once for each kind of arguments; with `lower`. Its results have
      a `PmapSharding`: `y[i]` is what device i has, without any computation on CPU.

    Raises:
      ValueError: if mapped axes differ in size, or there are fewer devices than indices.
    """
    check_function("pmap", fun)
    if axis_size is not None and not isinstance(axis_size, int | np.integer):
        raise TypeError(f"pmap: axis_size must be an int or None; got {shown(axis_size)}.")
    what = f"pmap of {name_of(fun)}"
    own = _Options(
        what, fun, axis_name, in_axes, out_axes,
        _numbers(f"{what}: static_broadcasted_argnums", static_broadcasted_argnums),
        None if devices is None else tuple(devices), backend, axis_size,
        _numbers(f"{what}: donate_argnums", donate_argnums), global_arg_shapes,
        {}, {},
    )
    _check_apart(own)

    @functools.wraps(fun)
    @hides_frames
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _called(own, args, kwargs)

    @hides_frames
    def lower(*args: Any, **kwargs: Any) -> Lowered:
        """The program for these arguments, lowered to StableHLO."""
        call = _call(own, args, kwargs)
        mesh = _mesh(call)
        given, named = _brought(own, _places(call, mesh), args, kwargs)
        return _run(call, mesh).lower(*given, **named)

    mapped.__dict__["lower"] = lower
    return mapped


class _Options(NamedTuple):
    """The arguments of `pmap`. static, donated: numbers, which may count from the end.

    runs:  the jitted functions, for each form of arguments.
    ready: by kinds of arguments: what runs a call, and where they are brought (see `_places`).
    """

    what: str
    fun: Callable[..., Any]
    axis_name: Any
    in_axes: Any
    out_axes: Any
    static: tuple[int, ...]
    devices: tuple[Any, ...] | None
    backend: str | None
    axis_size: int | None
    donated: tuple[int, ...]
    global_arg_shapes: Any
    runs: dict[Any, Any]
    ready: dict[Any, tuple[Any, Any]]

    def numbers(self, args: Sequence[Any]) -> tuple[int, ...]:
        """The static arguments of a call, in order."""
        return self._placed("static_broadcasted_argnums", self.static, len(args))

    def donating(self, args: Sequence[Any]) -> tuple[int, ...]:
        return self._placed("donate_argnums", self.donated, len(args))

    def _placed(self, option: str, given: tuple[int, ...], count: int) -> tuple[int, ...]:
        found = sorted({n + count if n < 0 else n for n in given})
        if found and (found[0] < 0 or found[-1] >= count):
            raise ValueError(
                f"{self.what}: {option} is {given}, but the call has "
                f"{counted(count, 'positional argument')}. They are numbers of such."
            )
        return tuple(found)


class _Call(NamedTuple):
    """A call that is checked.

    static, donated: numbers of arguments; fixed: the values of static ones.
    leaves, names, dims: the others' arrays, and the axis of each that is mapped; tree: of these.
    """

    own: _Options
    static: tuple[int, ...]
    donated: tuple[int, ...]
    fixed: tuple[Any, ...]
    leaves: list[Any]
    names: list[str]
    dims: tuple[int | None, ...]
    tree: Any
    size: int

    def arguments(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = self.tree.unflatten(leaves)
        return join(self.static, self.fixed, args), kwargs


def _called(own: _Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = found = None
    try:
        fixed, rest = split(args, own.numbers(args)) if own.static else ((), args)
        leaves, tree = flatten((rest, kwargs))
        kinds = [x._sig if x.__class__ is Array else _kind(x) for x in leaves]
        values = [(exact(v), v) for v in fixed]
        kind = (tree, current().key, *values, *kinds)
        found = own.ready.get(kind)
    except Exception:  # not arrays, or what a `==` raises
        kind = None
    if found is None:
        call = _call(own, args, kwargs)
        if current().mapped_axes:
            if own.devices is not None:
                raise ValueError(
                    f"{own.what} is inside of another map, which has taken the devices: leave out "
                    "`devices`."
                )
            return _as_vmap(call)
        mesh = _mesh(call)
        if disable_jit.value and eager_pmap.value:
            return _as_vmap(call, mesh)
        found = _run(call, mesh), _places(call, mesh)
        if kind is not None and current().interpreter.eager:
            make_room(own.ready, READY)
            own.ready[kind] = found
    run, places = found
    if places is None:
        return run(*args, **kwargs)
    given, named = _brought(own, places, args, kwargs)
    return run(*given, **named)


def _call(own: _Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    what, parameters = own.what, names_of(own.fun)
    static = own.numbers(args)
    fixed, rest = split(args, static)
    try:
        hash(fixed)
    except Exception as error:
        rows = tuple([(i, None, v) for i, v in zip(static, fixed, strict=True)])
        raise unhashable(what, parameters, (rows, ()), error) from None
    dynamic = tuple(rest)
    leaves, tree = flatten((dynamic, kwargs))
    others = [p for i, p in enumerate(parameters) if i not in static]
    names = argument_names(dynamic, kwargs, others)
    axes = _without(own.in_axes, static, len(args))
    dims = broadcast_to_arguments(axes, dynamic, f"{what}: in_axes", others)
    dims += [0] * (len(leaves) - len(dims))
    values = [_value(x, what, lambda i=i: names[i]) for i, x in enumerate(leaves)]
    dims = [axis_of(what, lambda: names, i, x, d)
            for i, (x, d) in enumerate(zip(values, dims, strict=True))]
    size = size_of(what, lambda: names, values, dims, own.axis_size)
    values = [x if is_ref(x) else v for x, v in zip(leaves, values, strict=True)]
    call = _Call(own, static, own.donating(args), fixed, values, names, tuple(dims), tree, size)
    if own.global_arg_shapes is not None:
        _check_shapes(call)
    return call


def _value(x: Any, what: str, path: Callable[[], str]) -> Any:
    """A leaf of the arguments. What is on the host stays there, to go to all devices at once."""
    if is_ref(x):
        return x.get()
    return x if x.__class__ is np.ndarray and x.dtype.kind in "biufc" else as_input(x, what, path)


def _check_shapes(call: _Call) -> None:
    what, given = call.own.what, call.own.global_arg_shapes
    if not isinstance(given, tuple | list) or len(given) != len(call.leaves):
        raise ValueError(
            f"{what}: global_arg_shapes must have a shape or None for each of the "
            f"{counted(len(call.leaves), 'array')} of the call; got {shown(given)}. It may be left "
            "out: arrays know their shapes."
        )
    for name, x, d, shape in zip(call.names, call.leaves, call.dims, given, strict=True):
        if shape is None or is_ref(x):
            continue
        found = type_of(x).shape
        inner = found if d is None else found[:d] + found[d + 1 :]
        if tuple(shape) != inner:
            raise ValueError(
                f"{what}: global_arg_shapes has {tuple(shape)} for {name}, which is of type "
                f"{type_of(x).str_short(True)}: {inner} without the mapped axis. It may be left "
                "out: arrays know their shapes."
            )


def _numbers(what: str, given: Any) -> tuple[int, ...]:
    found = (given,) if isinstance(given, int) else given
    if not isinstance(found, tuple | list) or not all([type(n) is int for n in found]):
        raise TypeError(f"{what} takes ints; got {shown(given)}.")
    return tuple(found)


def _check_apart(own: _Options) -> None:
    if both := sorted({*own.static} & {*own.donated}):
        raise ValueError(
            f"{own.what}: argument {', '.join(map(str, both))} cannot be both static and donated; "
            "a static argument has no memory on a device."
        )


def _without(in_axes: Any, static: tuple[int, ...], count: int) -> Any:
    """The axes of the arguments that are not static. count: of all positional ones."""
    if not isinstance(in_axes, tuple | list):
        return in_axes
    if len(in_axes) != count:  # refused later, by their numbers
        return tuple(in_axes)
    return tuple([a for i, a in enumerate(in_axes) if i not in static])


def _mesh(call: _Call) -> Mesh:
    own, size = call.own, call.size
    devices = own.devices
    link = processes.link()
    if devices is None and link is not None and link.count > 1:
        raise ValueError(
            f"{own.what}: this program runs in {link.count} processes, and arrays are global: say "
            "which devices the axis is over. `devices=shardwise.devices()` is those of all "
            "processes, each of which passes the whole axis, or a global array (`shardwise."
            "experimental.multihost_utils.host_local_array_to_global_array` makes one of the rows "
            "that each has); `devices=shardwise.local_devices()` is those of this process alone."
        )
    found = devices if devices is not None else tuple(runtime.local_devices(own.backend))
    if not all([isinstance(d, runtime.Device) for d in found]):
        raise TypeError(f"{own.what}: devices must be a list of devices; got {shown(devices)}.")
    if size < 1:
        raise ValueError(
            f"{own.what}: the mapped axis has size {size}; each index has a device, and there must "
            "be one."
        )
    if size > len(found) or (devices is not None and size != len(found)):
        raise ValueError(
            f"{own.what}: the mapped axis has size {size}, and there "
            f"{'is' if len(found) == 1 else 'are'} {counted(len(found), 'device')}. Each index has "
            "a device of its own: give fewer, or use `shardwise.vmap`, or `shardwise.jit` with "
            "shardings."
        )
    return Mesh(np.array(found[:size], object), (_name(own.axis_name),))


def _kind(x: Any) -> Any:
    """What stands in a key for an argument that is no array yet."""
    if x.__class__ is not np.ndarray:
        raise TypeError(type(x))
    return x.shape, x.dtype


def _places(call: _Call, mesh: Mesh) -> list[Any] | None:
    """The sharding that each argument is brought to, or None; None where all stay."""
    if not current().interpreter.eager:
        return None
    devices = mesh.flat_devices
    rows = zip(call.leaves, call.dims, strict=True)
    found = [_place(x, d, devices) for x, d in rows]
    return found if any([s is not None for s in found]) else None


def _place(x: Any, d: int | None, devices: tuple[Any, ...]) -> Any:
    if is_ref(x):
        return None
    held = x.sharding if x.__class__ is Array else None
    on_host = x.__class__ is np.ndarray  # which goes to all devices at once
    if d is None and not on_host and (
        held is None or not x.committed or x.devices() == {*devices}
    ):
        return None
    place = PmapSharding.default(x.shape, d, devices)
    return None if place is held and x.committed else place


def _brought(
    own: _Options, places: list[Any] | None, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments with arrays at their places."""
    if places is None:
        return args, kwargs
    static = own.numbers(args)
    fixed, rest = split(args, static)
    leaves, tree = flatten((tuple(rest), kwargs))
    leaves = [x if s is None else move(known(x), s) for x, s in zip(leaves, places, strict=True)]
    given, named = tree.unflatten(leaves)
    return join(static, fixed, given), named


def _run(call: _Call, mesh: Mesh) -> Any:
    """The jitted function for calls of this form."""
    runs = call.own.runs
    key = call.size, call.tree, call.static, call.donated, call.dims
    run = runs.get(key)
    if run is None:
        run = runs[key] = jit(
            _OnDevices(call, mesh), static_argnums=call.static or None,
            donate_argnums=call.donated or None, out_shardings=_AS_MAPPED,
        )
    return run


def _result_shardings(program: Program) -> list[Any]:
    """The shardings of results, as the map gives them."""
    found: list[Any] = []
    for t, row in zip(program.out_types, result_specs(program), strict=True):
        if row is None:
            found.append(None)
            continue
        mesh, spec = row
        split_dims = [d for d, names in enumerate(spec.dims(t.ndim)) if names]
        d = split_dims[0] if split_dims else None
        found.append(PmapSharding.default(t.shape, d, mesh.flat_devices))
    return found


def _name(axis_name: Any) -> Any:
    return "<axis of pmap>" if axis_name is None else axis_name


_AS_MAPPED = FromProgram(_result_shardings)


class _OnDevices:
    """The function of whole arrays that maps `fun` over a mesh, for calls of one form."""

    def __init__(self, call: _Call, mesh: Mesh):
        functools.update_wrapper(self, call.own.fun)
        self.own, self.names, self.mesh = call.own, call.names, mesh
        self.static, self.dims = call.static, call.dims
        self.name = _name(call.own.axis_name)

    def recipe(self, part: Callable[[Any], Any]) -> tuple[Any, ...]:
        """What it does, as a key (see `core.recipes`). part: gives that of a value."""
        own = self.own
        return (*map(part, (own.fun, own.axis_name, own.out_axes)), self.static, self.dims,
                self.mesh)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fixed, dynamic = split(args, self.static)
        leaves, tree = flatten((tuple(dynamic), kwargs))
        own, dims = self.own, self.dims
        results: list[Any] = []

        def part(*parts: Any) -> list[Any]:
            inner = [x if d is None else _one(x, d) for x, d in zip(parts, dims, strict=True)]
            given, named = tree.unflatten(inner)
            outs, out_tree, places = _results(own, join(self.static, fixed, given), named)
            for x, y, d in zip(parts, inner, dims, strict=True):
                if is_ref(x) and d is not None:
                    x.set(expand_dims(y.get(), (d,)))
            results.append((out_tree, places))
            return [x if d is None else expand_dims(x, (d,))
                    for x, d in zip(outs, places, strict=True)]

        place = NamedSharding(self.mesh, PartitionSpec())
        found = over_parts(
            own.what, name_of(own.fun), part, leaves, self.names, self.specs(dims),
            lambda program: self.specs(results[0][1]), place, (self.name,), False,
        )
        return results[0][0].unflatten(found)

    def specs(self, axes: Sequence[int | None]) -> list[PartitionSpec]:
        return [PartitionSpec() if d is None else PartitionSpec(*[None] * d, self.name)
                for d in axes]


def _results(
    own: _Options, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], Any, list[int | None]]:
    """The results for an example, their tree, and where the mapped axis goes in each."""
    outs, tree = flatten(called(own.what, own.fun, args, kwargs))
    outs = [as_input(x, own.what, lambda i=i: path_in("the result", tree, i))
            for i, x in enumerate(outs)]
    skeleton = tree.unflatten(range(tree.num_leaves))
    wanted = broadcast_prefix(own.out_axes, skeleton, f"{own.what}: out_axes", root="result")
    rows = zip(paths_in("result", tree), outs, wanted, strict=True)
    places = [_out_axis(own.what, path, x, w) for path, x, w in rows]
    return outs, tree, places


def _one(x: Any, d: int) -> Any:
    """The part of one index, without the mapped dimension."""
    if is_ref(x):
        return new_ref(_one(x.get(), d))
    shape = type_of(x).shape
    return reshape(x, shape=shape[:d] + shape[d + 1 :])


def _out_axis(what: str, path: str, x: Any, axis: Any) -> int | None:
    if axis is None:
        return None
    ndim = type_of(x).ndim + 1
    if not isinstance(axis, int) or not -ndim <= axis < ndim:
        raise ValueError(
            f"{what}: out_axes is {axis!r} for {path}, which has "
            f"{counted(ndim, 'dimension')} with the mapped one."
        )
    return axis % ndim


def _as_vmap(call: _Call, mesh: Mesh | None = None) -> Any:
    """The map inside of another one, where the devices are taken; or op by op, for debugging, with
    results on the devices of a mesh.
    """
    own, found = call.own, []

    def one(*leaves: Any) -> list[Any]:
        found.append(_results(own, *call.arguments(leaves)))
        return found[-1][0]

    one.__name__ = name_of(own.fun)
    rows = vmap(one, call.dims, axis_name=own.axis_name, axis_size=call.size)(*call.leaves)
    _, tree, places = found[-1]
    outs = [x[0] if d is None else move_axis(x, 0, d) for x, d in zip(rows, places, strict=True)]
    if mesh is not None:
        outs = [move(x, PmapSharding.default(x.shape, d, mesh.flat_devices))
                for x, d in zip(outs, places, strict=True)]
    return tree.unflatten(outs)
