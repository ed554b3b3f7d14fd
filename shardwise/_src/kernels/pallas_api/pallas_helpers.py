"""JAX's functions for kernels that are not part of `shardwise.kernels`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.config import pallas_enable_debug_checks as enable_debug_checks
from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import as_arraylike
from shardwise._src.debug.checkify import debug_check as optional_check
from shardwise._src.debug.checkify import require_condition
from shardwise._src.debug.host_callbacks import debug_print as print_values
from shardwise._src.kernels.accesses import multiple_of as known_multiple_of
from shardwise._src.kernels.program_frames import cdiv, frame_here
from shardwise._src.kernels.ref_access import load as load_elements
from shardwise._src.kernels.ref_access import store as store_elements
from shardwise._src.kernels.simulation import fail_if
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.kernels.spaces import Scratch, SemaphoreType
from shardwise._src.kernels.spaces import run_scoped as scoped
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.shapes import broadcast_to as broadcast
from shardwise._src.numpy.unary import reciprocal as inverse
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.logical import bitwise_not
from shardwise._src.refs.refs import Ref, new_ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import Array, ArrayLike, T
from shardwise._src.types.array_type import array_type


def load(
    ref: Any,
    *,
    mask: ArrayLike | None = None,
    other: ArrayLike | None = None,
    cache_modifier: str | None = None,
    eviction_policy: str | None = None,
    volatile: bool = False,
) -> Array:
    """The elements of a ref, `ref.at[index]`.

    mask: which are read. The rest is `other`, 0 by default. The other arguments are for the caches
    of GPUs, and have no effect.
    """
    return load_elements(ref, ..., mask=mask, other=other)


def store(
    ref: Any, val: ArrayLike, *, mask: ArrayLike | None = None, eviction_policy: str | None = None
) -> None:
    """Writes to a ref, `ref.at[index]`. mask: which elements. eviction_policy: has no effect."""
    store_elements(ref, ..., val, mask=mask)


def loop(
    lower: Any,
    upper: Any,
    *,
    init_carry: Any = None,
    step: Any = 1,
    unroll: int | bool | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that runs a function, at once, for `lower`, `lower + step`, … below `upper`.

    @loop(0, 8)
    def _(i):
        out[i] = x[i]

    init_carry: then the function takes the index and the carry, and returns the next one; the
      decorator returns the last one. unroll: as of `fori_loop`.
    """

    def decorate(body: Callable[..., Any]) -> Any:
        def turn(i: Any, carry: Any) -> Any:
            at = lower + i * step
            return body(at) if init_carry is None else body(at, carry)

        return fori_loop(0, cdiv(upper - lower, step), turn, init_carry, unroll=unroll)

    return decorate


def run_scoped(f: Callable[..., T], *types: Any, collective_axes: Any = (), **named: Any) -> T:
    """`kernels.run_scoped`. collective_axes: axes of cores that share the memory; without effect,
    since programs run on one core."""
    return scoped(f, *types, **named)


def with_scoped(
    *types: Any, collective_axes: Any = (), **named: Any
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A decorator: the function's last arguments are refs of new memory, as of `run_scoped`."""

    def decorate(f: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(f)
        def wrapped(*args: Any) -> T:
            return scoped(functools.partial(f, *args), *types, **named)

        return wrapped

    return decorate


def reciprocal(x: ArrayLike, *, approx: bool = False, full_range: bool = True) -> Array:
    """1 / x. approx, full_range: without effect."""
    return inverse(x)


def debug_print(fmt: str, *args: ArrayLike) -> None:
    """Prints when the kernel runs: `debug_print("x = {}", x)`. Values without a place in the format
    follow it."""
    print_values(fmt if "{" in fmt else fmt + " {}" * len(args), *args)


def debug_check(condition: ArrayLike, message: str) -> None:
    """Like `checkify.debug_check`; and if the option `enable_debug_checks` is on, an error when the
    kernel runs, on CPUs and TPUs, and the condition is False.

    condition: bool[].
    """
    require_condition("debug_check", condition)
    frame = frame_here()
    if frame is None or not enable_debug_checks.value:
        optional_check(condition, message)
        return
    text = f"kernel {frame.name}: {message}"
    fail_if(bitwise_not(as_arraylike(condition)), lambda *values: text, text=text)


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is not less than a non-negative integer."""
    if x < 0:
        raise ValueError(f"next_power_of_2: expected a non-negative integer; got {short_repr(x)}.")
    return power_above(x)


def align_to(a: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is not less than `a`."""
    return cdiv(a, alignment) * alignment


def broadcast_to(a: ArrayLike, shape: Sequence[int]) -> Array:
    """`numpy.broadcast_to`."""
    return broadcast(a, shape)


def empty_like(x: T) -> T:
    """A pytree of arrays like those of `x`, which has shapes and dtypes; values are not
    specified."""
    leaves, tree = flatten(x)
    return tree.unflatten([zeros(array_type(tuple(t.shape), t.dtype)) for t in leaves])


def empty_ref_like(x: Any) -> Ref:
    """A ref with the shape and dtype of an object, whose values are not specified.

    x: a `ShapeDtypeStruct`; or memory, such as `VMEM((8, 128), "float32")`, for a ref in that
      space, which functions on cores use.
    """
    if isinstance(x, SemaphoreType):
        x = x()
    t = array_type(tuple(x.shape), x.dtype)
    return Ref(zeros(t), x.space) if isinstance(x, Scratch) else new_ref(zeros(t))


def delay(nanos: ArrayLike) -> None:
    """Waits on hardware; nothing on CPU."""


def multiple_of(x: Array, values: Sequence[int] | int) -> Array:
    """`x`, of which the user knows that it is a multiple of these.

    Compilers for TPUs need it for parts of refs that begin at traced positions.
    """
    if isinstance(x, int | np.integer):
        return x
    return known_multiple_of(as_arraylike(x), tuple(map(int, np.atleast_1d(values))))
