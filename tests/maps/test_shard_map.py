"""`shard_map`, against jax and against the function of full values."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise._src.messages import tree_paths
from shardwise.experimental.maps import xmap
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message as message_of
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS
from tests.lowering.test_collectives import sent

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 4)).astype(np.float32)
W = RNG.standard_normal((4, 6)).astype(np.float32)
GRID = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
LINE = Mesh(np.array(sw.devices()), ("x",))
ROWS = P(("x", "y"))


def mapped(lib, f, ins, outs, **options):
    """`shard_map` of one of the libraries over 4 × 2 devices; specs are shardwise specs."""

    def of(spec):
        return jax.sharding.PartitionSpec(*spec) if lib is JAX else spec

    mesh = GRID
    if lib is JAX:
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    specs = [sw.tree.map(of, s, is_leaf=lambda s: isinstance(s, P)) for s in (ins, outs)]
    return lib.root.shard_map(f, mesh=mesh, in_specs=specs[0], out_specs=specs[1], **options)


def varying(lib, x, names=("x", "y")):
    """An initial carry; ours becomes varying by itself."""
    return jax.lax.pcast(x, names, to="varying") if lib is JAX else x


# Each: (lib, x, w) → tree, and whether types may track varying axes.


def loss(lib, x, w, **options):
    def part(x, w):
        return lib.lax.psum(lib.np.sum(lib.np.tanh(x @ w) ** 2), ("x", "y"))

    return mapped(lib, part, (ROWS, P()), P(), **options)(x, w)


def loss_of_some(lib, x, w, **options):
    """One mesh axis is not named by any argument, nor by the result."""

    def part(x, w):
        return lib.lax.psum(lib.np.sin(x @ w), "x")

    return mapped(lib, part, (P("x"), P(None, "y")), P(None, "y"), **options)(x, w)


def partly_manual(lib, x, w, **options):
    def part(x, w):
        return lib.lax.psum(x @ w, "y")

    return mapped(lib, part, (P(None, "y"), P("y")), P(), axis_names={"y"}, **options)(x, w)


def gathered(lib, x, w, **options):
    def part(x, w):
        every = lib.lax.all_gather(x, "x", tiled=True)
        return lib.lax.psum_scatter(every @ w, "x", scatter_dimension=0, tiled=True)

    return mapped(lib, part, (P("x"), P()), P("x"), **options)(x, w)


def moved(lib, x, w, **options):
    def part(x, w):
        x = lib.lax.all_to_all(x, "y", 1, 0, tiled=True)
        x = lib.lax.ppermute(x, "x", [(i, (i + 1) % 4) for i in range(4)])
        return x * lib.lax.axis_index("y") + w[0, 0]

    return mapped(lib, part, (P("x", "y"), P()), P("x", "y"), **options)(x, w)


def looped(lib, x, w, **options):
    def part(x, w):
        def step(carry, row):
            carry = lib.np.tanh(carry * 0.5 + row @ w)
            return carry, carry.sum()

        carry, sums = lib.lax.scan(step, varying(lib, lib.np.zeros(6)), x)
        return lib.lax.psum(carry, ("x", "y")), sums

    return mapped(lib, part, (ROWS, P()), (P(), ROWS), **options)(x, w)


def recomputed(lib, x, w, **options):
    @lib.root.checkpoint
    def layer(x, w):
        return lib.np.tanh(x @ w)

    def part(x, w):
        return lib.lax.pmean(lib.np.sum(lib.root.jit(layer)(x, w)), ("x", "y"))

    return mapped(lib, part, (ROWS, P()), P(), **options)(x, w)


def closed_over(lib, x, w, **options):
    def part(x):
        return lib.lax.psum(lib.np.sin(x @ w), ("x", "y"))

    return mapped(lib, part, ROWS, P(), **options)(x)


def written(lib, x, w, **options):
    """The derivative of `set` contains a constant: the numbers of the updates."""

    def part(x, w):
        rows = lib.np.array([1, 5])
        return lib.np.zeros((3, 6)).at[rows].set(lib.np.sin(x @ w), mode="drop")

    return mapped(lib, part, (P("x"), P()), P("x"), **options)(x, w)


PROGRAMS = [
    loss,
    loss_of_some,
    partly_manual,
    gathered,
    moved,
    looped,
    recomputed,
    closed_over,
    written,
]


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("f", everyday(PROGRAMS, 1))
def test_values_and_derivatives_are_those_of_jax(f, checked):
    def everything(lib):
        def run(x, w):
            return f(lib, x, w, check_vma=checked)

        def total(x, w):
            return sum([lib.np.sum(lib.np.sin(y)) for y in lib.root.tree.leaves(run(x, w))])

        def of_all(x, w):
            slopes = lib.root.grad(total, (0, 1))
            along = lib.root.jvp(run, (x, w), (lib.np.cos(x), lib.np.cos(w)))
            return run(x, w), slopes(x, w), along

        return lib.root.jit(of_all)

    ours = everything(OURS)
    check_program(ours.trace(X, W).program)
    close(ours(X, W), everything(JAX)(X, W), 2e-4)


@pytest.mark.parametrize("f", everyday([loss, loss_of_some, gathered, looped, written], 1))
def test_eagerly_it_is_the_same(f):
    close(f(OURS, X, W), sw.jit(lambda x, w: f(OURS, x, w))(X, W), 1e-6)
    slopes = sw.grad(lambda x: sum([jnp.sum(y) for y in sw.tree.leaves(f(OURS, x, W))]))
    close(slopes(X), sw.jit(slopes)(X), 1e-5)


@pytest.mark.parametrize("f", [loss, gathered, moved, written])
def test_over_batches(f):
    xs = np.stack([X, X + 1, 2 * X])
    found = sw.jit(sw.vmap(lambda x: f(OURS, x, W)))(xs)
    close(found, np.stack([f(OURS, x, W) for x in xs]), 1e-5)


def test_batches_may_be_divided_too():
    xs = np.stack([X, X + 1])
    f = sw.vmap(
        lambda x: mapped(OURS, lambda x: lax.psum(x, "x"), P("x"), P())(x), spmd_axis_name="y"
    )
    found = sw.jit(f)(xs)
    close(found, xs.reshape(2, 4, 2, 4).sum(1), 1e-5)
    assert found.sharding.is_equivalent_to(NamedSharding(GRID, P("y")), 3)


def test_derivatives_inside_are_summed_where_types_say_what_varies():
    def part(x, w):
        return sw.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)

    wanted = sw.grad(lambda w: jnp.sum(jnp.tanh(X @ w)))(W)
    close(mapped(OURS, part, (ROWS, P()), P())(X, W), wanted, 1e-5)

    def summed(x, w):
        return lax.psum(part(x, w), ("x", "y"))

    close(mapped(OURS, summed, (ROWS, P()), P(), check_vma=False)(X, W), wanted, 1e-5)


def test_nan_and_signs_of_zeros():
    x = np.array([np.nan, 1, -0.0, 0.0, -np.inf, 2, np.inf, 0], np.float32)
    for f, wanted in ((lax.pmax, np.max), (lax.pmin, np.min), (lax.psum, np.sum)):
        run = sw.shard_map(lambda x, f=f: f(x, "x"), mesh=LINE, in_specs=P("x"), out_specs=P())
        for given in (x, x[2:][:, None] * np.ones((1, 4), np.float32)):
            whole = np.resize(given, (8, *given.shape[1:]))
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(run(whole)[0], wanted(whole, 0))


@pytest.mark.parametrize(
    "dtype", everyday([bool, np.int8, np.uint16, np.complex64, jnp.bfloat16, "key"], 1)
)
def test_of_every_kind(dtype):
    x = sw.random.split(sw.random.key(0), 8) if dtype == "key" else (np.arange(8) % 3).astype(dtype)
    moves = [
        lambda x: lax.ppermute(x, "x", [(i, 7 - i) for i in range(8)]),
        lambda x: lax.all_gather(x, "x", tiled=True)[lax.axis_index("x")][None],
        lambda x: lax.pbroadcast(x, "x", 2),
    ]
    if dtype != "key":
        moves += [lambda x: lax.pmax(x, "x"), lambda x: lax.psum(x, "x")]
    for f in moves:
        over_devices = sw.shard_map(
            f, mesh=LINE, in_specs=P("x"), out_specs=P("x"), check_vma=False
        )
        over_rows = sw.vmap(lambda x, f=f: f(x[None])[0], axis_name="x")
        got, wanted = [
            sw.random.key_data(y) if dtype == "key" else y for y in (over_devices(x), over_rows(x))
        ]
        close(got, wanted, 0)


def test_groups_of_devices():
    for groups in ([[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 2], [1, 3, 4, 5, 6, 7]]):
        f = lambda x: lax.psum(x, "x", axis_index_groups=groups)  # noqa: B023, E731
        found = sw.shard_map(f, mesh=LINE, in_specs=P("x"), out_specs=P("x"))(np.arange(8.0))
        close(found, sw.vmap(f, axis_name="x")(np.arange(8.0)), 0)


def test_axes_of_a_map_and_of_a_mesh_together():
    xs = RNG.standard_normal((8, 3, 2)).astype(np.float32)

    def f(x):
        total = lax.psum(x * lax.axis_index(("i", "x")), ("i", "x"))
        return total + lax.all_gather(x, ("x", "i"))[3]

    over_mesh = sw.shard_map(
        lambda x: sw.vmap(f, axis_name="i")(x[0])[None],
        mesh=LINE,
        in_specs=P("x"),
        out_specs=P("x"),
    )
    both = sw.vmap(sw.vmap(f, axis_name="i"), axis_name="x")
    close(sw.jit(over_mesh)(xs), both(xs), 1e-4)


def test_meshes_in_another_order():
    back = Mesh(np.array(sw.devices())[::-1], ("x",))
    x = sw.device_put(np.arange(8.0), NamedSharding(LINE, P("x")))

    def f(x):
        return x + 10 * lax.axis_index("x") + lax.ppermute(x, "x", [(0, 1), (1, 5)])

    wanted = sw.vmap(f, axis_name="x")(np.arange(8.0))
    for mesh in (LINE, back):
        run = sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        close(sw.jit(run)(x), wanted, 0)


def test_of_one_device():
    mesh = Mesh(np.array(sw.devices()[:1]), ("x",))
    f = sw.shard_map(
        lambda x: lax.psum(x, "x") + lax.axis_index("x"),
        mesh=mesh,
        in_specs=P("x"),
        out_specs=P("x"),
    )
    assert sw.jit(f)(np.ones(3)).tolist() == f(np.ones(3)).tolist() == [1, 1, 1]


def test_one_in_another():
    def outer(x):
        inner = sw.shard_map(
            lambda x: lax.psum(x, "y") + lax.axis_index("x"),
            axis_names={"y"},
            in_specs=P(None, "y"),
            out_specs=P(),
        )
        return 2 * inner(x)

    f = sw.shard_map(outer, mesh=GRID, axis_names={"x"}, in_specs=P("x"), out_specs=P("x"))
    wanted = 2 * (X.reshape(8, 2, 2).sum(1) + np.arange(4).repeat(2)[:, None])
    close(sw.jit(f)(X), wanted.astype(np.float32), 1e-5)


@pytest.mark.parametrize("mesh", [None, GRID])
def test_the_axes_that_are_left_are_taken(mesh):
    def outer(x):
        return sw.shard_map(
            lambda x: lax.psum(x, "y"), mesh=mesh, in_specs=P(None, "y"), out_specs=P()
        )(x)

    f = sw.shard_map(outer, mesh=GRID, axis_names={"x"}, in_specs=P("x"), out_specs=P("x"))
    close(sw.jit(f)(X), X.reshape(8, 2, 2).sum(1), 1e-5)


def test_an_axis_is_manual_once():
    def g(x):
        return x

    def outer(x):
        return sw.shard_map(g, mesh=GRID, axis_names={"x"}, in_specs=P(), out_specs=P())(x)

    f = sw.shard_map(outer, mesh=GRID, axis_names={"x"}, in_specs=P("x"), out_specs=P("x"))
    assert message_of(ValueError, f, X) == (
        "shard_map of g: 'x' is already manual, by an enclosing map. Name other axes of the "
        "mesh in axis_names."
    )


@pytest.mark.parametrize("run", [lambda f: f, sw.jit], ids=["eager", "jit"])
def test_effects_alone(run):
    """Without used arguments and without results."""
    seen = []

    def f(*args):
        sw.debug.callback(lambda i: seen.append(int(i)), lax.axis_index("x"))

    for specs, args in (((), ()), ((P("x"),), (np.ones(8),)), ((P(),), (2.0,))):
        seen.clear()
        assert run(sw.shard_map(f, mesh=LINE, in_specs=specs, out_specs=None))(*args) is None
        sw.effects_barrier()
        assert sorted(seen) == list(range(8))
    assert run(sw.shard_map(lambda: None, mesh=LINE, in_specs=(), out_specs=None))() is None


def test_effects_alone_over_batches():
    seen = []

    def f(x):
        sw.debug.callback(lambda x: seen.append(float(x)), x.sum())

    both = sw.vmap(sw.shard_map(f, mesh=LINE, in_specs=P("x"), out_specs=None))
    assert sw.jit(both)(np.stack([np.arange(8.0), -np.arange(8.0)])) is None
    sw.effects_barrier()
    assert sorted(seen) == sorted([*range(8), *range(0, -8, -1)])


def test_ordered_effects_are_refused():
    f = sw.shard_map(
        lambda x: (sw.debug.print("{}", x, ordered=True), x)[1],
        mesh=LINE,
        in_specs=P("x"),
        out_specs=P("x"),
    )
    assert message_of(NotImplementedError, sw.jit(f), np.ones(8)) == (
        "[shard_map] does not support ordered effects: there is no order in which devices could "
        "call the host. Pass ordered=False, or call the host outside of it, with the results."
    )


def test_over_explicit_axes():
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    x = sw.device_put(X, NamedSharding(mesh, P("x", None)))
    f = sw.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, out_specs=P())
    assert sw.typeof(f(x)).str_short(True) == "f32[2,4]"
    close(f(x), X.reshape(4, 2, 4).sum(0), 1e-5)
    with sw.set_mesh(mesh):
        g = sw.shard_map(lambda x: x * 2, out_specs=P("x"), axis_names={"x"})
        assert sw.typeof(sw.jit(g)(x)).str_short(True) == "f32[8@x,4]"


def test_as_a_decorator_and_with_the_mesh_in_scope():
    @sw.shard_map(in_specs=P("x"), out_specs=P())
    def total(x):
        """The sum."""
        return lax.psum(x, "x")

    assert total.__doc__ == "The sum."
    with sw.set_mesh(LINE):
        close(total(np.ones(8, np.float32)), np.full(1, 8, np.float32), 0)


def test_an_abstract_mesh_takes_the_devices_of_its_arguments():
    f = sw.jit(
        sw.shard_map(
            lambda x: lax.psum(x, "x"), mesh=LINE.abstract_mesh, in_specs=P("x"), out_specs=P()
        )
    )
    x = sw.device_put(np.arange(8.0), NamedSharding(LINE, P("x")))
    assert f(x).tolist() == [28]


def test_types_say_along_what_a_value_varies():
    seen = []

    def f(x):
        seen.append(
            [
                sw.typeof(v).str_short(True)
                for v in (
                    x,
                    lax.psum(x, "x"),
                    lax.psum(x, ("x", "y")),
                    jnp.zeros(2),
                    x * jnp.zeros(2),
                    lax.pcast(jnp.zeros(2), "y", to="varying"),
                    lax.axis_index("y"),
                    lax.all_gather(x, "x"),
                    lax.all_gather_invariant(x, "x"),
                )
            ]
        )
        return x

    mapped(OURS, f, P("x", "y"), P("x", "y"))(X)
    mapped(OURS, f, P("x", "y"), P("x", "y"), check_vma=False)(X)
    assert seen[0] == [
        "f32[2,2]{V:x,y}",
        "f32[2,2]{V:y}",
        "f32[2,2]",
        "f32[2]",
        "f32[2,2]{V:x,y}",
        "f32[2]{V:y}",
        "i32[]{V:y}",
        "f32[4,2,2]{V:x,y}",
        "f32[4,2,2]{V:y}",
    ]
    assert seen[1] == [t.partition("{")[0] for t in seen[0]]


def test_random_numbers_and_callbacks():
    def f(key):
        key = sw.random.fold_in(key, lax.axis_index("x"))
        return sw.random.normal(key, (2,))

    run = sw.shard_map(f, mesh=LINE, in_specs=P(), out_specs=P("x"))
    wanted = [sw.random.normal(sw.random.fold_in(sw.random.key(0), i), (2,)) for i in range(8)]
    np.testing.assert_array_equal(sw.jit(run)(sw.random.key(0)), np.concatenate(wanted))


def test_programs_send_what_is_written_and_no_more():
    assert sent(lambda x, w: loss(OURS, x, w), X, W) == {"all-reduce": 1}
    assert sent(sw.grad(lambda w, x: loss(OURS, x, w)), W, X) == {"all-reduce": 1}
    assert sent(lambda x, w: gathered(OURS, x, w), X, W) == {"all-gather": 1, "reduce-scatter": 1}
    assert sent(lambda x, w: moved(OURS, x, w), X, W) == {"all-to-all": 1, "collective-permute": 1}


def over_line(x, **options):
    def f(x):
        return x

    return sw.shard_map(f, **{"mesh": LINE} | options)(x)


test_errors = messages(
    """
over_line(np.ones(8), in_specs=P("x"), out_specs=P())
    ValueError: shard_map of f: result, of type f32[1]{V:x}, may vary along 'x', which its spec P()
    does not name. Name it in out_specs to concatenate the shards; combine them with a collective,
    such as `shardwise.lax.psum(x, 'x')`, or `all_gather_invariant` to give all shards to every
    device; or pass check_vma=False, if they are known to be equal.
over_line(np.ones(9), in_specs=P("x"), out_specs=P("x"))
    ValueError: shard_map of f: dimension 0 of x, of type f32[9], cannot be divided by P('x') over
    Mesh('x': 8) into 8 equal shards. Inside shard_map all devices have shards of the same size:
    pad the dimension, or use `shardwise.jit`, whose partitioner supports any size.
over_line(np.ones(8), in_specs=P("z"), out_specs=P("x"))
    ValueError: shard_map of f: in_specs for x, of type f32[8]: P('z') names the axis 'z', which
    Mesh('x': 8) does not have; its axes are 'x'.
over_line(np.ones(8), in_specs=P(None, "x"), out_specs=P("x"))
    ValueError: shard_map of f: in_specs for x, of type f32[8]: P(None, 'x') over Mesh('x': 8) has
    2 entries, but the array has only 1 dimension. Remove entries from the end of the spec.
over_line(np.ones(8), in_specs=P("x"), out_specs=P("x"), mesh=GRID, axis_names={"y"})
    ValueError: shard_map of f: in_specs for x is P('x'): 'x' is not manual here. Specs name the
    manual axes, 'y'; other axes are left to the partitioner.
over_line(np.ones(8), in_specs=P(P.UNCONSTRAINED), out_specs=P("x"))
    ValueError: shard_map of f: in_specs for x is P(UNCONSTRAINED): it must name the axes over
    which each dimension is sharded. Specs name the manual axes, 'x'; other axes are left to the
    partitioner.
over_line(np.ones(8), in_specs="x", out_specs=P("x"))
    TypeError: shard_map of f: in_specs must be PartitionSpecs; got 'x' of type str for x.
over_line(np.ones(8), in_specs=P("x"), out_specs=None)
    ValueError: shard_map of f: out_specs must be PartitionSpecs; got None of type NoneType for
    result.
over_line(np.ones(8), in_specs=P("x"), out_specs=P("x"), axis_names={"q"})
    ValueError: shard_map of f: axis_names has 'q', which Mesh('x': 8) does not have.
""",
    globals(),
)


def test_arguments_come_by_position():
    def f(x, y):
        return x * y

    run = sw.shard_map(f, mesh=LINE, in_specs=P("x"), out_specs=P("x"))
    assert message_of(TypeError, lambda: run(np.ones(8), y=2.0)) == (
        "shard_map of f takes arguments by position, for which in_specs has specs; got 'y' by "
        "keyword. Pass them by position, or bind them with functools.partial."
    )


def test_there_must_be_a_mesh():
    def f(x):
        return x

    assert message_of(ValueError, sw.shard_map(f, in_specs=P("x"), out_specs=P("x")), X) == (
        "shard_map of f: there is no mesh. Pass `mesh=`, or enter one with `shardwise.set_mesh`."
    )


def test_axes_of_several_types():
    mesh = Mesh(
        np.array(sw.devices()).reshape(4, 2),
        ("x", "y"),
        axis_types=(AxisType.Auto, AxisType.Explicit),
    )
    x = sw.device_put(X, NamedSharding(mesh, P("x", "y")))
    f = sw.shard_map(
        lambda x: lax.psum(x, "x"), mesh=mesh, axis_names={"x"}, in_specs=P("x"), out_specs=P()
    )
    found = sw.jit(f)(x)
    assert sw.typeof(found).str_short(True) == "f32[2,4@y]"
    close(found, X.reshape(4, 2, 4).sum(0), 1e-5)


@pytest.mark.parametrize("check_vma", [True, False])
def test_where_a_device_is_while_the_partitioner_divides_along_other_axes(check_vma):
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))

    def f(x):
        @sw.jit
        def place():
            return lax.axis_index("x")

        return x + lax.fori_loop(0, 3, lambda k, total: total + place() * k, lax.axis_index("x"))

    mapped = sw.shard_map(
        f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}, check_vma=check_vma
    )
    for run in (mapped, sw.jit(mapped)):
        want = np.repeat(4 * np.arange(4), 2).reshape(4, 2)
        np.testing.assert_array_equal(run(np.zeros((4, 2))), want)


@pytest.mark.parametrize("way", everyday(["shard_map", "pmap", "xmap"], 1))
def test_paths_of_results_are_found_together(way, monkeypatch):
    """Whatever the number of results."""

    def traced(count):
        def f(x):
            return [x * i for i in range(count)]

        if way == "shard_map":
            run = sw.shard_map(f, mesh=LINE, in_specs=P("x"), out_specs=P("x"))
        elif way == "pmap":
            run = sw.pmap(f)
        else:
            run = xmap(f, in_axes=["a", ...], out_axes=["a", ...])
        before = len(calls)
        run(np.ones((8, 4), np.float32))
        return len(calls) - before

    calls = []
    found = tree_paths.leaf_paths
    monkeypatch.setattr(tree_paths, "leaf_paths", lambda tree: calls.append(tree) or found(tree))
    assert traced(3) == traced(30)


def test_constants_stay_when_a_result_is_not_used():
    """Exchanging the rows of a mapped axis takes an array of indices, a constant of the program."""

    def rows(x):
        return lax.ppermute(x, "j", [(0, 1), (1, 0)]), x + 1

    inside = sw.shard_map(rows, mesh=sw.make_mesh((4,), ("i",)), in_specs=P("i"), out_specs=P("i"))
    f = sw.vmap(inside, axis_name="j")
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    np.testing.assert_array_equal(sw.jit(lambda x: f(x)[0])(x), x[::-1])
    np.testing.assert_array_equal(sw.jit(lambda x: f(x)[1])(x), x + 1)
