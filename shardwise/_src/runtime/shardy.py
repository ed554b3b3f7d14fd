"""Shardy's propagation, run on a module by itself, to see how it shards the results.

At the boundary of a program Shardy drops mesh axes that do not divide a dimension; inside it keeps
them. What a result that need not divide is sharded like can be seen only there. MLIR's bindings are
imported when they are first needed: few programs need them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

# The mesh's symbol in the module, and the axes of each dimension.
ValueSharding = tuple[str, tuple[tuple[str, ...], ...]]

_lock = threading.Lock()  # the context is not to be used by two threads at once


@functools.cache
def _context() -> Any:
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    for register in (
        sdy.register_dialect, mhlo.register_mhlo_dialect, chlo.register_dialect,
        stablehlo.register_dialect,
    ):
        register(context)
    return context


@contextmanager
def in_context() -> Generator[Any]:
    """MLIR's context with all dialects, for one thread at a time."""
    from jaxlib.mlir import ir

    with _lock, _context() as context, ir.Location.unknown():
        yield context


def propagated_results(text: str) -> list[ValueSharding | None]:
    """How the values that `main` returns are sharded after propagation.

    None: not known, or by a part of a mesh axis.
    """
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    with in_context():
        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(module.operation)
        main: Any = next(op for op in module.body.operations if _is_main(op))
        *_, last = main.regions[0].blocks[0].operations
        return [_sharding_of(main, value) for value in last.operands]


def parsed(text: str) -> Any:
    """The module of a text, for what takes no texts."""
    from jaxlib.mlir import ir

    with _lock, _context():
        return ir.Module.parse(text)


def _is_main(op: Any) -> bool:
    return op.operation.name == "func.func" and op.attributes["sym_name"].value == "main"


def _sharding_of(main: Any, value: Any) -> ValueSharding | None:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import sdy

    if isinstance(value.owner, ir.Block):
        held = main.attributes["arg_attrs"][ir.BlockArgument(value).arg_number]
        found = _attribute(held, "sdy.sharding")
    else:
        held = value.owner.attributes
        found = _attribute(held, "sharding")
        if "sdy.sharding" in held:
            each: Any = sdy.TensorShardingPerValueAttr(held["sdy.sharding"])
            found = each.shardings[ir.OpResult(value).result_number]
    return None if found is None else _read(sdy, found)


def _attribute(held: Any, name: str) -> Any:
    if name in held:  # MLIR's maps have no `get` in every jaxlib
        return held[name]
    return None


def _read(sdy: Any, attribute: Any) -> ValueSharding | None:
    sharding = sdy.TensorShardingAttr(attribute)
    dims: list[tuple[str, ...]] = []
    for part in sharding.dimension_shardings:
        axes = [sdy.AxisRefAttr(axis) for axis in sdy.DimensionShardingAttr(part).axes]
        if any(axis.sub_axis_info is not None for axis in axes):
            return None
        dims.append(tuple(str(axis.name) for axis in axes))
    return str(sharding.mesh_or_ref).removeprefix("@").strip('"'), tuple(dims)
