"""`jit`: in_shardings, out_shardings, and constraints inside."""

from __future__ import annotations

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, jax_sharding, ours, sharding
from tests.helpers.errors import message, messages
from tests.helpers.jitted import ONE, X


def test_in_and_out_shardings():
    f = sw.jit(
        lambda a, b: (a * 2, {"t": a.T, "b": b}),
        in_shardings=(sharding("x"), None),
        out_shardings=(sharding("y", "x"), {"t": None, "b": sharding()}),
    )
    y, rest = f(X, 3.0)
    assert y.sharding is sharding("y", "x")
    assert rest["t"].sharding == sharding(None, "x") and rest["b"].sharding is sharding()
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    np.testing.assert_array_equal(np.asarray(rest["t"]), X.T)


def test_one_sharding_stands_for_a_whole_tree():
    f = sw.jit(lambda t: t, in_shardings=sharding("x"), out_shardings=sharding())
    out = f({"a": X, "b": [X, X]})
    assert [a.sharding for a in (out["a"], *out["b"])] == [sharding()] * 3


def test_bare_specs_in_another_mesh_make_another_program():
    f = sw.jit(lambda a: sw.with_sharding_constraint(a + 1, P("x")))
    turned = Mesh(MESH.devices.T, ("x", "y"))
    for mesh in (MESH, turned, MESH):
        with mesh:
            assert f(X).sharding == NamedSharding(mesh, P("x"))


def test_constraints_inside():
    f = sw.jit(lambda a: sw.with_sharding_constraint(a + 1, sharding(None, "y")) * 2)
    y = f(ours(X, "x"))
    assert y.sharding == sharding(None, "y")
    np.testing.assert_array_equal(np.asarray(y), (X + 1) * 2)
    text = f.lower(ours(X, "x")).as_text()
    assert 'sdy.mesh @mesh = <["x"=4, "y"=2]>' in text
    assert 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>' in text
    assert "sdy.sharding_constraint %" in text and '<@mesh, [{}, {"y"}]>' in text


def test_prefixes_of_trees():
    tree = {"w": [X, X], "b": (X, {"c": X})}
    wanted = {"w": sharding("x"), "b": (None, sharding(None, "y"))}
    results = {"w": [None, sharding()], "b": None}
    f = sw.jit(lambda t: t, in_shardings=(wanted,), out_shardings=results)
    out = f(tree)
    got = [a.sharding for a in (*out["w"], out["b"][0], out["b"][1]["c"])]
    assert got == [sharding("x"), sharding(), sharding(), sharding(None, "y")]
    listed = sw.jit(lambda a, b: a, in_shardings=[sharding("x"), None])(X, X)
    assert listed.sharding == sharding("x")


def test_host_values_are_global_and_replicated_without_in_shardings():
    f = sw.jit(lambda a, b: (a, b), in_shardings=(sharding("x"), None))
    a, b = f(X, X)
    assert a.sharding == sharding("x") and b.sharding == sharding() and a.shape == b.shape == (8, 4)


def test_committed_arguments_must_be_where_in_shardings_say():
    f = sw.jit(lambda a: a * 2, in_shardings=sharding("x"))
    y = ours(X, "y")
    assert message(ValueError, f, y) == (
        f"jit of <lambda>: a of type f32[8,4] is on {y.sharding}, but in_shardings requires "
        f"{sharding('x')}. Use `device_put` to move it, or None in in_shardings to accept it "
        "unchanged."
    )
    assert f(sw.device_put(y, sharding("x"))).sharding == sharding("x")


def test_arguments_by_name_have_no_in_shardings():
    f = sw.jit(lambda a, b: a + b, in_shardings=sharding("x"))
    assert message(ValueError, f, X, b=X) == (
        "jit of <lambda>: in_shardings apply to positional arguments only; got 'b' by keyword. "
        "Pass it by position, or leave in_shardings out and place it with `device_put`."
    )
    with pytest.raises(ValueError):
        jax.jit(lambda a, b: a + b, in_shardings=jax_sharding("x"))(X, b=X)


def test_bare_specs_under_set_mesh():
    f = sw.jit(lambda a: a * 2, in_shardings=P("x"), out_shardings=P(None, "y"))
    with MESH:
        assert f(X).sharding == sharding(None, "y")
        assert f.lower(X).compile().input_shardings == ((sharding("x"),), {})


def test_an_abstract_mesh_is_that_of_the_arguments():
    abstract = AbstractMesh((4, 2), ("x", "y"), axis_types=MESH.axis_types)
    place = NamedSharding(abstract, P(None, "y"))
    for f in (
        sw.jit(lambda a: a * 2, out_shardings=place),
        sw.jit(lambda a: sw.with_sharding_constraint(a + 1, place)),
    ):
        assert f(ours(X, "x")).sharding == sharding(None, "y")


def test_static_arguments_are_not_counted_by_in_shardings():
    f = sw.jit(lambda k, a: a * k, static_argnums=0, in_shardings=(sharding("x"),))
    assert f(2, X).sharding == sharding("x")
    g = sw.jit(lambda a, *, k, c: a * k + c, static_argnames=("k",), donate_argnames=("c",))
    c = jnp.asarray(X)
    np.testing.assert_array_equal(np.asarray(g(X, k=3, c=c)), X * 3 + X)
    assert c.is_deleted()


def jitted(**options):
    def f(t):
        return [t["w"] * 2]

    return sw.jit(f, **options)({"w": X})


test_shardings_that_cannot_be = messages(
    """
jitted(in_shardings=({"v": sharding()},))
    ValueError: jit of f: in_shardings must be a pytree prefix of the values that it describes,
    with one entry for each value or for a whole subtree: only in_shardings has t['v'] and only the
    value has t['w'].
jitted(out_shardings=[sharding(), None])
    ValueError: jit of f: out_shardings must be a pytree prefix of the values that it describes,
    with one entry for each value or for a whole subtree: only out_shardings has result[1].
jitted(in_shardings=sharding(None, None, "x"))
    ValueError: jit of f: in_shardings: t['w'] of type f32[8,4]: P(None, None, 'x') over Mesh('x':
    4, 'y': 2) has 3 entries, but the array has only 2 dimensions. Remove entries from the end of
    the spec.
jitted(in_shardings=P("x"))
    RuntimeError: jit of f: in_shardings: a bare P('x') needs a mesh in scope. Use
    NamedSharding(mesh, P('x')), or enter `with shardwise.set_mesh(mesh):`.
jitted(out_shardings="x")
    TypeError: jit of f: out_shardings takes shardings, devices, PartitionSpecs or None; got 'x' of
    type str.
jitted(out_shardings=sharding("x", P.UNCONSTRAINED))
    ValueError: jit of f: out_shardings: P('x', UNCONSTRAINED) leaves a dimension unconstrained,
    which is supported by with_sharding_constraint only. Name its axes or None here, or pass no
    sharding and constrain the value inside of the function.
jitted(in_shardings=ONE, out_shardings=sharding("x"))
    ValueError: f runs on one set of devices: t['w'] of type f32[8,4] is on device 0, but a result
    or intermediate value must be on devices [0, 1, 2, 3, 4, 5, 6, 7] (NamedSharding(mesh=Mesh('x':
    4, 'y': 2), spec=P('x'))). Use `device_put` outside of it.
""",
    globals() | {"ONE": ONE},
)


def test_results_have_the_sharding_of_the_first_argument_if_it_is_equivalent():
    one = Mesh(np.array(sw.devices()[:1]), ("x",))
    rows = Mesh(np.array(sw.devices()[:8]).reshape(1, 8, 1), ("x", "y", "z"))
    for mesh, spec, x in (one, P("x"), np.ones(8)), (rows, P("x", "y", "z"), np.ones((1, 16, 1))):
        place = NamedSharding(mesh, spec)
        y = sw.device_put(x, place)
        assert y.sharding is (y + 1).sharding is sw.jit(lambda a: (a, a * 2))(y)[1].sharding
        assert sw.jit(lambda a: a.reshape(4, -1))(y).sharding is not place
