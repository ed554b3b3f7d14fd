"""`custom_partitioning` over explicit axes and under transforms; when its functions are called."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.errors import ShardingTypeError
from shardwise.experimental import checkify
from shardwise.experimental.custom_partitioning import custom_partitioning
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails, message
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH, REVERSED
from tests.helpers.partitioned import EXPLICIT, OURS, collectives, normal, product_of, put, smooth

# -- types over explicit axes --


def test_explicit_axes():
    product = product_of(*OURS, [])
    x, y = normal(8, 6), normal(6, 4)
    args = put(x, "x", "y", mesh=EXPLICIT), put(y, "y", mesh=EXPLICIT)
    got = product(*args)
    assert got.aval.str_short(True) == "f32[8@x,4]"
    np.testing.assert_allclose(np.asarray(got), x @ y, rtol=1e-5, atol=1e-5)
    assert collectives(product, *args) == {"all-reduce"}
    fails(
        ShardingTypeError,
        "[custom_partitioning] operands f32[8@x,6@y], f32[6@x,4] disagree about the sharding of "
        "dimensions 1 and 0: ('y',) and ('x',). Use `shardwise.sharding.reshard(x, P('y'))` on "
        "operand 1.",
        product,
        args[0],
        put(y, "x", mesh=EXPLICIT),
    )


def test_explicit_axes_of_whole_dimensions():
    f = custom_partitioning(lambda x: jnp.sort(x))
    f.def_partition(
        lambda mesh, args, result: None, sharding_rule="b i -> b i", need_replication_factors=("i",)
    )
    fails(
        ShardingTypeError,
        "[custom_partitioning] cannot operate along dimension 1 of f32[8,4@x], "
        "which is sharded over ('x',). Use `shardwise.sharding.reshard(x, P())`.",
        f,
        put(normal(8, 4), None, "x", mesh=EXPLICIT),
    )


# -- transforms --


@pytest.mark.parametrize("mesh", [MESH, EXPLICIT], ids=["auto", "explicit"])
def test_gradients_by_custom_vjp(mesh):
    f = smooth(product_of(*OURS, log := []))
    x, y = normal(8, 6), normal(6, 4)
    loss = lambda x, y: (f(x, y) ** 2).sum()  # noqa: E731
    got = sw.jit(sw.grad(loss, (0, 1)))(put(x, "x", mesh=mesh), put(y, mesh=mesh))
    expected = 2 * (x @ y) @ y.T, 2 * x.T @ (x @ y)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-4)
    assert len(log) == 3


@pytest.mark.parametrize(
    "spec", everyday([("x", "y"), ("y", "x"), (None, "x", "y"), ("x", None, "y"), ()], 2, "mapped")
)
def test_vmap_gives_shapes_without_the_mapped_dimension(spec):
    log = []
    product = product_of(*OURS, log)
    x, y = normal(5, 8, 6), normal(6, 4)
    f = sw.jit(sw.vmap(product, (0, None)))
    np.testing.assert_allclose(np.asarray(f(put(x, *spec), put(y))), x @ y, rtol=1e-5, atol=1e-5)
    assert [s[0] for s in log[0][1]] == [(8, 6), (6, 4), (8, 4)]
    last = sw.vmap(product, (2, 1), 1)(put(x.transpose(1, 2, 0), *spec), put(np.stack([y] * 5, 1)))
    np.testing.assert_allclose(np.asarray(last), (x @ y).transpose(1, 0, 2), rtol=1e-5, atol=1e-5)
    both = sw.vmap(sw.vmap(product, (None, 0)), (0, None))(put(x, *spec), put(np.stack([y] * 3)))
    expected = np.stack([x @ y] * 3, 1)
    np.testing.assert_allclose(np.asarray(both), expected, rtol=1e-5, atol=1e-5)


def test_a_mapped_dimension_stays_divided():
    """But not over axes that lower_fn communicates along."""
    product = product_of(*OURS, [])
    f = sw.vmap(product, (0, None))
    x, y = normal(4, 8, 6), normal(6, 4)
    args = put(x, "x", None, "y"), put(y, "y")
    assert collectives(f, *args) == {"all-reduce"}
    assert sw.jit(f)(*args).sharding.spec == P("x")

    def partition(mesh, args, result):
        place = NamedSharding(mesh, P())
        return mesh, lambda x: lax.psum(x, "x") / 4, place, (place,)

    g = custom_partitioning(lambda x: x + 0)
    g.def_partition(partition, sharding_rule="i -> i")
    rows = normal(8, 3)
    np.testing.assert_allclose(np.asarray(sw.vmap(g)(put(rows, "x"))), rows, rtol=1e-6)


def test_vmap_over_explicit_axes():
    product = product_of(*OURS, [])
    x, y = normal(4, 8, 6), normal(6, 4)
    args = put(x, "x", None, "y", mesh=EXPLICIT), put(y, "y", mesh=EXPLICIT)
    got = sw.vmap(product, (0, None))(*args)
    assert got.aval.str_short(True) == "f32[4@x,8,4]"
    np.testing.assert_allclose(np.asarray(got), x @ y, rtol=1e-5, atol=1e-5)


def test_checks_and_prints(capsys):
    """Checks inspect the function as for one device."""
    product = product_of(*OURS, [])
    x, y = put(normal(8, 6), "x", "y"), put(normal(6, 4), "y")

    def noisy(x, y):
        sw.debug.print("{}", x.shape[0])
        return product(x, y)

    expected = np.asarray(x) @ np.asarray(y)
    np.testing.assert_allclose(np.asarray(sw.jit(noisy)(x, y)), expected, rtol=1e-4, atol=1e-5)
    sw.effects_barrier()
    assert capsys.readouterr().out == "8\n"
    checked = checkify.checkify(sw.jit(lambda x, y: product(x / 0, y)), checkify.nan_checks)
    error, _ = checked(x * 0, y)
    assert error.get().startswith("nan generated by primitive: div.")
    bad = put(np.full((8, 6), np.nan, "f"), "x")
    with sw.debug_nans(True):
        assert "encountered in dot_general" in message(FloatingPointError, product, bad, y)
    with sw.disable_jit():
        np.testing.assert_allclose(np.asarray(product(x, y)), expected, rtol=1e-4, atol=1e-5)


def test_programs_show_it():
    product = product_of(*OURS, [])
    made = sw.make_jaxpr(product)(normal(2, 3), normal(3, 2))
    (eqn,) = made.eqns
    assert eqn.primitive.name == "custom_partitioning"
    assert [e.primitive.name for e in eqn.params["call"].eqns] == ["dot_general"]


# -- when it is called --


def test_equal_calls_are_asked_once():
    log = []
    product = product_of(*OURS, log)
    args = put(normal(8, 6), "x"), put(normal(6, 4))
    for _ in range(3):
        product(*args)
        sw.jit(lambda x, y: product(x, y))(*args)
    assert len(log) == 2  # eagerly, and by jit
    product_of(*OURS, log)(*args)
    assert len(log) == 3


def test_meshes_of_one_shape_are_told_apart():
    found = []

    def partition(mesh, args, result):
        found.append(mesh)
        return mesh, jnp.sin, result.sharding, (args[0].sharding,)

    f = custom_partitioning(lambda x: jnp.sin(x))
    f.def_partition(partition, sharding_rule="i -> i")
    g, x = sw.jit(f), normal(8)
    for mesh in (MESH, REVERSED, MESH):
        np.testing.assert_allclose(np.asarray(g(put(x, "x", mesh=mesh))), np.sin(x), rtol=1e-5)
    assert found == [MESH, REVERSED]


def test_another_partition_later():
    product = product_of(*OURS, [])
    x, y = put(normal(8, 6), "x"), put(normal(6, 4))
    expected = np.asarray(product(x, y))

    def partition(mesh, args, result):
        places = [NamedSharding(mesh, P())] * 2
        return mesh, lambda x, y: 10 * (x @ y), places[0], tuple(places)

    assert product.def_partition(partition, sharding_rule="b i, i o -> b o") is partition
    # Devices add in a different order: sums near 0 have the error of their terms.
    np.testing.assert_allclose(product(x, y), 10 * expected, rtol=1e-5, atol=1e-5)


def test_nothing_is_kept_on_disk(tmp_path):
    product = product_of(*OURS, [])
    x, y = put(normal(16, 6), "x"), put(normal(6, 12))
    config = {
        "compilation_cache_dir": str(tmp_path),
        "enable_compilation_cache": True,
        "persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(sw.config, name) for name in config}
    for name, value in config.items():
        sw.config.update(name, value)
    try:
        sw.jit(lambda x, y: product(x, y) * 2)(x, y)
        assert list(tmp_path.iterdir()) == []
        sw.jit(lambda x, y: x @ y * 3)(x, y)
        assert len(list(tmp_path.iterdir())) == 1
    finally:
        for name, value in before.items():
            sw.config.update(name, value)
