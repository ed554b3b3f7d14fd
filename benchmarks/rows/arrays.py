"""Eager work on small arrays, where everything but the front end is nearly free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from benchmarks.libs import DEVICES, Lib
from benchmarks.runner import Fresh, Row

MIB = 1024**2


def vector(lib: Lib) -> Any:
    return lib.root.device_put(numpy.arange(8, dtype="float32"))


def matrix(lib: Lib) -> Any:
    return lib.root.device_put(numpy.ones((4, 8), "float32"))


def add(lib: Lib) -> Callable[[], Any]:
    x, y = vector(lib), vector(lib)
    return lambda: x + y


def add_host(lib: Lib) -> Callable[[], Any]:
    x, host = vector(lib), numpy.arange(8, dtype="float32")
    return lambda: x + host


def sin(lib: Lib) -> Callable[[], Any]:
    f, x = lib.np.sin, vector(lib)
    return lambda: f(x)


def total(lib: Lib) -> Callable[[], Any]:
    f, x = lib.np.sum, vector(lib)
    return lambda: f(x)


def where(lib: Lib) -> Callable[[], Any]:
    f, x, y = lib.np.where, vector(lib), vector(lib)
    mask = lib.root.device_put(numpy.arange(8) % 2 == 0)
    return lambda: f(mask, x, y)


def index_int(lib: Lib) -> Callable[[], Any]:
    x = vector(lib)
    return lambda: x[0]


def index_slice(lib: Lib) -> Callable[[], Any]:
    x = vector(lib)
    return lambda: x[1:3]


def index_array(lib: Lib) -> Callable[[], Any]:
    x, i = vector(lib), lib.root.device_put(numpy.array([0, 3, 1], "int32"))
    return lambda: x[i]


def at_set(lib: Lib) -> Callable[[], Any]:
    x, v = vector(lib), lib.root.device_put(numpy.float32(2))
    return lambda: x.at[0].set(v)


def zeros(lib: Lib) -> Callable[[], Any]:
    f = lib.np.zeros
    return lambda: f((4, 8))


def arange(lib: Lib) -> Callable[[], Any]:
    f = lib.np.arange
    return lambda: f(8)


def asarray(lib: Lib) -> Callable[[], Any]:
    f, values = lib.np.asarray, [1.0, 2.0, 3.0]
    return lambda: f(values)


def concatenate(lib: Lib) -> Callable[[], Any]:
    f, parts = lib.np.concatenate, [vector(lib), vector(lib)]
    return lambda: f(parts)


def reshape(lib: Lib) -> Callable[[], Any]:
    x = matrix(lib)
    return lambda: x.reshape(8, 4)


def transpose(lib: Lib) -> Callable[[], Any]:
    x = matrix(lib)
    return lambda: x.T


def astype(lib: Lib) -> Callable[[], Any]:
    x, dtype = matrix(lib), lib.np.int32
    return lambda: x.astype(dtype)


def split(lib: Lib) -> Callable[[], Any]:
    f, key = lib.random.split, lib.random.key(0)
    return lambda: f(key)


def put_small(lib: Lib) -> Callable[[], Any]:
    put, host = lib.root.device_put, numpy.ones(8, "float32")
    return lambda: put(host)


def put_eight(lib: Lib) -> Callable[[], Any]:
    put, host = lib.root.device_put, numpy.ones((DEVICES, 8), "float32")
    sharding = lib.named(lib.mesh(d=DEVICES), "d", None)
    return lambda: put(host, sharding)


def put_between(lib: Lib) -> Fresh:
    """From one sharding to another: each time a new array, which a program computed."""
    put, block, mesh = lib.root.device_put, lib.root.block_until_ready, lib.mesh(d=DEVICES)
    source = put(numpy.ones((DEVICES, DEVICES), "float32"), lib.named(mesh, "d", None))
    f, target = lib.root.jit(lambda x: x + 1), lib.named(mesh, None, "d")

    def fresh() -> Callable[[], Any]:
        x = block(f(source))
        return lambda: block(put(x, target))

    return fresh


def tree_of_200() -> dict[str, Any]:
    return {f"leaf_{i:03}": numpy.ones(8, "float32") for i in range(200)}


def tree_map(lib: Lib) -> Callable[[], Any]:
    tree, values = lib.root.tree, tree_of_200()
    return lambda: tree.map(lambda x: x, values)


def tree_map_with_path(lib: Lib) -> Callable[[], Any]:
    tree, values = lib.root.tree, tree_of_200()
    return lambda: tree.map_with_path(lambda path, x: x, values)


def tree_flatten(lib: Lib) -> Callable[[], Any]:
    tree, values = lib.root.tree, tree_of_200()
    return lambda: tree.flatten(values)


def put_tree(lib: Lib) -> Callable[[], Any]:
    put, host = lib.root.device_put, tree_of_200()
    return lambda: put(host)


def large() -> numpy.ndarray:
    """64 MiB as float32[4096, 4096], four bytes off alignment.

    A runtime may adopt an aligned array without a copy, and whether NumPy's is aligned is random.
    """
    flat = numpy.ones(16 * MIB + 16, "float32")
    address = flat.ctypes.data // flat.itemsize
    start = 1 + -address % 16  # 64 bytes are 16 elements
    return flat[start : start + 16 * MIB].reshape(4096, 4096)


def put_large(lib: Lib) -> Fresh:
    put, block, host = lib.root.device_put, lib.root.block_until_ready, large()
    sharding = lib.named(lib.mesh(d=DEVICES), "d", None)
    return lambda: lambda: block(put(host, sharding))


def sharded_large(lib: Lib, use: Callable[[Any, Any], Any]) -> Fresh:
    """Times `use(x, mesh)` on a new array each time: a transfer to the host may cache a copy."""
    put, block, host = lib.root.device_put, lib.root.block_until_ready, large()
    mesh = lib.mesh(d=DEVICES)
    sharding = lib.named(mesh, "d", None)

    def fresh() -> Callable[[], Any]:
        x = block(put(host, sharding))
        return lambda: use(x, mesh)

    return fresh


def reshard_large(lib: Lib) -> Fresh:
    put, block = lib.root.device_put, lib.root.block_until_ready
    return sharded_large(lib, lambda x, mesh: block(put(x, lib.named(mesh, None, "d"))))


def gather_large(lib: Lib) -> Fresh:
    return sharded_large(lib, lambda x, mesh: numpy.asarray(x))


def gather_computed(lib: Lib) -> Fresh:
    """The same for an array that a program computed, whose shards are not contiguous."""
    place, block = sharded_large(lib, lambda x, mesh: x), lib.root.block_until_ready
    f = lib.root.jit(lambda x: x + 1)

    def fresh() -> Callable[[], Any]:
        x = block(f(place()()))
        return lambda: numpy.asarray(x)

    return fresh


ROWS = (
    Row("eager.add", 1.1, add),
    Row("eager.add_ndarray", 1.3, add_host),
    Row("eager.sin", 1.1, sin),
    Row("eager.sum", 1.1, total),
    Row("eager.where", 1.1, where),
    Row("index.int", 0.3, index_int),
    Row("index.slice", 0.3, index_slice),
    Row("index.array", 0.3, index_array),
    Row("index.at_set", 0.3, at_set),
    Row("create.zeros", 0.3, zeros),
    Row("create.arange", 0.15, arange),
    Row("create.asarray_list", 0.15, asarray),
    Row("create.concatenate", 0.15, concatenate),
    Row("shape.reshape", 0.5, reshape),
    Row("shape.transpose", 0.5, transpose),
    Row("shape.astype", 0.5, astype),
    Row("random.split", 0.08, split),
    Row("put.small", 0.2, put_small),
    Row("put.8_devices", 0.35, put_eight),
    Row("put.8_to_8", 0.95, put_between, kind="fresh"),
    Row("put.200_leaves", 0.25, put_tree),
    Row("tree.map", 1.0, tree_map),
    Row("tree.map_with_path", 1.0, tree_map_with_path),
    Row("tree.flatten", 1.0, tree_flatten),
    Row("large.put_64MiB", 1.1, put_large, kind="fresh", clock="wall"),
    Row("large.reshard_64MiB", 0.35, reshard_large, kind="fresh", clock="wall"),
    Row("large.gather_64MiB", 0.2, gather_large, kind="fresh", clock="wall"),
    Row("large.gather_computed", 1.0, gather_computed, kind="fresh", clock="wall"),
)
