"""Maps over devices of several processes: shard_map, pmap, xmap, vmap, and the code inside them."""

import functools

import numpy as np
from checking import COUNT, DEVICES, PER, P, check, digest, finish, numbers, raises, same

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.maps import xmap
from shardwise.sharding import Mesh, NamedSharding

ORDER = [2, 0, 3, 1]
MESH = Mesh(np.array([DEVICES[i] for i in ORDER]), ("x",))
GRID = Mesh(np.array([DEVICES[i] for i in ORDER]).reshape(2, 2), ("x", "y"))
X = numbers(8, 4)


def on(mesh, *spec):
    return sw.device_put(X, NamedSharding(mesh, P(*spec)))


@check
def collectives():
    def run(f, out=None, x=X):
        out = P("x") if out is None else out
        mapped = sw.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=out)
        value = sw.device_put(x, NamedSharding(MESH, P("x")))
        eager, jitted = mapped(value), sw.jit(mapped)(value)
        same(jitted, np.asarray(sw.device_put(eager, NamedSharding(MESH, P()))))
        return jitted

    parts = X.reshape(4, 2, 4)
    same(run(lambda v: lax.psum(v, "x"), P()), parts.sum(0))
    same(run(lambda v: lax.pmax(v, "x"), P()), parts.max(0))
    same(run(lambda v: lax.pmin(v, "x"), P()), parts.min(0))
    same(run(lambda v: lax.pmean(v, "x"), P()), parts.mean(0))
    same(run(lambda v: lax.psum_scatter(v.T, "x", tiled=True)), parts.sum(0).T)
    same(
        run(lambda v: lax.ppermute(v, "x", [(i, (i + 1) % 4) for i in range(4)])),
        np.roll(parts, 1, 0).reshape(8, 4),
    )
    same(
        run(lambda v: lax.all_to_all(v, "x", 1, 0, tiled=True)),
        parts.transpose(2, 0, 1).reshape(32, 1),
    )
    same(run(lambda v: lax.all_gather(v, "x").sum(0)), np.tile(parts.sum(0), (4, 1)))
    index = np.repeat(np.arange(4, dtype=np.float32), 2)[:, None]
    same(run(lambda v: v + lax.axis_index("x")), X + index)
    same(
        run(lambda v: lax.psum(v, "x", axis_index_groups=[[0, 3], [1, 2]])),
        np.concatenate([parts[list(pair)].sum(0) for pair in ((0, 3), (1, 2), (1, 2), (0, 3))]),
    )
    odd = X.copy()
    odd[::3] = np.nan
    same(run(lambda v: lax.pmax(v, "x"), P(), odd), odd.reshape(4, 2, 4).max(0))
    bits = (X % 7).astype(np.int8)
    same(run(lambda v: lax.psum(v, "x"), P(), bits), bits.reshape(4, 2, 4).sum(0).astype(np.int8))


@check
def ragged():
    """Device i sends its first i + 1 rows to all devices in order."""

    def f(v):
        i = lax.axis_index("x")
        each = jnp.ones((4,), jnp.int32)
        out = jnp.zeros((4, 4), jnp.float32)
        rows = jnp.tile(v[:1], (4, 1)) * (1 + jnp.arange(4)[:, None])
        starts = jnp.arange(4, dtype=jnp.int32)
        return lax.ragged_all_to_all(
            rows, out, starts, each, jnp.full((4,), i, jnp.int32), each, axis_name="x"
        )

    got = sw.jit(sw.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x")))(on(MESH, "x"))
    first = X.reshape(4, 2, 4)[:, 0]
    same(got, np.concatenate([first * (1 + j) for j in range(4)]))


@check
def partly_manual_and_gradients():
    x = on(GRID, "x", "y")
    f = sw.shard_map(
        lambda v: lax.psum((v * v).sum(), ("x", "y")),
        mesh=GRID,
        in_specs=P("x", "y"),
        out_specs=P(),
    )
    same(f(x), (X * X).sum())
    same(sw.grad(f)(x), 2 * X)
    same(sw.jit(sw.grad(f))(x), 2 * X)
    g = sw.shard_map(
        lambda v: v - lax.pmean(v, "x"),
        mesh=GRID,
        in_specs=P("x"),
        out_specs=P("x"),
        axis_names={"x"},
    )
    same(sw.jit(g)(x), X - np.tile(X.reshape(2, 4, 4).mean(0), (2, 1)), close=True)
    loop = sw.shard_map(
        lambda v: lax.fori_loop(0, 3, lambda i, w: lax.ppermute(w, "x", [(0, 1), (1, 0)]) + 1, v),
        mesh=GRID,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
    )
    same(loop(x), np.concatenate([X[4:], X[:4]]) + 3)
    uneven = sw.device_put(numbers(7, 4), NamedSharding(GRID, P("x")))
    try:
        sw.shard_map(lambda v: v, mesh=GRID, in_specs=P("x"), out_specs=P("x"))(uneven)
    except ValueError as error:
        assert "7" in str(error), error
    else:
        raise AssertionError("a ragged dimension was taken")


@check
def smaps():
    """One axis of the mesh in scope after another, over host values and device arrays."""
    w = numbers(4, 3, seed=2)

    def part(v, w):
        return lax.psum(v @ w, "y"), (v - lax.axis_index("y")).T

    def outer(v, w):
        total, turned = sw.smap(part, in_axes=(1, 0), out_axes=(None, 0), axis_name="y")(v, w)
        return lax.psum(total, "x"), turned * lax.axis_index("x")

    f = sw.smap(outer, in_axes=(0, None), out_axes=(None, -1), axis_name="x")
    wide = X - np.repeat(np.arange(2, dtype=np.float32), 2)
    turned = wide.T * np.repeat(np.arange(2, dtype=np.float32), 4)
    with sw.set_mesh(GRID):
        for x in (X, on(GRID, "x", "y"), on(GRID, "y"), on(MESH, "x")):
            for run in (f, sw.jit(f)):
                total, there = run(x, w)
                same(total, (X @ w).reshape(2, 4, 3).sum(0)), same(there, turned)
                assert total.is_fully_replicated and there.sharding.spec == P("y", "x")
        slope = sw.jit(sw.grad(lambda v: f(v, w)[0].sum()))(on(GRID, "x", "y"))
        same(slope, np.tile(w.sum(1), (8, 1)))
        rows = sw.smap(lambda v: v / lax.psum(v, "y"), in_axes=-1, out_axes=-1, axis_name="y")
        halves = X.reshape(8, 2, 2)
        same(rows(X + 1), ((halves + 1) / (halves + 1).sum(1, keepdims=True)).reshape(8, 4))
        print("smap", digest(sw.jit(rows)(on(GRID, "x") + 1)))


@check
def pmaps():
    f = sw.pmap(lambda v: v / lax.psum(v, "i"), axis_name="i", devices=list(MESH.flat_devices))
    rows = numbers(4, 3, seed=1) + 1
    stacked = sw.device_put(rows, NamedSharding(MESH, P("x")))
    same(f(stacked), rows / rows.sum(0), close=True)
    total = sw.pmap(lambda v: lax.psum(v, "i"), axis_name="i", out_axes=None, devices=DEVICES)
    same(total(rows), rows.sum(0))  # the full axis, in each process
    mine = sw.pmap(lambda v: lax.psum(v, "i"), axis_name="i", devices=sw.local_devices())
    same(mine(rows[:PER]), np.tile(rows[:PER].sum(0), (PER, 1)))


@check
def pmaps_of_own_rows():
    """Without `devices`, each process passes and receives the rows of its own devices."""
    rank, rows = sw.process_index(), numbers(4, 3, seed=1) + 1
    own = slice(rank * PER, (rank + 1) * PER)

    @functools.partial(sw.pmap, axis_name="i", in_axes=(0, None, 1), out_axes=(0, None, 1))
    def f(v, scale, w):
        return v * scale / lax.psum(v, "i"), lax.psum(v, "i"), w + lax.axis_index("i")

    for _ in range(2):  # the second call finds everything cached
        share, total, there = f(rows[own], np.float32(2), rows[own].T)
        assert share.shape == (PER, 3) and share.is_fully_addressable
        np.testing.assert_allclose(share, (rows * 2 / rows.sum(0))[own], rtol=1e-6)
        np.testing.assert_array_equal(total, rows.sum(0))
        assert total.sharding.mesh.size == PER and total.sharding.spec == P()
        np.testing.assert_array_equal(there, (rows + np.arange(4, dtype="f4")[:, None])[own].T)
    again, _, _ = f(share, 1.0, there)  # with earlier results as arguments
    np.testing.assert_allclose(
        np.asarray(again).sum(1),
        ((rows / rows.sum(0)) / (rows / rows.sum(0)).sum(0))[own].sum(1),
        rtol=1e-5,
    )
    order = list(MESH.flat_devices)  # with `devices`, too
    mine = [i for i, d in enumerate(order) if d in sw.local_devices()]
    there = sw.pmap(lambda v: v + lax.psum(v, "i"), "i", devices=order)(rows[mine])
    np.testing.assert_allclose(there, rows[mine] + rows.sum(0), rtol=1e-6)
    replicas = sw.device_put_replicated(np.float32(3), sw.local_devices())
    np.testing.assert_array_equal(sw.pmap(lambda v: lax.psum(v, "i"), "i")(replicas), [12] * PER)
    if COUNT > 1:
        assert "num_partitions = 4" in f.lower(rows[own], 1.0, rows[own].T).as_text()
        with raises(
            ValueError,
            "pmap of <lambda>: the mapped axis has size 4, and this process "
            f"has {PER} device{'s' * (PER > 1)}. With several processes, each passes one "
            "index for each of its own devices; `devices=` selects the devices, of all "
            "processes or of this one.",
        ):
            sw.pmap(lambda v: v)(rows)
        with raises(
            ValueError,
            "pmap of <lambda>: over the devices of several processes, each "
            "process passes its own rows, which are joined before the call, but it is "
            "inside of a transformation. Specify the devices: "
            "`devices=shardwise.devices()`, for which every process passes the full axis, "
            "or `devices=shardwise.local_devices()`.",
        ):
            sw.grad(lambda v: sw.pmap(lambda v: v)(v).sum())(rows[own])


@check
def xmaps():
    x = on(GRID, "x", "y")
    f = xmap(
        lambda v: lax.psum(v, "a"), in_axes=["a", ...], out_axes=[...], axis_resources={"a": "x"}
    )
    with GRID:
        same(f(x), X.sum(0))
        g = xmap(
            jnp.dot,
            in_axes=({0: "a"}, {1: "b"}),
            out_axes={0: "a", 1: "b"},
            axis_resources={"a": "x", "b": "y"},
        )
        same(g(x, x.T), X @ X.T)
        h = xmap(lambda v: v * 2 + lax.axis_index("a"), in_axes={0: "a"}, out_axes={0: "a"})
        same(h(x), X * 2 + np.arange(8, dtype=np.float32)[:, None])


@check
def vmaps():
    x = on(GRID, "x")

    def twice(row):
        return lax.with_sharding_constraint(row * 2, NamedSharding(GRID, P("y")))

    same(sw.jit(sw.vmap(twice, spmd_axis_name="x"))(x), X * 2)
    same(sw.vmap(lambda v: v - lax.pmean(v, "b"), axis_name="b")(x), X - X.mean(0), close=True)


@check
def printed():
    x = on(GRID, "x", "y")
    step = sw.shard_map(
        lambda v: lax.psum(jnp.sin(v), "x"), mesh=GRID, in_specs=P("x", "y"), out_specs=P(None, "y")
    )
    print("maps", digest(step(x)))


finish()
