"""`pmap`: a function of single examples, each computed on a separate device.

It is `jit` of a `shard_map` over one axis; arguments are transferred to `PmapSharding`s, and
results have them. Inside another map the devices are already in use: there it maps like `vmap`,
which returns the same values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.arguments.float0_partition import along, apart, is_trivial
from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arguments.signatures import called, check_function
from shardwise._src.arguments.values import as_input
from shardwise._src.arrays.array import Array
from shardwise._src.base.caches import exact, make_room
from shardwise._src.base.config import disable_jit, eager_pmap
from shardwise._src.base.context import current
from shardwise._src.base.positions import join, split
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.core.program import Program
from shardwise._src.jit.jit import jit
from shardwise._src.jit.options import FromProgram
from shardwise._src.jit.stages import Lowered
from shardwise._src.jit.staging import struct_of
from shardwise._src.maps.host_local_batch import joined, own_part
from shardwise._src.maps.pmap_calls import Call, Options, check_apart, checked, is_type, numbers
from shardwise._src.maps.shard_map import over_parts
from shardwise._src.maps.shard_map_op import result_specs
from shardwise._src.maps.vmap import vmap
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, paths_in
from shardwise._src.ops.basis import move_axis, reshape
from shardwise._src.ops.shape import expand_dims
from shardwise._src.refs.refs import is_ref, new_ref
from shardwise._src.runtime import backend as runtime
from shardwise._src.runtime import processes
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.transfer import move
from shardwise._src.types.annotations import P, T
from shardwise._src.types.devices import is_addressable
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.pmap_sharding import PmapSharding
from shardwise._src.types.sharding import NamedSharding

READY = 1024  # argument signatures of one function


def pmap(
    fun: Callable[P, T],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
    global_arg_shapes: Sequence[Sequence[int] | None] | None = None,
) -> Callable[P, T]:
    """Maps `fun` over an axis of its arguments, with one device for each index.

    Args:
      axis_name: a name for the axis, for collectives.
      in_axes: which axis of each argument is mapped: an int, None (the same for all), or a prefix
        of the pytree of positional arguments. Keyword arguments are mapped over axis 0.
      out_axes: where the mapped axis goes in the results: an int, None (the result of the first
        device, if all are the same), or a prefix of their pytree.
      static_broadcasted_argnums: arguments that are not arrays, but part of the program; hashable.
      devices: the devices to use, one for each index: the first of them, if there are fewer
        indices; by default those of this process. With several processes, by default those of all.
        If they are of several processes, each passes and receives the indices of its own devices,
        all of them, and collectives are over all; if `devices` is given, all processes may pass the
        full axis instead. Inside another map devices are already in use and may not be given: there
        it maps like `vmap`.
      backend: the platform whose devices are used.
      axis_size: the size of the axis, if no argument determines it.
      donate_argnums: arguments whose memory may be reused.
      global_arg_shapes: not needed, as arrays have shapes; checked if given: a shape without
        the mapped axis for each mapped array, None for others.

    Returns:
      The mapped function, compiled once for each signature of arguments; with `lower`. Mapped
      results have a `PmapSharding`: `y[i]` is the value on device i, without a computation on CPU.

    Raises:
      ValueError: if mapped axes differ in size, or there are fewer devices than indices.
    """
    check_function("pmap", fun)
    if axis_size is not None and not isinstance(axis_size, int | np.integer):
        raise TypeError(f"pmap: axis_size must be an int or None; got {short_repr(axis_size)}.")
    what = f"pmap of {name_of(fun)}"
    if devices is not None and not len(devices):
        raise ValueError(f"{what}: devices is empty. Leave it out to use those of this process.")
    own = Options(
        what,
        fun,
        axis_name,
        in_axes,
        out_axes,
        numbers(f"{what}: static_broadcasted_argnums", static_broadcasted_argnums),
        None if devices is None else tuple(devices),
        backend,
        axis_size,
        numbers(f"{what}: donate_argnums", donate_argnums),
        global_arg_shapes,
    )
    check_apart(own)

    @functools.wraps(fun)
    @hides_frames
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _called(own, args, kwargs)

    @hides_frames
    def lower(*args: Any, **kwargs: Any) -> Lowered:
        """The program for these arguments, lowered to StableHLO. Arguments may be types."""
        call = checked(own, args, kwargs, described=True)
        if _has_own_rows(call):
            call = _of_all(call)
            everything, kwargs = call.arguments(call.leaves)
            args = tuple(everything)
        mesh = _mesh(call)
        given, named = _brought(call.own, _places(call, mesh), args, kwargs, _described)
        return _run(call, mesh).lower(*given, **named)

    mapped.__dict__["lower"] = lower
    return mapped


def _called(own: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = found = None
    try:
        fixed, rest = split(args, own.numbers(args)) if own.static else ((), args)
        leaves, tree = flatten((rest, kwargs))
        kinds = [x._sig if x.__class__ is Array else _kind(x) for x in leaves]
        values = [(exact(v), v) for v in fixed]
        kind = (tree, current().key, *values, *kinds)
        found = own.ready.get(kind)
    except Exception:  # not arrays, or an error in `==`
        kind = None
    if found is None:
        call = checked(own, args, kwargs)
        if current().mapped_axes:
            if own.devices is not None:
                raise ValueError(
                    f"{own.what} is inside another map, which already uses the devices: leave out "
                    "`devices`."
                )
            return _as_vmap(call)
        if _has_own_rows(call):
            return _called_of_all(call)
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


def _mesh(call: Call) -> Mesh:
    own, size = call.own, call.size
    found = _devices(own, runtime.local_devices)
    if size < 1:
        raise ValueError(
            f"{own.what}: the mapped axis has size {size}; it must be at least 1, as each index "
            "runs on its own device."
        )
    if size > len(found):
        raise ValueError(
            f"{own.what}: the mapped axis has size {size}, and there "
            f"{'is' if len(found) == 1 else 'are'} {pluralize(len(found), 'device')}. Each index "
            "runs on its own device: pass fewer, or use `shardwise.vmap`, or `shardwise.jit` with "
            "shardings."
        )
    return Mesh(np.array(found[:size], object), (_name(own.axis_name),))


def _devices(own: Options, default: Callable[[str | None], Sequence[Any]]) -> tuple[Any, ...]:
    if own.devices is None:
        return tuple(default(own.backend))
    if not all([isinstance(d, runtime.Device) for d in own.devices]):
        raise TypeError(
            f"{own.what}: devices must be a list of devices; got {short_repr(own.devices)}."
        )
    return own.devices


def _has_own_rows(call: Call) -> bool:
    """Whether the map is over devices of several processes, with local rows from each."""
    own, link = call.own, processes.link()
    if link is None or link.count < 2:
        return False
    found = _devices(own, runtime.devices)
    return own.devices is None or call.size == len(_local(found)) < len(found)


def _local(devices: Sequence[Any]) -> list[Any]:
    return [d for d in devices if is_addressable(d)]


def _called_of_all(call: Call) -> Any:
    whole = _of_all(call)
    own = _local(_devices(whole.own, runtime.devices))
    args, kwargs = whole.arguments(whole.leaves)
    results, tree = flatten(_called(whole.own, tuple(args), kwargs))
    return tree.unflatten([own_part(y, own) for y in results])


def _of_all(call: Call) -> Call:
    """The same call over the devices of all processes, with arrays of all rows."""
    own, refs = call.own, [n for x, n in zip(call.leaves, call.names, strict=True) if is_ref(x)]
    if refs or not current().interpreter.eager:
        why = f"{refs[0]} is a Ref" if refs else "it is inside of a transformation"
        raise ValueError(
            f"{own.what}: over the devices of several processes, each process passes its own "
            f"rows, which are joined before the call, but {why}. Specify the devices: "
            "`devices=shardwise.devices()`, for which every process passes the full axis, or "
            "`devices=shardwise.local_devices()`."
        )
    everyone = _devices(own, runtime.devices)
    mine = _local(everyone)
    if call.size != len(mine):
        raise ValueError(
            f"{own.what}: the mapped axis has size {call.size}, and this process has "
            f"{pluralize(len(mine), 'device')}. With several processes, each passes one index for "
            "each of its own devices; `devices=` selects the devices, of all processes or of this "
            "one."
        )
    if not own.of_all:
        size = None if own.axis_size is None else len(everyone)
        own.of_all.append(replace(own, devices=everyone, axis_size=size))
    rows = zip(call.leaves, call.dims, strict=True)
    leaves = [x if d is None else _joined(x, d, mine, everyone) for x, d in rows]
    return call._replace(own=own.of_all[0], leaves=leaves, size=len(everyone))


def _joined(x: Any, d: int, mine: Sequence[Any], everyone: Sequence[Any]) -> Any:
    """All rows of an argument, of which this process has those of its devices."""
    if isinstance(x, ShapeDtypeStruct):
        return x.update(shape=(*x.shape[:d], len(everyone), *x.shape[d + 1 :]))
    return joined(x, d, mine, everyone)


def _kind(x: Any) -> Any:
    """The key entry for an argument that is not an array yet."""
    if x.__class__ is not np.ndarray:
        raise TypeError(type(x))
    return x.shape, x.dtype


def _places(call: Call, mesh: Mesh) -> list[Any] | None:
    """The target sharding of each argument, or None; None if all stay in place."""
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
    on_host = x.__class__ is np.ndarray  # which goes to all devices together
    if d is None and not on_host and (held is None or not x.committed or x.devices() == {*devices}):
        return None
    place = PmapSharding.default(x.shape, d, devices)
    return None if place is held and x.committed else place


def _brought(
    own: Options,
    places: list[Any] | None,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    put: Callable[[Any, Any], Any] = lambda x, place: move(as_arraylike(x), place),
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments with their target shardings, by `put`."""
    if places is None:
        return args, kwargs
    static = own.numbers(args)
    fixed, rest = split(args, static)
    leaves, tree = flatten((tuple(rest), kwargs))
    pairs = zip(leaves, places, strict=True)
    leaves = [x if s is None else put(x, s) for x, s in pairs]
    given, named = tree.unflatten(leaves)
    return join(static, fixed, given), named


def _described(x: Any, place: Any) -> ShapeDtypeStruct:
    own = struct_of(x) if is_type(x) else ShapeDtypeStruct.like(x)
    return own.update(sharding=place)


def _run(call: Call, mesh: Mesh) -> Any:
    """The jitted function for calls of this form."""
    runs = call.own.runs
    key = call.size, call.tree, call.static, call.donated, call.dims
    run = runs.get(key)
    if run is None:
        run = runs[key] = jit(
            _OnDevices(call, mesh),
            static_argnums=call.static or None,
            donate_argnums=call.donated or None,
            out_shardings=_AS_MAPPED,
        )
    return run


def _result_shardings(program: Program) -> list[Any]:
    """The shardings of the map's results."""
    found: list[Any] = []
    for t, row in zip(program.out_types, result_specs(program), strict=True):
        if row is None:
            found.append(None)
            continue
        mesh, spec = row
        d = next((d for d, names in enumerate(spec.dims(t.ndim)) if names), None)
        found.append(_result_place(t.shape, d, mesh))
    return found


def _result_place(shape: Any, d: int | None, mesh: Mesh) -> Any:
    """The sharding of a result with the mapped axis at `d`, or with none (out_axes=None)."""
    if d is None:
        return NamedSharding(mesh, PartitionSpec())
    return PmapSharding.default(shape, d, mesh.flat_devices)


def _name(axis_name: Any) -> Any:
    return "<axis of pmap>" if axis_name is None else axis_name


_AS_MAPPED = FromProgram(_result_shardings)


class _OnDevices:
    """The function of global arrays that maps `fun` over a mesh, for calls of one form."""

    def __init__(self, call: Call, mesh: Mesh):
        functools.update_wrapper(self, call.own.fun)
        self.own, self.names, self.mesh = call.own, call.names, mesh
        self.static, self.dims = call.static, call.dims
        self.name = _name(call.own.axis_name)

    def fingerprint(self, part: Callable[[Any], Any]) -> tuple[Any, ...]:
        """Its fingerprint (see `core.fingerprints`). part: returns the fingerprint of a value."""
        own = self.own
        return (
            *map(part, (own.fun, own.axis_name, own.out_axes)),
            self.static,
            self.dims,
            self.mesh,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fixed, dynamic = split(args, self.static)
        leaves, tree = flatten((tuple(dynamic), kwargs))
        own, dims = self.own, self.dims
        results: list[Any] = []

        def part(*parts: Any) -> list[Any]:
            inner = [x if d is None else _one(x, d) for x, d in zip(parts, dims, strict=True)]
            given, named = tree.unflatten(inner)
            outs, out_tree, places = _results(
                own, self.mesh.size, join(self.static, fixed, given), named
            )
            for x, y, d in zip(parts, inner, dims, strict=True):
                if is_ref(x) and d is not None:
                    x.set(expand_dims(y.get(), (d,)))
            results.append((out_tree, places))
            return [
                x if d is None else expand_dims(x, (d,)) for x, d in zip(outs, places, strict=True)
            ]

        place = NamedSharding(self.mesh, PartitionSpec())
        found = over_parts(
            own.what,
            name_of(own.fun),
            part,
            leaves,
            self.names,
            self.specs(dims),
            lambda program: self.specs(results[0][1]),
            place,
            (self.name,),
            False,
        )
        return results[0][0].unflatten(found)

    def specs(self, axes: Sequence[int | None]) -> list[PartitionSpec]:
        return [
            PartitionSpec() if d is None else PartitionSpec(*[None] * d, self.name) for d in axes
        ]


def _results(
    own: Options, size: int, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], Any, list[int | None]]:
    """The results for an example, their pytree, and the position of the mapped axis in each.

    Those of dtype float0 are part of the pytree, mapped already.
    """
    outs, tree = flatten(called(own.what, own.fun, args, kwargs))
    outs = [
        x if is_trivial(x) else as_input(x, own.what, lambda i=i: path_in("the result", tree, i))
        for i, x in enumerate(outs)
    ]
    skeleton = tree.unflatten(range(tree.num_leaves))
    wanted = broadcast_prefix(own.out_axes, skeleton, f"{own.what}: out_axes", root="result")
    rows = zip(paths_in("result", tree), outs, wanted, strict=True)
    places = [_out_axis(own.what, path, x, w) for path, x, w in rows]
    if not any(map(is_trivial, outs)):
        return outs, tree, places
    rows = list(zip(outs, places, strict=True))
    every = [along(x, d, size) if is_trivial(x) and d is not None else x for x, d in rows]
    return *apart(every, tree), [d for x, d in rows if not is_trivial(x)]


def _one(x: Any, d: int) -> Any:
    """The slice at one index, without the mapped dimension."""
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
            f"{pluralize(ndim, 'dimension')} including the mapped one."
        )
    return axis % ndim


def _as_vmap(call: Call, mesh: Mesh | None = None) -> Any:
    """The map inside another one, whose devices are in use; or op by op, for debugging, with
    results on the devices of a mesh. Traced results stay where they are computed.
    """
    own, found = call.own, []

    def one(*leaves: Any) -> list[Any]:
        found.append(_results(own, call.size, *call.arguments(leaves)))
        return found[-1][0]

    one.__name__ = name_of(own.fun)
    rows = vmap(one, call.dims, axis_name=own.axis_name, axis_size=call.size)(*call.leaves)
    _, tree, places = found[-1]
    outs = [x[0] if d is None else move_axis(x, 0, d) for x, d in zip(rows, places, strict=True)]
    if mesh is not None:
        outs = [
            move(x, _result_place(x.shape, d, mesh)) if x.__class__ is Array else x
            for x, d in zip(outs, places, strict=True)
        ]
    return tree.unflatten(outs)
