"""Collectives over a ring of devices, by copies to the neighbor; and a product during one.

In each step a device sends a block to the device on its right, and receives one from its left. A
block in the other device's memory may only be overwritten when that device has used it: it sends
a signal then, for which the sender waits (`Ring`).

    ring_all_gather       passes blocks on, each to its place in the result
    ring_reduce_scatter   passes sums on, to which each device adds its own part
    collective_matmul     passes blocks on, and multiplies one while it receives the next one

The first two are each other's transposes. All are called inside of `shard_map`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.custom.linear_call import linear_call
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.copying.async_copies import (
    get_barrier_semaphore,
    make_async_remote_copy,
    semaphore_signal,
    semaphore_wait,
    sync_copy,
)
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.flash_kernels import product
from shardwise._src.kernels.spaces import ANY, VMEM, SemaphoreType
from shardwise._src.lax.parallel import axis_index, axis_size
from shardwise._src.numpy.creation import asarray
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_float


def ring_all_gather(
    x: ArrayLike, axis_name: str, *, tiled: bool = False, collective_id: int = 0
) -> Array:
    """The arrays of all devices along a mesh axis, like `lax.all_gather`.

    Args:
      x: any array, the same type on all devices.
      axis_name: of a mesh axis in scope.
      tiled: False: stacked along a new first dimension. True: concatenated along the first.
      collective_id: a number that differs from those of other kernels that may run at the same
        time, on TPUs.

    Returns:
      An array of shape (devices, *x.shape), or (devices * x.shape[0], *x.shape[1:]) if tiled.

    Raises:
      ValueError: if x is a scalar and `tiled`.
    """
    x = asarray(x)
    if tiled and not x.ndim:
        raise ValueError("ring_all_gather: a scalar cannot be concatenated; pass `tiled=False`.")
    out = gathered(Ring(axis_name, axis_size(axis_name), collective_id), x)
    return out.reshape(-1, *x.shape[1:]) if tiled else out


def ring_reduce_scatter(
    x: ArrayLike, axis_name: str, *, tiled: bool = False, collective_id: int = 0
) -> Array:
    """The sum over devices along a mesh axis, of which each gets its part, like `lax.psum_scatter`.

    Args:
      x: numbers (devices, …): a part for each device. tiled: (devices * n, …): n rows for each.
      axis_name, collective_id: as of `ring_all_gather`. A part must fit the memory of a core three
        times.

    Returns:
      x.shape[1:], or (n, *x.shape[1:]) if tiled.

    Raises:
      ValueError: if the first dimension is not that of the devices, or a multiple if tiled.
    """
    x, size = asarray(x), axis_size(axis_name)
    if not x.ndim or (x.shape[0] % size if tiled else x.shape[0] != size):
        raise ValueError(
            f"ring_reduce_scatter: the first dimension must be {'a multiple of ' * tiled}{size}, "
            f"the size of {axis_name!r}; got {type_of(x).str_short(True)}."
        )
    parts = x.reshape(size, -1, *x.shape[1:]) if tiled else x
    return scattered(Ring(axis_name, size, collective_id), parts)


def collective_matmul(
    x: ArrayLike, w: ArrayLike, axis_name: str, *, collective_id: int = 0
) -> Array:
    """all_gather(x) @ w, which multiplies the rows of one device while it receives the next ones.

    Args:
      x: floats (m, k): rows of a matrix that is sharded over a mesh axis.
      w: (k, n), of the same dtype, such as columns of a matrix that is sharded over it.
      axis_name, collective_id: as of `ring_all_gather`. x, twice, w, and (m, n) must fit the memory
        of a core.

    Returns:
      (devices * m, n), of the dtype of x. Sums are computed in float32 at least.

    Raises:
      ValueError: for shapes and dtypes that do not fit.
    """
    x, w = asarray(x), asarray(w)
    is_right = x.ndim == w.ndim == 2 and x.shape[1] == w.shape[0]
    if not is_right or x.dtype != w.dtype or not is_float(x.dtype):
        shown = " and ".join(type_of(a).str_short(True) for a in (x, w))
        raise ValueError(
            "collective_matmul: x and w must be floats (m, k) and (k, n) of one dtype; got "
            f"{shown}."
        )
    out = multiplied_in_ring(Ring(axis_name, axis_size(axis_name), collective_id), x, w)
    return out.reshape(-1, w.shape[1])


@dataclass(frozen=True)
class Ring:
    """The devices along a mesh axis, each of which sends to the next one."""

    axis: str
    size: int
    number: int

    def at(self, steps: Any) -> Any:
        """The device that is some steps to the left."""
        return (axis_index(self.axis) - steps + 2 * self.size) % self.size

    def begin(self) -> None:
        """Waits until both neighbors run the kernel."""
        barrier = get_barrier_semaphore()
        for steps in (1, -1):
            semaphore_signal(barrier, device_id={self.axis: self.at(steps)})
        semaphore_wait(barrier, 2)

    def free(self, semaphore: Any, count: int = 1) -> None:
        """Tells the device on the left that it may send again."""
        semaphore_signal(semaphore, count, device_id={self.axis: self.at(1)})

    def copy(self, source: Any, target: Any, sent: Any, received: Any) -> Any:
        to = {self.axis: self.at(-1)}
        return make_async_remote_copy(source, target, sent, received, to)

    def launch(self, body: Callable[..., None], out: Any, scratch: Any, *args: Any) -> Any:
        anywhere = Block(space=ANY)
        f = call(
            partial(body, self),
            ShapeDtypeStruct(out, args[0].dtype),
            in_specs=[anywhere] * len(args),
            out_specs=anywhere,
            scratch=scratch,
            name=body.__name__.removesuffix("_kernel"),
            params=CompilerParams(collective_id=self.number),
        )
        return f(*args)


# -- kernels --


def ring_all_gather_kernel(ring: Ring, x: Any, out: Any, sent: Any, received: Any) -> None:
    ring.begin()
    sync_copy(x, out.at[ring.at(0)])

    def step(i: Any, _: Any) -> Any:
        block = out.at[ring.at(i)]
        copy = ring.copy(block, block, sent, received.at[i])
        copy.start()
        copy.wait()
        return 0

    fori_loop(0, ring.size - 1, step, 0)


def ring_reduce_scatter_kernel(
    ring: Ring, x: Any, out: Any, inbox: Any, outbox: Any, own: Any,
    sent: Any, received: Any, free: Any,
) -> None:  # fmt: skip
    ring.begin()
    ring.free(free, 2)
    sync_copy(x.at[ring.at(1)], outbox)

    def step(i: Any, _: Any) -> Any:
        semaphore_wait(free)
        copy = ring.copy(outbox, inbox.at[i % 2], sent, received.at[i % 2])
        copy.start()
        sync_copy(x.at[ring.at(i + 2)], own)
        copy.wait()
        outbox[...] = inbox[i % 2] + own[...]
        ring.free(free)
        return 0

    fori_loop(0, ring.size - 1, step, 0)
    semaphore_wait(free, 2)
    sync_copy(outbox, out)


def collective_matmul_kernel(
    ring: Ring, x: Any, w: Any, out: Any, blocks: Any, weights: Any, result: Any,
    sent: Any, received: Any, free: Any,
) -> None:  # fmt: skip
    ring.begin()
    ring.free(free)
    sync_copy(x, blocks.at[0])
    sync_copy(w, weights)

    def multiply(i: Any) -> None:
        result[...] = product(blocks[i % 2], weights[...]).astype(result.dtype)
        sync_copy(result, out.at[ring.at(i)])

    def step(i: Any, _: Any) -> Any:
        semaphore_wait(free)
        next_one = (i + 1) % 2
        copy = ring.copy(blocks.at[i % 2], blocks.at[next_one], sent, received.at[next_one])
        copy.start()
        multiply(i)
        copy.wait()
        ring.free(free)
        return 0

    fori_loop(0, ring.size - 1, step, 0)
    multiply(ring.size - 1)
    semaphore_wait(free)


# -- functions of arrays, and their derivatives --


def _gather(ring: Ring, x: Any) -> Any:
    if ring.size == 1 or not x.size:
        return x[None].repeat(ring.size, 0)
    copies = [SemaphoreType.DMA, SemaphoreType.DMA((ring.size - 1,))]
    return ring.launch(ring_all_gather_kernel, (ring.size, *x.shape), copies, x)


def _scatter(ring: Ring, x: Any) -> Any:
    if ring.size == 1 or not x.size:
        return x[0]
    part = x.shape[1:]
    memory = [VMEM((2, *part), x.dtype), VMEM(part, x.dtype), VMEM(part, x.dtype)]
    memory += [SemaphoreType.DMA, SemaphoreType.DMA((2,)), SemaphoreType.REGULAR]
    return ring.launch(ring_reduce_scatter_kernel, part, memory, x)


def gathered(ring: Ring, x: Any) -> Any:
    return linear_call(lambda _, x: _gather(ring, x), lambda _, ct: _scatter(ring, ct), (), x)


def scattered(ring: Ring, x: Any) -> Any:
    return linear_call(lambda _, x: _scatter(ring, x), lambda _, ct: _gather(ring, ct), (), x)


@partial(custom_jvp, nondiff_argnums=(0,))
def multiplied_in_ring(ring: Ring, x: Any, w: Any) -> Any:
    """(devices, m, n)."""
    if ring.size == 1 or not (x.size and w.size):
        return gathered(ring, x) @ w
    (m, k), n = x.shape, w.shape[1]
    memory = [VMEM((2, m, k), x.dtype), VMEM((k, n), x.dtype), VMEM((m, n), x.dtype)]
    memory += [SemaphoreType.DMA, SemaphoreType.DMA((2,)), SemaphoreType.REGULAR]
    return ring.launch(collective_matmul_kernel, (ring.size, m, n), memory, x, w)


@multiplied_in_ring.defjvp
def _multiplied_in_ring_jvp(ring: Ring, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x, w), (x_t, w_t) = primals, tangents
    f: Any = partial(multiplied_in_ring, ring)
    from_x = linear_call(lambda w, t: f(t, w), partial(_of_rows, ring), w, x_t)
    from_w = linear_call(f, partial(_of_weights, ring), x, w_t)
    return f(x, w), from_x + from_w


def _of_rows(ring: Ring, w: Any, ct: Any) -> Any:
    return scattered(ring, (ct @ w.T).astype(w.dtype))


def _of_weights(ring: Ring, x: Any, ct: Any) -> Any:
    rows = gathered(ring, x).reshape(-1, x.shape[1])
    return product(rows.T, ct.reshape(-1, ct.shape[2])).astype(x.dtype)
