"""Patches of images by einops, against patches by NumPy, with shapes that jaxtyping checks."""

import einops
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32, Int, Key, PyTree, Scalar, Shaped, jaxtyped


@jaxtyped(typechecker=None)
def patches(x: Float[Array, "b h w c"]) -> Float[Array, "b n d"]:  # noqa: F722
    return einops.rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=4, q=4)


host = np.arange(2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3) / 7
x = jnp.asarray(host)
y = jax.jit(patches)(x)
cut = host.reshape(2, 2, 4, 2, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 4, 48)
np.testing.assert_array_equal(y, cut)
print("shape", y.shape, float(y[1, 2, 7]))
mean = einops.reduce(x, "b h w c -> c", "mean")
np.testing.assert_allclose(mean, host.mean((0, 1, 2)), rtol=1e-6)
print("mean", mean.tolist())
grad = jax.grad(lambda x: (patches(x) ** 2).sum())(x)
np.testing.assert_allclose(grad, 2 * host, rtol=1e-6)
print("grad", float(grad[1, 2, 3, 1]))
for name in ("max", "min", "sum", "prod"):
    found = einops.reduce(x[..., :1, :], "b (h 2) w c -> b h c", name)
    wanted = getattr(host[..., :1, :].reshape(2, 4, 2, 1, 3), name)((2, 3))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    print(name, float(found.sum()))
repeated = einops.repeat(x, "b h w c -> b h (w two) c", two=2)
np.testing.assert_array_equal(repeated, host.repeat(2, 2))
weights = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
mixed = jax.jit(lambda x, w: einops.einsum(x, w, "b h w c, c d -> b d h"))(x, weights)
np.testing.assert_allclose(mixed, np.einsum("bhwc,cd->bdh", host, weights), rtol=1e-4)
print("mixed", float(jnp.abs(mixed).sum()))
packed, shapes = einops.pack([x, mean], "*")
first, second = einops.unpack(packed, shapes, "*")
np.testing.assert_array_equal(first, x)
np.testing.assert_array_equal(second, mean)
print("packed", packed.shape, shapes)
mapped = jax.vmap(lambda x: einops.rearrange(x, "h w c -> (c w) h"))(x)
np.testing.assert_array_equal(mapped, host.transpose(0, 3, 2, 1).reshape(2, 24, 8))
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
split = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
over = jax.jit(patches)(split)
np.testing.assert_array_equal(over, cut)
print("over", len(over.sharding.device_set))
try:
    einops.rearrange(x, "b (h p) w c -> b h p w c", p=3)
except einops.EinopsError as error:
    print("refused", error)
else:
    raise AssertionError("8 rows were cut in parts of 3")

assert isinstance(x, Float[Array, "2 8 8 3"]) and isinstance(x, Float32[Array, "... 3"])
assert not isinstance(x, Float[Array, "2 8 8"]) and not isinstance(x, Int[Array, "..."])
assert not isinstance(host, Float[Array, "..."]) and isinstance(host, Float[np.ndarray, "..."])
assert isinstance(x > 0, Bool[Array, "b h w c"]) and isinstance(x.sum(), Scalar)
assert isinstance(jax.random.key(0), Key[Array, ""]) and isinstance(x, Shaped[Array, "*b h w c"])
assert isinstance({"a": x, "b": [x]}, PyTree[Float[Array, "b h w c"]])
assert not isinstance({"a": x, "b": [x > 0]}, PyTree[Float[Array, "b h w c"]])


@jaxtyped(typechecker=None)
def same(a, b):
    """Whether dimensions of the same name have the same size."""
    return isinstance(a, Float[Array, "n m"]) and isinstance(b, Float[Array, "m"])


@jax.jit
def traced(a, b):
    assert same(a, b) and not same(a, b[:-1])
    return a @ b


assert same(x[0, 0], x[0, 0, 0]) and not same(x[0, 0], x[0, 0, 0, :2])
print("traced", traced(x[0, 0], x[0, 0, 0]).tolist())
print("dtypes", Float[Array, "b 3"].dtypes)
