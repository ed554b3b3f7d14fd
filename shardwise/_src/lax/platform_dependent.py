"""Platform-dependent code: separate functions per platform, and XLA's bit generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.flags import UserContext, make_user_context
from shardwise._src.control.cond_api import switch
from shardwise._src.lax.dimension_numbers import sizes
from shardwise._src.ops.create import platform_number
from shardwise._src.ops.random import rng
from shardwise._src.ops.random.rng import RandomAlgorithm as RandomAlgorithm
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.runtime.backend import devices
from shardwise._src.runtime.platforms import Platform, named, platform_of
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, T
from shardwise._src.types.dtypes import check_user_dtype

# The platforms that a function is being exported for, while it is traced.
EXPORTED: UserContext[tuple[str, ...]] = make_user_context(())


def platform_dependent(
    *args: Any, default: Callable[..., T] | None = None, **per_platform: Callable[..., T]
) -> T:
    """`fun(*args)` with the function of the platform that programs run on.

    default: for the platforms that are not named. per_platform: functions by 'cpu', 'gpu', 'cuda',
    'rocm' or 'tpu'; only the function of the default backend is traced. In `export`, the functions
    of all exported platforms are traced, and the module contains one for each.
    """

    def of(platform: Platform) -> Callable[..., T]:
        for name in platform.names:
            if name in per_platform:
                return per_platform[name]
        if default is None:
            raise NotImplementedError(
                f"platform_dependent: there is no function for {platform.device_name!r}, on which "
                f"this runs, and no default; got {', '.join(per_platform) or 'none'}."
            )
        return default

    targets = [named(p) for p in EXPORTED.value] or [platform_of(devices()[0])]
    chosen = {p: of(p) for p in targets}
    funs = [*dict.fromkeys(chosen.values())]
    if len(funs) == 1:
        return funs[0](*args)
    numbers = {platform.name: funs.index(fun) for platform, fun in chosen.items()}
    return switch(platform_number(numbers=tuple(sorted(numbers.items()))), funs, *args)


def rng_bit_generator(
    key: ArrayLike,
    shape: Sequence[int],
    dtype: DTypeLike = np.uint32,
    algorithm: RandomAlgorithm | int = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: OutSharding = None,
) -> tuple[Array, Array]:
    """(the next key, uniform bits) from XLA's generator.

    key: u32[4] or u64[2]. dtype: an unsigned integer type. algorithm: the platform's own (the
    numbers differ between platforms), Threefry or Philox.
    """
    how = {
        "shape": sizes(shape),
        "dtype": check_user_dtype(dtype, "rng_bit_generator"),
        "algorithm": int(RandomAlgorithm(algorithm)),
    }
    new, bits = rng.rng_bit_generator(key, **how)
    return new, bits if out_sharding is None else placed(_same, out_sharding, bits)


def _same(x: Any) -> Any:
    return x
