"""Arrays and meshes in both libraries, and comparison of their results."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import shardwise as sw
from shardwise._src.runtime.pytree import flatten
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

SIZES, NAMES = (4, 2), ("x", "y")
MESH = Mesh(np.array(sw.devices()[:8]).reshape(SIZES), NAMES)
JAX_MESH = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(SIZES), NAMES)


def sharding(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, PartitionSpec(*spec))


def jax_sharding(*spec: Any) -> Any:
    return jax.sharding.NamedSharding(JAX_MESH, jax.sharding.PartitionSpec(*spec))


def ours(value: Any, *spec: Any) -> Any:
    return sw.device_put(value, sharding(*spec))


def theirs(value: Any, *spec: Any) -> Any:
    return jax.device_put(value, jax_sharding(*spec))


def leaves(tree: Any, of_jax: bool) -> list[Any]:
    return jax.tree.leaves(tree) if of_jax else flatten(tree)[0]


def assert_same(got: Any, expected: Any, rtol: float = 1e-5, placed: bool = True) -> None:
    """Values, dtypes, weak types and, for arrays over several devices, layouts are equal."""
    mine, other = leaves(got, False), leaves(expected, True)
    assert len(mine) == len(other)
    for a, b in zip(mine, other, strict=True):
        if isinstance(b, bool | int | float | complex):
            assert type(a) is type(b) and a == b
            continue
        assert a.dtype == b.dtype and a.shape == b.shape, (a, b)
        if a.dtype == jax.dtypes.float0:
            continue
        weak = [getattr(x, "weak_type", False) for x in (a, b)]  # jax may return NumPy arrays
        assert weak[0] == weak[1], (a, b)
        np.testing.assert_allclose(
            np.asarray(a).astype(_wide(a.dtype)),
            np.asarray(b).astype(_wide(b.dtype)),
            rtol=rtol,
            atol=rtol,
        )
        if placed and hasattr(b, "sharding") and len(b.sharding.device_set) > 1:
            assert_same_layout(a.sharding, b.sharding, a.shape)


def _wide(dtype: Any) -> Any:
    return dtype if np.dtype(dtype).isbuiltin == 1 else np.float32


def assert_same_layout(mine: Any, other: Any, shape: tuple) -> None:
    """Each device holds the same shard."""
    held = {d.id: i for d, i in mine.devices_indices_map(shape).items()}
    expected = {d.id: i for d, i in other.devices_indices_map(shape).items()}
    assert held == expected, (mine, other)
