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

from dataclasses import dataclass
from functools import partial

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import is_float, require
from shardwise._src.kernels.library.block_values import product
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise.custom_derivatives import linear_call
from shardwise.typing import ArrayLike


def ring_all_gather(
    x: ArrayLike, axis_name: str, *, tiled: bool = False, collective_id: int = 0
) -> sw.Array:
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
    x = snp.asarray(x)
    text = "a scalar cannot be concatenated; pass `tiled=False`."
    require(x.ndim or not tiled, "ring_all_gather", text)
    out = gathered(Ring(axis_name, lax.axis_size(axis_name), collective_id), x)
    return out.reshape(-1, *x.shape[1:]) if tiled else out


def ring_reduce_scatter(
    x: ArrayLike, axis_name: str, *, tiled: bool = False, collective_id: int = 0
) -> sw.Array:
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
    x, size = snp.asarray(x), lax.axis_size(axis_name)
    is_right = x.ndim and (x.shape[0] % size == 0 if tiled else x.shape[0] == size)
    wanted = f"{'a multiple of ' * tiled}{size}, the size of {axis_name!r}"
    text = "the first dimension must be {}; got {}."
    require(is_right, "ring_reduce_scatter", text, wanted, x)
    parts = x.reshape(size, -1, *x.shape[1:]) if tiled else x
    return scattered(Ring(axis_name, size, collective_id), parts)


def collective_matmul(
    x: ArrayLike, w: ArrayLike, axis_name: str, *, collective_id: int = 0
) -> sw.Array:
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
    x, w = snp.asarray(x), snp.asarray(w)
    is_right = x.ndim == w.ndim == 2 and x.shape[1] == w.shape[0] and x.dtype == w.dtype
    text = "x and w must be floats (m, k) and (k, n) of one dtype; got {} and {}."
    require(is_right and is_float(x), "collective_matmul", text, x, w)
    out = multiplied_in_ring(Ring(axis_name, lax.axis_size(axis_name), collective_id), x, w)
    return out.reshape(-1, w.shape[1])


@dataclass(frozen=True)
class Ring:
    """The devices along a mesh axis, each of which sends to the next one."""

    axis: str
    size: int
    number: int

    def at(self, steps):
        """The device that is some steps to the left."""
        return (lax.axis_index(self.axis) - steps + 2 * self.size) % self.size

    def begin(self):
        """Waits until both neighbors run the kernel."""
        barrier = kernels.get_barrier_semaphore()
        for steps in (1, -1):
            kernels.semaphore_signal(barrier, device_id={self.axis: self.at(steps)})
        kernels.semaphore_wait(barrier, 2)

    def free(self, semaphore, count: int = 1):
        """Tells the device on the left that it may send again."""
        kernels.semaphore_signal(semaphore, count, device_id={self.axis: self.at(1)})

    def copy(self, source, target, sent, received):
        to = {self.axis: self.at(-1)}
        return kernels.make_async_remote_copy(source, target, sent, received, to)

    def launch(self, kernel, out, buffers, copies: int, *args):
        """out, buffers: shapes. copies: how many may be received at a time."""
        semaphores = [kernels.SemaphoreType.DMA, kernels.SemaphoreType.DMA((copies,))]
        semaphores += [kernels.SemaphoreType.REGULAR] * bool(buffers)
        return kernels.call(
            partial(kernel, self),
            sw.ShapeDtypeStruct(out, args[0].dtype),
            in_specs=[kernels.Block(space=kernels.ANY)] * len(args),
            out_specs=kernels.Block(space=kernels.ANY),
            scratch=[*[kernels.VMEM(shape, args[0].dtype) for shape in buffers], *semaphores],
            name=kernel.__name__.removesuffix("_kernel"),
            params=kernels.CompilerParams(collective_id=self.number),
        )(*args)


# -- kernels --


def ring_all_gather_kernel(ring: Ring, x, out, sent, received):
    ring.begin()
    kernels.sync_copy(x, out.at[ring.at(0)])

    def step(i, _):
        block = out.at[ring.at(i)]
        copy = ring.copy(block, block, sent, received.at[i])
        copy.start()
        copy.wait()
        return 0

    lax.fori_loop(0, ring.size - 1, step, 0)


def ring_reduce_scatter_kernel(ring: Ring, x, out, inbox, outbox, own, sent, received, free):
    ring.begin()
    ring.free(free, 2)
    kernels.sync_copy(x.at[ring.at(1)], outbox)

    def step(i, _):
        kernels.semaphore_wait(free)
        copy = ring.copy(outbox, inbox.at[i % 2], sent, received.at[i % 2])
        copy.start()
        kernels.sync_copy(x.at[ring.at(i + 2)], own)
        copy.wait()
        outbox[...] = inbox[i % 2] + own[...]
        ring.free(free)
        return 0

    lax.fori_loop(0, ring.size - 1, step, 0)
    kernels.semaphore_wait(free, 2)
    kernels.sync_copy(outbox, out)


def collective_matmul_kernel(ring: Ring, x, w, out, blocks, weights, result, sent, received, free):
    ring.begin()
    ring.free(free)
    kernels.sync_copy(x, blocks.at[0])
    kernels.sync_copy(w, weights)

    def multiply(i):
        result[...] = product(blocks[i % 2], weights[...]).astype(result.dtype)
        kernels.sync_copy(result, out.at[ring.at(i)])

    def step(i, _):
        kernels.semaphore_wait(free)
        next_one = (i + 1) % 2
        copy = ring.copy(blocks.at[i % 2], blocks.at[next_one], sent, received.at[next_one])
        copy.start()
        multiply(i)
        copy.wait()
        ring.free(free)
        return 0

    lax.fori_loop(0, ring.size - 1, step, 0)
    multiply(ring.size - 1)
    kernels.semaphore_wait(free)


# -- functions of arrays, and their derivatives --


def _gather(ring: Ring, _, x):
    if ring.size == 1 or not x.size:
        return x[None].repeat(ring.size, 0)
    return ring.launch(ring_all_gather_kernel, (ring.size, *x.shape), [], ring.size - 1, x)


def _scatter(ring: Ring, _, x):
    if ring.size == 1 or not x.size:
        return x[0]
    part = x.shape[1:]
    return ring.launch(ring_reduce_scatter_kernel, part, [(2, *part), part, part], 2, x)


def gathered(ring: Ring, x):
    return linear_call(partial(_gather, ring), partial(_scatter, ring), (), x)


def scattered(ring: Ring, x):
    return linear_call(partial(_scatter, ring), partial(_gather, ring), (), x)


def _multiplied(ring: Ring, x, w):
    """(devices, m, n)."""
    if ring.size == 1 or not (x.size and w.size):
        return gathered(ring, x) @ w
    (m, k), n = x.shape, w.shape[1]
    buffers = [(2, m, k), (k, n), (m, n)]
    return ring.launch(collective_matmul_kernel, (ring.size, m, n), buffers, 2, x, w)


def _cotangents(ring: Ring, args, ct):
    x, w = args
    rows = gathered(ring, x).reshape(-1, x.shape[1])
    of_w = product(rows.T, ct.reshape(-1, ct.shape[2])).astype(x.dtype)
    return scattered(ring, (ct @ w.T).astype(w.dtype)), of_w


multiplied_in_ring = with_cotangents(_multiplied, _cotangents, is_multilinear=True)
