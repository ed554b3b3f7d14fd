"""Shapes and shardings of parameters, and of states with subtrees like them."""

from typing import NamedTuple

import numpy as np

import shardwise as sw
from shardwise import named
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails
from tests.helpers.meshes import MESH

WEIGHTS = named.parameters({"up": "embed mlp", "bias": ["mlp"]})
SIZES = {"embed": 4, "mlp": 8}
RULES = {"embed": named.stored("x"), "mlp": "y"}


class Moments(NamedTuple):
    count: object
    mean: object
    square: object


def test_shapes():
    found = named.shapes(WEIGHTS, SIZES)
    assert (found["up"].shape, found["bias"][0].shape) == ((4, 8), (8,))
    assert found["up"].sharding is None
    assert found["up"].dtype == np.float32
    with named.rules(RULES, MESH):
        found = named.shapes(WEIGHTS, SIZES, "bfloat16")
    assert found["up"].sharding == NamedSharding(MESH, P("x", "y"))
    assert found["up"].dtype == sw.numpy.bfloat16


def test_a_state_follows_its_parameters():
    weights = {"up": np.ones((4, 8), np.float32), "bias": [np.ones(8, np.float32)]}
    state = {"weights": weights, "opt": (Moments(np.int32(0), weights, weights), ())}
    words = named.like(WEIGHTS, state)
    assert words == {"weights": WEIGHTS, "opt": (Moments("", WEIGHTS, WEIGHTS), ())}
    with named.rules(RULES, MESH):
        placed = sw.device_put(state, named.shardings(words))
    moments = placed["opt"][0]
    assert moments.square["up"].sharding == NamedSharding(MESH, P("x", "y"))
    assert moments.mean["bias"][0].sharding == NamedSharding(MESH, P("y"))
    assert moments.count.sharding.is_fully_replicated
    assert {s.data.shape for s in placed["weights"]["up"].addressable_shards} == {(1, 4)}
    assert named.like("a b", np.ones((2, 2))) == "a b"


def test_trees_that_are_refused():
    state = {"weights": {"up": np.ones((4, 8)), "bias": [np.ones(8)]}, "history": [np.ones(3)]}
    message = (
        "like: state['history'][0] has shape (3,), but is not in a subtree like the "
        "parameters. Specify its axes separately."
    )
    fails(ValueError, message, named.like, WEIGHTS, state)
    message = (
        "shapes: words['up']: 'embed mlp' has 'mlp', whose size is missing; got sizes of 'embed'."
    )
    fails(ValueError, message, named.shapes, {"up": "embed mlp"}, {"embed": 4})
    message = "parameters: words['up']: '3' in 'embed 3' is not an axis name. Expected names."
    fails(ValueError, message, named.parameters, {"up": "embed 3"})
    with named.rules(RULES, MESH):
        message = "shardings: words['up']: `_` in 'embed _': each axis needs a name here."
        fails(ValueError, message, named.shardings, {"up": "embed _"})
        message = (
            "shardings: words['up']: the rules have no entry for 'mpl'. Did you mean 'mlp'? They "
            "have 'embed' and 'mlp'. Add it to the table: with None, it is replicated."
        )
        fails(ValueError, message, named.shardings, {"up": "embed mpl"})
