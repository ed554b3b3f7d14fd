"""Groups of replicas along named axes, in which the last axis is the fastest."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.lazy import public


@public("shardwise.interpreters.xla")
class AxisEnv(NamedTuple):
    """Named axes, the outermost first. nreps: the number of replicas, a multiple of all sizes."""

    nreps: int
    names: tuple[Any, ...]
    sizes: tuple[int, ...]


def axis_groups(axis_env: AxisEnv, name: Any) -> tuple[tuple[int, ...], ...]:
    """The replicas that differ only along an axis, or along several: a tuple for each group.

    Raises:
      NameError: if an axis is not one of the environment.
    """
    names = name if isinstance(name, tuple | list) else (name,)
    for each in names:
        if each not in axis_env.names:
            raise NameError(f"axis_groups: there is no axis {each!r}; there are {axis_env.names}.")
    inside = axis_env.nreps // math.prod(axis_env.sizes)
    at = [axis_env.names.index(each) for each in names]
    grid = np.arange(axis_env.nreps).reshape(*axis_env.sizes, inside)
    rows = np.moveaxis(grid, at, range(len(at))).reshape(math.prod(grid.shape[i] for i in at), -1)
    return tuple(tuple(group) for group in rows.T.tolist())
