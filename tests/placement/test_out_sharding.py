"""`out_sharding` of functions: the result type, and the same values as without it."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import P, lax, nn, ops
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

X = np.arange(32.0, dtype=np.float32).reshape(8, 4)
IDS = np.array([0, 1, 2, 3, 0, 1, 2, 3])
KEY = [0, 1]


def initial(name, *args):
    return lambda **how: getattr(nn.initializers, name)(*args)(sw.random.key(0), (8, 4), **how)


CASES = {  # a function of arrays X and IDS, its out_sharding, and the type of the result
    "x.reshape": (lambda x, i, **how: x.reshape(4, 8, **how), P("x"), "f32[4@x,8]"),
    "x.ravel": (lambda x, i, **how: x.ravel(**how), P("x"), "f32[32@x]"),
    "x.flatten": (lambda x, i, **how: x.flatten(**how), P("y"), "f32[32@y]"),
    "x.repeat": (lambda x, i, **how: x.repeat(2, axis=0, **how), P("x"), "f32[16@x,4]"),
    "asarray": (lambda x, i, **how: jnp.asarray(X, **how), P("x", "y"), "f32[8@x,4@y]"),
    "percentile": (lambda x, i, **how: jnp.percentile(x, 30.0, axis=1, **how), P("x"), "f32[8@x]"),
    "tensordot": (
        lambda x, i, **how: jnp.linalg.tensordot(x, x, axes=((1,), (1,)), **how),
        P("x"),
        "f32[8@x,8]",
    ),
    "segment_sum": (lambda x, i, **how: ops.segment_sum(x, i, **how), P("x"), "f32[4@x,4]"),
    "segment_prod": (lambda x, i, **how: ops.segment_prod(x, i, 6, **how), P("y"), "f32[6@y,4]"),
    "segment_max": (lambda x, i, **how: ops.segment_max(x, i, **how), P("x"), "f32[4@x,4]"),
    "segment_min": (lambda x, i, **how: ops.segment_min(x, i, **how), P(None, "y"), "f32[4,4@y]"),
    "one_hot": (lambda x, i, **how: nn.one_hot(i, 6, **how), P(None, "y"), "f32[8,6@y]"),
    "reduce_max": (lambda x, i, **how: lax.reduce_max(x, (1,), **how), P("y"), "f32[8@y]"),
    "reduce_min": (lambda x, i, **how: lax.reduce_min(x, (0,), **how), P("x"), "f32[4@x]"),
    "reduce": (
        lambda x, i, **how: lax.reduce(
            {"a": x}, {"a": 0.0}, lambda a, b: {"a": a["a"] + b["a"]}, (0,), **how
        )["a"],
        P("x"),
        "f32[4@x]",
    ),
    **{
        name: (
            lambda x, i, name=name, args=args, **how: initial(name, *args)(**how),
            P("x", "y"),
            "f32[8@x,4@y]",
        )
        for name, args in {"he_normal": (), "uniform": (), "constant": (2.0,)}.items()
    },
    "zeros": (lambda x, i, **how: nn.initializers.zeros(KEY, (8, 4), **how), P("x"), "f32[8@x,4]"),
    "ones": (lambda x, i, **how: nn.initializers.ones(KEY, (8, 4), **how), P("x"), "f32[8@x,4]"),
}


@pytest.mark.parametrize("name", everyday(CASES, 13))
def test_results_are_split_as_asked(name):
    fun, spec, wanted = CASES[name]
    x, ids = jnp.asarray(X), jnp.asarray(IDS)
    expected = np.asarray(fun(x, ids))
    with sw.set_mesh(sw.make_mesh((2, 2), ("x", "y"))):
        found = fun(x, ids, out_sharding=spec)
        split = fun(sw.reshard(x, P("x", "y")), ids, out_sharding=spec)
    for out in (found, split):
        assert out.aval.str_short(True) == wanted
        np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-6)


def test_reductions_of_several_arrays_are_split_one_by_one():
    def several():
        return lax.reduce((X, X), (0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,), P("x"))

    assert message(ValueError, several) == (
        "reduce: out_sharding is only supported with one operand; got 2. Use "
        "`shardwise.sharding.reshard(x, P(...))` on each result."
    )


def test_specs_may_have_entries_of_none_for_dimensions_that_results_lack():
    with sw.set_mesh(sw.make_mesh((2,), ("x",))):
        x = sw.reshard(X, P("x", None, None))
        found = [
            x.at[0, 0].get(out_sharding=P(None)),
            sw.vmap(lambda row: row.at[1].get(out_sharding=P(None)))(x),
            jnp.zeros((), out_sharding=P(None)),
            jnp.dot(x, x.T, out_sharding=P("x", None, None)),
        ]
        types = [y.aval.str_short(True) for y in (x, *found)]
        assert types == ["f32[8@x,4]", "f32[]", "f32[8@x]", "f32[]", "f32[8@x,8]"]
        assert message(ValueError, sw.reshard, x, P(None, None, "x")) == (
            "reshard: x of type f32[8@x,4]: P(None, None, 'x') has 3 entries, but the array has only "
            "2 dimensions. Remove entries from the end of the spec."
        )


def test_classes_are_split_and_indices_are_not_moved():
    with sw.set_mesh(sw.make_mesh((2, 2), ("x", "y"))):
        ids = sw.reshard(IDS, P("x"))
        y = nn.one_hot(ids, 6, axis=0, out_sharding=P("y", "x"))
        assert y.aval.str_short(True) == "f32[6@y,8@x]"
        assert message(sw.errors.ShardingTypeError, nn.one_hot, ids, 6, out_sharding=P("y")) == (
            "one_hot: x is of type i32[8@x], and out_sharding=P('y') shards its dimensions "
            "otherwise. Reshard x first with `shardwise.sharding.reshard`; out_sharding chooses the "
            "sharding of the classes only, dimension 1."
        )


@pytest.mark.parametrize("unstack", [jnp.unstack, lax.unstack])
def test_a_sharded_dimension_is_not_unstacked(unstack):
    with sw.set_mesh(sw.make_mesh((2,), ("x",))):
        x = sw.reshard(X, P("x"))
        assert [y.aval.str_short(True) for y in unstack(x, axis=1)] == ["f32[8@x]"] * 4
        assert message(sw.errors.ShardingTypeError, unstack, x) == (
            "unstack: x of type f32[8@x,4] is sharded along dimension 0, of which each device would "
            "need all. Use `shardwise.sharding.reshard(x, P())`."
        )
