"""Derivatives and `vmap` of maps over devices under `disable_jit`: values match those with jit."""

from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.maps import xmap
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday

N = 4
DEVICES = np.array(sw.devices()[:N])
AUTO = Mesh(DEVICES, ("i",))
EXPLICIT = Mesh(DEVICES, ("i",), AxisType.Explicit)
X = np.linspace(0.5, 2, N, dtype=np.float32)
T = np.linspace(-1, 1, N, dtype=np.float32)


def local(v):
    """A function of one index, with collectives."""
    everyone = sw.lax.all_gather(v, "i")
    turned = sw.lax.ppermute(v, "i", [(k, (k + 1) % N) for k in range(N)])
    return jnp.sin(v) * sw.lax.psum(v, "i") + turned * everyone.sum() / sw.lax.axis_size("i")


def sharded(mesh):
    return sw.shard_map(local, mesh=mesh, in_specs=P("i"), out_specs=P("i"))


MAPS = {
    "pmap": sw.pmap(local, "i"),
    "shard_map": sharded(AUTO),
    "shard_map explicit": sharded(EXPLICIT),
    "shard_map in scope": sharded(None),
    "shard_map abstract": sharded(AbstractMesh((N,), ("i",), AxisType.Auto)),
    "xmap": xmap(local, in_axes=["i"], out_axes=["i"]),
    "xmap over devices": xmap(local, in_axes=["i"], out_axes=["i"], axis_resources={"i": "i"}),
}


def loss(f):
    return lambda x: (f(x) ** 2).sum()


TRANSFORMS = {
    "call": lambda f: f(X),
    "grad": lambda f: sw.grad(loss(f))(X),
    "value_and_grad": lambda f: sw.value_and_grad(loss(f))(X),
    "jit of grad": lambda f: sw.jit(sw.grad(loss(f)))(X),
    "vjp": lambda f: sw.vjp(f, X)[1](jnp.asarray(T)),
    "jvp": lambda f: sw.jvp(f, (X,), (T,)),
    "linearize": lambda f: sw.linearize(f, X)[1](T),
    "vmap": lambda f: sw.vmap(f)(np.stack([X, T])),
    "vmap of grad": lambda f: sw.vmap(sw.grad(loss(f)))(np.stack([X, T])),
    "jacfwd": lambda f: sw.jacfwd(f)(X),
    "jacrev": lambda f: sw.jacrev(f)(X),
    "hessian": lambda f: sw.hessian(loss(f))(X),
    "checkpoint": lambda f: sw.grad(loss(sw.checkpoint(f)))(X),
}


def run(map_name, transform):
    """The results of a transform; inside a mesh if the map takes its mesh from the scope."""
    scope = AUTO if "scope" in map_name or "over" in map_name or "abstract" in map_name else None
    with scope or nullcontext():
        return [np.asarray(y) for y in sw.tree.leaves(TRANSFORMS[transform](MAPS[map_name]))]


@pytest.mark.parametrize(("map_name", "transform"), everyday(product(MAPS, TRANSFORMS), 30))
def test_values_are_those_with_jit(map_name, transform):
    with_jit = run(map_name, transform)
    with sw.disable_jit():
        without = run(map_name, transform)
    for one, other in zip(with_jit, without, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_gradients_where_only_values_within_are_over_explicit_axes():
    """No argument is over them, and no mesh is in scope: the results determine the devices."""
    over = NamedSharding(EXPLICIT, P("i"))
    for put in (sw.reshard, sw.device_put):

        def f(x, put=put):
            return put(x, over)[0] * 3

        at_first = np.array([3, 0, 0, 0], np.float32)
        np.testing.assert_array_equal(sw.grad(f)(X), at_first)
        np.testing.assert_array_equal(sw.vjp(f, X)[1](jnp.float32(1))[0], at_first)
        np.testing.assert_array_equal(sw.jacrev(f)(X), at_first)
        np.testing.assert_array_equal(sw.jacfwd(f)(X), at_first)
        np.testing.assert_array_equal(sw.linearize(f, X)[1](T), 3 * T[0])
        np.testing.assert_array_equal(sw.hessian(f)(X), np.zeros((N, N)))
