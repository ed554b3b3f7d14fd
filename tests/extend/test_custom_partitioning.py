"""`custom_partitioning`: the calls of the user's functions, and values equal to those of the
function, however it is sharded."""

import re
from functools import partial

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.custom_partitioning import custom_partitioning
from shardwise.sharding import GSPMDSharding, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import JAX_MESH
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH, REVERSED, SHUFFLED, mesh_of
from tests.helpers.partitioned import (
    EXPLICIT,
    JAX,
    OURS,
    RNG,
    collectives,
    fft_of,
    normal,
    product_of,
    put,
    smooth,
)


def in_both(make, values, *specs):
    """Asserts that results and callback arguments are equal in both libraries."""
    mine, other = [], []
    f, g = make(*OURS, mine), make(*JAX, other)
    args = [put(v, *s) for v, s in zip(values, specs, strict=True)]
    theirs = [
        jax.device_put(v, jax.sharding.NamedSharding(JAX_MESH, jax.sharding.PartitionSpec(*s)))
        for v, s in zip(values, specs, strict=True)
    ]
    got, expected = sw.jit(f)(*args), jax.jit(g)(*theirs)
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-5, atol=1e-5)
    assert mine[0] == other[0]
    assert tuple(got.sharding.spec) == tuple(expected.sharding.spec)


@pytest.mark.parametrize("spec", [("x",), ("x", "y"), (None, "x"), (("x", "y"),)])
def test_fft_is_asked_as_jax_is(spec):
    in_both(fft_of, [normal(16, 8).astype("complex64")], spec)


@pytest.mark.parametrize("specs", [(("x", "y"), ("y",)), ((None, "x"), ("x",)), (("y",), ())])
def test_product_is_asked_as_jax_is(specs):
    in_both(product_of, [normal(8, 16), normal(16, 4)], *specs)


def test_the_fft_does_not_gather():
    my_fft = fft_of(*OURS, [])
    x = normal(8, 4, 6).astype("complex64")
    for mesh in (MESH, REVERSED, SHUFFLED):
        y = put(x, ("x", "y"), mesh=mesh)
        text = sw.jit(my_fft).lower(y).compile().as_text()
        assert not re.search("dynamic-slice|all-gather|all-to-all", text)
        np.testing.assert_allclose(np.asarray(my_fft(y)), np.fft.fft(x), rtol=1e-5, atol=1e-5)
        assert my_fft(y).sharding.spec == P(("x", "y"))


def test_within_a_mesh_by_in_shardings():
    my_fft = fft_of(*OURS, log := [])
    x = normal(8, 4).astype("complex64")
    with MESH:
        f = sw.jit(my_fft, in_shardings=NamedSharding(MESH, P("x")))
        got = f(x)
    np.testing.assert_allclose(np.asarray(got), np.fft.fft(x), rtol=1e-5, atol=1e-5)
    assert log == [({"x": 4, "y": 2}, [((8, 4), "complex64", ("x", None))] * 2)]


# -- values, however it is sharded --

SPECS = [("x", "y"), (None, "x"), ("y", "x"), (("x", "y"),), (None, ("y", "x")), ()]


SIZES = [(8, 16, 4), (7, 5, 3), (1, 1, 1), (3, 9, 2)]


@pytest.mark.parametrize(
    ("spec", "sizes"), everyday([(spec, n) for spec in SPECS for n in SIZES], 2, "products")
)
def test_products(sizes, spec):
    """Also with shards that are not full: their padding is zero."""
    b, i, o = sizes
    product = product_of(*OURS, [])
    x, y = normal(b, i), normal(i, o)
    f = sw.jit(lambda x, y: product(x * 2, y) + 1)
    for mesh in (MESH, SHUFFLED):
        args = put(x, *spec, mesh=mesh), put(y, "x", mesh=mesh)
        np.testing.assert_allclose(np.asarray(product(*args)), x @ y, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(f(*args)), 2 * x @ y + 1, rtol=1e-5, atol=1e-5)


def test_what_fills_up_is_zero():
    """NaN of 0/0 in padding does not get into sums."""
    product = product_of(*OURS, [])
    f = sw.jit(lambda x, y: product(x / x, y))
    x, y = put(normal(5, 6), None, "x"), put(normal(6, 3), "x")
    np.testing.assert_allclose(np.asarray(f(x, y)), np.ones((5, 6)) @ np.asarray(y), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", "bfloat16", "float16", "uint32"])
def test_what_fills_up_is_zero_in_every_dtype(dtype):
    f = custom_partitioning(lambda x: x.sum(1))

    def partition(mesh, args, result):
        place = NamedSharding(mesh, P("y", "x"))
        lower = lambda x: lax.psum(x.sum(1), "x").astype(result.dtype)  # noqa: E731
        return mesh, lower, NamedSharding(mesh, P("y")), (place,)

    f.def_partition(partition, sharding_rule="r c -> r", reduction_factors=("c",))
    x = jnp.asarray(RNG.integers(0, 2, (3, 7)), dtype)
    expected = np.asarray(x.sum(1))
    assert np.array_equal(np.asarray(f(put(x, None, ("x", "y")))), expected)


def test_communication_is_what_lower_fn_does():
    product = product_of(*OURS, [])
    x, y = put(normal(8, 8), "x", "y"), put(normal(8, 8), "y")
    assert collectives(product, x, y) == {"all-reduce"}
    assert collectives(product, put(x, "x"), put(y)) == set()


def test_on_one_device_the_function_runs():
    log = []
    product = product_of(*OURS, log)
    x, y = normal(3, 4), normal(4, 2)
    np.testing.assert_allclose(np.asarray(product(x, y)), x @ y, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(sw.jit(product)(x, y)), x @ y, rtol=1e-5)
    assert log == []


def test_no_elements():
    product = product_of(*OURS, [])
    got = product(put(np.zeros((8, 0), "f"), "x"), put(np.zeros((0, 4), "f")))
    assert np.array_equal(np.asarray(got), np.zeros((8, 4)))


def test_in_loops_branches_and_nested_jit():
    product = product_of(*OURS, [])
    x, y = normal(8, 8), normal(8, 8) / 4

    @sw.jit
    def f(x, y):
        step = lambda c, _: (sw.jit(product)(c, y), None)  # noqa: E731
        c = lax.scan(step, x, None, length=3)[0]
        return lax.cond(c.sum() > 1e9, lambda c: c, lambda c: product(c, y), c)

    got = f(put(x, "x", "y"), put(y, "y"))
    np.testing.assert_allclose(np.asarray(got), x @ y @ y @ y @ y, rtol=1e-4, atol=1e-4)


def test_in_shard_map_the_function_runs():
    log = []
    product = product_of(*OURS, log)
    x, y = normal(8, 6), normal(6, 4)
    f = sw.shard_map(product, mesh=MESH, in_specs=(P(("x", "y")), P()), out_specs=P(("x", "y")))
    np.testing.assert_allclose(np.asarray(sw.jit(f)(x, y)), x @ y, rtol=1e-5, atol=1e-5)
    assert log == []


def test_under_remat():
    product = product_of(*OURS, [])
    x, y = normal(8, 6), normal(6, 4)
    f = sw.checkpoint(lambda x, y: jnp.sin(x) + smooth(product)(x, y).sum())
    got = sw.jit(sw.grad(lambda x, y: f(x, y).sum()))(put(x, "x", "y"), put(y, "y"))
    expected = np.cos(x) + 48 * np.ones((8, 4)) @ y.T
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4)


def test_scalars():
    f = custom_partitioning(lambda x: x * 2)
    f.def_partition(
        lambda mesh, args, result: (mesh, lambda x: x * 2, result.sharding, (args[0].sharding,)),
        sharding_rule="-> ",
    )
    assert float(f(put(np.float32(3)))) == 6


# -- arguments --


def test_trees_and_static_arguments():
    asked = []

    @partial(custom_partitioning, static_argnums=(2, 0))
    def f(scale, pair, name="n", more=3.0):
        return {"sum": pair[0] * scale + pair[1]["b"] * more, "name": pair[0][:, 0]}

    def partition(name, scale, mesh, args, result):
        asked.append((name, scale, sw.tree.structure(args), sw.tree.structure(result)))

        def lower_fn(pair, more):
            a, b = pair[0], pair[1]["b"]
            return {"sum": a * scale + b * more, "name": a[:, 0]}

        place = lambda s: NamedSharding(mesh, P("x", *[None] * (len(s.shape) - 1)))  # noqa: E731
        rows = sw.tree.map(place, (args[0], result))
        return mesh, lower_fn, rows[1], (rows[0], NamedSharding(mesh, P()))

    def rule(name, scale, mesh, operands, results):
        assert [t.rank for t in operands] == [2, 2, 0] and operands[0].get_dim_size(1) == 3
        assert [t.shape for t in results] == [(8,), (8, 3)] and results[0].element_type == "f32"
        return "r c, r c, -> r, r c"

    f.def_partition(partition, sharding_rule=rule)
    a, b = normal(8, 3), normal(8, 3)
    got = sw.jit(lambda a, b: f(2, (a, {"b": b}), more=5.0))(put(a, "x"), put(b))
    np.testing.assert_allclose(np.asarray(got["sum"]), 2 * a + 5 * b, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(got["name"]), a[:, 0])
    tree = sw.tree.structure(((0, {"b": 0}), 0)), sw.tree.structure({"sum": 0, "name": 0})
    assert asked == [("n", 2, *tree)]


def test_shardings_that_are_not_decoded():
    found = []

    def partition(mesh, args, result):
        found.extend([args[0].sharding, result.sharding])
        return mesh, jnp.sin, result.sharding, (args[0].sharding,)

    f = custom_partitioning(lambda x: jnp.sin(x))
    f.def_partition(partition, decode_shardings=False, sharding_rule="i j -> i j")
    x = normal(8, 4)
    for spec in [("x", "y"), ()]:
        np.testing.assert_allclose(np.asarray(f(put(x, *spec))), np.sin(x), rtol=1e-5)
        place = found.pop()
        assert isinstance(place, GSPMDSharding) and found.pop() == place
        assert place.is_equivalent_to(NamedSharding(MESH, P(*spec)), 2)


def test_a_mesh_of_its_own_and_constants():
    """lower_fn may close over arrays, and name the axes of another mesh over the same devices."""
    own = mesh_of(2, 4, names="ab").update()
    table = np.arange(300, dtype="f")

    def partition(mesh, args, result):
        place = NamedSharding(own, P(("b", "a")))
        return own, lambda x: x + table.sum() + lax.psum(x * 0 + 1, ("a", "b")), place, (place,)

    f = custom_partitioning(lambda x: x + table.sum() + 8)
    f.def_partition(partition, sharding_rule="i -> i")
    x = normal(16)
    np.testing.assert_allclose(np.asarray(f(put(x, "x"))), x + table.sum() + 8, rtol=1e-5)


@pytest.mark.parametrize("mesh", [MESH, EXPLICIT], ids=["auto", "explicit"])
def test_dimensions_go_together_as_infer_says(mesh):
    """Without a rule. Types follow its declaration."""

    def infer(mesh, args, result):
        spec = args[0].sharding.spec
        return NamedSharding(args[0].sharding.mesh, P(spec[0] if len(spec) else None, None))

    product = product_of(*OURS, [], infer_sharding_from_operands=infer)
    x, y = normal(8, 6), normal(6, 4)
    got = product(put(x, "x", "y", mesh=mesh), put(y, mesh=mesh))
    np.testing.assert_allclose(np.asarray(got), x @ y, rtol=1e-5, atol=1e-5)
    assert got.sharding.spec[0] == "x"


@pytest.mark.parametrize("mesh", [MESH, EXPLICIT], ids=["auto", "explicit"])
def test_without_any_rule(mesh):
    """Types are equal to those of the function."""
    product = product_of(*OURS, [], sharding_rule=None)
    x, y = normal(8, 6), normal(6, 4)
    got = product(put(x, "x", mesh=mesh), put(y, mesh=mesh))
    assert got.aval.str_short(True) == ("f32[8@x,4]" if mesh is EXPLICIT else "f32[8,4]")
    np.testing.assert_allclose(np.asarray(got), x @ y, rtol=1e-5, atol=1e-5)
