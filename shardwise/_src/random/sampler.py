"""`Sampler`: a formula for samples, with the steps that all samplers have in common.

@sampler(sizes=common_sizes, cast=True)
def rayleigh_sample(key, scale, shape, dtype): ...

rayleigh_sample(key, 2.0, (8,), dtype)               # inside a program, for a typed key
rayleigh_sample.draw(None, key, 2.0, (8,), None)     # a user's call, without out_sharding
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.core.fused import fused
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.random.named_shapes import keyed, optionally_keyed
from shardwise._src.random.sampler_arguments import float_dtype, parameter, typed_key


class Sampler:
    """Samples by `formula(key, *params, shape, dtype, **options)`, for a typed key.

    dtype_of: checks the user's dtype. sizes: the shape of the samples from the given one, which
    may then be None, and the parameters. cast: whether to convert parameters to the dtype.
    """

    def __init__(
        self,
        formula: Callable[..., Any],
        name: str,
        dtype_of: Callable[[str, Any], Any],
        sizes: Callable[..., tuple[int, ...]] | None,
        cast: bool,
    ):
        self.name = name
        self.formula, self.dtype_of, self.sizes, self.cast = formula, dtype_of, sizes, cast

        def run(key: Any, *params: Any, shape: Any, dtype: Any, **options: Any) -> Any:
            return self(typed_key(name, key), *params, shape, dtype, **options)

        run.__name__ = name
        self.program = fused(run)

    def __call__(self, key: Any, *args: Any, **options: Any) -> Any:
        *params, shape, dtype = args
        if self.sizes is not None:
            shape = self.sizes(self.name, shape, *params)
        if self.cast:
            params = [parameter(self.name, x, dtype, shape) for x in params]
        return self.formula(key, *params, shape, dtype, **options)

    def draw(self, out_sharding: Any, key: Any, *args: Any, **options: Any) -> Any:
        """The samples for a user's arguments: parameters, shape and dtype; by one program."""
        name, params = self.name, args[:-2]
        key, shape = (keyed if self.sizes is None else optionally_keyed)(name, key, args[-2])
        dtype = self.dtype_of(name, args[-1])
        if out_sharding is None:
            return self.program(key, *params, shape=shape, dtype=dtype, **options)
        return placed(self.program, out_sharding, key, *params, shape=shape, dtype=dtype, **options)


def sampler(
    dtype_of: Callable[[str, Any], Any] = float_dtype,
    sizes: Callable[..., tuple[int, ...]] | None = None,
    cast: bool = False,
    name: str = "",
) -> Callable[[Callable[..., Any]], Sampler]:
    """Marks the formula of a `Sampler`. name: of the public function; by default that of the
    formula, without `_sample`."""
    return lambda formula: Sampler(
        formula, name or formula.__name__.removesuffix("_sample"), dtype_of, sizes, cast
    )
