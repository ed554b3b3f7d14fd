"""The blocks of all programs of a grid, as NumPy arrays: for checks and proofs about launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.control.call import call
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Literal, Program
from shardwise._src.core.program_tools import derived
from shardwise._src.effects.callback import host_context
from shardwise._src.kernels.launch_record import INT
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.shape import concatenate
from shardwise._src.transforms.batch import Axis, batch_program
from shardwise._src.transforms.stage import program_of


def programs_of(grid: Sequence[int]) -> np.ndarray:
    """The indices of all programs, in the order in which they run: int32[axes, programs]."""
    return np.indices(grid).reshape(len(grid), math.prod(grid)).astype(np.int32)


def block_indices(index: Program, ids: np.ndarray, prefetched: Sequence[Any] = ()) -> np.ndarray:
    """The indices of the blocks of programs: int32[programs, dimensions].

    They are computed on the host: if the index program has ops, by the CPU's compiler.
    """
    axes, count = ids.shape
    if not index.eqns:
        rows = dict(zip(index.inputs, (*index.consts, *ids), strict=False))
        columns = [a.value if isinstance(a, Literal) else rows[a] for a in index.outvars]
        columns = [np.broadcast_to(np.asarray(c, np.int32), (count,)) for c in columns]
        return np.stack(columns, 1) if columns else np.zeros((count, 0), np.int32)
    values = [np.asarray(x) for x in prefetched]
    program = _over_grid(index, axes, count, tuple(map(type_of, values)))
    with host_context().entered():
        (found,) = call(*ids, *values, program=program)
        return np.asarray(found)


@derived
def _over_grid(index: Program, axes: int, count: int, prefetched: tuple) -> Program:
    marks = (*[True] * axes, *[False] * len(prefetched))
    many, _ = batch_program(index, Axis(count), marks, (True,) * len(index.outvars))
    types = [*[INT.update(shape=(count,))] * axes, *prefetched]

    def joined(*xs: Any) -> list[Any]:
        columns = [reshape(x, shape=(count, 1)) for x in many(*xs)]
        return [concatenate(*columns, dimension=1)]

    return program_of(joined, types, "index")
