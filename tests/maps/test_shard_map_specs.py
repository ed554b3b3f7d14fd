"""Unsuitable specs for results of `shard_map`: following the advice in the messages works."""

import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message

ROW = Mesh(np.array(sw.devices()), ("x",))


def summed(x):
    return x.sum()


SCALARS = {
    "varies": (
        summed,
        P("x"),
        True,
        "out_specs for result, of type f32[]{V:x}: P('x') has 1 entry, but the result has only 0 "
        "dimensions. Add a dimension to concatenate the values of the devices, `x[None]`; or "
        "return a value that is the same on all of them, such as `shardwise.lax.psum(x, 'x')`, and "
        "use P() as its spec.",
    ),
    "unknown": (
        summed,
        P("x"),
        False,
        "out_specs for result, of type f32[]: P('x') has 1 entry, but the result has only 0 "
        "dimensions. Add a dimension to concatenate the values of the devices, `x[None]`; or "
        "return a value that is the same on all of them, such as `shardwise.lax.psum(x, 'x')`, and "
        "use P() as its spec.",
    ),
    "the same": (
        lambda x: sw.lax.psum(x.sum(), "x"),
        P("x"),
        True,
        "out_specs for result, of type f32[]: P('x') has 1 entry, but the result has only 0 "
        "dimensions. It is the same on all devices along 'x': use P() as its spec, or add a "
        "dimension to concatenate the copies, `x[None]`.",
    ),
    "of no name": (
        summed,
        P(),
        True,
        "result, of type f32[]{V:x}, may vary along 'x', which its spec P() does not name. Return "
        "it with a dimension, `x[None]`, and name it in out_specs to concatenate the shards; "
        "combine them with a collective, such as `shardwise.lax.psum(x, 'x')`, or "
        "`all_gather_invariant` to give all shards to every device; or pass check_vma=False, if "
        "they are known to be equal.",
    ),
    "a dimension": (
        lambda x: x,
        P(None, "x"),
        True,
        "out_specs for result, of type f32[1]{V:x}: P(None, 'x') has 2 entries, but the result has "
        "only 1 dimension. Add a dimension to concatenate the values of the devices, `x[..., "
        "None]`; or return a value that is the same on all of them, such as `shardwise.lax.psum(x, "
        "'x')`, and use P(None) as its spec.",
    ),
}


@pytest.mark.parametrize("case", SCALARS)
def test_specs_with_more_entries_than_results_have_dimensions(case):
    f, spec, tracked, text = SCALARS[case]
    f.__name__ = "f"
    options = {"mesh": ROW, "in_specs": P("x"), "check_vma": tracked}
    x = np.arange(8, dtype=np.float32)
    mapped = sw.shard_map(f, out_specs=spec, **options)
    assert message(ValueError, mapped, x) == f"shard_map of f: {text}"
    # Following the advice in the messages:
    one_each = sw.shard_map(lambda x: x.sum()[None], out_specs=P("x"), **options)(x)
    np.testing.assert_array_equal(one_each, x)
    total = sw.shard_map(lambda x: sw.lax.psum(x.sum(), "x"), out_specs=P(), **options)(x)
    assert total == 28
    columns = sw.shard_map(lambda x: x[..., None], out_specs=P(None, "x"), **options)(x)
    np.testing.assert_array_equal(columns, x[None])
