"""Patches of images by einops, with shapes that jaxtyping checks."""

import einops
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, jaxtyped


def patches(x: Float[Array, "b h w c"]) -> Float[Array, "b n d"]:  # noqa: F722
    return einops.rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=4, q=4)


x = jnp.arange(2 * 8 * 8 * 3.0).reshape(2, 8, 8, 3)
y = jax.jit(patches)(x)
print("shape", y.shape, float(y[1, 2, 7]))
print("mean", einops.reduce(x, "b h w c -> c", "mean").tolist())
print("grad", float(jax.grad(lambda x: (patches(x) ** 2).sum())(x)[1, 2, 3, 1]))
assert isinstance(x, Float[Array, "2 8 8 3"]) and not isinstance(x, Float[Array, "2 8 8"])
assert jaxtyped is not None
