"""Comparison of pytrees of arrays, from this library or others; and of arrays with host values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def close(found: Any, wanted: Any, rtol: float = 1e-5, atol: float | None = None) -> None:
    """Asserts equal pytrees: structures, dtypes, shapes, and values, to a tolerance.

    atol: as rtol if it is not specified.
    """
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(wide(a), wide(b), rtol, rtol if atol is None else atol)


def wide(x: np.ndarray) -> np.ndarray:
    """x, or its values as float32 where NumPy itself does not have the dtype."""
    return x if x.dtype.isbuiltin == 1 else x.astype(np.float32)


def holds(x: Any, values: np.ndarray) -> None:
    """Asserts that an array has these values, and each device the shard of its sharding."""
    np.testing.assert_array_equal(np.asarray(x), values)
    indices = x.sharding.devices_indices_map(values.shape)
    for shard in x.addressable_shards:
        assert shard.index == indices[shard.device] and shard.data.devices() == {shard.device}
        np.testing.assert_array_equal(np.asarray(shard.data), values[shard.index])
