"""Modules of exported programs: as `lowering.module`, with JAX's calling convention.

Arguments and results have their logical types, constants are in the module text, and a module for
several platforms takes the index of the platform that it runs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.signature import stored_type
from shardwise._src.control.expand import expanded
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.export.exported_data import type_in_module
from shardwise._src.export.symbolic_lowering import SymbolicEmitter, is_symbolic
from shardwise._src.lowering.emitter import Emitter
from shardwise._src.lowering.module import Meshes, hoisted_constants
from shardwise._src.lowering.text import return_text, symbol_text, tensor_text
from shardwise._src.lowering.total_order_floats import Extremes
from shardwise._src.lowering.xla_workarounds import WithWorkarounds
from shardwise._src.random.keys import key_data
from shardwise._src.runtime.platforms import Platform, named
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import float0
from shardwise._src.types.extended import ExtendedDType


def exported_text(
    program: Program,
    devices: tuple,
    ins: Sequence[Any],
    outs: Sequence[Any],
    platforms: Sequence[str],
    out_types: Sequence[ArrayType],
) -> str:
    """The text of the exported module.

    devices:   the devices that it runs on; only devices of meshes that it names matter.
    ins, outs: the sharding of each argument and result, or None.
    out_types: of all results, including those of dtype float0, which the program lacks.
    """
    meshes = Meshes(devices, extremes=Extremes(unknown=True))  # callers choose the shardings
    several = len(devices) > 1
    types = program.in_types
    symbolic = is_symbolic(*types)
    args = [f"%arg{i}" for i in range(len(types))]
    emitter = SymbolicEmitter() if symbolic else Emitter()
    if several:
        emitter = WithWorkarounds(meshes, len(devices))
    targets = [named(name) for name in platforms]
    emitter.platform = targets[0]
    if isinstance(emitter, SymbolicEmitter):
        emitter.bind(types, args, program.name)
    if len(platforms) == 1:
        results = _body(emitter, program, args)
    else:
        results = _cases(emitter, program, args, targets)
    given = iter(results)
    results = [
        emitter.constant(False, type_in_module(t)) if t.dtype == float0 else next(given)
        for t in out_types
    ]
    heads = [_typed(meshes, *row) for row in zip(args, types, ins, strict=True)]
    if len(platforms) > 1:
        heads.insert(0, '%platform: tensor<i32> {jax.global_constant = "_platform_index"}')
    tails = [_typed(meshes, "", *row) for row in zip(out_types, outs, strict=True)]
    held = [type_in_module(t) for t in out_types]
    body = "\n".join([*emitter.lines, return_text("func.return", results, held)])
    dynamic = "true" if symbolic or len(platforms) > 1 else "false"
    head = (
        f"module @jit_{symbol_text(program.name)} attributes "
        f"{{jax.uses_shape_polymorphism = {dynamic}, "
        f"mhlo.num_partitions = {len(devices)} : i32, mhlo.num_replicas = 1 : i32}} {{"
    )
    main = f"func.func public @main({', '.join(heads)}) -> ({', '.join(tails)}) {{\n{body}\n}}"
    parts = [head, meshes.text() if several else "", main, *emitter.functions, "}"]
    return "\n".join(p for p in parts if p) + "\n"


def _typed(meshes: Meshes, name: str, t: ArrayType, sharding: Any) -> str:
    held = type_in_module(t)
    place = (
        "" if sharding is None else (f" {{sdy.sharding = {meshes.attribute(sharding, held.ndim)}}}")
    )
    return f"{name}{': ' if name else ''}{tensor_text(held)}{place}"


def _body(emitter: Emitter, program: Program, args: Sequence[str]) -> list[str]:
    """Writes the constants, then the program."""
    program = expanded(program, emitter.platform)
    for value in hoisted_constants(program):
        emitter.hoisted[id(value)] = _constant(emitter, value)
    own = [emitter.hoisted[id(c)] for c in program.consts]
    return emitter.program(program, [*own, *args])


def _cases(
    emitter: Emitter, program: Program, args: Sequence[str], platforms: Sequence[Platform]
) -> list[str]:
    """Writes the program once if it is the same on all platforms; else a branch for each."""
    texts = []
    for e in map(emitter.for_platform, platforms):
        e.functions, e.taken = [], {"main"}
        texts.append((_body(e, program, args), e.lines, e.functions))
    if all(text == texts[0] for text in texts):
        return _body(emitter, program, args)
    types = [stored_type(t) for t in program.out_types]
    outs = ", ".join(map(tensor_text, types))
    regions = []
    for platform in platforms:
        e = emitter.for_platform(platform)
        results = _body(e, program, args)
        lines = "\n".join([*e.lines, return_text("stablehlo.return", results, types)])
        regions.append(f"{{\n{lines}\n}}")
        emitter.count = max(emitter.count, e.count)
    return emitter.lets(
        f'"stablehlo.case"(%platform) ({", ".join(regions)}) : (tensor<i32>) -> ({outs})',
        len(types),
    )


def _constant(emitter: Emitter, value: Any) -> str:
    """A constant of any size, as module text."""
    t = type_of(value)
    if isinstance(t.dtype, ExtendedDType):
        value = key_data(value)
        t = type_of(value)
    host = np.asarray(value)
    narrow = t.dtype.kind == "b" or t.dtype.name.endswith(("int2", "int4", "e2m1fn"))
    wide = np.dtype("float32") if t.dtype.name.endswith("e2m1fn") else np.dtype("int8")
    held = array_type(t.shape, wide if narrow else t.dtype)
    data = np.ascontiguousarray(host.astype(held.dtype)).tobytes()
    body = f'"0x{data.hex().upper()}"' if data else ""
    name = emitter.let(f"stablehlo.constant dense<{body}> : {tensor_text(held)}")
    if not narrow:
        return name
    types = f"({tensor_text(held)}) -> {tensor_text(t)}"
    return emitter.let(f"stablehlo.convert {name} : {types}")
