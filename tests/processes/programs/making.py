"""Constructors, over meshes with several device orders."""

import ml_dtypes
import numpy as np
from checking import (
    COUNT,
    DEVICES,
    HERE,
    PER,
    P,
    check,
    check_jax,
    digest,
    equal,
    finish,
    meshes,
    numbers,
    over,
    raises,
    same,
    some,
)

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import random
from shardwise.sharding import AxisType, Mesh, NamedSharding

DTYPES = [
    "float32",
    "bool",
    "int8",
    "uint32",
    "int64",
    "float64",
    "complex64",
    "bfloat16",
    "float8_e4m3fn",
    "float16",
]


def as_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def held(sharding, x):
    """The elements on the devices of this process along each dimension, as local data."""
    out = x
    for dim in range(x.ndim):
        pieces = {
            index[dim].indices(x.shape[dim])[:2]
            for index in sharding.addressable_devices_indices_map(x.shape).values()
        }
        rows = [i for start, stop in sorted(pieces) for i in range(start, stop)]
        out = np.take(out, rows, dim)
    return out


def picked(x):
    return lambda indices: [x[i] for i in indices]


def picked_for_devices(x):
    return lambda groups: [x[i] for i, devices in groups for _ in devices]


def specs(mesh):
    yield from [P(), P("x"), P(None, "x")]
    if "y" in mesh.axis_names:
        yield from [P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x"))]


@check
def from_callbacks():
    for mesh in meshes():
        for spec in specs(mesh):
            for shape in some([(5, 7), (8, 4), (3, 1), (0, 4)]):
                s, x = NamedSharding(mesh, spec), numbers(*shape)
                same(sw.make_array_from_callback(shape, s, x.__getitem__), x)
                made = sw.make_array_from_batched_callback(shape, s, picked(x))
                same(made, x)
                made = sw.make_array_from_batched_callback_with_devices(
                    shape, s, picked_for_devices(x)
                )
                same(made, x)


@check
def from_local_data():
    for mesh in meshes():
        for spec in specs(mesh):
            for shape in some([(5, 7), (8, 4), (3, 1), (0, 4)]):
                s, x = NamedSharding(mesh, spec), numbers(*shape)
                same(sw.make_array_from_process_local_data(s, held(s, x), shape), x)
                same(sw.make_array_from_process_local_data(s, x, shape), x)
        s, x = NamedSharding(mesh, P("x")), numbers(8, 4)
        same(sw.make_array_from_process_local_data(s, held(s, x)), x)
        same(sw.make_array_from_process_local_data(s, held(s, x), (None, 4)), x)
        same(sw.make_array_from_process_local_data(s, held(s, x), (8, None)), x)


@check
def from_single_device_arrays():
    for mesh in meshes():
        for spec in specs(mesh):
            for shape in some([(5, 7), (8, 4), (0, 4)]):
                s, x = NamedSharding(mesh, spec), numbers(*shape)
                where = s.addressable_devices_indices_map(shape)
                parts = [sw.device_put(x[i], d) for d, i in where.items()][::-1]
                same(sw.make_array_from_single_device_arrays(shape, s, parts), x)


@check
def put():
    for mesh in meshes():
        for spec in specs(mesh):
            for shape in some([(5, 7), (8, 4), (3, 1), (0, 4)]):
                s, x = NamedSharding(mesh, spec), numbers(*shape)
                same(sw.device_put(x, s), x)
                same(sw.device_put(jnp.asarray(x), s), x)
                same(jnp.asarray(x, device=s), x)
                same(jnp.zeros(shape, device=s), np.zeros(shape, np.float32))
        s = NamedSharding(mesh, P())
        same(sw.device_put(3, s), np.int32(3))
        same(sw.device_put(2.5, s), np.float32(2.5))
        same(sw.device_put(np.float32(2.5), s), np.float32(2.5))
        s = NamedSharding(mesh, P("x"))
        same(jnp.arange(8, device=s), np.arange(8, dtype=np.int32))
        same(jnp.full((6,), 7, device=s), np.full((6,), 7, np.int32))
        same(jnp.linspace(0, 1, 8, device=s), np.linspace(0, 1, 8, dtype=np.float32), close=True)
        same(jnp.eye(4, device=s), np.eye(4, dtype=np.float32))
        tree = {"a": numbers(4), "b": [numbers(8, 4), 3.0 * np.ones(4, np.float32)]}
        new = sw.device_put(tree, s)
        same(new["a"], tree["a"]), same(new["b"][0], tree["b"][0]), same(new["b"][1], tree["b"][1])
        new = sw.device_put(tree, {"a": s, "b": NamedSharding(mesh, P())})
        assert new["b"][0].is_fully_replicated and not new["a"].is_fully_replicated


@check
def put_on_each():
    for order in [0, 1, 2, 3], [2, 0, 3, 1]:
        there = [DEVICES[i] for i in order]
        for x in numbers(4, 3), numbers(4), numbers(4).astype(np.float64):
            made = sw.device_put_sharded(list(x), there)
            same(made, x.astype(np.float32))
            assert [s.index[0].start for s in made.addressable_shards] == [
                i for i, d in enumerate(there) if d.process_index == HERE
            ]
            same(sw.device_put_replicated(x, there), np.stack([x.astype(np.float32)] * 4))
        same(sw.device_put_replicated(2.5, there), np.full(4, 2.5, np.float32))
    one = [d for d in DEVICES if d.process_index == COUNT - 1]  # elsewhere the array is a handle
    made = sw.device_put_replicated(numbers(3), one)
    assert made.shape == (PER, 3) and made.dtype == np.float32
    if HERE == COUNT - 1:
        equal(np.asarray(made), np.stack([numbers(3)] * PER))
    key = random.key(3)
    keys = sw.device_put_replicated(key, DEVICES)
    for shard in keys.addressable_shards:
        equal(np.asarray(random.key_data(shard.data))[0], np.asarray(random.key_data(key)))


@check
def large():
    for mesh in meshes():
        for spec in some(specs(mesh)):
            s, x = NamedSharding(mesh, spec), numbers(1023, 300)
            same(sw.device_put(x, s), x)
            same(sw.make_array_from_process_local_data(s, held(s, x), x.shape), x)
            same(sw.device_put(jnp.asarray(x), s), x)


@check
def dtypes(names=DTYPES):
    with sw.enable_x64():
        for name in some(names):
            x = (numbers(8, 4) % 7).astype(as_dtype(name))
            for spec in [P(), P("x"), P(None, "x")]:
                s = over(*spec, order=[2, 0, 3, 1])
                for made in (
                    sw.device_put(x, s),
                    sw.make_array_from_callback((8, 4), s, x.__getitem__),
                    sw.make_array_from_process_local_data(s, held(s, x), x.shape),
                    sw.device_put(sw.device_put(x), s),
                ):
                    same(made, x)
            short = x.ravel()[:5]
            s = over("x")
            same(sw.device_put(short, s), short)


@check
def keys_and_random_numbers():
    key = random.key(7)
    for mesh in meshes():
        s = NamedSharding(mesh, P("x"))
        keys = random.split(key, 8)
        there = sw.device_put(keys, s)
        for shard in there.addressable_shards:
            wanted = np.asarray(random.key_data(keys))[shard.index[0]]
            equal(np.asarray(random.key_data(shard.data)), wanted)
        x = random.normal(key, (8, 4))
        drawn = sw.jit(lambda k: random.normal(k, (8, 4)), out_shardings=s)(key)
        same(drawn, np.asarray(x))
        kinds = (AxisType.Explicit,) * mesh.devices.ndim
        mine = NamedSharding(Mesh(mesh.devices, mesh.axis_names, axis_types=kinds), P("x"))
        same(random.uniform(key, (6,), out_sharding=mine), np.asarray(random.uniform(key, (6,))))
    each = sw.vmap(lambda k: random.uniform(k, (3,)))(there)
    same(each, np.asarray(sw.vmap(lambda k: random.uniform(k, (3,)))(keys)))
    print("random", digest(drawn))


@check
def mistakes():
    s, x = over("x"), numbers(8, 4)
    mine = 8 // COUNT
    if COUNT > 1:
        with raises(
            ValueError,
            "make_array_from_process_local_data: local_data of shape (5, 4): "
            f"dimension 0 has size 5; expected 8, the global size, or {mine}, what the "
            f"devices of this process hold under {s}.",
        ):
            sw.make_array_from_process_local_data(s, x[:5], (8, 4))
        with raises(
            ValueError,
            "make_array_from_single_device_arrays: got 4 arrays for an array "
            f"of shape (8, 4), but {s} has {PER} device{'s' * (PER > 1)} of this process. "
            "Pass one array for each.",
        ):
            one = sw.device_put(x[:2], sw.local_devices()[0])
            sw.make_array_from_single_device_arrays((8, 4), s, [one] * 4)


check_jax()


@check
def narrow_dtypes():  # jaxlib makes shards of these by way of jax
    dtypes(["int4", "uint4"])


finish()
