"""`shardwise.ops`: reductions over segments, compared with jax's."""

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.helpers.errors import message, messages
from tests.helpers.everyday import everyday

KINDS = ["sum", "prod", "max", "min"]
IDS = np.array([0, 2, 2, -1, 5, 0, 9, 3])
rng = np.random.default_rng(0)


def both(kind, *args, **how):
    ours, theirs = (getattr(m.ops, f"segment_{kind}")(*args, **how) for m in (sw, jax))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)
    return ours


@pytest.mark.parametrize("kind", everyday(KINDS, 1))
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("how", [{}, {"mode": "clip"}, {"bucket_size": 3}], ids=str)
def test_like_jax(kind, dtype, how):
    data = rng.integers(0, 5, (8, 3)).astype(dtype)
    both(kind, data, IDS, 6, **how)


@pytest.mark.parametrize("kind", KINDS)
def test_how_many_segments_there_are_is_told_by_the_ids(kind):
    assert both(kind, np.arange(4.0, dtype=np.float32), np.array([0, 0, 2, 2])).shape == (3,)
    nothing = np.zeros(0, np.float32), np.zeros(0, int)
    assert getattr(sw.ops, f"segment_{kind}")(*nothing).shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [8, 10])
def test_sharded_evenly_or_not(kind, rows):
    data = rng.standard_normal((rows, 2)).astype(np.float32)
    data[3, 0] = np.nan
    ids = rng.integers(0, 4, rows)
    fun = sw.jit(lambda x, i: getattr(sw.ops, f"segment_{kind}")(x, i, 4))
    place = NamedSharding(Mesh(np.array(sw.devices()), "x"), PartitionSpec("x"))
    found = fun(*sw.device_put((data, ids), place))
    np.testing.assert_allclose(np.asarray(found), np.asarray(fun(data, ids)), rtol=1e-6)


def test_derivatives_and_batches():
    data = rng.standard_normal((8, 3)).astype(np.float32)

    def loss(m):
        return lambda x: (m.ops.segment_sum(x, IDS, 6) ** 2).sum()

    grads = sw.grad(loss(sw))(data), jax.grad(loss(jax))(data)
    np.testing.assert_allclose(*map(np.asarray, grads), rtol=1e-6)
    mapped = [
        m.vmap(lambda x, m=m: m.ops.segment_max(x, IDS, 6), in_axes=1)(data) for m in (sw, jax)
    ]
    np.testing.assert_allclose(*map(np.asarray, mapped))


test_mistakes = messages(
    """
sw.ops.segment_sum(np.ones(3), np.ones(3))
    TypeError: segment_sum: segment_ids must be integers; got f32[3].
sw.ops.segment_sum(np.ones(3), np.ones(2, int))
    ValueError: segment_sum takes one id for each row of data; got segment_ids of type i32[2] for
    data of type f32[3].
sw.ops.segment_sum(np.ones(3), np.ones(3, int), -1)
    ValueError: segment_sum: num_segments must not be negative; got -1.
sw.ops.segment_sum(np.ones(3), np.ones(3, int), 2, False, False, 0)
    ValueError: segment_sum: bucket_size must be at least 1; got 0.
""",
    globals(),
)


def test_under_jit_the_number_of_segments_must_be_given():
    f = sw.jit(lambda x, i: sw.ops.segment_sum(x, i))
    assert message(sw.errors.ConcretizationTypeError, f, np.ones(3), np.arange(3)) == (
        "segment_sum: segment_ids are traced, so the number of segments, their maximum plus one, "
        "is unknown. Pass num_segments."
    )
