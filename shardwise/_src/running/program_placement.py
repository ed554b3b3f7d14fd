"""Placement of a program, its arguments and results: devices, meshes and shardings.

Committed arguments determine the devices; then `in_shardings`, `out_shardings` and constraints;
then the mesh in scope; otherwise the devices of the first array, or the default device. In
`set_mesh`, they must all be on the devices of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature
from shardwise._src.base.context import current
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.lowering.layouts_and_memory import (
    bare,
    order_in,
    order_of,
    result_kinds,
    stated_kind,
)
from shardwise._src.runtime.compiler import runtime_shardings as shardings
from shardwise._src.runtime.compiler.modules import CompiledModule
from shardwise._src.runtime.target_machines import is_compile_only, target_of
from shardwise._src.transfers.transfer import aligned, default_place
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.devices import is_described
from shardwise._src.types.layout import AutoLayout
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.pmap_sharding import PmapSharding
from shardwise._src.types.sharding import (
    GSPMDSharding,
    NamedSharding,
    SingleDeviceSharding,
    spec_from_tiles,
)
from shardwise._src.types.tiled import TiledSharding
from shardwise._src.types.tiling import Tiling


class Places(NamedTuple):
    """The placement of a program, its arguments and its results.

    devices:   in the program's order; committed: whether its results are committed to them.
    meshes:    the meshes it uses, the leading one first; contains None if none is needed.
    constants, arguments: the sharding of each, as the program takes it.
    results:   the sharding of each; None to let the partitioner choose.
    in_layouts, out_layouts: the layout (see `lowering.layouts_and_memory.Order`) of each argument
               and result; out_kinds: the memory kinds of the results.
    """

    devices: tuple
    committed: bool
    meshes: list[Any]
    constants: list[Any]
    arguments: list[Any]
    results: list[Any]
    in_layouts: list[Any]
    out_layouts: list[Any]
    out_kinds: list[str | None]


def places_for(
    program: Program,
    sigs: Sequence[Signature],
    names: Sequence[str],
    ins: Iterable[Any],
    outs: Iterable[Any],
    constants: Sequence[Any],
) -> Places:
    """The placement for arguments of these signatures.

    names: names of the arguments, for messages; ins, outs: the requested shardings or formats, or
           None.
    constants: hidden arguments of the program.
    """
    formats_in, formats_out = list(ins), list(outs)
    wanted, outs = [*map(bare, formats_in)], [*map(bare, formats_out)]
    held = [c._sig for c in constants if c.__class__ is Array]
    devices, committed = _choose_devices(program, sigs, names, wanted, outs, held)
    shardings = [s.sharding for s in (*sigs, *held)]
    named = [*wanted, *shardings, *outs, *constraint_shardings(program)]
    meshes = _meshes_of([getattr(s, "mesh", None) for s in named], devices)
    for sharding in filter(is_abstract, named):
        mesh = _concrete_mesh(sharding.mesh, meshes)  # raises if missing
        if mesh not in meshes:  # another arrangement of the devices, which results may have
            meshes.append(mesh)
    mesh = meshes[0]
    pairs = zip(outs, program.out_types, strict=True)
    results = [over_devices(_wanted_by_type(s, t), t, devices, meshes) for s, t in pairs]
    arguments = [_target_of(s, w, devices, mesh) for s, w in zip(sigs, wanted, strict=True)]
    hidden = [_place_of(c, devices, mesh) for c in constants]
    rows = zip(formats_in, sigs, arguments, strict=True)
    in_layouts = [order_in(*row) for row in rows]
    pairs = zip(formats_out, program.out_types, strict=True)
    out_layouts = [order_of(f, t) for f, t in pairs]
    rows = zip(outs, results, result_kinds(program), strict=True)
    out_kinds = [kind if asked is None else stated_kind(s) for asked, s, kind in rows]
    return Places(
        devices, committed, meshes, hidden, arguments, results, in_layouts, out_layouts, out_kinds
    )


def check_committed(
    program: Program, sigs: Sequence[Signature], names: Sequence[str], wanted: Sequence[Any]
) -> None:
    """Raises if a committed argument has another sharding than `in_shardings` requests."""
    for i, (sig, asked) in enumerate(zip(sigs, wanted, strict=True)):
        want = bare(asked)
        if asked is None or not sig.committed or asked is sig.sharding:
            continue
        order = order_in(asked, sig, sig.sharding)
        if order is not sig.layout and not isinstance(order, AutoLayout):
            name = names[i] if i < len(names) else f"argument {i}"
            raise ValueError(
                f"jit of {program.name}: {name} of type {sig.type.str_short(True)} is in the "
                f"{_layout_text(sig.layout)}, but in_shardings requires the {_layout_text(order)}. "
                f"Use `device_put` with a Format to change it, or None in in_shardings to accept "
                "it unchanged."
            )
        if want is None or want is sig.sharding:
            continue
        if sig.sharding.device_set != want.device_set or not _alike(sig, want):
            name = names[i] if i < len(names) else f"argument {i}"
            raise ValueError(
                f"jit of {program.name}: {name} of type {sig.type.str_short(True)} is on "
                f"{sig.sharding}, but in_shardings requires {want}. Use `device_put` to move it, "
                "or None in in_shardings to accept it unchanged."
            )


def _layout_text(layout: Any) -> str:
    return "default layout" if layout is None else f"layout {layout}"


def _alike(sig: Signature, sharding: Any) -> bool:
    """Whether a sharding puts the same data on each device as the signature's sharding."""
    ndim = sig.type.ndim
    return aligned(sharding, sig.devices, ndim).is_equivalent_to(sig.sharding, ndim)


def _wanted_by_type(asked: Any, t: Any) -> Any:
    """A result's sharding: the requested one, or the one in its type (Explicit axes)."""
    if asked is not None or t.mesh is None or not t.mesh.are_all_axes_explicit:
        return asked
    return t.explicit_sharding


def over_devices(sharding: Any, t: Any, devices: tuple, meshes: Sequence[Any]) -> Any:
    """A result's sharding, over the program's devices."""
    if sharding is None:
        return None
    if is_abstract(sharding):
        mesh = _concrete_mesh(sharding.mesh, meshes)
        return NamedSharding(mesh, sharding.spec, sharding.memory_kind)
    return sharding if set(sharding.devices) != set(devices) else aligned(sharding, devices, t.ndim)


def _concrete_mesh(abstract: AbstractMesh, meshes: Sequence[Any]) -> Mesh:
    """The mesh of a program that an abstract mesh represents."""
    alike = [m for m in meshes if m is not None and m.shape_tuple == abstract.shape_tuple]
    for m in () if alike else meshes:  # another arrangement of the same devices
        if m is not None and m.size == abstract.size:
            devices = m.devices.reshape(abstract.axis_sizes)
            return Mesh(devices, abstract.axis_names, abstract.axis_types)
    if not alike:
        met = [str(m) for m in meshes if m is not None]
        shown = " and ".join(met) or "no mesh"
        raise ValueError(
            f"a sharding over {abstract} is required, but the program runs on {shown}. Pass an "
            "argument on a mesh of this shape, or enter one with `set_mesh`."
        )
    exact = [m for m in alike if m.abstract_mesh is abstract]
    return exact[0] if exact else alike[0].update(axis_types=abstract.axis_types)


def _place_of(constant: Any, devices: tuple, mesh: Any) -> Any:
    """The sharding for a constant: unchanged, if it is on the program's devices."""
    if constant.__class__ is Array and constant._sig.devices == devices:
        return constant._sig.sharding
    return _replicated(devices, mesh)


def order_of_held(constant: Any, place: Any) -> Any:
    """The layout of a constant under its sharding."""
    return order_in(None, constant._sig, place) if constant.__class__ is Array else None


def _target_of(sig: Signature, wanted: Any, devices: tuple, mesh: Any) -> Any:
    if wanted is not None:
        return aligned(wanted, devices, sig.type.ndim)
    if sig.devices == devices:
        return sig.sharding
    if len(devices) > 1 and set(sig.devices) == set(devices):  # a mesh in another order
        return aligned(sig.sharding, devices, sig.type.ndim)
    return _replicated(devices, mesh)


def _replicated(devices: tuple, mesh: Any, ndim: int = 0) -> Any:
    """ndim: of a result, whose spec has an entry for each dimension over explicit axes."""
    if mesh is None:
        return SingleDeviceSharding(devices[0])
    entries = [None] * ndim if mesh.are_all_axes_explicit else ()
    return NamedSharding(mesh, PartitionSpec(*entries))


def _choose_devices(
    program: Program,
    sigs: Sequence[Signature],
    names: Sequence[str],
    wanted: Sequence[Any],
    outs: Sequence[Any],
    held: Sequence[Signature] = (),
) -> tuple[tuple, bool]:
    """The devices that a program runs on, and whether its results are committed to them."""
    found: tuple | None = None
    by, closed = "", False  # what determines them; whether it is a closed-over array
    given = [*zip(sigs, wanted, strict=True), *((sig, None) for sig in held)]
    for i, (sig, want) in enumerate(given):
        here = want.devices if want is not None else sig.devices if sig.committed else None
        if here is None:
            continue
        name = "a closed-over array" if i >= len(sigs) else f"argument {i}"
        name = names[i] if i < len(names) else name
        shown = f"{name} of type {sig.type.str_short(True)}"
        if found is None:
            found, by, closed = here, shown, i >= len(sigs)
        elif here != found:
            if set(here) != set(found):
                raise ValueError(_mismatch(program, by, found, shown, here))
            if sig.type.mesh is not None:  # the types contain this mesh, in this device order
                found, by = here, shown
    asked = [s for s in [*outs, *constraint_shardings(program)] if s is not None]
    for sharding in asked:
        if is_abstract(sharding):
            continue
        if found is None:
            found, by = sharding.devices, f"an intermediate value ({sharding})"
        elif set(sharding.devices) != set(found):
            raise ValueError(_elsewhere(program, by, found, sharding))
    here = current()
    over_mesh = here.on_mesh or any(map(is_abstract, asked))
    if over_mesh and isinstance(here.mesh, Mesh) and here.mesh.size:
        its = here.mesh.flat_devices
        if found is None:
            found = its
        elif here.on_mesh and not (closed or is_described(its)) and set(found) != set(its):
            raise ValueError(_not_on_mesh(program, by, found, here.mesh))
    if found is not None:
        return found, True
    for sig in sigs:
        if sig.sharding is not None:
            return sig.devices, False
    return default_place().devices, False


def _not_on_mesh(program: Program, by: str, devices: tuple, mesh: Mesh) -> str:
    return (
        f"{program.name} runs on the devices of the mesh in scope, {mesh}, which are "
        f"{_shown(mesh.flat_devices)}, but {by} is on {_shown(devices)}. Move it with "
        "`device_put(x, sharding)`, or call the function in the scope of its own mesh."
    )


def is_abstract(sharding: Any) -> bool:
    return isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh)


def _mismatch(program: Program, one: str, ones: tuple, other: str, others: tuple) -> str:
    remedy = "Move one of them with `device_put(x, sharding)`."
    if is_described(ones) or is_described(others):
        remedy = "Use shardings over the same AbstractMesh for both."
    elif is_compile_only(ones) != is_compile_only(others):
        remedy = (
            "For devices that are only described, pass a `ShapeDtypeStruct` with a sharding over "
            "them as each argument, also for an array that the function closes over."
        )
    elif is_compile_only(ones):
        remedy = "A program is compiled for the devices of one machine."
    return (
        f"{program.name} got arguments on different devices: {one} is on {_shown(ones)}, {other} "
        f"on {_shown(others)}. {remedy}"
    )


def _elsewhere(program: Program, by: str, devices: tuple, sharding: Any) -> str:
    remedy = "Use `device_put` outside of it."
    if is_compile_only(devices) or is_compile_only(sharding.devices):
        remedy = (
            "All of its shardings must be over the devices of one machine: make that mesh from "
            "the same `shardwise.targets.devices(name)`."
        )
    return (
        f"{program.name} runs on one set of devices: {by} is on {_shown(devices)}, but a result or "
        f"intermediate value must be on {_shown(sharding.devices)} ({sharding}). {remedy}"
    )


def _shown(devices: tuple) -> str:
    ids = [d.id for d in devices]
    if is_described(devices):
        return f"{len(ids)} devices that are not attached"
    if (target := target_of(devices[0])) is not None:
        count = "all" if len(ids) == len(target.devices) else f"{len(ids)} of"
        return f"{count} {len(target.devices)} devices of {target.name!r}"
    if len(ids) == 1:
        return f"device {ids[0]}"
    return f"devices {ids}" if len(ids) <= 16 else f"{len(ids)} devices from {ids[0]} to {ids[-1]}"


@derived
def constraint_shardings(program: Program) -> tuple[Any, ...]:
    """The shardings in the program's constraints, including those of nested programs."""
    found = [eqn.params[p] for eqn in walk(program) for p in eqn.op.shardings]
    return tuple([s for s in found if s is not None])


def result_shardings(
    module: CompiledModule, sigs: Sequence[Signature], types: Sequence[ArrayType], places: Places
) -> list[Any]:
    """The result shardings of a loaded module: the requested ones, else the compiled ones.

    A compiled one that is equivalent to the sharding of the first argument is that object: it may
    name mesh axes of size 1, or have entries for all dimensions.
    """
    asked, devices, meshes = places.results, places.devices, places.meshes
    if None not in asked:
        return [*asked]
    actual = (len(devices) > 1 and module.output_shardings()) or [None] * len(asked)
    kinds = NamedSharding, TiledSharding
    here = [s for s in sigs if isinstance(s.sharding, kinds) and s.devices == devices]
    like = next((s for s in here if not isinstance(s.sharding, PmapSharding)), None)

    def chosen(compiled: Any, ndim: int) -> Any:
        if len(devices) == 1:
            found = _replicated(devices, meshes[0])
        else:
            found = _read_back(compiled, ndim, meshes, devices)
        if like is None or like.type.ndim != ndim:
            return found
        return like.sharding if like.sharding.is_equivalent_to(found, ndim) else found

    rows = zip(asked, actual, types, strict=True)
    return [a if a is not None else chosen(s, t.ndim) for a, s, t in rows]


def _meshes_of(meshes: Sequence[Any], devices: tuple) -> list[Any]:
    """The meshes that a program uses, the leading one first; [None] if none is needed."""
    met = [m for m in (*meshes, current().mesh) if isinstance(m, Mesh)]
    found = dict.fromkeys(m for m in met if m.flat_devices == devices)
    if found:
        return list(found)
    return [Mesh(np.array(devices, object), ("devices",)) if len(devices) > 1 else None]


def _read_back(compiled: Any, ndim: int, meshes: Sequence[Mesh], devices: tuple) -> Any:
    """The sharding that the partitioner chose for a result, as a spec over the first mesh
    that can express it. Element dimensions, beyond `ndim`, are unsharded."""
    tiles = shardings.describe(compiled)
    if tiles is None:
        return _replicated(devices, meshes[0], ndim)
    dims, order, replicate_last = tiles
    dims = dims[:ndim] + (dims[-1:] if replicate_last else ())
    for mesh in meshes:
        spec = spec_from_tiles(mesh, dims, order, replicate_last)
        if spec is not None:
            return NamedSharding(mesh, spec)
    return gspmd_from_tiles(devices, dims, order, replicate_last)


def gspmd_from_tiles(devices: tuple, dims: tuple, order: tuple, replicate_last: bool) -> Any:
    tiles = dims[:-1] if replicate_last else dims
    tiling = Tiling(tiles, (len(devices),), (0,), replicate_last, assignment=order)
    return GSPMDSharding(devices, tiling)
