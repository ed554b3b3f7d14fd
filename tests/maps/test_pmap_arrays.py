"""Arguments and results of `pmap`: arrays with a shard per device, and how indices select one."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import NamedSharding, PartitionSpec, PmapSharding, SingleDeviceSharding
from tests.helpers.comparing import close
from tests.helpers.errors import donated, message, messages

X = np.arange(24, dtype=np.float32).reshape(8, 3)
DEVICES = sw.devices()


def doubled(**how):
    return sw.pmap(lambda x: x * 2, **how)


@pytest.mark.parametrize(("out_axes", "dim"), [(0, 0), (1, 1), (-1, 1), (None, None)])
def test_results_have_the_sharding_of_the_map(out_axes, dim):
    y = sw.pmap(lambda x: lax.pmean(x, "i"), axis_name="i", out_axes=out_axes)(X)
    named = NamedSharding(y.sharding.mesh, y.sharding.spec)
    if dim is None:
        assert y.sharding is named is NamedSharding(y.sharding.mesh, PartitionSpec())
    else:
        assert y.sharding is PmapSharding.default(y.shape, dim, DEVICES)
        assert y.sharding.spec[dim] == y.sharding.mesh.axis_names[0]
        assert named.is_equivalent_to(y.sharding, y.ndim)
    assert y.committed
    assert [s.device for s in y.addressable_shards] == DEVICES
    close(y if dim is None else np.moveaxis(np.asarray(y), dim, 0)[5], X.mean(0), 1e-6)


def test_results_without_data():
    def f(x):
        return x, np.zeros(3, sw.dtypes.float0), {"a": np.zeros((), sw.dtypes.float0)}

    assert jnp.array(b"", dtype=sw.dtypes.float0).dtype == sw.dtypes.float0
    y, zeros, more = sw.pmap(f, out_axes=(0, 1, None))(X)
    assert (y.shape, zeros.shape, more["a"].shape) == (X.shape, (3, len(X)), ())
    assert zeros.dtype == more["a"].dtype == sw.dtypes.float0


def test_an_index_is_the_shard_of_a_device():
    y = doubled()(X)
    for i, row in enumerate(y):
        assert row.sharding == SingleDeviceSharding(DEVICES[i])
        np.testing.assert_array_equal(row, 2 * X[i])
        shard = y.addressable_shards[i].data
        for same in (row, y[i], y[i - 8], y[i, :], y[i,]):
            assert same.shape == (3,)
            assert not same.committed
            assert same.unsafe_buffer_pointer() == shard.unsafe_buffer_pointer()
    assert float(y[1, 2]) == 2 * X[1, 2]
    np.testing.assert_array_equal(y[2:4], 2 * X[2:4])
    np.testing.assert_array_equal(y[np.array([1, 7])], 2 * X[[1, 7]])
    np.testing.assert_array_equal(y[1] + y[6], 2 * (X[1] + X[6]))
    np.testing.assert_array_equal(y[8], 2 * X[7])  # clamped to the last index, as everywhere


def test_on_one_device():
    y = doubled(devices=DEVICES[2:3])(X[:1])
    (row,) = y
    assert row.sharding == SingleDeviceSharding(DEVICES[2])
    np.testing.assert_array_equal(row, 2 * X[0])
    assert row.unsafe_buffer_pointer() == y.unsafe_buffer_pointer()
    z = doubled(devices=DEVICES[2:3], donate_argnums=0)(y)
    np.testing.assert_array_equal(z[0], 4 * X[0])
    assert message(RuntimeError, np.asarray, row) == (
        "array of type f32[3] was donated to <lambda>, through another array that shared its "
        f"memory. {donated('<lambda>')}"
    )


def test_where_the_host_does_not_read_memory(monkeypatch):
    """As on accelerators: the shard is reshaped on its device."""
    y = doubled()(X)
    monkeypatch.setattr(type(y), "_is_on_cpu", lambda self: False)
    row = y[3]
    assert row.sharding == SingleDeviceSharding(DEVICES[3])
    assert not row.committed
    monkeypatch.undo()
    np.testing.assert_array_equal(row, 2 * X[3])


def test_along_another_axis():
    y = doubled(in_axes=1, out_axes=1)(X.T)
    assert y[:, 3].sharding == SingleDeviceSharding(DEVICES[3])
    np.testing.assert_array_equal(y[:, -5], 2 * X[3])
    np.testing.assert_array_equal(y[1], 2 * X.T[1])
    np.testing.assert_array_equal(y[..., 3], 2 * X[3])


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "bool", "complex64"])
def test_indices_of_other_dtypes(dtype):
    x = (np.arange(16).reshape(8, 2) % 5).astype(jnp.dtype(dtype))
    y = sw.pmap(lambda x: x)(x)
    assert isinstance(y.sharding, PmapSharding)
    np.testing.assert_array_equal(np.asarray(y[3]).astype(complex), x[3].astype(complex))


def test_keys():
    keys = sw.random.split(sw.random.key(0), 8)
    y = sw.pmap(lambda k: sw.random.fold_in(k, 1))(keys)
    wanted = sw.random.key_data(sw.random.fold_in(keys[3], 1))
    np.testing.assert_array_equal(sw.random.key_data(y[3]), wanted)


def test_a_part_goes_with_a_donated_array():
    y = doubled()(X)
    row, kept = y[3], y[4].copy()
    doubled(donate_argnums=0)(y)
    np.testing.assert_array_equal(kept, 2 * X[4])
    assert message(RuntimeError, lambda: y[3]) == (
        f"array of type f32[8,3] was donated to <lambda>. {donated('<lambda>')}"
    )
    assert message(RuntimeError, np.asarray, row) == (
        "array of type f32[3] was donated to <lambda>, through another array that shared its "
        f"memory. {donated('<lambda>')}"
    )


def test_an_old_program():
    """Parameters on all devices, steps with averaged gradients, and the first copy at the end."""

    def loss(w, x, y):
        return jnp.mean((x @ w["w"] + w["b"] - y) ** 2)

    def step(w, x, y):
        value, grads = sw.value_and_grad(loss)(w, x, y)
        grads = lax.pmean(grads, axis_name="batch")
        return sw.tree.map(lambda a, g: a - 0.1 * g, w, grads), lax.pmean(value, "batch")

    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 4, 3)).astype(np.float32)
    y = rng.normal(size=(8, 4)).astype(np.float32)
    start = {"w": np.ones(3, np.float32), "b": np.float32(0)}
    w = sw.device_put_replicated(start, DEVICES)
    batch = sw.device_put_sharded(list(x), DEVICES), sw.device_put_sharded(list(y), DEVICES)
    run = sw.pmap(step, axis_name="batch", donate_argnums=0)
    for _ in range(3):
        held = w["w"].addressable_shards[2].data.unsafe_buffer_pointer()
        w, value = run(w, *batch)
    assert held is not None
    assert isinstance(w["w"].sharding, PmapSharding)
    plain = start
    for _ in range(3):
        grads = sw.grad(loss)(plain, x.reshape(32, 3), y.reshape(32))
        plain = sw.tree.map(lambda a, g: a - 0.1 * g, plain, grads)
    close(sw.tree.map(lambda a: a[0], w), plain, 1e-5)
    close(sw.tree.map(lambda a: a[7], w), plain, 1e-5)
    assert value.shape == (8,)


def test_results_are_taken_as_they_are():
    """One trace and no copy: the result reuses the memory of the donated argument."""
    traces = []
    run = sw.pmap(lambda x: (traces.append(1), x + 1)[1], donate_argnums=0)
    y = sw.device_put_sharded(list(X), DEVICES)
    first = [s.data.unsafe_buffer_pointer() for s in y.addressable_shards]
    for _ in range(3):
        y = run(y)
    assert [s.data.unsafe_buffer_pointer() for s in y.addressable_shards] == first
    np.testing.assert_array_equal(y, X + 3)
    run(X)
    assert len(traces) == 1


@pytest.mark.parametrize(
    "place",
    [
        lambda x: sw.device_put(x, DEVICES[3]),
        lambda x: sw.device_put(
            x, NamedSharding(sw.make_mesh((2, 4), ("a", "b")), sw.sharding.PartitionSpec("b"))
        ),
        lambda x: sw.device_put(x, PmapSharding.default(x.shape, 0, DEVICES[::-1])),
        lambda x: doubled()(x) / 2,
    ],
    ids=["one device", "a mesh", "other order", "computed"],
)
def test_arguments_are_brought_to_the_devices(place):
    x = place(X)
    run = sw.pmap(lambda x, w: x + w, in_axes=(0, None))
    for _ in range(2):
        y = run(x, place(X))
        assert y.sharding.devices == tuple(DEVICES)
        np.testing.assert_array_equal(y, X[:, None] + X)


def test_the_program_moves_nothing():
    y = doubled()(X)
    text = sw.pmap(lambda x: x + 1).lower(y).compile().as_text()
    assert not any(name in text for name in ("all-", "collective", "copy", "dynamic-slice"))


def test_put_in_trees():
    x = sw.device_put_replicated({"a": X[0], "b": 2.5}, DEVICES[:3])
    assert x["a"].sharding is PmapSharding.default((3, 3), 0, DEVICES[:3])
    assert x["b"].tolist() == [2.5] * 3
    y = sw.device_put_sharded([{"a": row} for row in X[:2]], DEVICES[4:6])["a"]
    assert y.sharding is PmapSharding.default((2, 3), 0, DEVICES[4:6])
    np.testing.assert_array_equal(y[1], X[1])


test_errors_of_putting = messages(
    """
sw.device_put_sharded(list(X), DEVICES[:3])
    ValueError: device_put_sharded: shards must be a list with a pytree for each of the 3 devices;
    got 8.
sw.device_put_sharded([X[0], X[1].astype(int)], DEVICES[:2])
    TypeError: device_put_sharded: shards[1] has dtype int64, but shards[0] has dtype float32. All
    must have the same dtype.
sw.device_put_sharded([X], 3)
    TypeError: device_put_sharded: devices must be a list of devices; got 3 of type int.
sw.device_put_replicated(X, [])
    ValueError: device_put_replicated: devices is empty; give at least one.
sw.device_put_replicated(X, DEVICES[0])
    TypeError: device_put_replicated: devices must be a list of devices; got CpuDevice(id=0) of
    type Device.
""",
    globals(),
)
