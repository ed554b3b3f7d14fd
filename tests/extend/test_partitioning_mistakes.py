"""Mistakes in the use of `custom_partitioning`, and cases where its functions are not called."""

import inspect
from functools import partial

import jax.experimental.custom_partitioning as jax_partitioning
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.errors import UnexpectedTracerError
from shardwise.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    SdyShardingRule,
    custom_partitioning,
)
from shardwise.sharding import GSPMDSharding, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fail, fails, message
from tests.helpers.meshes import MESH, mesh_of
from tests.helpers.partitioned import EXPLICIT, OURS, WHO, normal, product_of, put


def asked(partition, fun=lambda x: x * 2, rule="i -> i", **kwargs):
    """A function, called with eight numbers in four shards."""
    fun.__name__ = "f"
    f = custom_partitioning(fun)
    f.def_partition(partition, sharding_rule=rule, **kwargs)
    return f(put(np.arange(8, dtype="f"), "x"))


def test_errors_of_partition_are_the_users():
    def partition(mesh, args, result):
        raise RuntimeError("no way")

    fails(RuntimeError, "no way", asked, partition)
    f = custom_partitioning(lambda x: x)
    f.def_partition(partition, sharding_rule="i -> i")
    fails(RuntimeError, "no way", sw.jit(f), put(np.arange(8.0), "x"))


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (
            lambda m, a, r: None,
            TypeError,
            "partition must return (mesh, lower_fn, result_shardings, arg_shardings), where lower_fn is a "
            "function; it returned None of type NoneType.",
        ),
        (
            lambda m, a, r: (m.abstract_mesh, jnp.sin, r.sharding, (r.sharding,)),
            ValueError,
            "partition returned the mesh AbstractMesh('x': 4, 'y': 2); it must be a Mesh over the "
            "program's devices, such as Mesh('x': 4, 'y': 2), which it was called with.",
        ),
        (
            lambda m, a, r: (m, jnp.sin, r.sharding, r.sharding),
            ValueError,
            "arg_shardings of partition must have a sharding for each leaf of the arguments; the root is "
            "a tuple of 1 in the arguments and a leaf in the shardings.",
        ),
        (
            lambda m, a, r: (m, jnp.sin, P("x"), (r.sharding,)),
            ValueError,
            "result_shardings of partition must be a sharding; got P('x') of type PartitionSpec.",
        ),
        (
            lambda m, a, r: (m, jnp.sin, NamedSharding(mesh_of(2), P()), (r.sharding,)),
            ValueError,
            "result_shardings of partition is NamedSharding(mesh=Mesh('x': 2), spec=P()), which is not "
            "over the program's devices, those of Mesh('x': 4, 'y': 2).",
        ),
        (
            lambda m, a, r: (m, lambda x: x[:1], r.sharding, (r.sharding,)),
            ValueError,
            "lower_fn returned result of type f32[1], but shards are of type f32[2] under "
            "result_shardings.",
        ),
        (
            lambda m, a, r: (m, lambda x: (x, x), r.sharding, (r.sharding,)),
            ValueError,
            "lower_fn returned 2 arrays, but f has 1 result.",
        ),
    ],
)
def test_answers_that_are_none(result, kind, text):
    fails(kind, f"{WHO} f: {text}", asked, result)


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        (
            {"rule": "i j -> i j"},
            "sharding_rule 'i j -> i j': operand 0 of type f32[8] has 1 dimension, and its mapping 'i j' "
            "2 entries.",
        ),
        ({"rule": "i, i -> i"}, "sharding_rule 'i, i -> i' is for 2 operands, but there is 1."),
        (
            {"rule": lambda mesh, ins, outs: 3},
            "the function sharding_rule must return a string such as 'b i, i o -> b o', or an "
            "SdyShardingRule; it returned 3 of type int.",
        ),
    ],
)
def test_rules_that_do_not_fit(kwargs, text):
    fails(ValueError, f"{WHO} f: {text}", partial(asked, lambda *args: None, **kwargs))


def test_mistakes_in_def_partition():
    f = custom_partitioning(partial(lambda x: x))
    f.name = "f"
    define = partial(f.def_partition, lambda *args: None)
    fails(TypeError, f"{WHO} f: partition must be a function; got None.", f.def_partition, None)
    fails(TypeError, f"{WHO} f: infer_sharding_from_operands must be a function; got 3.", define, 3)
    fails(
        TypeError,
        f"{WHO} f: sharding_rule must be a string such as 'b i, i o -> b o', an SdyShardingRule, "
        "or a function that returns one; got 3 of type int.",
        partial(define, sharding_rule=3),
    )
    rule = SdyShardingRule((ArrayMapping("i"),), (ArrayMapping("i"),))
    fails(
        ValueError,
        f"{WHO} f: b, reduction_factors can only be combined with a sharding_rule that is a "
        "string; got SdyShardingRule('i -> i') of type SdyShardingRule. Put them into the "
        "SdyShardingRule.",
        partial(define, sharding_rule=rule, reduction_factors=("i",), b=3),
    )
    fails(
        NotImplementedError,
        f"{WHO} f: propagate_user_sharding alone does not specify which dimensions of operands "
        "and results correspond. Pass a sharding_rule, such as 'b i, i o -> b o'.",
        partial(define, propagate_user_sharding=lambda mesh, shape: None),
    )


def test_mistakes_in_calls():
    def f(x, scale):
        return x * scale

    g = custom_partitioning(f, static_argnums=1)
    fails(
        AttributeError,
        f"{WHO} f has no partition: define it with f.def_partition(partition, sharding_rule=...).",
        g,
        1.0,
        2,
    )
    g.def_partition(lambda *args: None, sharding_rule="i -> i")
    fail(
        f"""
        g(1.0)
            TypeError: {WHO} f(x, scale) cannot be called with these arguments: missing a required
            argument: 'scale'.
        g("a", 2)
            TypeError: {WHO} f: args[0] is 'a' of type str, which is not an array. Name its
            position in static_argnums if it is a constant.
        sw.jit(g)(np.ones(3), 2)
            UnexpectedTracerError: {WHO} f: argument 1 is static, by static_argnums, but contains a
            traced value. Pass a concrete value, or remove it from static_argnums.
        sw.grad(lambda x: g(x, 2).sum())(jnp.ones(3))
            NotImplementedError: {WHO} f has no derivative: nothing specifies how it would be
            partitioned. Define one with `shardwise.custom_vjp` or `shardwise.custom_jvp`, around a
            function that calls it.
        custom_partitioning(3)
            TypeError: custom_partitioning takes a function; got 3.
        """,
        globals() | locals(),
    )
    far = custom_partitioning(f, static_argnums=5)
    far.def_partition(lambda *args: None)
    fails(
        ValueError, f"{WHO} f: static_argnums has 5, but the call has 2 arguments.", far, 1.0, 2.0
    )
    fails(
        TypeError,
        f"{WHO} f: args[0] is of type key<fry>[]: keys are arrays of integers on devices. Pass "
        "`shardwise.random.key_data(key)`.",
        g,
        sw.random.key(0),
        2,
    )


def test_values_from_outside():
    @sw.jit
    def outer(x):
        def f(y):
            return x * y

        g = custom_partitioning(f)
        g.def_partition(lambda *args: None, sharding_rule="i -> i")
        return g(x)

    fails(
        UnexpectedTracerError,
        f"{WHO} f uses a traced value from outside, which `partition` cannot see. Pass "
        "it to f as an argument.",
        outer,
        np.ones(3),
    )


def test_where_nothing_is_asked():
    product = product_of(*OURS, [])
    x, y = normal(8, 6), normal(6, 4)
    f = sw.shard_map(product, mesh=MESH, in_specs=(P("x"), P()), out_specs=P("x"), axis_names={"x"})
    fail(
        f"""
        sw.jit(f)(x, y)
            NotImplementedError: {WHO} product is called inside of a `shardwise.shard_map` that
            leaves some mesh axes to the partitioner, which calls no functions there. Make all axes
            manual, or call it outside.
        sw.export.export(sw.jit(product))(put(x, "x"), put(y))
            NotImplementedError: {WHO} product is partitioned by Python functions of this process
            when a program is compiled, so a program of several devices with it cannot be exported.
            Export it for one device.
        """,
        globals() | locals(),
    )
    got = sw.export.export(sw.jit(product))(x, y).call(x, y)
    np.testing.assert_allclose(np.asarray(got), x @ y, rtol=1e-5, atol=1e-5)

    def noisy(mesh, args, result):
        def lower_fn(x):
            sw.debug.print("{}", x.sum())
            return x

        return mesh, lower_fn, result.sharding, (args[0].sharding,)

    fails(
        NotImplementedError,
        f"{WHO} f: lower_fn calls host functions (a callback, or `shardwise.debug.print`), which "
        "the partitioner does not support. Call them outside of the function.",
        asked,
        noisy,
    )

    g = custom_partitioning(lambda x: lax.psum(x, "rows"))
    g.name = "g"
    g.def_partition(lambda *args: None, sharding_rule="-> ")
    assert message(NotImplementedError, sw.vmap(g, axis_name="rows"), np.ones(3)) == (
        f"{WHO} g has collectives along 'rows', the axis of a `vmap` around it, which its "
        "`partition` cannot see. Call them outside of the function."
    )


def test_mistakes_of_infer():
    args = put(normal(8, 6), "x", mesh=EXPLICIT), put(normal(6, 4), mesh=EXPLICIT)
    of = lambda infer: product_of(*OURS, [], infer_sharding_from_operands=infer)  # noqa: E731
    fails(
        ValueError,
        f"{WHO} product: the result of infer_sharding_from_operands must be a sharding; got 3 of "
        "type int.",
        of(lambda mesh, args, result: 3),
        *args,
    )
    fails(
        ValueError,
        f"{WHO} product: infer_sharding_from_operands returned GSPMDSharding(8 devices, tiles=(), "
        "replicas=8); for operands whose types are sharded over explicit mesh axes it must return "
        "NamedShardings.",
        of(lambda mesh, args, result: GSPMDSharding.get_replicated(sw.devices()[:8])),
        *args,
    )
    fails(
        ValueError,
        f"{WHO} product: the result of infer_sharding_from_operands must have a sharding for each "
        "leaf of the result; the root is a leaf in the result and a tuple of 1 in the shardings.",
        of(lambda mesh, args, result: (args[0].sharding,)),
        *args,
    )


def test_signatures_are_those_of_jax():
    theirs = jax_partitioning.custom_partitioning
    for mine, other in [
        (custom_partitioning.def_partition, theirs.def_partition),
        (custom_partitioning.__init__, theirs.__init__),
    ]:
        a, b = (inspect.signature(f).parameters for f in (mine, other))
        assert [(p.name, p.kind, p.default) for p in a.values()] == [
            (p.name, p.kind, p.default) for p in b.values()
        ]
    assert BATCHING == jax_partitioning.BATCHING
