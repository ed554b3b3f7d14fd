"""Reductions along named axes and dimensions together: over maps, meshes, and some of both."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import fail
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS

RNG = np.random.default_rng(0)
LINE = Mesh(np.array(sw.devices()[:4]), ("i",))
GRID = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "j"))
X = RNG.standard_normal((4, 3, 5)).astype(np.float32)

NAMES = (
    "sum prod max min any all mean var std ptp count_nonzero average "
    "nansum nanprod nanmax nanmin nanmean nanvar nanstd"
).split()
AXES = [0, "i", (1,), ("i",), (0, 1), (0, "i"), ("i", -1), ("i", 0, 1), None]


def over_map(f, x):
    """One result per index of the first dimension, as a map over it computes it."""
    return sw.vmap(f, axis_name="i")(x)


def over_mesh(f, x):
    one = lambda x: sw.tree.map(lambda y: y[None], f(x[0]))  # noqa: E731
    return sw.shard_map(one, mesh=LINE, in_specs=P("i"), out_specs=P("i"), check_vma=False)(x)


def over_tracked_mesh(f, x):
    def one(x):
        return sw.tree.map(lambda y: lax.pcast(y, "i", to="varying")[None], f(x[0]))

    return sw.shard_map(one, mesh=LINE, in_specs=P("i"), out_specs=P("i"))(x)


WAYS = [over_map, over_mesh, over_tracked_mesh]


def reference(name, x, axis, **options):
    """NumPy's result on the full array, for each index of the first dimension."""
    given = axis if isinstance(axis, tuple) else (0, 1) if axis is None else (axis,)
    whole = tuple(0 if a == "i" else a + 1 if a >= 0 else a for a in given)
    found = getattr(np, name)(x, axis=whole, **options)
    return np.broadcast_to(found, (4, *found.shape)) if "i" in given else found


def check(got, wanted, **tolerance):
    np.testing.assert_allclose(np.asarray(got), wanted, **(tolerance or {"rtol": 2e-5}))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("axis", everyday(AXES, 1))
def test_against_numpy(axis, way):
    found = sw.jit(
        lambda x: way(lambda x: {name: getattr(jnp, name)(x, axis) for name in NAMES}, x)
    )(X)
    for name in NAMES:
        check(found[name], reference(name, X, axis), rtol=2e-4, err_msg=name)


@pytest.mark.parametrize("name", everyday(NAMES, 2))
def test_eagerly(name):
    for way in WAYS[:2]:
        check(way(lambda x: getattr(jnp, name)(x, ("i", 0)), X), reference(name, X, ("i", 0)))


@pytest.mark.sweep
def test_as_jax_gives_it():
    def run(lib):
        f = {
            "sum": lib.np.sum,
            "max": lib.np.max,
            "min": lib.np.min,
            "mean": lib.np.mean,
            "var": lib.np.var,
            "std": lib.np.std,
        }
        each = lambda x: {n: [g(x, a) for a in AXES] for n, g in f.items()}  # noqa: E731
        return lib.root.jit(lib.root.vmap(each, axis_name="i"))(X)

    close(run(OURS), run(JAX), 1e-5)


@pytest.mark.parametrize("way", everyday(WAYS, 1))
def test_softmax_and_its_like(way):
    names = ["softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize"]
    mapped = sw.jit(
        lambda x: way(lambda x: {n: getattr(sw.nn, n)(x, axis=("i", 0)) for n in names}, x)
    )(X)
    whole = {n: getattr(jax.nn, n)(X, axis=(0, 1)) for n in names}
    for n in names:
        check(mapped[n], np.broadcast_to(whole[n], mapped[n].shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_with_where_and_initial_and_kept_dimensions(way):
    mask = X > 0

    def f(x):
        m = x > 0
        return {
            "sum": jnp.sum(x, ("i", 0), where=m, initial=2.0, keepdims=True),
            "max": jnp.max(x, ("i", 1), where=m, initial=0.5),
            "mean": jnp.mean(x, ("i", 0), where=m, keepdims=True),
            "var": jnp.var(x, ("i", 0), where=m, ddof=1),
            "all": jnp.all(m, "i", where=x > -0.5),
        }

    found = sw.jit(lambda x: way(f, x))(X)
    wanted = {
        "sum": X.sum((0, 1), where=mask, initial=2.0)[None, None],
        "max": X.max((0, 2), where=mask, initial=0.5)[None],
        "mean": X.mean((0, 1), where=mask)[None, None],
        "var": X.var((0, 1), where=mask, ddof=1)[None],
        "all": mask.all(0, where=X > -0.5)[None],
    }
    for name, w in wanted.items():
        check(found[name], np.broadcast_to(w, (4, *w.shape[1:])))


def test_weighted_averages():
    w = RNG.random((4, 3, 5)).astype(np.float32)
    f = sw.vmap(lambda x, w: jnp.average(x, ("i", 0), w, returned=True), axis_name="i")
    wanted = np.average(X, (0, 1), w, returned=True)
    for got, each in zip(f(X, w), wanted, strict=True):
        check(got, np.broadcast_to(each, (4, 5)), rtol=1e-4)
    rows = w[:, :, 0]
    got = sw.vmap(lambda x, w: jnp.average(x, ("i", 0), w), axis_name="i")(X, rows)
    check(got[0], np.average(X, (0, 1), np.broadcast_to(rows[..., None], X.shape)), rtol=1e-4)


def test_methods_take_names():
    got = sw.vmap(lambda x: (x.sum(("i", 0)), x.mean("i"), x.max((0, "i"))), axis_name="i")(
        jnp.asarray(X)
    )
    wanted = X.sum((0, 1)), X.mean(0), X.max((0, 1))
    for a, b in zip(got, wanted, strict=True):
        check(a[1], b, rtol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_special_values(way):
    x = np.array(
        [
            [np.nan, -0.0, np.inf, 1],
            [1, -0.0, -np.inf, 0],
            [2, -0.0, 5, -0.0],
            [np.inf, -0.0, 7, 3],
        ],
        np.float32,
    )
    names = ["sum", "prod", "max", "min", "nansum", "nanmax", "nanmin"]
    found = sw.jit(lambda x: way(lambda x: {n: getattr(jnp, n)(x, "i") for n in names}, x))(x)
    with np.errstate(invalid="ignore"):
        for n in names:
            wanted = getattr(np, n)(x, 0)
            got = np.asarray(found[n])[0]
            np.testing.assert_array_equal(got, wanted, err_msg=n)
            if n in ("max", "min"):
                assert np.signbit(got[1]) == np.signbit(wanted[1])


@pytest.mark.parametrize(
    "dtype", everyday([bool, np.int8, np.uint16, np.complex64, jnp.bfloat16], 1)
)
def test_dtypes(dtype):
    x = (np.arange(12).reshape(4, 3) % 5).astype(dtype)
    names = ["sum", "prod", "max", "min", "any", "all", "mean"]
    each = lambda axis: lambda x: {n: getattr(jnp, n)(x, axis) for n in names}  # noqa: E731
    whole = sw.jit(each((0, 1)))(x)
    for way in WAYS:
        found = sw.jit(lambda x, way=way: way(each(("i", 0)), x))(x)
        for n in names:
            assert found[n].dtype == whole[n].dtype, n
            np.testing.assert_array_equal(
                np.asarray(found[n][0]).astype(complex), np.asarray(whole[n]).astype(complex), n
            )


def test_names_of_a_map_and_of_a_mesh_together():
    xs = RNG.standard_normal((4, 2, 3, 5)).astype(np.float32)

    def part(x):
        f = lambda x: (  # noqa: E731
            jnp.std(x, ("x", "i", 0)),
            jnp.max(x, ("i", "j", 1)),
            jnp.prod(x, ("j", "x", "i")),
        )
        return [y[:, None, None] for y in sw.vmap(f, axis_name="i")(x[0, 0])]

    xs = np.stack([xs, xs + 1], 2)  # x, j, i, 3, 5
    found = sw.jit(
        sw.shard_map(
            part, mesh=GRID, in_specs=P("x", "j"), out_specs=P(None, "x", "j"), check_vma=False
        )
    )(xs)
    wanted = xs.std((0, 2, 3))[1], xs.max((1, 2, 4)), xs.prod((0, 1, 2))
    check(found[0][1, 2, 1], wanted[0], rtol=1e-4)
    check(found[1][1, :, 1], wanted[1])
    check(found[2][0, 3, 0], wanted[2], rtol=1e-4)


@pytest.mark.sweep
def test_derivatives():
    def loss(x):
        outs = (
            jnp.std(x, ("i", 0)),
            jnp.prod(x, ("i",)),
            sw.nn.softmax(x, ("i", 1)) ** 2,
            sw.nn.logsumexp(x, "i"),
            jnp.max(x, ("i", 0)),
        )
        return sum([jnp.sum(jnp.sin(y)) for y in outs])

    def whole(x):
        outs = (
            jnp.std(x, (0, 1)),
            jnp.prod(x, 0),
            sw.nn.softmax(x, (0, 2)) ** 2 / 4,
            sw.nn.logsumexp(x, 0),
            jnp.max(x, (0, 1)),
        )
        return 4 * sum([jnp.sum(jnp.sin(y)) for y in outs])

    x = X[:, :2, :3]
    wanted = sw.jit(sw.grad(whole))(x)
    for way in WAYS:
        got = sw.jit(sw.grad(lambda x, way=way: jnp.sum(way(loss, x))))(x)
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-3, atol=1e-3)


def test_one_collective_for_each_name_once():
    f = sw.shard_map(lambda x: jnp.mean(x, ("i", 0, 1)), mesh=LINE, in_specs=P("i"), out_specs=P())
    text = sw.jit(f).lower(X).as_text()
    assert text.count('"stablehlo.all_reduce"') == 1 and "(tensor<5xf32>) -> tensor<5xf32>" in text


def test_one_hot_along_a_named_axis():
    places = np.array([2, 0, 3, -1, 7])
    wanted = np.eye(4, dtype=np.float32)[:, [2, 0, 3, 0, 0]] * (places >= 0) * (places < 4)
    for dtype in (np.int32, np.uint8, np.float32):
        x = np.abs(places).astype(dtype) if dtype == np.uint8 else places.astype(dtype)
        for way in WAYS:
            got = way(lambda _, x=x: sw.nn.one_hot(x, 4, axis="i"), np.zeros(4, np.float32))
            columns = [0, 1, 2, 4]
            np.testing.assert_array_equal(np.asarray(got)[:, columns], wanted[:, columns])
    theirs = jax.vmap(lambda _: jax.nn.one_hot(places, 4, axis="i"), axis_name="i")(np.zeros(4))
    np.testing.assert_array_equal(theirs, wanted)


def test_messages():
    def mapped(f):
        return sw.vmap(f, axis_name="i")

    fail(
        """
        mapped(lambda x: jnp.sum(x, ("k", 0)))(X)
            NameError: shardwise.numpy.sum: unbound axis name: k. The axes in scope are: 'i'. To
            bind an axis name, wrap the call in a map: `shardwise.vmap(f, axis_name='k')` or
            `shardwise.shard_map`.
        mapped(lambda x: jnp.max(x, ("i", 0, "i")))(X)
            ValueError: max: duplicate value in 'axis': ('i', 0, 'i')
        mapped(lambda x: jnp.mean(x, ("i", 2)))(X)
            AxisError: mean: axis 2 is out of bounds for array of dimension 2
        jnp.sum(X, 1.5)
            TypeError: sum: axis must be an integer; got 1.5.
        mapped(lambda x: jnp.cumsum(x, "i"))(X)
            TypeError: cumsum: axis must be an integer; got 'i'.
        mapped(lambda x: sw.nn.one_hot(1, 3, axis="i"))(X)
            ValueError: shardwise.nn.one_hot: num_classes must be the size of the axis of the
            classes, which is 4 for 'i'; got 3.
        """,
        globals() | locals(),
    )
