"""Arrays and meshes in both libraries, and comparison of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np

import shardwise as sw
import shardwise.numpy
from shardwise._src.runtime.pytree import flatten
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.helpers.comparing import wide
from tests.helpers.meshes import MESH

LIBRARIES = (sw, shardwise.numpy), (jax, jax.numpy)
JAX_MESH = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))


def sharding(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, PartitionSpec(*spec))


def jax_sharding(*spec: Any) -> Any:
    return jax.sharding.NamedSharding(JAX_MESH, jax.sharding.PartitionSpec(*spec))


def ours(value: Any, *spec: Any) -> Any:
    return sw.device_put(value, sharding(*spec))


def theirs(value: Any, *spec: Any) -> Any:
    return jax.device_put(value, jax_sharding(*spec))


def same(of: Callable, *args: Any, rtol: float = 1e-5, **options: Any) -> Any:
    """The result of `of(library, its numpy)(*args, **options)`, which is the same in both."""
    got, wanted = [of(*library)(*args, **options) for library in LIBRARIES]
    assert_same(got, wanted, rtol)
    return got


def assert_same(
    got: Any, expected: Any, rtol: float = 1e-5, placed: bool = True, atol: float | None = None
) -> None:
    """Values, dtypes, weak types and, for arrays over several devices, layouts are equal."""
    mine, other = flatten(got)[0], jax.tree.leaves(expected)
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
            wide(np.asarray(a)), wide(np.asarray(b)), rtol, rtol if atol is None else atol
        )
        if placed and hasattr(b, "sharding") and len(b.sharding.device_set) > 1:
            assert_same_layout(a.sharding, b.sharding, a.shape)


def assert_same_layout(mine: Any, other: Any, shape: tuple) -> None:
    """Each device holds the same shard."""
    held = {d.id: i for d, i in mine.devices_indices_map(shape).items()}
    expected = {d.id: i for d, i in other.devices_indices_map(shape).items()}
    assert held == expected, (mine, other)
