"""Lowering: a program with shardings becomes the text of one StableHLO module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.core.infer import type_of
from shardwise.core.program import Program
from shardwise.engine.emitter import MAX_DENSE, Emitter, return_text, sharding_dims, tensor_text
from shardwise.engine.signature import physical_type
from shardwise.types.mesh import AbstractMesh
from shardwise.types.sharding import NamedSharding


class _Meshes:
    """The `sdy.mesh` symbols of one module, over the program's devices in their order."""

    def __init__(self, devices: tuple):
        self._positions = {d: i for i, d in enumerate(devices)}
        self._devices = devices
        self._symbols: dict[tuple, str] = {}

    def attribute(self, sharding: Any, ndim: int) -> str:
        """`#sdy.sharding<@mesh, [{"x"}, {}]>` of a sharding over the devices."""
        return f"#sdy.sharding{self.target(sharding, ndim)}"

    def target(self, sharding: Any, ndim: int) -> str:
        if isinstance(sharding, NamedSharding):
            symbol = self._symbol(tuple(sharding.mesh.shape.items()), self._order(sharding))
            return f"<@{symbol}, [{sharding_dims(sharding, ndim)}]>"
        tiling = sharding.tiling(ndim)
        grid = tiling.tile_assignment()
        axes = tuple((f"t{i}", n) for i, n in enumerate(grid.shape))
        symbol = self._symbol(axes, tuple(grid.ravel().tolist()))
        dims = ", ".join(f'{{"t{i}"}}' if grid.shape[i] > 1 else "{}" for i in range(ndim))
        return f"<@{symbol}, [{dims}]>"

    def _order(self, sharding: Any) -> tuple[int, ...]:
        if isinstance(sharding.mesh, AbstractMesh) or sharding.devices == self._devices:
            return tuple(range(len(self._devices)))
        try:
            order = tuple(self._positions[d] for d in sharding.devices)
        except KeyError:
            order = ()
        if len(order) != len(self._devices):
            theirs = [d.id for d in sharding.devices]
            raise ValueError(
                f"{sharding!r} is over devices {theirs}, but the program runs on devices "
                f"{[d.id for d in self._devices]}. Use `device_put` to bring its arguments there."
            )
        return order

    def _symbol(self, axes: tuple, order: tuple[int, ...]) -> str:
        key = (axes, order)
        if key not in self._symbols:
            number = len(self._symbols)
            self._symbols[key] = f"mesh_{number}" if number else "mesh"
        return self._symbols[key]

    def text(self) -> str:
        lines = []
        for (axes, order), symbol in self._symbols.items():
            sizes = ", ".join(f'"{name}"={size}' for name, size in axes)
            ids = "" if order == tuple(range(len(order))) else f", device_ids={list(order)}"
            lines.append(f"sdy.mesh @{symbol} = <[{sizes}]{ids}>")
        return "\n".join(lines)


def hoisted_constants(program: Program) -> list[Any]:
    """Constants that become hidden arguments: those of the program, and large ones of held ones."""
    found: dict[int, Any] = {id(value): value for value in program.constants}
    for eqn in program.equations:
        for held in eqn.programs():
            for value in hoisted_constants(held):
                if np.size(value) > MAX_DENSE or not isinstance(value, np.ndarray):
                    found[id(value)] = value
    return list(found.values())


def module_text(
    program: Program,
    devices: tuple,
    constants: Sequence[Any],
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any],
    donated: Sequence[bool] = (),
) -> str:
    """The module of `program` over `devices`.

    constants:     hidden arguments, which come first (see `hoisted_constants`).
    in_shardings:  one per constant and argument; None on one device.
    out_shardings: one per result; None where the partitioner chooses.
    donated:       one per argument: whether its memory may be reused.
    """
    meshes = _Meshes(devices)
    emitter = Emitter(meshes.target if len(devices) > 1 else None, len(devices))
    count = len(constants)
    in_types = [type_of(c) for c in constants] + list(program.in_types)
    names = [f"%arg{i}" for i in range(len(in_types))]
    emitter.hoisted = {id(c): n for c, n in zip(constants, names, strict=False)}
    own = [emitter.hoisted[id(c)] for c in program.constants]
    results = emitter.program(program, own + names[count:])
    donors = [False] * count + (list(donated) or [False] * len(program.arguments))
    rows = zip(names, in_types, in_shardings, donors, strict=True)
    ins = ", ".join(_argument_text(meshes, *row) for row in rows)
    outs = ", ".join(
        tensor_text(t) + _attributes(meshes, t, s, False)
        for t, s in zip(program.out_types, out_shardings, strict=True)
    )
    body = "\n".join([*emitter.lines, return_text("func.return", results, program.out_types)])
    safe = "".join(c if c.isalnum() else "_" for c in program.name)
    head = (
        f"module @jit_{safe} attributes {{mhlo.num_partitions = {len(devices)} : i32, "
        "mhlo.num_replicas = 1 : i32} {"
    )
    main = f"func.func public @main({ins}) -> ({outs}) {{\n{body}\n}}"
    parts = [head, meshes.text(), main, *emitter.functions, "}"]
    return "\n".join(p for p in parts if p) + "\n"


def _argument_text(meshes: _Meshes, name: str, t: Any, sharding: Any, donated: bool) -> str:
    return f"{name}: {tensor_text(t)}{_attributes(meshes, t, sharding, donated)}"


def _attributes(meshes: _Meshes, t: Any, sharding: Any, donated: bool) -> str:
    parts = []
    if sharding is not None:
        parts.append(f"sdy.sharding = {meshes.attribute(sharding, physical_type(t).ndim)}")
    if donated:
        parts.append("jax.buffer_donor = true")
    return f" {{{', '.join(parts)}}}" if parts else ""
