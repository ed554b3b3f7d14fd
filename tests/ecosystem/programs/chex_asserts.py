"""Assertions on arrays, trees, shardings and traced values; variants, fakes and dataclasses."""

import functools
import unittest

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@chex.dataclass
class State:
    weights: chex.Array
    steps: int = 0


def refused(check, *args, **kwargs):
    """Prints the full message, which is the same with either library."""
    try:
        check(*args, **kwargs)
    except AssertionError as error:
        print("refused", getattr(check, "__name__", check), error)
    else:
        raise AssertionError(f"{check} accepted {args}")


state = State(weights=jnp.arange(6.0).reshape(2, 3), steps=3)
doubled = jax.jit(lambda s: jax.tree.map(lambda x: x * 2, s))(state)
assert isinstance(doubled, State) and int(doubled.steps) == 6
paths = [jax.tree_util.keystr(k) for k, _ in jax.tree_util.tree_leaves_with_path(state)]
print("dataclass", paths, state.replace(steps=1).steps)
print("mapping", sorted(state.keys()), dict(state)["steps"])

x, tree = state.weights, {"a": jnp.ones((2, 3)), "b": np.ones((2, 4))}
for good in (
    lambda: chex.assert_shape(x, (2, None)),
    lambda: chex.assert_rank([x, 1.0], [2, 0]),
    lambda: chex.assert_type([x, 1], [float, int]),
    lambda: chex.assert_tree_all_finite(tree),
    lambda: chex.assert_tree_shape_prefix(tree, (2,)),
    lambda: chex.assert_trees_all_close(doubled.weights, 2 * np.asarray(x)),
    lambda: chex.assert_trees_all_equal_shapes_and_dtypes(x, np.zeros((2, 3), np.float32)),
    lambda: chex.assert_numerical_grads(lambda x: jnp.sin(x).sum(), (x,), order=1, atol=0.02),
    lambda: chex.assert_tree_is_on_device(state.weights, device=jax.devices()[0]),
    lambda: chex.assert_devices_available(8, "cpu"),
):  # fmt: skip
    good()
refused(chex.assert_shape, x, (3, 3))
refused(chex.assert_rank, x, 3)
refused(chex.assert_type, x, int)
refused(chex.assert_tree_all_finite, {"a": jnp.array([1.0, np.nan])})
refused(chex.assert_trees_all_close, x, doubled.weights)
refused(chex.assert_equal_shape, [x, jnp.ones(3)])
chex.assert_tree_is_on_host({"a": x})  # the CPU is the host
refused(chex.assert_tree_is_on_host, {"a": x}, allow_cpu_device=False)
refused(chex.assert_trees_all_equal_structs, [1, 2], (1, 2))
refused(chex.assert_scalar_positive, -1.0)
mesh = Mesh(np.array(jax.devices()), ("data",))
split = jax.device_put(jnp.arange(16.0), NamedSharding(mesh, P("data")))
chex.assert_tree_is_sharded(split, devices=jax.devices())
refused(chex.assert_tree_is_sharded, x, devices=jax.devices())

dims = chex.Dimensions(N=2, D=3)
chex.assert_shape(x, dims["ND"])


@jax.jit
@chex.assert_max_traces(n=1)
def once(x):
    return x + 1


once(1.0)
once(2.0)
refused(once, jnp.ones(3))


@chex.assert_max_traces(n=1)
def traced_once(x):
    return x * 2


twice = jax.jit(traced_once)
print("once", twice(1.0).tolist(), twice(2.0).tolist())
refused(twice, jnp.ones(3))
chex.clear_trace_counter()


@chex.chexify
@jax.jit
def checked(x):
    chex.assert_tree_all_finite(x)
    chex.assert_trees_all_close(x, jnp.ones(2), atol=0.5)
    return jnp.log(x)


print("checked", checked(jnp.array([1.0, 1.25])).tolist())
checked.wait_checks()
for bad in (np.nan, 2.0):
    checked(jnp.array([1.0, bad]))
    refused(checked.wait_checks)


@functools.partial(chex.with_jittable_assertions, async_check=False)
@jax.jit
def positive(x):
    chex.assert_scalar_positive(1.0)
    chex.assert_tree_all_finite(x)
    return x * 2


print("positive", float(positive(3.0)))
refused(positive, jnp.array(np.nan))
print("kinds", chex.PyTreeDef is jax.tree_util.PyTreeDef, isinstance(x, chex.Array))
print("mapped", chex.assert_equal_rank([x, x]), chex.params_product([(1,), (2,)], [(3,)]))


class Variants(chex.TestCase):
    @chex.all_variants
    @parameterized.parameters(1.0, 2.0)
    def test_sum(self, y):
        fn = self.variant(lambda x: x + y)
        self.assertEqual(float(np.ravel(fn(jnp.zeros(8)))[0]), y)

    @chex.variants(with_jit=True, without_jit=True)
    def test_static(self):
        @self.variant(static_argnums=0)
        def power(n, x):
            return x**n

        chex.assert_trees_all_close(power(3, jnp.array(2.0)), 8.0)


tried = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromTestCase(Variants).run(tried)
print("variants", tried.testsRun, tried.failures, tried.errors)
assert tried.wasSuccessful() and tried.testsRun > 8

with chex.fake_pmap_and_jit():
    traced = []

    @jax.jit
    def seen(x):
        traced.append(isinstance(x, jax.core.Tracer))
        return x * 2

    seen(jnp.ones(2))
    total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(jnp.arange(4.0))
    print("fakes", traced, total.tolist())
