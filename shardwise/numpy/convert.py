"""From what users pass to what ops take: arrays of one shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.context import ROOT
from shardwise.core.infer import type_of
from shardwise.ops.basis import broadcast_in_dim
from shardwise.ops.cast import convert_element_type
from shardwise.types.promotion import lattice_join


def cast(x: Any, dtype: Any, weak: bool = False) -> Any:
    """`x` as `dtype`; scalars stay host values, so that they become literals."""
    t = type_of(x)
    if t.dtype == dtype and t.weak_type == weak:
        return x
    if t.ndim == 0 and not hasattr(x, "aval") and not weak:
        return np.asarray(x).astype(dtype)[()]
    return convert_element_type(x, dtype=dtype, weak=weak)


def promote(*args: Any) -> list[Any]:
    """The arguments in their common dtype."""
    types = [type_of(a) for a in args]
    dtype, weak = lattice_join(*[(t.dtype, t.weak_type) for t in types])
    return [cast(a, dtype, weak) for a in args]


def broadcast(*args: Any) -> list[Any]:
    """The arguments in their common shape by NumPy's rule; scalars are left to the ops."""
    types = [type_of(a) for a in args]
    shapes = {t.shape for t in types if t.shape}
    if len(shapes) <= 1:
        return list(args)
    shape = np.broadcast_shapes(*shapes)
    return [
        a if not t.shape else broadcast_to(a, shape) for a, t in zip(args, types, strict=True)
    ]


def broadcast_to(x: Any, shape: tuple) -> Any:
    t = type_of(x)
    if t.shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, dims=tuple(range(len(shape) - t.ndim, len(shape))))


def device_array(x: Any) -> Any:
    """A host value as an uncommitted array on the default device."""
    return ROOT.interpreter.array(x)
