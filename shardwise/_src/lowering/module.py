"""Lowering: turns a program with shardings into the text of one StableHLO module."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shardwise._src.arrays.signature import padded_type, stored_type
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, programs_in, walk
from shardwise._src.effects.callback import EMITTED, host_functions
from shardwise._src.lowering.emitter import MAX_DENSE, Emitter
from shardwise._src.lowering.layouts_and_memory import PLAIN, USUAL, Slot, Storage
from shardwise._src.lowering.narrow_dtypes import check_dtypes
from shardwise._src.lowering.shard_padding import at_padded_sizes, cut, pad
from shardwise._src.lowering.text import (
    axis_text,
    quoted,
    return_text,
    sharding_dims,
    symbol_text,
    tensor_text,
    turned,
    unreduced_text,
)
from shardwise._src.lowering.total_order_floats import Extremes
from shardwise._src.lowering.xla_workarounds import WithWorkarounds
from shardwise._src.messages import source
from shardwise._src.ops.memory_kinds import in_memory
from shardwise._src.runtime.compiler.shardy import propagated_results, with_attributes
from shardwise._src.runtime.platforms import Platform, platform_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import GSPMDSharding, NamedSharding
from shardwise._src.types.tiling import Tiling


class Labels(NamedTuple):
    """The names of arguments and results in a text. lines: whether it has source locations."""

    arguments: Sequence[str] = ()
    results: Sequence[str] = ()
    lines: bool = True


Located: TypeAlias = bool | Labels | list[Any]


class Meshes:
    """The `sdy.mesh` symbols of one module, over the program's devices in order.

    mesh: the mesh passed to user functions that partition parts of the program; or None.
    extremes: what is known of the maxima and minima of floats.
    """

    def __init__(self, devices: tuple, mesh: Any = None, extremes: Extremes | None = None):
        self.mesh = mesh
        self.groups = itertools.count()  # ids of sharding groups
        self.extremes = extremes or Extremes()
        self._positions = {d: i for i, d in enumerate(devices)}
        self._devices = devices
        self._counts: set[int] = set()  # numbers of tiles along a dimension, by several axes
        self._symbols: dict[tuple, str] = {}
        self._single: set[int] = set()  # positions of devices that have their own mesh
        self._named: dict[str, Any] = {}  # symbol → its mesh, preferably with devices
        self._groups: dict[str, tuple] = {}  # mesh axes that are emitted as one, by its name

    def __len__(self) -> int:
        """The number of devices."""
        return len(self._devices)

    def attribute(self, sharding: Any, ndim: int) -> str:
        """`#sdy.sharding<@mesh, [{"x"}, {}]>` for a sharding over the devices."""
        return f"#sdy.sharding{self.target(sharding, ndim)}"

    def target(self, sharding: Any, ndim: int) -> str:
        if isinstance(sharding, NamedSharding):
            mesh = sharding.mesh
            symbol = self._symbol_of(mesh, *self._axes(sharding, ndim))
            self._counts.update(sharding.tiling(ndim).dims)
            return f"<@{symbol}, [{sharding_dims(sharding, ndim)}]{unreduced_text(sharding)}>"
        tiling = sharding.tiling(ndim)
        grid = tiling.tile_assignment()
        axes = tuple((f"t{i}", n) for i, n in enumerate(grid.shape))
        symbol = self.mesh_of(axes, tuple(grid.ravel().tolist()))
        dims = ", ".join(f'{{"t{i}"}}' if grid.shape[i] > 1 else "{}" for i in range(ndim))
        return f"<@{symbol}, [{dims}]>"

    def _axes(self, sharding: NamedSharding, ndim: int) -> tuple[tuple, tuple[int, ...]]:
        """The axes of a sharding's mesh, as (name, size), and the devices in order."""
        mesh, order = sharding.mesh, self.order(sharding.mesh)
        groups = turned(sharding, ndim)
        if groups is None:
            return tuple(mesh.shape.items()), order
        self._groups.update((axis_text(names), names) for names in groups)
        places = [mesh.axis_names.index(a) for names in groups for a in names]
        grid = np.array(order).reshape(mesh.axis_sizes).transpose(places)
        axes = [(axis_text(names), math.prod(map(mesh.axis_size, names))) for names in groups]
        return tuple(axes), tuple(grid.ravel().tolist())

    def order(self, mesh: Any) -> tuple[int, ...]:
        """The program's numbers for a mesh's devices."""
        if isinstance(mesh, AbstractMesh) or mesh.flat_devices == self._devices:
            return tuple(range(len(self._devices)))  # `lower` checks abstract ones
        try:
            order = tuple(self._positions[d] for d in mesh.flat_devices)
        except KeyError:
            order = ()
        if len(order) != len(self._devices):
            theirs = [d.id for d in mesh.flat_devices]
            raise ValueError(
                f"{mesh!r} is over devices {theirs}, but the program runs on devices "
                f"{[d.id for d in self._devices]}. Use `device_put` to move its arguments there."
            )
        return order

    def symbol(self, mesh: Any) -> str:
        """The symbol of a mesh."""
        return self._symbol_of(mesh, tuple(mesh.shape.items()), self.order(mesh))

    def _symbol_of(self, mesh: Any, axes: tuple, order: tuple[int, ...]) -> str:
        symbol = self.mesh_of(axes, order)
        if symbol not in self._named or isinstance(self._named[symbol], AbstractMesh):
            self._named[symbol] = mesh
        return symbol

    def sharding(self, symbol: str, dims: Sequence[tuple[str, ...]]) -> Any:
        """The sharding that splits dimensions over axes of the mesh with this symbol."""
        mesh = self._named.get(symbol)
        here = isinstance(mesh, AbstractMesh) or (mesh and mesh.flat_devices == self._devices)
        if mesh is not None and here:
            names = {str(name): name for name in mesh.axis_names}
            entries = [
                tuple(n for a in axes for n in self._groups.get(a, (names.get(a),)))
                for axes in dims
            ]
            while entries and not entries[-1]:
                entries.pop()
            return NamedSharding(mesh, PartitionSpec(*entries))
        axes, order = next(key for key, held in self._symbols.items() if held == symbol)
        sizes = dict(axes)
        used = [a for d in dims for a in d]
        grid = np.array(order).reshape([n for _, n in axes])
        names = [name for name, _ in axes]
        placed = [names.index(a) for a in used]
        rest = [i for i in range(len(names)) if i not in placed]
        assignment = tuple(grid.transpose(placed + rest).ravel().tolist())
        tiles = tuple(math.prod([sizes[a] for a in d]) for d in dims)
        total = len(self._devices)
        tiling = Tiling(tiles, (total,), (0,), math.prod(tiles) < total, assignment)
        return GSPMDSharding(self._devices, tiling)

    def mesh_of(self, axes: tuple[tuple[str, int], ...], order: tuple[int, ...]) -> str:
        """The symbol of a mesh of these axes, as (name, size), over devices by number."""
        key = (axes, order)
        if key not in self._symbols:
            number = len(self._symbols)
            self._symbols[key] = f"mesh_{number}" if number else "mesh"
        return self._symbols[key]

    def leading(self) -> str:
        """The symbol of the first mesh; if no mesh was added yet, of a mesh over all devices."""
        if not self._symbols:
            self.mesh_of((("devices", len(self._devices)),), tuple(range(len(self._devices))))
        return next(iter(self._symbols.values()))

    def one_device(self, device: Any) -> str:
        """The symbol of a mesh with one of the devices; the first one if `device` is None."""
        if device is not None and device not in self._positions:
            raise ValueError(
                f"a host callback is to run on device {device.id}, but the program runs on devices "
                f"{[d.id for d in self._devices]}. Pass one of these, or no sharding."
            )
        return self.one_of(0 if device is None else self._positions[device])

    def one_of(self, number: int) -> str:
        """The symbol of a mesh with one of the devices, by number."""
        self._single.add(number)
        return f"device_{number}"

    def tile_counts(self) -> set[int]:
        """The numbers of tiles a dimension may be split into: by an axis, or by a sharding."""
        return self._counts.union(n for axes, _ in self._symbols for _, n in axes)

    def text(self) -> str:
        lines = []
        for (axes, order), symbol in self._symbols.items():
            sizes = ", ".join(f'"{name}"={size}' for name, size in axes)
            ids = "" if order == tuple(range(len(order))) else f", device_ids={list(order)}"
            lines.append(f"sdy.mesh @{symbol} = <[{sizes}]{ids}>")
        lines += [f"sdy.mesh @device_{i} = <[], device_ids=[{i}]>" for i in sorted(self._single)]
        return "\n".join(lines)


def hoisted_constants(program: Program) -> list[Any]:
    """Constants that become hidden arguments: the program's own, and large ones of nested ones."""
    found: dict[int, Any] = {id(value): value for value in program.consts}
    for held in programs_in(program)[1:]:
        for value in held.consts:
            if np.size(value) > MAX_DENSE or not isinstance(value, np.ndarray):
                found[id(value)] = value
    for value in found.values():
        if not hasattr(value, "__array__"):
            raise TypeError(
                f"{program.name} uses {value}, a type, which has no data. Only programs that are "
                "not run, such as those of `eval_shape`, can compute with types."
            )
    return list(found.values())


def module_text(
    program: Program,
    devices: tuple,
    constants: Sequence[Any],
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any],
    donated: Sequence[bool] = (),
    storage: Storage = PLAIN,
) -> str:
    """The module of `program` over `devices`.

    constants:     hidden arguments, which come first (see `hoisted_constants`).
    in_shardings:  one per constant and argument; None on one device.
    out_shardings: one per result; None to let the partitioner choose.
    donated:       one per argument: whether its memory may be reused.
    storage:       non-default memory layouts and memory kinds of arguments and results.

    Arguments and results with uneven shards have the padded sizes of their buffers; the module
    slices off the padding first and adds it last, and works on logical values in between.
    """
    return _module(program, devices, constants, in_shardings, out_shardings, donated, storage)[0]


def module_and_results(
    program: Program,
    devices: tuple,
    constants: Sequence[Any],
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any],
    donated: Sequence[bool] = (),
    storage: Storage = PLAIN,
    located: Located = False,
    mesh: Any = None,
    platform: Platform | None = None,
) -> tuple[str, list[Any]]:
    """`module_text`, and result shardings, with choices filled in that must be known.

    An unspecified result that may be sharded unevenly gets the propagated sharding; its buffer has
    to be padded accordingly. The others stay unspecified (None).

    located: whether the text has source locations of the user's code; labels also name
             arguments and results; a list collects the equations, and lines are then named by the
             equation's index in it.
    mesh:    over the devices; see `Meshes`.
    platform: that it is for; by default that of the devices.
    """
    outs = list(out_shardings)
    plain = at_padded_sizes(program, in_shardings, outs) if len(devices) > 1 else None
    if plain is not None:
        program, outs = plain
        rest = constants, in_shardings, outs, donated, storage, located, mesh, platform
        return _module(program, devices, *rest)[0], outs
    rest = donated, storage, located, mesh, platform
    text, meshes = _module(program, devices, constants, in_shardings, out_shardings, *rest)
    counts = meshes.tile_counts()
    unknown = [
        i
        for i, (t, s) in enumerate(zip(program.out_types, outs, strict=True))
        if s is None and _may_be_uneven(t, counts)
    ]
    if not unknown:
        return text, outs
    found = propagated_results(text)
    for i in unknown:
        if (place := found[i]) is not None:
            outs[i] = _chosen(program.out_types[i], meshes, *place)
    if outs == list(out_shardings):
        return text, outs
    return _module(program, devices, constants, in_shardings, outs, *rest)[0], outs


def _may_be_uneven(t: ArrayType, counts: set[int]) -> bool:
    """Whether a dimension may be split into a number of tiles that does not divide its size."""
    return any(n > 1 and n % count for n in t.shape for count in counts)


def _chosen(t: ArrayType, meshes: Meshes, symbol: str, dims: Sequence[tuple[str, ...]]) -> Any:
    """The propagated sharding of a result, if uneven; else None. Size 1 is not split."""
    kept = [axes if n > 1 else () for n, axes in zip(t.shape, dims, strict=False)]
    sharding = meshes.sharding(symbol, kept)
    return None if sharding.is_even(t.shape) else sharding


def _module(
    program: Program,
    devices: tuple,
    constants: Sequence[Any],
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any],
    donated: Sequence[bool],
    storage: Storage,
    located: Located = False,
    mesh: Any = None,
    platform: Platform | None = None,
) -> tuple[str, Meshes]:
    """The text; if it has maxima of floats that may be between devices, the second one."""
    rest = constants, in_shardings, out_shardings, donated, storage, located
    platform = platform or platform_of(devices[0])
    meshes = Meshes(devices, mesh)
    text = _emitted(meshes, platform, program, *rest)
    if meshes.extremes.reads:
        meshes = Meshes(devices, mesh, meshes.extremes.decided(text))
        text = _emitted(meshes, platform, program, *rest)
    return text, meshes


def _emitted(
    meshes: Meshes,
    platform: Platform,
    program: Program,
    constants: Sequence[Any],
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any],
    donated: Sequence[bool],
    storage: Storage,
    located: Located,
) -> str:
    if isinstance(located, list):  # the text is emitted a second time
        located.clear()
    labels = Labels()
    if isinstance(located, Labels):
        labels, located = located, located.lines
    check_dtypes(program, platform)
    storage.check(program.name, platform)
    emitter = (
        WithWorkarounds(meshes, len(meshes), located)
        if len(meshes) > 1
        else Emitter(located=located)
    )
    emitter.host_numbers = host_functions(program)
    emitter.platform = platform
    if located is True or (source.names_used and has_names(program)):
        emitter.scope = f"jit({program.name})"
    count = len(constants)
    in_types = [type_of(c) for c in constants] + list(program.in_types)
    args = [f"%arg{i}" for i in range(len(in_types))]
    rows = list(zip(args, in_types, in_shardings, strict=True))
    kept = storage.ins or (USUAL,) * len(rows)
    names = [_entered(emitter, *row, slot) for row, slot in zip(rows, kept, strict=True)]
    emitter.hoisted = {id(c): n for c, n in zip(constants, names, strict=False)}
    own = [emitter.hoisted[id(c)] for c in program.consts]
    named = len(emitter.host_numbers)
    results = emitter.program(program, own + names[count:])
    program.derived.pop(EMITTED, None)
    if len(emitter.host_numbers) > named:
        program.derived[EMITTED] = [*emitter.host_numbers][named:]
    out_rows = list(zip(results, program.out_types, out_shardings, strict=True))
    given = storage.outs or (USUAL,) * len(out_rows)
    results = [_left(emitter, *row, slot) for row, slot in zip(out_rows, given, strict=True)]
    donors = [False] * count + (list(donated) or [False] * len(program.invars))
    places = [f" loc({quoted(name)})" for name in labels.arguments] or [""] * len(program.invars)
    places = [""] * count + places
    ins = ", ".join(
        _argument_text(meshes, *row, donor, slot, place)
        for row, donor, slot, place in zip(rows, donors, kept, places, strict=True)
    )
    held = [padded_type(t, s) for _, t, s in out_rows]
    infos = [f"jax.result_info = {quoted(name)}" for name in labels.results] or [""] * len(held)
    outs = ", ".join(
        tensor_text(p) + _attributes(meshes, p, s, False, slot, info)
        for p, s, slot, info in zip(held, out_shardings, given, infos, strict=True)
    )
    body = "\n".join([*emitter.lines, return_text("func.return", results, held)])
    head = (
        f"module @jit_{symbol_text(program.name)} attributes "
        f"{{mhlo.num_partitions = {len(meshes)} : i32, mhlo.num_replicas = 1 : i32}} {{"
    )
    main = f"func.func public @main({ins}) -> ({outs}) {{\n{body}\n}}"
    parts = [head, meshes.text(), main, *emitter.functions, "}"]
    text = "\n".join(p for p in parts if p) + "\n"
    if quoted(source.MARK)[1:-1] in text:
        text = with_attributes(text, source.attributes_of)
    return text


@derived
def has_names(program: Program) -> bool:
    """Whether an equation of it, or of a nested program, is in a `named_scope`."""
    return any(source.has_names(source.scope_of(eqn.site)) for eqn in walk(program))


def _entered(emitter: Emitter, name: str, t: ArrayType, sharding: Any, slot: Slot) -> str:
    """An argument in device memory, without its padding."""
    if slot.kind is not None:
        name = in_memory(emitter, name, padded_type(t, sharding), None)
    return cut(emitter, name, t, sharding)


def _left(emitter: Emitter, name: str, t: ArrayType, sharding: Any, slot: Slot) -> str:
    """A result with its padding, in the requested memory kind."""
    if sharding is None and isinstance(t.dtype, ExtendedDType):  # keys are not split across devices
        stored = stored_type(t)
        name = emitter.replicate_dims(name, stored, range(t.ndim, stored.ndim))
    if sharding is not None and sharding.partial_axes[0]:
        partial = t.spec is not None and bool(t.spec.unreduced)
        name = emitter.constrained(name, t, sharding, partial)
    elif t.mesh is not None and sharding is not None and not name.startswith("%arg"):
        is_placed = emitter.lines[-1].startswith(f"{name} = sdy.sharding_constraint")
        name = name if is_placed else emitter.placed_by_type(name, t)
    name = pad(emitter, name, t, sharding)
    if slot.kind is None:
        return name
    return in_memory(emitter, name, padded_type(t, sharding), slot.kind)


def _argument_text(
    meshes: Meshes, name: str, t: Any, sharding: Any, donated: bool, slot: Slot, place: str
) -> str:
    held = padded_type(t, sharding)
    attributes = _attributes(meshes, held, sharding, donated, slot)
    return f"{name}: {tensor_text(held)}{attributes}{place}"


def _attributes(
    meshes: Meshes, held: ArrayType, sharding: Any, donated: bool, slot: Slot, info: str = ""
) -> str:
    """The attributes of an argument or result, whose buffer has type `held`; `info` is another."""
    if sharding is None and slot is USUAL and not donated and not info:
        return ""
    parts = slot.attributes()
    if info:
        parts.append(info)
    if sharding is not None:
        parts.append(f"sdy.sharding = {meshes.attribute(sharding, held.ndim)}")
    if donated:
        parts.append("jax.buffer_donor = true")
    return f" {{{', '.join(parts)}}}" if parts else ""
