"""`smap`, the older path of `shard_map`, and arguments typed over Explicit axes; against jax."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.shard_map import shard_map as older
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import fails, message, messages
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
GRID = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
EXPLICIT = sw.make_mesh((4, 2), ("x", "y"))
MIXED = Mesh(
    np.array(sw.devices()).reshape(4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit)
)
SPLIT = sw.device_put(X, NamedSharding(EXPLICIT, P("x")))


def in_mesh(lib, explicit=False):
    if lib is OURS:
        return sw.set_mesh(EXPLICIT if explicit else GRID)
    kind = jax.sharding.AxisType.Explicit if explicit else jax.sharding.AxisType.Auto
    return jax.set_mesh(jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2))


# -- smap --


def single(lib, x, w):
    def part(x, w):
        return lib.np.tanh(x @ w) * lib.lax.axis_index("x")

    return lib.root.smap(part, in_axes=(0, None), out_axes=0, axis_name="x")(x, w)


def summed(lib, x, w):
    def part(x, w):
        return {"a": lib.lax.psum(x @ w, "y"), "b": (x, w + 1)}

    f = lib.root.smap(part, in_axes=(1, 0), out_axes={"a": None, "b": (1, 0)}, axis_name="y")
    return f(x, w)


def one_in_another(lib, x, w):
    def inner(x):
        return x + lib.lax.psum(x, ("x", "y"))

    def outer(x, w):
        y = lib.root.smap(inner, in_axes=1, out_axes=1, axis_name="y")(x)
        return y @ w

    return lib.root.smap(outer, in_axes=(0, None), out_axes=0, axis_name="x")(x, w)


def of_trees(lib, x, w):
    f = lib.root.smap(
        lambda t, w: t["x"] @ w + t["one"],
        in_axes=({"x": 0, "one": None}, None),
        out_axes=0,
        axis_name="x",
    )
    return f({"x": x, "one": 1.0}, w)


@pytest.mark.parametrize("f", everyday([single, summed, one_in_another, of_trees], 1))
def test_values_and_derivatives_are_those_of_jax(f):
    def everything(lib):
        def loss(x, w):
            return sum([lib.np.sum(lib.np.sin(y)) for y in lib.root.tree.leaves(f(lib, x, w))])

        with in_mesh(lib):
            run = lambda x, w: f(lib, x, w)  # noqa: E731
            return lib.root.jit(lambda x, w: (run(x, w), lib.root.grad(loss, (0, 1))(x, w)))(X, W)

    close(everything(OURS), everything(JAX), 2e-4)
    with in_mesh(OURS):
        close(f(OURS, X, W), sw.jit(lambda x, w: f(OURS, x, w))(X, W), 1e-5)


def test_dimensions_counted_from_the_end():
    """Negative dimensions of arguments and results, which jax treats as the first one."""

    def part(x):
        assert x.shape == (8, 2)
        return x.T * 2

    with sw.set_mesh(GRID):
        f = sw.smap(part, in_axes=-1, out_axes=-2, axis_name="y")
        close(sw.jit(f)(X), 2 * X.T, 1e-6)


def test_as_a_decorator_and_over_batches():
    @sw.smap(in_axes=0, out_axes=None, axis_name="x")
    def total(x):
        """The sum."""
        return lax.psum(x.sum(0), "x")

    assert total.__doc__ == "The sum."
    with sw.set_mesh(GRID):
        close(total(X), X.sum(0), 1e-5)
        both = sw.jit(sw.vmap(total))(np.stack([X, 2 * X]))
        close(both, np.stack([X.sum(0), 2 * X.sum(0)]), 1e-5)


def test_axes_that_are_explicit_are_inferred():
    def run(lib, split):
        with in_mesh(lib, True):
            f = lib.root.smap(lambda x: x * lib.lax.axis_index("x"), out_axes=0, axis_name="x")
            return lib.root.jit(f)(split), lib.root.typeof(f(split))

    got, t = run(OURS, SPLIT)
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    wanted, theirs = run(JAX, jax.device_put(X, place))
    close(got, wanted, 1e-6)
    assert t.str_short(True) == "f32[8@x,4]" and str(theirs) == "float32[8@x,4]"


def two(x, w):
    return x


def mapped_by(**options):
    f = sw.smap(two, **{"in_axes": (0, None), "out_axes": 0, "axis_name": "x"} | options)
    with sw.set_mesh(GRID):
        return f(X, W)


SMAP = "smap of two: "


test_messages = messages(
    """
mapped_by(axis_name=("x", "y"))
    TypeError: smap of two: axis_name must be one axis of the mesh; got ('x', 'y') of type tuple.
    Use `shardwise.shard_map` for several.
mapped_by(in_axes=[0, 1])
    TypeError: smap of two: in_axes must be an int, None, or a tuple with an entry for each
    argument; got [0, 1] of type list.
mapped_by(in_axes=(0, "x"))
    TypeError: smap of two: in_axes must have ints or None; got 'x' of type str.
mapped_by(out_axes="x")
    TypeError: smap of two: out_axes must have ints or None; got 'x' of type str.
mapped_by(axis_name="z")
    ValueError: smap of two: axis_name must be an axis of the mesh; got 'z', and Mesh('x': 4, 'y':
    2) has 'x' and 'y'.
mapped_by(in_axes=(0,))
    ValueError: smap of two: in_axes has 1 entry, but the call has 2 positional arguments (x, w); a
    tuple must have one entry for each. Arguments passed by keyword have none.
mapped_by(in_axes=(2, 0))
    ValueError: smap of two: x is of type f32[8,4], which has no axis 2 to map over. Pass arguments
    that all examples share by position, with None in in_axes.
mapped_by(in_axes=(0, 1))
    ValueError: smap of two: dimension 1 of w, of type f32[4,6], cannot be divided by P(None, 'x')
    over Mesh('x': 4, 'y': 2) into 4 equal shards. Inside shard_map all devices have shards of the
    same size: pad the dimension, or use `shardwise.jit`, whose partitioner supports any size.
mapped_by(out_axes=2)
    ValueError: smap of two: result is of type f32[2,4]{V:x}, which has no dimension 2 to
    concatenate shards along. Choose another one in out_axes, or None where all devices have the
    same value.
mapped_by(out_axes=None)
    ValueError: smap of two: result, of type f32[2,4]{V:x}, may vary along 'x', but out_axes has
    None for it. Specify the dimension along which to concatenate the shards, or combine them with
    a collective, such as `shardwise.lax.psum(x, 'x')`.
""",
    globals(),
)


def test_messages_of_meshes():
    f = sw.smap(two, in_axes=0, out_axes=0, axis_name="x")
    fails(ValueError, SMAP + "there is no mesh. Enter one with `shardwise.set_mesh`.", f, X, X)
    with sw.set_mesh(GRID):
        fails(
            TypeError,
            SMAP + "in_axes is required. Types only specify how arguments are sharded "
            "over Explicit axes, and 'x' of Mesh('x': 4, 'y': 2) is not Explicit.",
            sw.smap(two, out_axes=0, axis_name="x"),
            X,
            W,
        )
        again = sw.smap(lambda x: f(x, x), in_axes=0, out_axes=0, axis_name="x")
        fails(
            ValueError,
            SMAP + "'x' is already manual, by an enclosing map. Name another axis of the mesh.",
            again,
            X,
        )
        assert message(TypeError, f, X, w=X) == (
            SMAP + "takes arguments by position, for which in_axes has dimensions; got 'w' by "
            "keyword. Pass them by position, or bind them with functools.partial."
        ).replace(": takes", " takes")


# -- the older path --


def test_the_older_form():
    def f(x, w):
        return lax.psum(x @ w, "y")

    wanted = X @ W
    given = (P("x", "y"), P("y"))
    close(older(f, GRID, given, P("x"))(X, W), wanted, 1e-4)
    for options in ({"check_rep": False}, {"check_rep": True}, {"check_vma": False}):
        close(
            sw.jit(older(f, mesh=GRID, in_specs=given, out_specs=P("x"), **options))(X, W),
            wanted,
            1e-4,
        )
    some = older(f, GRID, (P(None, "y"), P("y")), P(), auto=frozenset({"x"}))
    close(sw.jit(some)(X, W), wanted, 1e-4)
    types = older(lambda x: jnp.zeros(sw.typeof(x).shape), GRID, P("x"), P("x"), check_rep=False)
    close(types(X), 0 * X, 0)


def test_messages_of_the_older_form():
    fails(
        TypeError,
        "shard_map got both check_rep and check_vma, which mean the same; pass only check_vma.",
        older,
        two,
        GRID,
        P(),
        P(),
        True,
        check_vma=True,
    )
    for auto, shown in ((("z",), "'z'"), (("x", "y"), "'x' and 'y'")):
        fails(
            ValueError,
            "shard_map: auto must contain some, but not all, of the "
            f"axes of Mesh('x': 4, 'y': 2); got {shown}.",
            older,
            two,
            GRID,
            P(),
            P(),
            auto=auto,
        )


# -- types over Explicit axes --


def same(x):
    return x


@pytest.mark.parametrize("run", [lambda f: f, sw.jit], ids=["eager", "jit"])
def test_types_that_disagree_with_specs(run):
    """As in jax: an error if all axes of the mesh are Explicit, and become manual."""

    def of(spec, **options):
        return run(sw.shard_map(same, mesh=EXPLICIT, in_specs=spec, out_specs=spec, **options))

    for spec in (P("y"), P(), P(None, "x")):
        fails(
            ValueError,
            "shard_map of same: x is of type f32[8@x,4], which is not sharded as its "
            f"spec {spec} requires. Pass `shardwise.reshard(x, {spec})`; or write P('x', None) "
            "as its spec, or omit specs to use the arguments' own shardings.",
            of(spec),
            SPLIT,
        )
    for spec in (P("x"), P("x", None)):
        close(of(spec)(SPLIT), X, 0)
    for spec in (P(), P("y")):
        close(of(spec, axis_names={"y"})(SPLIT), X, 0)
    with sw.set_mesh(EXPLICIT):
        close(run(lambda x: of(P("y"))(sw.reshard(x, P("y"))))(SPLIT), X, 0)
    close(of(P("x"))(X), X, 0)  # X has a type without a sharding


def test_types_over_axes_some_of_which_are_automatic():
    x = sw.device_put(X, NamedSharding(MIXED, P("x", "y")))
    f = sw.shard_map(same, mesh=MIXED, in_specs=P("y"), out_specs=P("y"))
    close(f(x), X, 0)
    g = sw.shard_map(same, mesh=MIXED, in_specs=P("y"), out_specs=P("y"), axis_names={"y"})
    close(g(x), X, 0)


def test_specs_are_inferred_along_explicit_axes_only():
    f = sw.shard_map(same, mesh=GRID, out_specs=P())
    fails(
        TypeError,
        "shard_map of same: in_specs is required. Types only specify how arguments "
        "are sharded over Explicit axes, and 'x' and 'y' of Mesh('x': 4, 'y': 2) are "
        "not Explicit.",
        f,
        X,
    )
    fails(
        TypeError,
        "shard_map of same: in_specs is required. Types only specify how arguments "
        "are sharded over Explicit axes, and 'x' of Mesh('x': 4, 'y': 2, axis_types=(Auto, "
        "Explicit)) is not Explicit.",
        sw.shard_map(same, mesh=MIXED, out_specs=P()),
        X,
    )
    nothing = sw.shard_map(lambda: lax.axis_index("x")[None], mesh=GRID, out_specs=P("x"))
    assert nothing().tolist() == [0, 1, 2, 3]
