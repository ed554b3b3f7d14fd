"""Functions at their places of 2024."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import experimental, sharding, util
from shardwise.lib import xla_bridge


def test_widths():
    with experimental.enable_x64():
        assert jnp.asarray(1.0).dtype == np.float64
        with experimental.disable_x64():
            assert jnp.asarray(1.0).dtype == np.float32
    with experimental.enable_x64(False):
        assert jnp.asarray(1.0).dtype == np.float32


def test_computations():
    f = lambda x, n: jnp.sin(x) ** n  # noqa: E731
    x = sw.ShapeDtypeStruct((3,), np.float32)
    found, out = sw.xla_computation(f, static_argnums=1, return_shape=True)(x, 2)
    assert "sine" in found.as_hlo_text() and (out.shape, out.dtype) == ((3,), np.float32)
    assert sw.xla_computation(f, 1)(x, 2).as_hlo_text() == found.as_hlo_text()


def test_trees_backends_and_shardings():
    assert sw.tree_map(lambda x: -x, {"a": 1}) == {"a": -1}
    leaves, tree = sw.tree_flatten([1, (2,)])
    assert sw.tree_unflatten(tree, leaves) == [1, (2,)] and not sw.treedef_is_leaf(tree)
    assert xla_bridge.get_backend().platform == xla_bridge.default_backend()
    assert isinstance(jnp.ones(2).sharding, sharding.XLACompatibleSharding)


def test_sequences():
    assert util.unzip2([(1, "a"), (2, "b")]) == ((1, 2), ("a", "b"))
    assert util.split_list("abcde", [2, 1]) == [["a", "b"], ["c"], ["d", "e"]]
    assert util.split_list_checked("abc", [2, 1]) == [["a", "b"], ["c"]]
    assert util.split_dict({"a": 1, "b": 2}, ["b", "a"]) == [2, 1]
    even, odd, merge = util.split_merge(lambda n: n % 2 == 0, [3, 4, 6])
    assert (even, odd, merge([40, 60], [30])) == ([4, 6], [3], [30, 40, 60])
    assert util.subvals([1, 2, 3], [(0, 9)]) == (9, 2, 3)
    with pytest.raises(ValueError, match="need 4 elements; got 3"):
        util.split_list_checked("abc", [3, 1])
    with pytest.raises(ValueError, match="the keys must be"):
        util.split_dict({"a": 1}, ["b"])
