"""Static arguments of `shard_map`, groups along several axes, unused results, stored results."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.meshes import MESH, mesh_of

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def test_static_arguments():
    """Those whose spec is None get to the function unchanged, as in jax."""
    marker = object()

    def f(how, x, *rest):
        assert how["by"][0] is marker and rest == (None, "text")
        return x * how["n"]

    specs = ({"by": None, "n": P()}, P("x"), None, None)
    g = sw.shard_map(f, mesh=MESH, in_specs=specs, out_specs=P("x"))
    close(g({"by": (marker, 1), "n": 3}, X, None, "text"), 3 * X, 0)
    same = sw.shard_map(lambda x: x, mesh=MESH, in_specs=None, out_specs=P())
    assert same(3.0) == 3.0


@pytest.mark.parametrize("checked", [True, False])
def test_groups_along_several_axes(checked):
    """The indices along the axes are flattened."""
    groups = [[0, 3, 5, 6], [7, 1, 2, 4]]

    def f(x):
        how = {"axis_name": ("x", "y"), "axis_index_groups": groups}
        gathered = lax.all_gather(x, **how, tiled=True)
        return (
            lax.psum(x, **how),
            gathered[None],
            lax.psum_scatter(gathered, **how, tiled=True),
            lax.psum(lax.psum(x, "y"), ("x",), axis_index_groups=[[0, 1, 2], [3]]),
        )

    specs = P(("x", "y"))
    run = sw.shard_map(f, mesh=MESH, in_specs=specs, out_specs=specs, check_vma=checked)
    total, gathered, scattered, uneven = run(X)
    group = {i: g for g in groups for i in g}
    close(total, np.stack([X[group[i]].sum(0) for i in range(8)]), 1e-5)
    close(gathered, np.stack([X[group[i]] for i in range(8)]), 0)
    close(scattered, 4 * X, 1e-5)
    pairs = X.reshape(4, 2, 4).sum(1)
    close(uneven[::2], np.stack([pairs[:3].sum(0)] * 3 + [pairs[3]]), 1e-5)
    mapped = sw.vmap(lambda x: lax.psum(x, ("x", "v"), axis_index_groups=groups), axis_name="v")
    rows = X.reshape(4, 2, 4)
    found = sw.shard_map(
        lambda r: mapped(r[0])[None], mesh=mesh_of(4), in_specs=P("x"), out_specs=P("x")
    )(rows)
    close(found, np.stack([X[group[i]].sum(0) for i in range(8)]).reshape(rows.shape), 1e-5)


def test_unused_results_are_not_computed():
    def f(x, y):
        return sw.shard_map(
            lambda x, y: (lax.psum(jnp.sin(x), "x"), jnp.cos(y)),
            mesh=MESH,
            in_specs=(P("x"), P("y")),
            out_specs=(P(), P("y")),
        )(x, y)

    (eqn,) = sw.make_jaxpr(lambda x, y: f(x, y)[1])(X, X).eqns
    assert len(eqn.invars) == 1 and [e.op.name for e in eqn.params["jaxpr"].eqns] == ["cos"]
    close(sw.jit(lambda x, y: f(x, y)[0])(X, X)[0], np.sin(X).reshape(4, 2, 4).sum(0)[0], 1e-5)


@pytest.mark.parametrize("checked", [True, False])
def test_results_are_not_stored_again(checked):
    """A residual that is a result is not stored a second time."""

    def f(x):
        return jnp.exp(x.sum()) + x, jnp.exp(x)

    g = sw.shard_map(f, mesh=mesh_of(4), in_specs=P("x"), out_specs=P("x"), check_vma=checked)
    loss = lambda x: sum(jnp.sum(y) for y in g(x))  # noqa: E731
    x = X[0:8, 0] / 4
    first, *_ = [e for e in sw.make_jaxpr(sw.grad(loss))(x).eqns if e.op.name == "shard_map"]
    assert [v.aval.shape for v in first.outvars] == [(8,), (4,)]  # exp(x), and exp(x.sum())
    sums = np.exp(x.reshape(4, 2).sum(1)).repeat(2)
    close(sw.grad(loss)(x), 1 + 2 * sums + np.exp(x), 1e-5)


def test_casts_outside_of_maps():
    with pytest.raises(ValueError, match="Call pcast inside it"):
        lax.pcast(X, "x", to="varying")
    with pytest.raises(NameError, match="unbound axis name"):
        sw.jit(lambda x: lax.pcast(x, "x", to="varying"))(X)


def test_python_reads_values_that_are_the_same_on_all_devices():
    """In an eager call, as in jax; not under `jit`, nor for a value that varies."""
    offset = jnp.float32(1)

    def f(x):
        total = lax.psum(x.sum(), ("x", "y")) + offset
        if total > 0:
            x = x * float(total)
        return x if lax.psum(1, "x") < 3 or lax.pmax(x, ("x", "y")).max() < 0 else -x

    run = sw.shard_map(f, mesh=MESH, in_specs=P("x", "y"), out_specs=P("x", "y"))
    for x in (X + 1, X - 1):
        total = x.sum() + 1
        wanted = x * total if total > 0 else x
        close(run(x), wanted if wanted.max() < 0 else -wanted, 1e-5)
    with pytest.raises(sw.errors.TracerBoolConversionError):
        sw.jit(run)(X)
    with pytest.raises(sw.errors.TracerBoolConversionError):
        sw.shard_map(lambda x: x if x[0] > 0 else -x, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(
            X[:4, 0]
        )


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("f", [lambda x: 2 * x, jnp.sin], ids=["linear", "with residuals"])
def test_gradients_of_each_row_where_rows_are_sharded(f, checked):
    """Cotangents are not summed over the mesh axis that shards the rows."""
    g = sw.shard_map(
        lambda x: f(lax.psum(jnp.sum(x), "y")), mesh=MESH, in_specs=P("y"), out_specs=P(),
        check_vma=checked,
    )  # fmt: skip
    rows = sw.vmap(sw.grad(g), spmd_axis_name="x")(X)
    close(rows, sw.vmap(sw.grad(lambda x: f(x.sum())))(X), 1e-5)


def test_collectives_over_the_axis_that_shards_rows():
    f = sw.shard_map(lambda x: lax.psum(x, "x"), mesh=MESH, in_specs=P("y"), out_specs=P("y"))
    with pytest.raises(ValueError, match="would mix the values of a `vmap`"):
        sw.vmap(f, spmd_axis_name="x")(X)
