"""`jit`: donated arguments, whose memory results reuse."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.beside_jax import ours, sharding
from tests.helpers.errors import donated, message
from tests.helpers.jitted import ONE, X


def test_donated_trees_by_name_and_number():
    f = sw.jit(lambda a, b, c: (a["p"] + 1, b + 1, c), donate_argnums=0, donate_argnames="b")
    tree = {"p": jnp.ones(4)}
    b, c = jnp.ones(5), jnp.ones(6)
    f(tree, b=b, c=c)
    assert tree["p"].is_deleted() and b.is_deleted() and not c.is_deleted()
    f({"p": np.ones(4)}, 1.0, c)  # host values can be donated as well


def test_programs_of_a_function_that_take_the_memory_of_other_arguments_are_told_apart():
    def plus(a, b):
        return a + b

    for number in (0, 1):
        args = jnp.ones(4), jnp.ones(4) + 1
        sw.jit(plus, donate_argnums=number)(*args)
        assert [a.is_deleted() for a in args] == [number == 0, number == 1]


@pytest.mark.parametrize("place", ["one", "mesh"])
def test_donation_is_told_by_the_analysis_of_memory(place):
    x = sw.device_put(X, sharding("x") if place == "mesh" else ONE)
    f = sw.jit(lambda a: a + 1, donate_argnums=0)
    lowered = f.lower(x)
    assert lowered.args_info[0][0].donated and lowered.donate_argnums == (0,)
    memory = lowered.compile().memory_analysis()
    assert (
        memory.alias_size_in_bytes
        == memory.output_size_in_bytes
        == X.nbytes // (4 if place == "mesh" else 1)
    )
    assert sw.jit(lambda a: a + 1).lower(x).compile().memory_analysis().alias_size_in_bytes == 0
    x = sw.device_put(x, may_alias=False)
    before = [s.data.unsafe_buffer_pointer() for s in x.addressable_shards]
    gc.collect()
    y = f(x)
    assert x.is_deleted() and not y.is_deleted()
    assert [s.data.unsafe_buffer_pointer() for s in y.addressable_shards] == before
    np.testing.assert_array_equal(y, X + 1)


def test_a_donated_array_that_is_used_names_the_function():
    def update(state):
        return state + 1

    x = jnp.ones(3)
    sw.jit(update, donate_argnums=0)(x)
    assert message(
        RuntimeError, lambda: x + 1
    ) == "array of type f32[3] was donated to update. " + donated("update")
    assert message(
        RuntimeError, sw.jit(update, donate_argnums=0), x
    ) == "array of type f32[3] was donated to update. " + donated("update")


def test_an_array_that_is_donated_and_used_otherwise():
    def both(a, b):
        return a + b, a - b

    x = jnp.ones(4)
    assert message(RuntimeError, sw.jit(both, donate_argnums=1), x, x) == (
        "both: a and b are the same array, but b is donated: its memory will be reused. Pass a "
        "copy as one of them, or do not donate it."
    )
    assert not x.is_deleted()


@pytest.mark.parametrize("place", ["one", "mesh"])
def test_a_program_that_fails_after_it_took_donated_memory_raises_its_own_error(place):
    def broken(x):
        raise ValueError("broken data: deleted or donated")

    def step(a):
        return sw.pure_callback(broken, sw.ShapeDtypeStruct(X.shape, X.dtype), a) + a

    x = sw.device_put(X, sharding() if place == "mesh" else ONE)
    jitted = sw.jit(step, donate_argnums=0)
    with pytest.raises(sw.errors.CallbackError, match="it raised ValueError: broken data"):
        jitted(x).block_until_ready()
    gone = "array of type f32[8,4] was donated to step. " + donated("step")
    assert message(RuntimeError, lambda: x + 1) == gone
    assert message(RuntimeError, jitted, x) == gone


def test_a_donated_argument_that_is_moved_first_is_gone_too():
    x = jnp.asarray(X)
    y = sw.jit(lambda a: a + 1, in_shardings=sharding("x"), donate_argnums=0)(x)
    assert x.is_deleted() and y.sharding == sharding("x")


def test_views_of_donated_memory_keep_their_values_and_shards_are_gone():
    x = ours(X, "x")
    view, shard = np.asarray(x), x.addressable_shards[2].data
    sw.jit(lambda a: a * 0, donate_argnums=0)(x).block_until_ready()
    np.testing.assert_array_equal(view, X)
    assert message(RuntimeError, np.asarray, shard) == (
        "array of type f32[2,4] was donated to <lambda>, through another array that shared its "
        "memory. " + donated("<lambda>")
    )


# -- donations that nothing can use --


def test_donation_of_what_cannot_be_used_warns_once_by_name():
    def total(state):
        return state["w"].sum() + state["b"]

    f = sw.jit(total, donate_argnums=0)
    first = {"w": jnp.ones(4), "b": jnp.asarray(np.float32(2))}
    with pytest.warns(UserWarning) as caught:
        f(first)
    assert str(caught[0].message) == (
        "jit of total: no result could reuse the memory of 1 donated argument. state['w'] of type "
        "f32[4]: no result has this shape. Do not donate it. A result can reuse the memory of an "
        "argument with the same shape, dtype and sharding."
    )
    assert caught[0].filename == __file__
    assert not first["w"].is_deleted() and first["b"].is_deleted()
    f({"w": first["w"], "b": jnp.asarray(np.float32(2))})


TAKES = " A result can reuse the memory of an argument with the same shape, dtype and sharding."


def warned(fun, *args):
    with pytest.warns(UserWarning) as caught:
        sw.jit(fun, donate_argnums=tuple(range(len(args))))(*args)
    return str(caught[0].message)


def test_donations_to_results_of_another_sharding_name_cause_and_remedy():
    mesh = sw.make_mesh((8,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    split, whole = (sw.NamedSharding(mesh, spec) for spec in (sw.P("x"), sw.P()))

    def step(params):
        return {k: sw.with_sharding_constraint(v + 1, whole) for k, v in params.items()}

    params = {f"w{i}": sw.device_put(np.ones((8, 4), np.float32), split) for i in range(12)}
    assert warned(step, params) == (
        "jit of step: no result could reuse the memory of 12 donated arguments. params['w0'] of "
        "type f32[8,4] and 11 more: its sharding is P('x'), that of the result P(). Pass "
        "`out_shardings` with the argument's sharding." + TAKES
    )


def test_donations_to_results_of_another_dtype_and_to_none():
    def step(a, b, c):
        return a.astype(jnp.int32), c + c

    assert warned(step, jnp.ones(4), jnp.ones((2, 2)), jnp.ones(3)) == (
        "jit of step: no result could reuse the memory of 1 donated argument. a of type f32[4]: "
        "the result of this shape has dtype int32. Cast it with `.astype(float32)`." + TAKES
    )

    def first(a, b):
        return a + b

    assert warned(first, jnp.ones(4), jnp.ones(4)) == (
        "jit of first: no result could reuse the memory of 1 donated argument. b of type f32[4]: "
        "other donated arguments already cover the results of this type. Do not donate it." + TAKES
    )
