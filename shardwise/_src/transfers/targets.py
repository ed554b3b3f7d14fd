"""Conversion of the sharding arguments of users to sharding objects."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

from shardwise._src.arrays.array import Array
from shardwise._src.base.context import current
from shardwise._src.base.errors import JAXTypeError
from shardwise._src.lowering.layouts_and_memory import bare, order_of
from shardwise._src.messages.formatting import join, pluralize
from shardwise._src.ops.memory_kinds import Space
from shardwise._src.runtime import processes
from shardwise._src.runtime.backend import Device
from shardwise._src.types.layout import AUTO, AutoLayout, Format, Layout
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import UNCONSTRAINED, PartitionSpec
from shardwise._src.types.sharding import NamedSharding, Sharding, SingleDeviceSharding


class _NotASharding(TypeError, ValueError):
    """JAX raises the first for the shardings of `jit`, the second for those of `device_put`."""

    __module__ = "builtins"


_NotASharding.__name__ = _NotASharding.__qualname__ = "TypeError"


def is_sharding_leaf(x: Any) -> bool:
    return isinstance(x, Sharding | PartitionSpec | Device | Space | Format | Layout | AutoLayout)


def as_sharding(x: Any, what: str, missing: type[Exception] = ValueError) -> Any:
    """A sharding, device, bare spec (over the mesh in scope) or None, as a sharding or None.

    missing: the error for a spec if no mesh is in scope.
    """
    if x is None:
        return None
    if isinstance(x, Sharding):
        return x
    if isinstance(x, Device):
        return SingleDeviceSharding(x)
    if isinstance(x, PartitionSpec):
        mesh = current().mesh_for_values
        if mesh is None:
            raise missing(
                f"{what}: a bare {x} needs a mesh in scope. Use NamedSharding(mesh, {x}), or enter "
                "`with shardwise.set_mesh(mesh):`."
            )
        return NamedSharding(mesh, x)
    raise _NotASharding(
        f"{what} takes shardings, devices, PartitionSpecs or None; got {x!r} of type "
        f"{type(x).__name__}."
    )


def as_format(x: Any, what: str, missing: type[Exception] = ValueError) -> Any:
    """`as_sharding`, but formats are allowed and returned unchanged."""
    if x.__class__ is Format:
        return x
    if isinstance(x, Layout | AutoLayout):
        raise ValueError(
            f"{what} does not accept a bare layout; got {x}. Combine it with a sharding: "
            f"Format({'Layout.' if x is AUTO else ''}{x}, sharding)."
        )
    return as_sharding(x, what, missing)


def as_boundary(x: Any, what: str) -> Any:
    """`as_format` for an argument or result of a program: it covers all dimensions."""
    found = as_format(x, what, RuntimeError)
    sharding = bare(found)
    if isinstance(sharding, NamedSharding) and UNCONSTRAINED in sharding.spec:
        raise ValueError(
            f"{what}: {sharding.spec} leaves a dimension unconstrained, "
            "which is supported by with_sharding_constraint only. Name its axes or None here, "
            "or pass no sharding and constrain the value inside of the function."
        )
    return found


def as_placement(x: Any, what: str) -> Any:
    """`as_format` for placing a value now: with an explicit layout or none, or a memory
    space."""
    if isinstance(x, Space):
        return x
    found = as_format(x, what)
    if found.__class__ is not Format or (found.sharding is not None and found.layout is not AUTO):
        return found
    if found.layout is AUTO:
        raise ValueError(
            f"{what}: Layout.AUTO lets the compiler choose the layout for a program, and there is "
            "no program here. Compile a program with it, and use its input_formats."
        )
    return None


def check_fit(
    shardings: Sequence[Any], types: Sequence[Any], names: Sequence[str], what: str
) -> None:
    """Raises if a sharding does not fit the value that it is for."""
    for sharding, t, name in zip(shardings, types, names, strict=True):
        if sharding is None:
            continue
        try:
            if bare(sharding) is not None:
                bare(sharding).shard_shape(t.shape)
                check_manual(bare(sharding))
            order_of(sharding, t)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{what}: {name} of type {t.str_short(True)}: {error}") from None


def check_global(
    sigs: Sequence[Any], shardings: Sequence[Any], names: Sequence[str], what: str
) -> None:
    """Raises if a host value seems to be this process's part, but is used as the full array."""
    if processes.link() is None:
        return
    for sig, asked, name in zip(sigs, map(bare, shardings), names, strict=True):
        if sig.sharding is not None or asked is None or asked.is_fully_addressable:
            continue
        shape = sig.type.shape
        for dim, (size, tiles) in enumerate(zip(shape, asked.tiling(len(shape)).dims, strict=True)):
            if 0 < size < tiles:
                raise ValueError(
                    f"{what}: {name} is a host value of shape {shape}: dimension {dim} has "
                    f"{pluralize(size, 'element')} for {tiles} shards of {asked}, so it seems to "
                    "be this process's part only. Inputs are global: pass the full value, or make "
                    "a global array of the parts with `shardwise.experimental.multihost_utils."
                    "host_local_array_to_global_array(x, mesh, spec)`."
                )


def check_manual(sharding: Any) -> None:
    """Raises if a sharding would split a device's shard inside `shard_map`."""
    mesh = current().mesh
    if mesh is None or not isinstance(sharding, NamedSharding) or not sharding.spec.axes:
        return
    manual = mesh.abstract_mesh.manual_axes
    if not manual:
        return
    if sharding.mesh.shape_tuple != mesh.shape_tuple:
        raise ValueError(
            f"{sharding.spec} is over {sharding.mesh}, but an enclosing map runs this code on "
            f"each device of {mesh}. Inside of it, values can be sharded over that mesh only."
        )
    if named := [a for a in manual if a in sharding.spec.axes]:
        left = [a for a in mesh.axis_names if a not in manual]
        advice = "There are no other axes to shard them over."
        if left:
            advice = f"They can be sharded further over {join(left)} only."
        of_xmap = current().in_xmap
        kind, name = (JAXTypeError, "xmap") if of_xmap else (ValueError, "shardwise.shard_map")
        raise kind(
            f"{sharding.spec} names {join(named)}, but values here are already the shards of "
            f"`{name}` over {join(manual)}. {advice}"
        )


def explicit_mesh(*values: Sequence[Any]) -> Mesh | None:
    """The mesh of the first array, in some lists of values, that has a sharding in its type."""
    for x in chain(*values):
        if x.__class__ is Array and x._sig.type.mesh is not None:
            return x._sig.sharding.mesh
    return None


def in_mesh(mesh: Mesh | None) -> AbstractContextManager[Any]:
    """Resolves meshes of this shape in types to this mesh. Does nothing if one is in scope.

    For eager transforms: values made from types alone (zeros, for example) need devices.
    """
    here = current()
    if mesh is None or here.mesh is not None:
        return nullcontext()
    return here.replace(mesh=mesh).entered()
