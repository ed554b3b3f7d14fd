"""`jit`: donated memory, and the stages `trace`, `lower`, `compile`."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, ours, sharding
from tests.helpers.errors import donated, message

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
W = np.linspace(-1, 2, 32, dtype=np.float32).reshape(4, 8)


# ------------------------------------------------------------------------------------- donation


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


def test_an_array_that_is_donated_and_used_otherwise():
    def both(a, b):
        return a + b, a - b

    x = jnp.ones(4)
    assert message(ValueError, sw.jit(both, donate_argnums=1), x, x) == (
        "both: a and b are the same array, but b is donated: its memory will be reused. Pass a "
        "copy as one of them, or do not donate it."
    )
    assert not x.is_deleted()


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


# --------------------------------------------------------------------------------------- stages


def test_the_stages():
    x = ours(X, "x")
    f = sw.jit(lambda a, b: {"y": a @ b["w"]})
    traced = f.trace(x, {"w": W})
    assert str(traced.program).startswith("{ lambda ; a:f32[8,4] b:f32[4,8]. let")
    assert traced.jaxpr is traced.program and "dot_general" in traced.as_text()
    assert traced.out_info == {"y": sw.ShapeDtypeStruct((8, 8), np.float32)}
    lowered = traced.lower()
    assert "stablehlo.dot_general" in lowered.as_text() and "sdy.mesh" in lowered.as_text()
    assert lowered.out_info == traced.out_info
    compiled = lowered.compile()
    assert "HloModule" in compiled.as_text()
    assert compiled.cost_analysis()["flops"] > 0
    assert compiled.memory_analysis().output_size_in_bytes == 8 * 8 * 4 // 4
    assert compiled.input_shardings == ((sharding("x"), {"w": sharding()}), {})
    assert compiled.output_shardings == {"y": sharding("x")}
    got = compiled(x, {"w": W})
    assert got["y"].sharding == sharding("x")
    np.testing.assert_allclose(np.asarray(got["y"]), X @ W, atol=1e-5)


def test_stages_take_types_instead_of_values():
    there = sw.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding("x"))
    compiled = sw.jit(lambda a: a.sum(1)).lower(there).compile()
    assert compiled(ours(X, "x")).sharding == sharding("x")
    assert compiled.input_shardings == ((sharding("x"),), {})


EXACT = (
    "A compiled program runs on arguments of exactly its types: convert them, or call the jitted "
    "function, which compiles for others."
)


def test_compiled_programs_check_their_arguments():
    def scale(a, factor):
        return a * factor

    compiled = sw.jit(scale).lower(X, 2.0).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X, 3.0)), X * 3)
    assert message(TypeError, compiled, X[:4], 2.0) == (
        f"compiled scale: a must be of type f32[8,4]; got f32[4,4]. {EXACT}"
    )
    with pytest.raises(TypeError) as caught:
        compiled(X)
    assert str(caught.value) == (
        "compiled scale takes arguments with the pytree structure ((*, *), {}); got ((*,), {}): "
        "only the program has args[1]."
    )
    for bad in ("two", sw.ShapeDtypeStruct((), np.float32)):
        assert message(TypeError, compiled, X, bad) == (
            f"compiled scale: factor: expected an array or a scalar, got {bad!r} of type "
            f"{type(bad).__name__}."
        )


def test_all_arguments_that_do_not_fit_a_compiled_program_are_listed():
    def step(params, x, *, k):
        return params["w"] * x + params["b"] * k

    four = np.ones(4, np.float32)
    compiled = sw.jit(step).lower({"w": four, "b": four}, four, k=2.0).compile()
    assert message(TypeError, compiled, {"w": four[:2], "b": four.astype(np.int32)}, four, k=3) == (
        "compiled step: 3 arguments do not match:\n"
        "  params['b'] must be of type f32[4]; got i32[4]\n"
        "  params['w'] must be of type f32[4]; got f32[2]\n"
        "  k must be of type ~f32[]; got ~i32[]\n"
        f"{EXACT}"
    )
    assert message(TypeError, compiled, {"w": four}, [four], k=2.0) == (
        "compiled step takes arguments with the pytree structure (({'b': *, 'w': *}, *), {'k': "
        "*}); got (({'w': *}, [*]), {'k': *}): args[1] is a leaf in the program and a list of 1 in "
        "the call; only the program has args[0]['b']."
    )


def test_compiled_programs_move_only_what_nobody_placed():
    there = sw.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding("x"))
    compiled = sw.jit(lambda a, b: a + b).lower(there, there).compile()
    assert compiled(X, sw.numpy.asarray(X)).sharding == sharding("x")
    alike = sw.device_put(X, NamedSharding(MESH, P("x", None)))
    assert compiled(alike, ours(X, "x")).sharding == sharding("x")
    assert message(ValueError, compiled, ours(X, "y"), ours(X)) == (
        "compiled <lambda>: 2 arguments do not match:\n"
        f"  a of type f32[8,4] is on {sharding('y')}, but the program was compiled for "
        f"{sharding('x')}\n"
        f"  b of type f32[8,4] is on {sharding()}, but the program was compiled for "
        f"{sharding('x')}\n"
        "Use `device_put` to bring it there."
    )
    elsewhere = sw.device_put(X, sw.devices()[3])
    assert message(ValueError, sw.jit(lambda a: a * 2).lower(X).compile(), elsewhere) == (
        f"compiled <lambda>: a of type f32[8,4] is on {elsewhere.sharding}, but the program was "
        f"compiled for {SingleDeviceSharding(sw.devices()[0])}. Use `device_put` to bring it there."
    )


class Like:
    """An object with a shape and a dtype but no data, as other libraries have."""

    shape, dtype = (4, 3), np.dtype("float32")


def test_types_may_be_anything_with_a_shape_and_a_dtype():
    assert sw.eval_shape(lambda a: X @ a, Like()) == sw.ShapeDtypeStruct((8, 3), np.float32)
    assert jax.eval_shape(lambda a: X @ a, Like()).shape == (8, 3)
    assert sw.jit(lambda a: a.T).lower(Like()).compile()(W[:, :3]).shape == (3, 4)
    assert "f32[4,3]" in str(sw.make_jaxpr(lambda a: a + 1)(Like()))
    with pytest.raises(TypeError):
        sw.jit(lambda a: a)(Like())


def test_static_arguments_are_not_passed_to_compiled_programs():
    compiled = sw.jit(lambda a, n: a * n, static_argnums=1).lower(X, 3).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X)), X * 3)


def test_eval_shape():
    def f(a, b):
        return {"product": a @ b, "sum": (a.sum(), 2)}

    found = sw.eval_shape(f, X, sw.ShapeDtypeStruct((4, 3), "bfloat16"))
    assert found == {
        "product": sw.ShapeDtypeStruct((8, 3), np.float32),
        "sum": (
            sw.ShapeDtypeStruct((), np.float32),
            sw.ShapeDtypeStruct((), np.int32, weak_type=True),
        ),
    }
    inside = []
    sw.jit(lambda a: inside.append(sw.eval_shape(jnp.sin, a)) or a)(X)
    assert inside == [sw.ShapeDtypeStruct((8, 4), np.float32)]
    assert sw.jit(f).eval_shape(X, W)["product"].shape == (8, 8)


def test_make_jaxpr():
    program = sw.make_jaxpr(lambda a, n: jnp.sin(a) * n, static_argnums=1)(X, 2)
    assert str(program) == (
        "{ lambda ; a:f32[8,4]. let\n"
        "    b:f32[8,4] = sin a\n"
        "    c:f32[8,4] = mul b 2.0:f32[]\n"
        "  in (c,) }"
    )
    program, shape = sw.make_jaxpr(lambda a: a.sum(), return_shape=True)(X)
    assert shape == sw.ShapeDtypeStruct((), np.float32)


def test_compiler_options():
    f = sw.jit(lambda a: a * 2, compiler_options={"xla_cpu_enable_fast_math": False})
    np.testing.assert_array_equal(np.asarray(f(X)), X * 2)
