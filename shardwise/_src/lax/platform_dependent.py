"""Platform-dependent code: separate functions per platform, and XLA's bit generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array as ConcreteArray
from shardwise._src.base.context import current
from shardwise._src.base.flags import UserContext, make_user_context
from shardwise._src.control.cond_api import switch
from shardwise._src.jit.jit import jit
from shardwise._src.lax.dimension_numbers import sizes
from shardwise._src.ops.create import platform_number
from shardwise._src.ops.random import rng
from shardwise._src.ops.random.rng import RandomAlgorithm as RandomAlgorithm
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.backend import devices
from shardwise._src.runtime.platforms import Platform, known, named, platform_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.transfer import default_single
from shardwise._src.transforms.batch import BatchTracer
from shardwise._src.transforms.jvp import JVPTracer
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, T
from shardwise._src.types.dtypes import check_user_dtype

# The platforms that a function is being exported for, while it is traced.
EXPORTED: UserContext[tuple[str, ...]] = make_user_context(())


def platform_dependent(
    *args: Any, default: Callable[..., T] | None = None, **per_platform: Callable[..., T]
) -> T:
    """`fun(*args)` with the function of the platform that the program runs on.

    default: for the platforms that are not named. per_platform: functions by 'cpu', 'gpu', 'cuda',
    'rocm', 'tpu' or the name of a registered platform. In programs all of them are traced, in
    `export` those of the exported platforms; a compiled program has only its platform's.
    """

    def of(platform: Platform) -> Callable[..., T] | None:
        names = [name for name in platform.names if name in per_platform]
        return per_platform[names[0]] if names else default

    here = _platform_for(args)
    if here is not None and (fun := of(here)) is not None:
        return fun(*args)
    exported = [named(p) for p in EXPORTED.value]
    targets = exported or [platform_of(devices()[0]), *known()]
    chosen = {p: fun for p in targets if (fun := of(p)) is not None}
    missing = [p for p in targets if p not in chosen]
    if missing and (exported or not chosen):
        raise NotImplementedError(
            f"platform_dependent: there is no function for {missing[0].name!r}, on which this "
            f"runs, and no default; got {', '.join(per_platform) or 'none'}."
        )
    funs = [*dict.fromkeys(chosen.values())]
    if len(funs) == 1 and not missing:
        return funs[0](*args)
    numbers = {platform.name: funs.index(fun) for platform, fun in chosen.items()}

    def run(*args: Any) -> T:
        number = platform_number(numbers=tuple(sorted(numbers.items())))
        return switch(number, funs if len(funs) > 1 else funs * 2, *args)

    return run(*args) if exported else jit(run)(*args)  # in a program, which is for one platform


def _platform_for(args: Any) -> Platform | None:
    """The platform that ops on these arguments run on, also under transforms; None while they are
    staged, or if it is unknown."""
    interpreter = current().interpreter
    while interpreter.parent is not None and not interpreter.is_apart:
        interpreter = interpreter.parent
    values = [_inner(x) for x in flatten(args)[0]]
    if interpreter is not EAGER or any(isinstance(x, Tracer) for x in values):
        return None
    arrays = [x for x in values if x.__class__ is ConcreteArray]
    return platform_of(arrays[0]._sig.devices[0] if arrays else default_single())


def _inner(x: Any) -> Any:
    """The value in the tracers of derivatives and maps."""
    while isinstance(x, JVPTracer | BatchTracer):
        x = x.primal if isinstance(x, JVPTracer) else x.value
    return x


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
