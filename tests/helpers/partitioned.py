"""Functions with user-defined partitioning, for tests of `custom_partitioning`."""

import re

import jax
import jax.experimental.custom_partitioning as jax_partitioning
import numpy as np

import shardwise as sw
import shardwise.experimental.custom_partitioning as ours
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.meshes import MESH, mesh_of

EXPLICIT = mesh_of(4, 2, types=AxisType.Explicit)
RNG = np.random.default_rng(0)
WHO = "custom_partitioning function"


def normal(*shape):
    return RNG.normal(size=shape).astype("f")


def put(x, *spec, mesh=MESH):
    return sw.device_put(x, NamedSharding(mesh, P(*spec)))


def collectives(f, *args):
    text = sw.jit(f).lower(*args).compile().as_text()
    return set(re.findall(r"(all-gather|all-reduce|all-to-all|collective-permute)\(", text))


# -- functions written once for both libraries --


def fft_of(lib, partitioning, NamedSharding, P, log):
    """The example in JAX's documentation: an FFT of rows that are not gathered."""

    def supported(sharding, shape):
        rank = len(shape.shape)
        shared = min(len(sharding.spec), rank - 1)
        names = tuple(sharding.spec[:shared]) + (None,) * (rank - shared)
        return NamedSharding(sharding.mesh, P(*names))

    def partition(mesh, arg_shapes, result_shape):
        log.append((dict(mesh.shape), [seen(s) for s in (*arg_shapes, result_shape)]))
        place = supported(arg_shapes[0].sharding, arg_shapes[0])
        return mesh, lib.numpy.fft.fft, place, (place,)

    def infer(mesh, arg_shapes, result_shape):
        return supported(arg_shapes[0].sharding, arg_shapes[0])

    @partitioning.custom_partitioning
    def my_fft(x):
        return lib.numpy.fft.fft(x)

    rule = partitioning.SdyShardingRule(
        operand_mappings=((partitioning.BATCHING, "i"),),
        result_mappings=((partitioning.BATCHING, "i"),),
    )
    my_fft.def_partition(
        infer_sharding_from_operands=infer, partition=partition, sharding_rule=rule
    )
    return my_fft


def product_of(lib, partitioning, NamedSharding, P, log, **kwargs):
    @partitioning.custom_partitioning
    def product(x, y):
        return x @ y

    def partition(mesh, arg_shapes, result_shape):
        log.append((dict(mesh.shape), [seen(s) for s in (*arg_shapes, result_shape)]))
        x = arg_shapes[0].sharding
        rows, axes = x.spec

        def lower_fn(x, y):
            return lib.lax.psum(x @ y, axes) if axes else x @ y

        return (
            mesh,
            lower_fn,
            NamedSharding(mesh, P(rows, None)),
            (x, NamedSharding(mesh, P(axes, None))),
        )

    kwargs = kwargs or {"sharding_rule": "b i, i o -> b o", "reduction_factors": ("i",)}
    product.def_partition(partition, **kwargs)
    return product


def seen(shape):
    return tuple(shape.shape), str(shape.dtype), tuple(shape.sharding.spec)


OURS = sw, ours, NamedSharding, P
JAX = jax, jax_partitioning, jax.sharding.NamedSharding, jax.sharding.PartitionSpec


def smooth(product):
    f = sw.custom_vjp(lambda x, y: product(x, y))
    f.defvjp(
        lambda x, y: (product(x, y), (x, y)),
        lambda held, ct: (product(ct, held[1].T), product(held[0].T, ct)),
    )
    return f
