"""`lower_as_mlir`: the exported module of a function with kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.export.exporting import export
from shardwise._src.jit.jit import jit


def lower_as_mlir(
    f: Callable[..., Any],
    *args: Any,
    dynamic_shapes: bool = False,
    device: Any = None,
    static_argnames: Sequence[str] | str = (),
    platforms: Sequence[str] | None = None,
    **kwargs: Any,
) -> str:
    """The text of the module that `export` makes of a function for given arguments.

    Args:
      f: a function; it is jitted if it is not.
      args, kwargs: arrays, or `ShapeDtypeStruct`s, whose sizes may be symbolic dimensions.
      dynamic_shapes: whether they may; without, that is found out from them.
      device: without effect. static_argnames: as of `jit`. platforms: as of `export`.
    """
    jitted: Any = f if hasattr(f, "lower") else jit(f, static_argnames=static_argnames)
    return export(jitted, platforms=platforms)(*args, **kwargs).mlir_module()
