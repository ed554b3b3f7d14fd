"""How code inside `shard_map` may refer to meshes and shardings."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.errors import JAXTypeError
from shardwise.experimental.maps import xmap
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

DEVICES = np.array(sw.devices())
GRID = Mesh(DEVICES.reshape(4, 2), ("x", "y"))
LINE = Mesh(DEVICES, ("z",))
X = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
OTHER = (
    "an enclosing map runs this code on each device of AbstractMesh('x': 4, 'y': 2, "
    "axis_types=({})), and Mesh('z': 8) is another mesh. Inside a map no other mesh can be used: "
    "use axes of that mesh that are not yet manual, or `shardwise.vmap`."
)


def f(x):
    return x * lax.axis_index("z")


def each(part, mesh=GRID, **options):
    """A function of the shards along x."""
    return sw.jit(sw.shard_map(part, mesh=mesh, in_specs=P("x"), out_specs=P("x"), **options))


def entered(mesh, run):
    def inside(x):
        with mesh:
            return run(x)

    return inside


OVER_LINE = sw.shard_map(f, mesh=LINE, in_specs=P("z"), out_specs=P("z"))
IN_SCOPE = sw.shard_map(f, in_specs=P("z"), out_specs=P("z"))
NAMED = xmap(f, in_axes=["z", ...], out_axes=["z", ...], axis_resources={"z": "z"})


@pytest.mark.parametrize("axes", [(), {"x"}])
def test_there_is_one_mesh(axes):
    types = "Manual, Auto" if axes else "Manual, Manual"
    found = message(ValueError, each(OVER_LINE, axis_names=axes), X)
    assert found == f"shard_map of f: {OTHER.format(types)}"


def test_a_mesh_that_is_entered_in_a_map_does_not_replace_its_mesh():
    """As in JAX; but `xmap` rejects it."""
    np.testing.assert_array_equal(each(entered(LINE, lambda x: x + 1))(X), X + 1)
    assert message(ValueError, each(entered(LINE, IN_SCOPE), axis_names={"x"}), X) == (
        "shard_map of f: in_specs for x, of type f32[16,8]{V:x}: P('z') names the axis 'z', which "
        "AbstractMesh('x': 4, 'y': 2, axis_types=(Manual, Auto)) does not have; its axes are 'x' "
        "and 'y'."
    )
    outer = xmap(
        entered(LINE, NAMED), in_axes=["i", ...], out_axes=["i", ...], axis_resources={"i": "x"}
    )
    with GRID:
        found = message(RuntimeError, outer, X)
    text = OTHER.format("Manual, Auto").replace("enclosing map", "enclosing xmap")
    assert found == f"entering Mesh('z': 8): {text}"


def test_the_mesh_of_a_pmap_is_the_one():
    assert message(ValueError, sw.pmap(OVER_LINE), X.reshape(8, 64)) == (
        "shard_map of f: an enclosing map runs this code on each device of AbstractMesh("
        "'<axis of pmap>': 8, axis_types=(Manual,)), and Mesh('z': 8) is another mesh. Inside a "
        "map no other mesh can be used: use axes of that mesh that are not yet manual, or "
        "`shardwise.vmap`."
    )


def test_the_same_mesh_may_be_entered_again():
    def sums(x):
        return lax.psum(x, "y")

    inner = sw.shard_map(sums, in_specs=P(None, "y"), out_specs=P())
    found = each(entered(GRID, inner), axis_names={"x"})(X)
    np.testing.assert_allclose(found, X[:, :4] + X[:, 4:], rtol=1e-6)


def test_a_mesh_is_no_list_of_devices():
    def g(x):
        return x

    run = sw.shard_map(g, mesh=["cpu:0"], in_specs=P("x"), out_specs=P("x"))
    assert message(TypeError, run, X) == (
        "shard_map of g: mesh must be a Mesh or an AbstractMesh; got ['cpu:0'] of type list."
    )


MADE = "but values here are already the shards of `shardwise.shard_map` over"
PARTLY = f"{{}} names 'x', {MADE} 'x'. They can be sharded further over 'y' only."
WHOLLY = f"{{}} names 'x', {MADE} 'x' and 'y'. There are no other axes to shard them over."
WAYS = {
    "a constraint": (
        lambda s: lambda x: lax.with_sharding_constraint(x, s),
        "with_sharding_constraint: x of type f32[16,8]{V:x}: ",
    ),
    "device_put": (lambda s: lambda x: sw.device_put(x, s), "device_put: x: "),
    "in_shardings": (
        lambda s: sw.jit(jnp.sin, in_shardings=s),
        "jit of sin: in_shardings: x of type f32[16,8]{V:x}: ",
    ),
    "out_shardings": (
        lambda s: sw.jit(jnp.sin, out_shardings=s),
        "jit of sin: out_shardings: result of type f32[16,8]{V:x}: ",
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("axes, text", [((), WHOLLY), ({"x"}, PARTLY)])
def test_parts_are_not_divided_along_axes_that_are_manual(way, axes, text):
    of, who = WAYS[way]
    spec = P("x") if axes == () else P("x", "y")
    part = of(NamedSharding(GRID, spec))
    assert message(ValueError, each(part, axis_names=axes), X) == who + text.format(spec)


def test_nor_in_xmap():
    """Where the class of the error is that of JAX's xmap."""
    part = sw.jit(jnp.sin, in_shardings=NamedSharding(GRID, P("x")))
    run = xmap(part, in_axes=["i", ...], out_axes=["i", ...], axis_resources={"i": "x"})
    with GRID:
        assert message(JAXTypeError, run, X) == (
            "jit of sin: in_shardings: x of type f32[8]: P('x') names 'x', but values here are "
            "already the shards of `xmap` over 'x'. They can be sharded further over 'y' only."
        )


@pytest.mark.parametrize("way", WAYS)
def test_nor_over_another_mesh(way):
    of, who = WAYS[way]
    part = of(NamedSharding(LINE, P("z")))
    assert message(ValueError, each(part), X) == (
        f"{who}P('z') is over Mesh('z': 8), but an enclosing map runs this code on each device of "
        "AbstractMesh('x': 4, 'y': 2, axis_types=(Manual, Manual)). Inside of it, values can be "
        "sharded over that mesh only."
    )


@pytest.mark.parametrize("way", WAYS)
def test_other_axes_may_divide_them(way):
    of, _ = WAYS[way]
    found = each(of(NamedSharding(GRID, P("y"))), axis_names={"x"})(X)
    np.testing.assert_allclose(found, np.sin(X) if "shardings" in way else X, rtol=1e-5)


# -- closed-over arrays whose types have shardings over Explicit axes --

EXPLICIT = sw.make_mesh((4, 2), ("x", "y"))
A = sw.device_put(X[:16, :4], NamedSharding(EXPLICIT, P("x")))
B = X[16:20, :4]
USES = {
    "a product": lambda a, b: jnp.sin(a @ b),
    "a row": lambda a, b: b[1] + a,
    "zeros": lambda a, b: a * b[0] + jnp.zeros_like(b).sum(),
    "a derivative": lambda a, b: a * sw.grad(lambda b: jnp.sin(b).sum())(b)[0],
    "jit": lambda a, b: sw.jit(lambda a, b: a * b[0])(a, b),
    "an update": lambda a, b: a * b.at[0].set(1.0)[0],
    "a choice": lambda a, b: lax.cond(b.sum() > 0, lambda: jnp.sin(a) * b.sum(), lambda: a),
    "a loop": lambda a, b: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c * b.mean()), a),
}


@pytest.mark.parametrize("use", everyday(USES, 1))
@pytest.mark.parametrize("spec", [P("x", "y"), P()])
@pytest.mark.parametrize("options", [{}, {"axis_names": {"x"}}, {"check_vma": False}])
def test_each_device_has_all_of_what_comes_from_outside(use, spec, options):
    """Along the manual axes; along other axes the array remains sharded."""
    f, b, x = USES[use], sw.device_put(B, NamedSharding(EXPLICIT, spec)), X[:16, :4]

    def run(b):
        return sw.shard_map(
            lambda a: f(a, b), mesh=EXPLICIT, in_specs=P("x"), out_specs=P("x"), **options
        )(A)

    whole = f(x, jnp.array(B))
    np.testing.assert_allclose(run(b), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sw.jit(run)(b), whole, rtol=1e-5, atol=1e-6)
    expected = sw.grad(lambda b: jnp.sum(f(x, b) ** 2))(B)
    found = sw.grad(lambda b: jnp.sum(run(b) ** 2))(b)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_types_of_what_comes_from_outside():
    b = sw.device_put(B, NamedSharding(EXPLICIT, P("x", "y")))
    seen = []

    def part(a):
        seen.append([sw.typeof(v).str_short(True) for v in (a, b, b + 1)])
        return a

    sw.shard_map(part, mesh=EXPLICIT, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(A)
    sw.shard_map(part, mesh=EXPLICIT, in_specs=P("x"), out_specs=P("x"))(A)
    assert seen == [
        ["f32[4,4]{V:x}", "f32[4,4@y]", "f32[4,4@y]"],
        ["f32[4,4]{V:x}", "f32[4,4]", "f32[4,4]"],
    ]
    assert sw.typeof(b).str_short(True) == "f32[4@x,4@y]"
