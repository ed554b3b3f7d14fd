"""Explicit mesh axes: the mesh in scope, `reshard`, `auto_axes`, `explicit_axes`, messages."""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, random
from shardwise._src.base.errors import ShardingTypeError
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    get_mesh,
    reshard,
    set_mesh,
    use_abstract_mesh,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message as error_of
from tests.helpers.everyday import everyday
from tests.helpers.explicit import MESH, A, W, put, shown

MIXED = sw.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))


# -- types without shardings --


def test_the_sharding_of_a_type_without_explicit_axes():
    auto = sw.make_mesh((8,), ("z",), axis_types=AxisType.Auto)
    split = sw.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(auto, P("z")))
    for x in (np.ones((2, 3), np.float32), split):
        held = sw.typeof(x).sharding
        assert held.mesh is get_abstract_mesh() and held.spec == P(*[None] * x.ndim)
        assert held.is_fully_replicated and not held.mesh.are_all_axes_explicit
        sw.jit(lambda y, held=held: None if y.aval.sharding == held else 1 / 0)(x)
    held = sw.typeof(split).sharding
    asked = [
        jnp.zeros(8, out_sharding=held), jnp.arange(8.0).reshape(8, out_sharding=held),
        jnp.array([1.0, 2.0], out_sharding=held), jnp.zeros_like(split, out_sharding=held),
        sw.random.normal(sw.random.key(0), (8,), out_sharding=held),
        sw.lax.full((8,), 2.0, sharding=held),
        jnp.einsum("i,i->i", split, split, out_sharding=held),
    ]  # fmt: skip
    assert all(sw.typeof(x).explicit_sharding is None for x in asked)
    assert sw.ShapeDtypeStruct((8,), "float32", sharding=held).sharding is None
    t = sw.core.ShapedArray((8,), np.float32, sharding=held)
    assert t is sw.typeof(split) and sw.eval_shape(jnp.sin, t).sharding is None
    assert sw.jit(jnp.sin).lower(t).compile()(jnp.arange(8.0)).shape == (8,)
    mesh = get_abstract_mesh()
    assert not (mesh.are_all_axes_auto or mesh.are_all_axes_manual)
    assert repr(mesh) == "AbstractMesh()"


# -- the mesh in scope --


def test_set_mesh_is_a_setter_and_a_context_manager():
    assert get_mesh().empty
    assert get_abstract_mesh().axis_names == ()
    with set_mesh(MESH) as held:
        assert held is MESH is get_mesh()
        assert get_abstract_mesh() is MESH.abstract_mesh
        with set_mesh(MIXED):
            assert get_mesh() is MIXED
        assert get_mesh() is MESH
    setter = set_mesh(MESH)
    try:
        assert get_mesh() is MESH
        others: list[Any] = []
        thread = threading.Thread(target=lambda: others.append(get_mesh().empty))
        thread.start()
        thread.join()
        assert others == [True]
    finally:
        setter.__exit__()
    assert get_mesh().empty


def test_flags_reach_code_under_a_mesh_that_was_set():
    with set_mesh(MESH), sw.enable_x64(True):
        assert jnp.zeros(3).dtype == np.float64


def test_bare_specs_are_over_the_mesh_in_scope(mesh: Mesh):
    x = put(A, "x")
    assert x.sharding == NamedSharding(mesh, P("x"))
    assert shown(x) == "float32[8@x,4]"
    assert sw.typeof(x).str_short(True) == "f32[8@x,4]"


@pytest.mark.parametrize("made", [jnp.array, jnp.asarray, sw.device_put])
def test_host_values_go_to_a_bare_spec_in_a_trace(mesh: Mesh, made):
    found = sw.jit(lambda: made(A, device=P("x")))()
    assert shown(found) == "float32[8@x,4]"
    np.testing.assert_array_equal(found, A)


def test_meshes_are_set_outside_of_transforms_only():
    message = error_of(ValueError, sw.jit(lambda x: set_mesh(MESH) and x), A)
    assert message.startswith("set_mesh cannot be used under a transform (jit of <lambda>, called")
    message = error_of(ValueError, sw.jit(lambda x: get_mesh() and x), A)
    assert message.endswith("). Use get_abstract_mesh, which has the axes and their types.")
    assert error_of(ValueError, set_mesh, MESH.abstract_mesh) == (
        "set_mesh takes a Mesh; got AbstractMesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit)) "
        "of type AbstractMesh."
    )
    assert error_of(ValueError, use_abstract_mesh, 3) == (
        "use_abstract_mesh takes an AbstractMesh; got 3 of type int."
    )


def test_use_abstract_mesh():
    general = AbstractMesh((4, 2), ("x", "y"))
    with use_abstract_mesh(general):
        assert get_abstract_mesh() is general
        t = sw.jit(lambda: jnp.zeros((8, 4), out_sharding=P("x"))).trace().program.out_types[0]
        assert str(t) == "float32[8@x,4]"
    with set_mesh(MIXED), use_abstract_mesh(general):
        assert get_mesh() is MESH  # the same devices
    with set_mesh(MESH):
        assert error_of(ValueError, use_abstract_mesh(AbstractMesh((2,), ("x",))).__enter__) == (
            "use_abstract_mesh cannot change the size of the mesh in scope, Mesh('x': 4, 'y': 2, "
            "axis_types=(Explicit, Explicit)), to that of AbstractMesh('x': 2, "
            "axis_types=(Explicit,))."
        )


# -- reshard --


@pytest.mark.parametrize("shape", [(8, 4), (7, 5), (3, 1)])
def test_reshard_moves_and_keeps_values(mesh: Mesh, shape: tuple):
    value = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for before, after in [(("x",), ("y", "x")), ((), (None, ("x", "y"))), (("y", "x"), ())]:
        x = put(value, *before)
        for y in (reshard(x, P(*after)), sw.jit(lambda x, s=after: reshard(x, P(*s)))(x)):
            assert sw.typeof(y).spec == P(*after, *[None] * (2 - len(after)))
            np.testing.assert_array_equal(y, value)


def test_reshard_takes_trees_and_unplaced_values():
    xs = reshard(
        {"a": A, "b": (A[0], 1.0)},
        {"a": NamedSharding(MESH, P("x")), "b": NamedSharding(MESH, P())},
    )
    assert [shown(x) for x in (xs["a"], *xs["b"])] == ["float32[8@x,4]", "float32[4]", "~float32[]"]
    assert shown(reshard(xs["a"], P("y"))) == "float32[8@y,4]"  # over the mesh of its type


def test_reshard_refuses():
    assert error_of(ValueError, reshard, A, P("x")) == (
        "reshard: x: a bare P('x') needs a mesh in scope. Use NamedSharding(mesh, P('x')), or "
        "enter `with shardwise.set_mesh(mesh):`."
    )
    assert error_of(ValueError, reshard, A, NamedSharding(MIXED, P("x", "y"))) == (
        "reshard: x: P('x', 'y') names 'y' of Mesh('x': 4, 'y': 2, axis_types=(Explicit, Auto)), "
        "but only Explicit axes are part of types. Use `shardwise.lax.with_sharding_constraint` "
        "for Auto axes."
    )
    assert error_of(ValueError, reshard, [A[0]], NamedSharding(MESH, P(None, "x"))) == (
        "reshard: x[0] of type f32[4]: P(None, 'x') has 2 entries, but the array has only 1 "
        "dimension. Remove entries from the end of the spec."
    )


def test_constraints_say_what_types_say(mesh: Mesh):
    x = put(A, "x")
    assert sw.jit(lambda x: sw.with_sharding_constraint(x * 2, P("x")))(x).sharding.spec[0] == "x"
    assert error_of(ShardingTypeError, sw.with_sharding_constraint, x, P("y")) == (
        "with_sharding_constraint: x is of type f32[8@x,4], and P('y') requires f32[8@y,4]. "
        "Explicit axes are part of types, which a constraint does not change. Use "
        "`shardwise.sharding.reshard(x, P('y'))`."
    )
    with set_mesh(MIXED):
        y = sw.jit(lambda x: sw.with_sharding_constraint(x * 2, P("x", "y")))(put(A, "x"))
        assert shown(y) == "float32[8@x,4]"
        assert y.sharding.is_equivalent_to(NamedSharding(MIXED, P("x", "y")), 2)


# -- errors of ops --


def test_the_choices_are_named(mesh: Mesh):
    a, w = put(A, None, "x"), put(W, "x", None)
    assert error_of(ShardingTypeError, jnp.matmul, a, w) == (
        "matmul: operands f32[8,4@x], f32[4@x,6] are sharded over ('x',) along a "
        "contracted dimension, so the result's sharding is ambiguous. Use "
        "`shardwise.sharding.reshard(b, P())`, or specify how the result is sharded: "
        "`shardwise.numpy.matmul(a, b, out_sharding=P(...))`."
    )
    assert error_of(ShardingTypeError, lambda: put(A, "x") + put(A, "y")) == (
        "add: operands f32[8@x,4], f32[8@y,4] disagree about the sharding of dimension 0: "
        "('x',) and ('y',). Use `shardwise.sharding.reshard(y, P('x'))`."
    )
    assert error_of(ShardingTypeError, lambda: put(A, None, "x").ravel()) == (
        "ravel: cannot carry the sharding of f32[8,4@x] over to shape (32,): the shards of a "
        "dimension would not be shards of a single new dimension. Use "
        "`shardwise.sharding.reshard(x, P())`, or specify how the result is sharded: "
        "`x.ravel(out_sharding=P(...))`."
    )
    assert error_of(ShardingTypeError, lambda: put(A, "x")[np.array([1, 0])]) == (
        "[gather] cannot operate along dimension 0 of f32[8@x,4], which is sharded "
        "over ('x',). Use `shardwise.sharding.reshard(x, P())`, or specify how the result is "
        "sharded: `x.at[idx].get(out_sharding=P(...))`."
    )


def test_out_sharding_over_other_axes_is_refused(mesh: Mesh):
    assert error_of(TypeError, lambda: jnp.zeros(8, out_sharding="x")) == (
        "zeros: out_sharding takes a NamedSharding or a PartitionSpec; got 'x' of type str."
    )
    with set_mesh(MIXED):
        assert error_of(ValueError, lambda: jnp.zeros(8, out_sharding=P("y"))) == (
            "zeros: out_sharding: P('y') names 'y' of Mesh('x': 4, 'y': 2, axis_types=(Explicit, "
            "Auto)), but only Explicit axes are part of types. Use "
            "`shardwise.lax.with_sharding_constraint` for Auto axes."
        )


@pytest.mark.parametrize("shape", everyday([(8, 4), (7, 5)], 1))
def test_created_arrays_are_made_in_place(mesh: Mesh, shape: tuple):
    key = random.key(3)
    for made, plain in [
        (jnp.ones(shape, out_sharding=P("x")), jnp.ones(shape)),
        (jnp.full(shape, 3, out_sharding=P("x")), jnp.full(shape, 3)),
        (jnp.array(np.ones(shape), out_sharding=P("x")), jnp.ones(shape)),
        (random.normal(key, shape, out_sharding=P("x")), random.normal(key, shape)),
        (random.randint(key, shape, 0, 9, out_sharding=P("x")), random.randint(key, shape, 0, 9)),
        (random.gamma(key, 2.0, shape, out_sharding=P("x")), random.gamma(key, 2.0, shape)),
    ]:
        assert sw.typeof(made).spec == P("x", None)
        assert made.sharding.mesh is MESH
        np.testing.assert_allclose(made, plain, rtol=1e-6)  # gamma is computed: rounding differs


def test_concrete_meshes_need_no_scope():
    there = NamedSharding(MESH, P("x"))
    assert jnp.zeros(8, out_sharding=there).sharding == there
    product = jnp.matmul(A, W, out_sharding=there)
    assert shown(product) == "float32[8@x,6]"
    np.testing.assert_allclose(product, A @ W, rtol=1e-5)


# -- other types of axes --


def test_auto_axes(mesh: Mesh):
    seen: list[str] = []

    def f(a: Any, w: Any) -> Any:
        seen.append(shown(a))
        return a @ w

    a, w = put(A, "x", "y"), put(W, "y", "x")
    free = auto_axes(f, out_sharding=P("x", None))
    for out in (free(a, w), sw.jit(free)(a, w), auto_axes(f)(a, w, out_sharding=P("x", None))):
        assert shown(out) == "float32[8@x,6]"
        np.testing.assert_allclose(out, A @ W, rtol=1e-5)
    assert set(seen) == {"float32[8,4]"}
    g = sw.grad(lambda a: (free(a, w) ** 2).sum())(a)
    assert shown(g) == "float32[8@x,4@y]"
    np.testing.assert_allclose(g, 2 * (A @ W) @ W.T, rtol=1e-4)
    assert error_of(TypeError, auto_axes(f), a, w) == (
        "auto_axes of f needs `out_sharding`, here or at the call."
    )


def test_some_axes_auto(mesh: Mesh):
    seen: list[Any] = []

    @auto_axes(axes="y", out_sharding=P("x", "y"))
    def f(x: Any) -> Any:
        seen.append((shown(x), get_abstract_mesh().axis_types))
        return jnp.sin(x).T.T

    x = put(A, "x", "y")
    for out in (f(x), sw.jit(f)(x)):
        assert shown(out) == "float32[8@x,4@y]"
        np.testing.assert_allclose(out, np.sin(A), rtol=1e-5)
    assert seen == [("float32[8@x,4]", (AxisType.Explicit, AxisType.Auto))] * 2
    assert error_of(ValueError, auto_axes(f, axes="z", out_sharding=P()), x) == (
        "auto_axes of f: Mesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit)) has no axis 'z'; "
        "its axes are 'x' and 'y'."
    )


def test_explicit_axes():
    seen: list[str] = []

    @explicit_axes(in_sharding=(P("x", "y"),))
    def f(x: Any) -> Any:
        seen.append(shown(x))
        return jnp.sin(x)

    with set_mesh(MIXED):
        x = put(A, "x")
        for out in (f(x), sw.jit(f)(x)):
            assert shown(out) == "float32[8@x,4]"
            np.testing.assert_allclose(out, np.sin(A), rtol=1e-5)
    assert seen == ["float32[8@x,4@y]"] * 2
    assert error_of(ValueError, f, A) == (
        "explicit_axes of f needs a mesh in scope. Enter one with `set_mesh`."
    )


# -- transforms --


def test_vmap_of_differently_split_axes(mesh: Mesh):
    add = sw.vmap(lambda a, b: a + b)
    assert error_of(ShardingTypeError, add, put(A, "x"), put(A, "y")) == (
        "vmap: the mapped axes of the arguments are sharded over different mesh axes: f32[8@x,4] "
        "along 0, f32[8@y,4] along 0. Use `shardwise.sharding.reshard(x, P())` on the last of "
        "them."
    )
    assert error_of(ShardingTypeError, add, put(A, "x"), A) == (
        "vmap of <lambda>: the mapped axis of b, of type f32[8,4], is not sharded, and those of "
        "other arguments are, by P('x'). Shard all in the same way with "
        "`shardwise.sharding.reshard`."
    )
    assert shown(sw.vmap(lambda a, b: a + b, (0, None))(put(A, "x"), A[0])) == "float32[8@x,4]"
    inside = sw.vmap(lambda r: reshard(r, P("x")))
    assert error_of(ShardingTypeError, inside, put(A, "x")) == (
        "[reshard] under vmap cannot shard a value by P('x'): the mapped axis is already sharded "
        "over 'x'. Use other mesh axes inside, or map over an unsharded axis."
    )


def test_scan_names_the_leaf(mesh: Mesh):
    def step(c: Any, x: Any) -> tuple:
        return c + x["a"], c

    assert error_of(ShardingTypeError, lax.scan, step, jnp.zeros(4), {"a": put(A, "x")}) == (
        "scan: xs['a'] is of type f32[8@x,4]: its dimension 0, which scan iterates over, "
        "is sharded. Use `shardwise.sharding.reshard(xs['a'], P())`."
    )
    assert error_of(TypeError, lax.scan, step, jnp.zeros(4), {"a": put(A, None, "x")}) == (
        "scan: step must return the carry with its input types; carry came in as f32[4] and "
        "was returned as f32[4@x] (differs in sharding). Change init or step so that they agree, "
        "for example with `shardwise.sharding.reshard`."
    )
    final, ys = lax.scan(step, jnp.zeros(4, out_sharding=P("x")), {"a": put(A, None, "x")})
    assert (shown(final), shown(ys)) == ("float32[4@x]", "float32[8,4@x]")


def test_custom_rules(mesh: Mesh):
    @sw.custom_jvp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    f.defjvp(lambda p, t: (f(p[0]), 3 * t[0]))

    @sw.custom_vjp
    def g(x: Any) -> Any:
        return jnp.sin(x)

    g.defvjp(lambda x: (g(x), None), lambda _, ct: (reshard(5 * ct, P()),))
    for fun, slope in ((f, 3), (g, 5)):
        for h in (
            sw.grad(lambda x, fun=fun: fun(x).sum()),
            sw.vmap(sw.grad(lambda x, fun=fun: fun(x).sum())),
            sw.jit(sw.grad(lambda x, fun=fun: sw.vmap(fun)(x).sum())),
        ):
            out = h(put(A, "x", "y"))
            assert shown(out) == "float32[8@x,4@y]"
            np.testing.assert_array_equal(out, np.full_like(A, slope))


def test_a_mesh_of_equal_shape_hits_the_cache():
    other = sw.make_mesh(
        (4, 2), ("x", "y"), axis_types=AxisType.Explicit, devices=sw.devices()[::-1]
    )
    traces: list[int] = []

    @sw.jit
    def f(x: Any) -> Any:
        traces.append(1)
        return jnp.sin(x)

    for m in (MESH, other):
        out = f(sw.device_put(A, NamedSharding(m, P("x"))))
        assert out.sharding.mesh is m
    assert len(traces) == 1


def test_what_is_staged_under_a_mesh_is_of_no_devices():
    """A spec is over the mesh in scope when a function is called, not when it was staged."""
    turned = sw.make_mesh(
        (4, 2), ("x", "y"), axis_types=AxisType.Explicit, devices=sw.devices()[::-1]
    )
    functions = {
        "reshard": lambda a: reshard(a, P("x")),
        "auto_axes": lambda a: auto_axes(lambda a: a * 1, out_sharding=P("x"))(a),
        "explicit_axes": lambda a: explicit_axes(lambda a: a * 1, in_sharding=P("x"))(a),
        "array": lambda a: jnp.array(A, out_sharding=P("x")),
        "out_sharding": lambda a: lax.broadcast(a, (1,), out_sharding=P(None, "x"))[0],
        "loop": lambda a: lax.fori_loop(0, 1, lambda i, c: reshard(c, P("x")), reshard(a, P("x"))),
    }
    for name, fun in functions.items():
        f = sw.jit(fun)
        for m in (MESH, turned, MESH):
            with set_mesh(m):
                for out in (f(A), sw.jit(lambda a, fun=fun: fun(a))(A)):
                    assert out.sharding.mesh == m, name
                    assert out.sharding.is_equivalent_to(NamedSharding(m, P("x")), 2), name
                    np.testing.assert_array_equal(out, A)


def test_a_training_step_is_jax_s(mesh: Mesh):
    """Data over x, weights over y: the types of all gradients, and the values, match JAX."""
    params = {"w": W, "b": np.ones(6, np.float32)}
    splits = {"w": ("y", None), "b": (None,)}

    def loss(m: Any, spec: Any, p: Any, x: Any) -> Any:
        h = m.einsum("bi,io->bo", x, p["w"], out_sharding=spec("x", None)) + p["b"]
        return (m.tanh(h) ** 2).mean()

    ours = {k: put(v, *splits[k]) for k, v in params.items()}
    value, grads = sw.jit(sw.value_and_grad(lambda p, x: loss(jnp, P, p, x)))(ours, put(A, "x"))
    theirs = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    spec = jax.sharding.PartitionSpec
    with jax.set_mesh(theirs):
        at = {k: jax.device_put(v, spec(*splits[k])) for k, v in params.items()}
        expected = jax.jit(jax.value_and_grad(lambda p, x: loss(jax.numpy, spec, p, x)))(
            at, jax.device_put(A, spec("x"))
        )
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    for k, g in expected[1].items():
        assert shown(grads[k]) == str(jax.typeof(g))
        np.testing.assert_allclose(grads[k], g, rtol=1e-4, atol=1e-6)


def test_uneven_sums_are_taken(mesh: Mesh):
    x = sw.device_put(np.ones((3, 8), np.float32), NamedSharding(mesh, P("x", "y")))
    assert error_of(ValueError, lambda: jnp.dot(x, x.T, out_sharding=P("x", unreduced={"y"}))) == (
        "dot: a value of shape (3, 3) is to be left unreduced under NamedSharding("
        f"mesh={mesh.abstract_mesh}, spec=P('x', None, unreduced={{'y'}})), which shards a "
        "dimension unevenly. XLA does not support that: reduce the value (leave out `unreduced`), "
        "or do not shard that dimension."
    )
    np.testing.assert_array_equal(jnp.dot(x, x.T, out_sharding=P("x")), np.full((3, 3), 8.0))


def test_the_text_of_addends():
    mesh = sw.make_mesh((2,), ("x",))
    a = sw.device_put(np.ones((1, 4), np.float32), NamedSharding(mesh, P(None, "x")))
    b = sw.device_put(np.ones((4, 1), np.float32), NamedSharding(mesh, P("x")))
    u = jnp.dot(a, b, out_sharding=P(None, None, unreduced={"x"}))
    assert (
        repr(u)
        == str(u)
        == (
            "Array(shape=(1, 1), dtype=float32) sharded as NamedSharding(mesh=Mesh('x': 2, "
            "axis_types=(Explicit,)), spec=P(None, None, unreduced={'x'})), partial sums along "
            "'x': `reshard` adds them"
        )
    )


@pytest.mark.parametrize("jit", [False, True])
def test_what_is_written_over_stays_where_it_is(jit):
    mesh = sw.make_mesh((4,), ("x",))
    x = sw.device_put(np.ones((6, 2), np.float32), NamedSharding(mesh, P("x")))
    for index in (..., slice(None), (slice(None), slice(0, 2))):
        write = lambda x, v, index=index: x.at[index].set(v)  # noqa: E731
        y = (sw.jit(write) if jit else write)(x, jnp.zeros((6, 2)))
        assert str(sw.typeof(y)) == "float32[6@x,2]"
        np.testing.assert_array_equal(y, np.zeros((6, 2)))
