"""Pytrees of arrays as one vector, and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import as_operand, asarray, zeros
from shardwise._src.numpy.joining import concatenate
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import Array
from shardwise._src.types.dtypes import is_complex
from shardwise._src.values.convert import cast, strip_weak_type


@dataclass(frozen=True)
class Unravel:
    """The inverse. Compares by value, so that it may be a static argument.

    dtype: of the vector. None if all leaves have the same dtype; they then get the dtype of the
      vector.
    """

    tree: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    dtype: np.dtype | None

    def __call__(self, flat: Any) -> Any:
        sizes = [math.prod(shape) for shape in self.shapes]
        flat = asarray(flat)
        if flat.shape != (sum(sizes),):
            raise ValueError(
                f"unravel takes a vector of {sum(sizes)} elements; got shape {flat.shape}."
            )
        if self.dtype is not None and flat.dtype != self.dtype:
            raise TypeError(
                f"unravel takes a vector of {self.dtype}, to which the leaves were promoted; got "
                f"{flat.dtype}."
            )
        ends = [0, *itertools.accumulate(sizes)]
        leaves = [
            self._leaf(flat[start:end].reshape(shape), dtype)
            for start, end, shape, dtype in zip(
                ends, ends[1:], self.shapes, self.dtypes, strict=False
            )
        ]
        return self.tree.unflatten(leaves)

    def _leaf(self, x: Any, dtype: np.dtype) -> Any:
        if self.dtype is None:
            return x
        return cast(x.real if is_complex(x.dtype) and not is_complex(dtype) else x, dtype)


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """The leaves of a pytree as one vector, and a function that rebuilds a pytree from a vector.

    Args:
      pytree: arrays and scalars in containers. If empty, the vector is empty, of float32.

    Returns:
      (flat, unravel): `flat` has the promoted dtype of the leaves. If their dtypes differed,
      `unravel` requires that dtype and restores each leaf's dtype; else it preserves dtypes.
    """
    leaves, tree = flatten(pytree)
    found = [asarray(strip_weak_type(as_operand(x))) for x in leaves]
    shapes = tuple([x.shape for x in found])
    dtypes = tuple([np.dtype(x.dtype) for x in found])
    if not found:
        return zeros(0, np.float32), Unravel(tree, (), (), None)
    flat = concatenate([x.reshape(-1) for x in found])
    common = None if len(set(dtypes)) == 1 else type_of(flat).dtype
    return flat, Unravel(tree, shapes, dtypes, common)
