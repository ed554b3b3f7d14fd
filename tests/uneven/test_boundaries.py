"""Uneven shards when arrays are created, enter and leave programs, and are read."""

import copy
import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import NamedSharding, P, lax, random
from shardwise.explain import collectives
from shardwise.sharding import AxisType
from tests.helpers.comparing import holds
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of

EIGHT = mesh_of(8)
GRID = mesh_of(4, 2)
SHARDINGS = [
    NamedSharding(EIGHT, P("x")),
    NamedSharding(GRID, P("x")),
    NamedSharding(GRID, P("x", "y")),
    NamedSharding(GRID, P(("y", "x"))),
    NamedSharding(GRID, P(None, "x")),
    NamedSharding(mesh_of(3), P("x")),
    NamedSharding(mesh_of(5), P(None, "x")),
]
SHAPES = [(10, 3), (9, 8), (1, 1), (3, 5), (17, 2), (0, 3), (8, 0)]


def values(shape, dtype=np.float32):
    count = int(np.prod(shape))
    if dtype is bool:
        return (np.arange(count) % 3 == 0).reshape(shape)
    return np.arange(count).reshape(shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sharding", SHARDINGS, ids=lambda s: f"{s.mesh.axis_sizes}{s.spec}")
def test_shards_are_those_of_the_logical_array(shape, sharding):
    v = values(shape)
    x = sw.device_put(v, sharding)
    tiles = sharding.tiling(2).dims
    full = tuple(-(-n // k) for n, k in zip(shape, tiles, strict=True))
    assert x.shape == shape and sharding.shard_shape(shape) == full
    assert x.nbytes == v.nbytes
    assert x.on_device_size_in_bytes() >= sharding.num_devices * 4 * int(np.prod(full))
    np.testing.assert_array_equal(x, v)
    covered = np.zeros(shape, int)
    for s in x.addressable_shards:
        np.testing.assert_array_equal(s.data, v[s.index])
        assert s.data.devices() == {s.device} and s.data.shape == v[s.index].shape
        covered[s.index] += s.replica_id == 0
    assert (covered == 1).all()


@pytest.mark.parametrize(
    "dtype",
    everyday(
        [
            bool,
            np.int8,
            np.uint16,
            np.int32,
            np.float16,
            ml_dtypes.bfloat16,
            ml_dtypes.float8_e4m3fn,
            ml_dtypes.int4,
            np.complex64,
            np.float32,
        ],
        3,
    ),
    ids=lambda d: np.dtype(d).name,
)
def test_every_dtype(dtype):
    v = values((5, 3), dtype)
    x = sw.device_put(v, NamedSharding(GRID, P("x", "y")))
    np.testing.assert_array_equal(np.asarray(x), v)
    np.testing.assert_array_equal(np.asarray(x[::-1]), v[::-1])
    holds(x, v)
    assert x.T.sharding.is_equivalent_to(NamedSharding(GRID, P("y", "x")), 2)


def test_typed_keys():
    keys = random.split(random.key(0), 5)
    placed = sw.device_put(keys, NamedSharding(EIGHT, P("x")))
    np.testing.assert_array_equal(random.key_data(placed), random.key_data(keys))
    drawn = sw.jit(sw.vmap(lambda k: random.normal(k, (3,))))
    np.testing.assert_array_equal(drawn(placed), drawn(keys))
    assert [s.data.shape for s in placed.addressable_shards] == [(1,)] * 5 + [(0,)] * 3


def test_what_jit_returns():
    """Requested, propagated, from a NumPy array, by a constraint."""
    v, sharding = values((10, 3)), NamedSharding(GRID, P("x", "y"))
    x = sw.device_put(v, sharding)
    for f, args in (
        (sw.jit(lambda a: a * 2, out_shardings=sharding), (v,)),
        (sw.jit(lambda a: a * 2, in_shardings=sharding), (v,)),
        (sw.jit(lambda a: a * 2), (x,)),
        (sw.jit(lambda a: jnp.cumsum(a, 0) * 0 + a * 2), (x,)),
        (sw.jit(lambda a: sw.with_sharding_constraint(a * 2, sharding)), (v,)),
    ):
        y = f(*args)
        np.testing.assert_array_equal(y, v * 2)
        assert y.sharding.is_equivalent_to(sharding, 2), y.sharding


def test_results_of_other_sizes_keep_their_place():
    x = sw.device_put(values((16,)), NamedSharding(EIGHT, P("x")))
    for f, size in ((lambda a: a[1:], 15), (lambda a: a[:-1] + a[1:], 15), (lambda a: a[3:12], 9)):
        y = sw.jit(f)(x)
        assert y.shape == (size,) and y.sharding == NamedSharding(EIGHT, P("x"))
        np.testing.assert_array_equal(y, f(values((16,))))


def test_one_element_is_not_split():
    x = sw.device_put(values((16,)), NamedSharding(EIGHT, P("x")))
    assert x[3:4].sharding.is_fully_replicated


def test_layers_of_inner_functions():
    """Functions called in a program take and return uneven values without resharding."""
    inner = sw.jit(lambda a: jnp.sin(a) * 2.0)
    x = sw.device_put(values((10,)), NamedSharding(EIGHT, P("x")))
    f = sw.jit(lambda a: inner(inner(a) + a.sum()))
    np.testing.assert_allclose(f(x), f(values((10,))), rtol=1e-5)
    assert kinds(f, x) == {"all-reduce": 1}


def kinds(f, *args):
    found = {}
    for c in collectives(f.lower(*args).compile().as_text()):
        found[c.kind] = found.get(c.kind, 0) + 1
    return found


@pytest.mark.parametrize(
    "f, wanted",
    [
        (lambda x, w: x + x, {}),
        (lambda x, w: jnp.sin(x) * 2 + jnp.exp(x), {}),
        (lambda x, w: x.sum(), {"all-reduce": 1}),
        (lambda x, w: x.sum(axis=1), {}),
        (lambda x, w: x @ w, {}),
        (lambda x, w: sw.nn.softmax(x, axis=1) @ w, {}),
        (lambda x, w: x.T, {}),
        (lambda x, w: jnp.cumsum(x, axis=1), {}),
        (lambda x, w: x[:-1] + x[1:], {"collective-permute": 1}),
        (lambda x, w: x.T @ x, {"all-reduce": 1}),
        (lambda x, w: sw.grad(lambda x: jnp.sum(jnp.tanh(x @ w)))(x), {}),
    ],
)
def test_padding_adds_no_communication(f, wanted):
    x = sw.device_put(values((10, 8)), NamedSharding(EIGHT, P("x")))
    w = sw.device_put(values((8, 4)), NamedSharding(EIGHT, P()))
    assert kinds(sw.jit(f), x, w) == wanted
    on_one_device = f(jnp.asarray(values((10, 8))), jnp.asarray(values((8, 4))))
    np.testing.assert_allclose(sw.jit(f)(x, w), on_one_device, rtol=1e-5)


def test_elementwise_programs_run_on_the_padding():
    """They neither trim nor pad: no result depends on the padding."""
    x = sw.device_put(values((10, 3)), NamedSharding(GRID, P("x")))
    text = sw.jit(lambda a, b: jnp.where(a > 1, a / b, 2.0)).lower(x, x + 1).as_text()
    assert "stablehlo.slice" not in text and "stablehlo.pad" not in text
    assert "tensor<12x3xf32>" in text and "tensor<10x3xf32>" not in text
    text = sw.jit(lambda a, b: a + b).lower(x, values((10, 3))).as_text()
    assert "stablehlo.slice" in text and "stablehlo.pad" in text


@pytest.mark.parametrize("f", [lambda a: a + 1, lambda a: jnp.cumsum(a, axis=1)])
def test_donation_reuses_the_memory(f):
    x = sw.device_put(values((10, 3)), NamedSharding(EIGHT, P("x")))
    g = sw.jit(f, donate_argnums=0)
    memory = g.lower(x).compile().memory_analysis()
    assert memory.alias_size_in_bytes == memory.argument_size_in_bytes == 2 * 3 * 4
    y = g(x)
    assert x.is_deleted()
    np.testing.assert_allclose(y, f(jnp.asarray(values((10, 3)))))


def test_memory_kinds():
    sharding = NamedSharding(EIGHT, P("x"), memory_kind="pinned_host")
    x = sw.device_put(values((10, 3)), sharding)
    for f in (lambda a: a, lambda a: a + 1, lambda a: a[1:]):
        y = sw.jit(f)(x)
        np.testing.assert_array_equal(y, f(values((10, 3))))
        assert y.sharding == NamedSharding(EIGHT, P("x"))
    y = sw.jit(lambda a: a + 1, out_shardings=sharding)(x)
    np.testing.assert_array_equal(y, values((10, 3)) + 1)
    assert y.sharding == sharding
    parts = [s.data for s in y.addressable_shards]  # in that memory kind, too
    whole = sw.make_array_from_single_device_arrays((10, 3), sharding, parts)
    np.testing.assert_array_equal(whole, y)


def test_pickle_and_copies():
    x = sw.device_put(values((10, 3)), NamedSharding(EIGHT, P("x")))
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        np.testing.assert_array_equal(y, x)


def test_random_numbers_do_not_depend_on_placement():
    draw = lambda key: random.normal(key, (11, 3))  # noqa: E731
    wanted = draw(random.key(7))
    for sharding in SHARDINGS:
        came = sw.jit(draw, out_shardings=sharding)(random.key(7))
        np.testing.assert_array_equal(came, wanted)
        assert came.sharding.is_equivalent_to(sharding, 2)


def test_callbacks_see_logical_indices():
    asked = []

    def part(index):
        asked.append(index)
        return values((10, 3))[index]

    x = sw.make_array_from_callback((10, 3), NamedSharding(GRID, P("x")), part)
    np.testing.assert_array_equal(x, values((10, 3)))
    assert [(i[0].start, i[0].stop) for i in asked] == [(0, 3), (3, 6), (6, 9), (9, 10)]


def test_indexing_iterating_updating():
    v, x = values((10, 3)), sw.device_put(values((10, 3)), NamedSharding(EIGHT, P("x")))
    np.testing.assert_array_equal([np.asarray(row) for row in x], v)
    np.testing.assert_array_equal(x[-1], v[-1])
    np.testing.assert_array_equal(x[np.array([9, 0, 3])], v[[9, 0, 3]])
    np.testing.assert_array_equal(x[x[:, 0] > 12], v[v[:, 0] > 12])
    wanted = v.copy()
    wanted[9] = 5
    np.testing.assert_array_equal(x.at[9].set(5), wanted)
    np.testing.assert_array_equal(lax.dynamic_slice(x, (8, 0), (2, 3)), v[8:])
    assert int(jnp.argmax(x)) == 29 and int(jnp.argmin(-x)) == 29


def test_reductions_that_padding_would_spoil():
    v = -1.0 - values((11,))
    x = sw.device_put(v, NamedSharding(EIGHT, P("x")))
    for name in ("max", "min", "sum", "prod", "mean", "std", "argmax", "argmin", "all", "any"):
        np.testing.assert_allclose(getattr(jnp, name)(x), getattr(np, name)(v), rtol=1e-5)
    np.testing.assert_array_equal(jnp.sort(x), np.sort(v))
    np.testing.assert_array_equal(jnp.argsort(x), np.argsort(v))
    np.testing.assert_allclose(jnp.median(x), np.median(v))
    np.testing.assert_array_equal(jnp.unique(x), np.unique(v))
    assert float(jnp.linalg.norm(x)) == pytest.approx(float(np.linalg.norm(v)))


PROGRAMS = {  # with the spec for Explicit axes, where ops do not work along sharded dimensions
    "layer": (lambda x: jnp.tanh(x @ jnp.ones((x.shape[1], 4)) / 7), P("x")),
    "statistics": (lambda x: (x.mean(0), x.std(0), jnp.sort(x, axis=0)), P(None, "x")),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c * r), 0 * x[0], x), P(None, "x")),
    "gradient": (lambda x: sw.grad(lambda x: jnp.sum(jnp.sin(x.T * x[0, 0])))(x / 50), P("x")),
    "per row": (lambda x: sw.vmap(lambda r: r / (1 + jnp.sum(r * r)))(x), P("x")),
    "random": (lambda x: x + random.uniform(random.key(1), x.shape), P("x")),
    "indexing": (lambda x: (x[1:, ::2], x[np.array([4, 2])], x.at[3].set(0.0)), P()),
}


BOTH = [AxisType.Auto, AxisType.Explicit]


@pytest.mark.parametrize(("types", "name"), everyday(itertools.product(BOTH, PROGRAMS), 1), ids=str)
def test_the_same_on_any_number_of_devices(name, types):
    v = values((9, 5)) / 10
    f, explicit_spec = PROGRAMS[name]
    wanted = sw.tree.leaves(sw.jit(f)(v))
    for count in (1, 2, 3, 5, 8):
        spec = P("x") if types is AxisType.Auto else explicit_spec
        x = sw.device_put(v, NamedSharding(mesh_of(count, types=types), spec))
        for run in (f, sw.jit(f)):
            for came, value in zip(sw.tree.leaves(run(x)), wanted, strict=True):
                np.testing.assert_allclose(came, value, rtol=1e-4, atol=1e-5)
