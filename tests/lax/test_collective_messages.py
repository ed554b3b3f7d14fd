"""Error messages for bad calls of each collective: the function, argument, axis and fix."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import failing_calls, fails, raised

X = np.ones((4, 3), np.float32)
LINE = Mesh(np.array(sw.devices()[:4]), ("i",))
PERM = [(0, 1), (1, 0)]

# Calls on one value, x, over an axis of 4 indices.
MISTAKES = """
lax.psum(x, ("i", "i"))
    ValueError: shardwise.lax.psum: axis 'i' is given twice, in ('i', 'i'). Name each once.
lax.psum(x, 3)
    ValueError: shardwise.lax.psum: integers among the axes refer to dimensions of the operand; got
    3 for f32[3]. Refer to a mapped axis by its name, the axis_name of `shardwise.vmap`.
lax.psum(x, ("i", 0, -1))
    ValueError: shardwise.lax.psum: a dimension is given twice, in (0, -1) for f32[3]. Name each
    once.
lax.psum(x, "i", axis_index_groups=[[0, 1], [2, 2]])
    ValueError: shardwise.lax.psum: axis_index_groups must contain each of the 4 indices of axis
    'i' once; got [[0, 1], [2, 2]].
lax.psum(x, "i", axis_index_groups=[0, 1, 2, 3])
    TypeError: shardwise.lax.psum: axis_index_groups must be lists of indices, such as [[0, 1], [2,
    3]]; got [0, 1, 2, 3].
lax.pmax(x, ("i", 0), axis_index_groups=[[0, 1], [2, 3]])
    ValueError: shardwise.lax.pmax: axis_index_groups partition the indices along named axes; got
    axis 'i' and dimensions (0,). Call it once for each.
lax.pmean(x, "i", axis_index_groups=[[0, 1]])
    ValueError: shardwise.lax.pmean: axis_index_groups must contain each of the 4 indices of axis
    'i' once; got [[0, 1]].
lax.all_gather(x, "i", axis_index_groups=[[0, 1, 2], [3]])
    ValueError: shardwise.lax.all_gather: axis_index_groups must have the same size, as all results
    have the same shape; got [[0, 1, 2], [3]].
lax.all_gather(x, "i", axis=5)
    ValueError: shardwise.lax.all_gather: axis=5 is not a dimension of the result, which has one
    more than f32[3]: it must be from -2 to 1.
lax.all_gather(x[0], "i", tiled=True)
    ValueError: shardwise.lax.all_gather: axis=0 is not a dimension of f32[]: it has none.
lax.all_gather(x, "i", axis="rows")
    TypeError: shardwise.lax.all_gather: axis must be an integer; got 'rows' of type str.
lax.all_gather_invariant(x, "i", axis=2)
    ValueError: shardwise.lax.all_gather_invariant: axis=2 is not a dimension of the result, which
    has one more than f32[3]: it must be from -2 to 1.
lax.psum_scatter(x, "i")
    ValueError: shardwise.lax.psum_scatter: the dimension scatter_dimension=0 of f32[3] is split
    among the 4 indices of axis 'i', so its size must be the number of them; got 3.
lax.psum_scatter(x, "i", scatter_dimension=1)
    ValueError: shardwise.lax.psum_scatter: scatter_dimension=1 is not a dimension of f32[3]: it
    must be from -1 to 0.
lax.psum_scatter(x, "i", axis_index_groups=[[0, 1], [2, 3]], tiled=True)
    ValueError: shardwise.lax.psum_scatter: the dimension scatter_dimension=0 of f32[3] is split
    among the 2 indices of a group of axis 'i', so its size must be a multiple of the number of
    them; got 3.
lax.all_to_all(x, "i", 0, 0, tiled=True)
    ValueError: shardwise.lax.all_to_all: the dimension split_axis=0 of f32[3] is split among the 4
    indices of axis 'i', so its size must be a multiple of the number of them; got 3.
lax.all_to_all(x, "i", 1, 0)
    ValueError: shardwise.lax.all_to_all: split_axis=1 is not a dimension of f32[3]: it must be
    from -1 to 0.
lax.all_to_all(x, "i", 0, -2)
    ValueError: shardwise.lax.all_to_all: concat_axis=-2 is not a dimension of f32[3]: it must be
    from -1 to 0.
lax.all_to_all(x, "i", 0, 0, axis_index_groups=[[0], [1, 2, 3]])
    ValueError: shardwise.lax.all_to_all: axis_index_groups must have the same size, as all results
    have the same shape; got [[0], [1, 2, 3]].
lax.pswapaxes(x, "i", 0)
    ValueError: shardwise.lax.pswapaxes: the dimension axis=0 of f32[3] is split among the 4
    indices of axis 'i', so its size must be the number of them; got 3.
lax.pswapaxes(x, "i", 1)
    ValueError: shardwise.lax.pswapaxes: axis=1 is not a dimension of f32[3]: it must be from -1 to
    0.
lax.ppermute(x, "i", [(0, 1), (2, 1)])
    ValueError: shardwise.lax.ppermute: each destination in perm must be one of the 4 indices of
    axis 'i', and occur once; got [1, 1].
lax.ppermute(x, "i", [(0, 1), (4, 2)])
    ValueError: shardwise.lax.ppermute: each source in perm must be one of the 4 indices of axis
    'i', and occur once; got [0, 4].
lax.ppermute(x, "i", [1, 0, 3, 2])
    TypeError: shardwise.lax.ppermute: perm must be a list of pairs of indices (source,
    destination), such as [(0, 1), (1, 0)]; got [1, 0, 3, 2].
lax.pshuffle(x, "i", [0, 1])
    ValueError: shardwise.lax.pshuffle: perm must be a permutation of the 4 indices of axis 'i';
    got [0, 1].
lax.pshuffle(x, "i", PERM)
    TypeError: shardwise.lax.pshuffle: each of perm must be an integer; got (0, 1) of type tuple.
lax.pbroadcast(x, "i", 4)
    ValueError: shardwise.lax.pbroadcast: source must be one of the 4 indices of axis 'i'; got 4.
lax.pbroadcast(x, "i", 0.5)
    TypeError: shardwise.lax.pbroadcast: source must be an integer; got 0.5 of type float.
lax.pcast(x, "i", to="invarying")
    ValueError: shardwise.lax.pcast: to must be 'varying', 'reduced' or 'unreduced'; got
    'invarying'. To make a value invarying, use a collective, such as `shardwise.lax.psum`.
lax.all_gather(x, "i", to="unreduced")
    ValueError: all_gather: to must be 'varying', 'invarying' or 'reduced'; got 'unreduced'.
lax.axis_index(("i", "i"))
    ValueError: shardwise.lax.axis_index: axis 'i' is given twice, in ('i', 'i'). Name each once.
"""


@failing_calls(MISTAKES)
def test_over_a_map_and_over_a_mesh(call, error):
    def f(x):
        return eval(call, globals(), {"x": x})

    assert raised(sw.vmap(f, axis_name="i"), X) == error
    over = {"mesh": LINE, "in_specs": P("i"), "out_specs": P("i"), "check_vma": False}
    assert raised(sw.shard_map(lambda x: f(x[0])[None], **over), X) == error


CALLS = {
    "psum": (X, "k"),
    "pmean": (X, "k"),
    "pmax": (X, ("k", "i")),
    "pmin": (X, "k"),
    "all_gather": (X, "k"),
    "all_gather_invariant": (X, "k"),
    "all_to_all": (X, "k", 0, 0),
    "psum_scatter": (X, "k"),
    "ppermute": (X, "k", PERM),
    "pshuffle": (X, "k", [1, 0]),
    "pswapaxes": (X, "k", 0),
    "pbroadcast": (X, "k", 0),
    "axis_index": ("k",),
    "axis_size": ("k",),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_axis_that_is_not_bound(name):
    def call(x):
        return getattr(lax, name)(*CALLS[name])

    for scope, f in (("none", call), ("'i'", sw.vmap(call, axis_name="i"))):
        fails(
            NameError,
            f"shardwise.lax.{name}: unbound axis name: k. The axes in scope are: "
            f"{scope}. To bind an axis name, wrap the call in a map: "
            "`shardwise.vmap(f, axis_name='k')` or `shardwise.shard_map`.",
            f,
            X,
        )


def test_a_mesh_axis_that_is_not_manual():
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("i", "k"))
    f = sw.shard_map(
        lambda x: lax.psum(x, "k"), mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={"i"}
    )
    fails(
        NameError,
        "shardwise.lax.psum: unbound axis name: k. The axes in scope are: 'i'. 'k' is "
        "an axis of the mesh, which is only bound inside `shardwise.shard_map`. To bind an axis "
        "name, wrap the call in a map: `shardwise.vmap(f, axis_name='k')` or "
        "`shardwise.shard_map`.",
        f,
        X,
    )
