"""Asynchronous copies, semaphores, views of refs, pipelines, and kernels on several devices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.errors import CallbackError
from shardwise.kernels import (
    ANY,
    VMEM,
    Block,
    CompilerParams,
    DeviceIdType,
    SemaphoreType,
    call,
    ds,
    emit_pipeline,
    get_barrier_semaphore,
    make_async_copy,
    make_async_remote_copy,
    num_programs,
    program_id,
    semaphore_read,
    semaphore_signal,
    semaphore_wait,
    sync_copy,
    when,
)
from shardwise.sharding import PartitionSpec as P
from tests.kernels.kernels import like, normal

WHOLE = Block(space=ANY)
DEVICES = 4


def over_devices(f: Any, x: Any, *, check_vma: bool = True) -> np.ndarray:
    spec = P("x")
    mesh = sw.make_mesh((DEVICES,), ("x",))
    run = sw.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=check_vma)
    return np.asarray(sw.jit(run)(x))


# -- within a device --


def test_copies_with_two_buffers():
    def total(x: Any, out: Any, buffers: Any, sems: Any) -> None:
        def copy(i: Any) -> Any:
            slot = lax.rem(i, 2)
            return make_async_copy(x.at[ds(i * 8, 8)], buffers.at[slot], sems.at[slot])

        copy(jnp.int32(0)).start()
        out[...] = jnp.zeros(out.shape)

        def step(i: Any, _: Any) -> None:
            when(i < 3)(copy(i + 1).start)
            copy(i).wait()
            out[...] += buffers[lax.rem(i, 2)]

        lax.fori_loop(0, 4, step, None)

    scratch = [VMEM((2, 8, 16), np.float32), SemaphoreType.DMA((2,))]
    f = call(total, like(8, 16), in_specs=WHOLE, scratch=scratch)
    x = normal(32, 16)
    np.testing.assert_allclose(f(x), x.reshape(4, 8, 16).sum(0), rtol=1e-6)
    np.testing.assert_allclose(sw.grad(lambda x: f(x).sum())(x), np.ones((32, 16)))
    np.testing.assert_allclose(sw.vmap(f)(x[None])[0], f(x))


def test_views_are_refs():
    def body(x: Any, out: Any) -> None:
        rows = out.at[ds(2, 4)]
        assert (rows.shape, rows.dtype, rows.ndim, rows.size) == ((4, 6), np.dtype("f4"), 2, 24)
        rows[...] = x[ds(0, 4)]
        inner = rows.at[1, ds(1, 4, stride=1)]
        inner[...] += 10.0
        inner.at[ds(0, 2)][1] = jnp.float32(-1)
        out[0] = rows[0]
        out[1] = rows.at[:, 0][lax.rem(jnp.arange(6), 4)]

    x = normal(6, 6)
    wanted = np.zeros((6, 6), np.float32)
    wanted[2:6] = x[:4]
    wanted[3, 1:5] += 10
    wanted[3, 2] = -1
    wanted[0], wanted[1] = wanted[2], wanted[[2, 3, 4, 5, 2, 3], 0]
    np.testing.assert_array_equal(call(body, like(6, 6))(x), wanted)


def test_semaphores_count():
    def body(out: Any, sems: Any) -> None:
        semaphore_signal(sems.at[1], 5)
        semaphore_wait(sems.at[1], 2)
        semaphore_wait(sems.at[1], 1, decrement=False)
        out[0], out[1] = semaphore_read(sems.at[0]), semaphore_read(sems.at[1])

    f = call(body, like(2, dtype=np.int32), scratch=[SemaphoreType.REGULAR((2,))])
    np.testing.assert_array_equal(f(), [0, 3])


@pytest.mark.parametrize("steps", [1, 4])
def test_pipelines(steps: int):
    def product(x: Any, y: Any, out: Any, extra: Any) -> None:
        @when(program_id("k") == 0)
        def _() -> None:
            out[...] = jnp.zeros(out.shape)

        out[...] += x[...] @ y[...]

        @when(program_id("k") == num_programs("k") - 1)
        def _() -> None:
            out[...] += extra[...]

    def kernel(x: Any, y: Any, out: Any, extra: Any) -> None:
        extra[...] = jnp.ones(extra.shape)
        emit_pipeline(
            product,
            grid=(("i", 2), ("j", 3), ("k", steps)),
            in_specs=[Block((8, 8), lambda i, j, k: (i, k)), Block((8, 8), lambda i, j, k: (k, j))],
            out_specs=[Block((8, 8), lambda i, j, k: (i, j))],
        )(x, y, out, scratches=[extra])

    f = call(
        kernel, like(16, 24), in_specs=WHOLE, out_specs=WHOLE, scratch=[VMEM((8, 8), np.float32)]
    )
    x, y = normal(16, 8 * steps), normal(8 * steps, 24)
    np.testing.assert_allclose(f(x, y), x @ y + 1, rtol=1e-5, atol=1e-5)
    found = sw.grad(lambda x, y: (f(x, y) ** 2).sum(), argnums=(0, 1))(x, y)
    wanted = sw.grad(lambda x, y: ((x @ y + 1) ** 2).sum(), argnums=(0, 1))(jnp.array(x), y)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_pipeline_of_no_steps_and_of_parts():
    def double(x: Any, out: Any) -> None:
        out[...] = 2 * x[...]

    row = Block((None, 8), lambda i: (i, 0))

    def kernel(n: Any, x: Any, out: Any) -> None:
        out[...] = jnp.zeros(out.shape)
        emit_pipeline(double, grid=(n[...],), in_specs=[row], out_specs=[row])(x.at[1:], out.at[1:])

    x = normal(5, 8)
    f = sw.jit(call(kernel, like(5, 8), in_specs=WHOLE, out_specs=WHOLE, prefetch=1))
    for n in (0, 1, 3):
        wanted = np.zeros((5, 8), np.float32)
        wanted[1 : n + 1] = 2 * x[1 : n + 1]
        np.testing.assert_array_equal(f(np.int32(n), x), wanted)


# -- to other devices --


def ring_gather(x: Any, out: Any, local: Any, send: Any, receive: Any) -> None:
    step, me = program_id(0), lax.axis_index("x")
    left, right = lax.rem(me + DEVICES - 1, DEVICES), lax.rem(me + 1, DEVICES)
    slot = lax.rem(me - step + DEVICES, DEVICES)

    @when(step == 0)
    def _() -> None:
        barrier = get_barrier_semaphore()
        semaphore_signal(barrier, device_id=left, device_id_type=DeviceIdType.LOGICAL)
        semaphore_signal(barrier, device_id={"x": right})
        semaphore_wait(barrier, 2)
        copy = make_async_copy(x, out.at[me], local)
        copy.start()
        copy.wait()

    copy = make_async_remote_copy(out.at[slot], out.at[slot], send, receive.at[step], (right,))
    copy.start()
    copy.wait()


@pytest.mark.parametrize("check_vma", [False, True])
def test_a_ring(check_vma: bool):
    dma = SemaphoreType.DMA
    f = call(
        ring_gather,
        like(DEVICES, 2, 8),
        grid=DEVICES - 1,
        in_specs=WHOLE,
        out_specs=WHOLE,
        scratch=[dma, dma, dma((DEVICES - 1,))],
        params=CompilerParams(collective_id=0),
    )
    x = normal(8, 8)
    y = over_devices(f, x, check_vma=check_vma).reshape(DEVICES, 8, 8)
    np.testing.assert_array_equal(y, [x] * DEVICES)

    def loss(x: Any) -> Any:
        mesh = sw.make_mesh((DEVICES,), ("x",))
        found = sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)
        return (found**3).sum()

    if check_vma:
        np.testing.assert_allclose(
            sw.jit(sw.grad(loss))(x), 3 * DEVICES * x**2, rtol=1e-5, atol=1e-6
        )


def sender(x: Any, out: Any, send: Any, receive: Any) -> None:
    me = lax.axis_index("x")
    copy = make_async_remote_copy(x, out, send, receive, device_id=2)
    out[...] = jnp.full(out.shape, -1.0)

    @when(me == 0)
    def _() -> None:
        copy.start()
        copy.wait_send()
        out[...] += 5.0

    @when(me == 2)
    def _() -> None:
        copy.wait_recv()
        out[...] *= 2.0


def receiver_first(x: Any, out: Any, send: Any, receive: Any) -> None:
    me = lax.axis_index("x")
    copy = make_async_remote_copy(x, out, send, receive, device_id=2)
    when(me == 2)(copy.wait_recv)

    @when(me == 0)
    def _() -> None:
        copy.start()
        copy.wait_send()


def in_roles(body: Any) -> Any:
    return call(body, like(1, 8), scratch=[SemaphoreType.DMA] * 2)


def test_devices_with_roles():
    x = normal(DEVICES, 8)
    wanted = np.full((DEVICES, 8), -1, np.float32)
    wanted[0], wanted[2] = 4, 2 * x[0]
    np.testing.assert_array_equal(over_devices(in_roles(sender), x), wanted)


def test_waits_that_cannot_be_satisfied():
    text = (
        "kernel receiver_first waited 1 times for a copy or signal that had not been sent yet. On "
        "CPU all devices run a kernel in step, so that sending must come before waiting in the "
        "program, whichever device does it: move it there. If no device sends, this is a deadlock."
    )
    with pytest.raises(CallbackError, match=re.escape(text)):
        over_devices(in_roles(receiver_first), normal(DEVICES, 8))


def test_results_that_depend_on_the_device_vary():
    def body(x: Any, out: Any) -> None:
        out[...] = x[...] + lax.axis_index("x")

    mesh = sw.make_mesh((DEVICES,), ("x",))
    f = call(body, like(2))
    for spec in (P("x"), P()):
        g = sw.shard_map(f, mesh=mesh, in_specs=P(), out_specs=spec)
        if spec == P():
            with pytest.raises(ValueError, match="may vary along 'x'"):
                g(jnp.zeros(2))
        else:
            np.testing.assert_array_equal(g(jnp.zeros(2)), np.repeat(np.arange(4), 2))


# -- mistakes --


def run(body: Any, *scratch: Any, out: Any = None, devices: bool = False) -> None:
    f = call(body, out or like(8), scratch=list(scratch), in_specs=WHOLE)
    if devices:
        over_devices(f, np.zeros(32, np.float32))
    else:
        f(np.zeros(8, np.float32))


def to_device(**where: Any) -> Any:
    return lambda x, out, a, b: make_async_remote_copy(x, out, a, b, **where).start()


DMA, COUNT = SemaphoreType.DMA, SemaphoreType.REGULAR
MISTAKES: list[tuple[Any, type, str]] = [
    (
        lambda: run(lambda x, out, s: make_async_copy(out, x, s), DMA),
        ValueError,
        "Ref{f32[8]} is an input of the kernel, which cannot be written to. Write to a result, or "
        "make one with its values: `aliases={input: result}`.",
    ),
    (
        lambda: run(lambda x, out, s: make_async_copy(x.at[ds(0, 4)], out, s), DMA),
        ValueError,
        "make_async_copy: Ref{f32[4]} cannot be copied to Ref{f32[8]}: they must have one shape "
        "and dtype.",
    ),
    (
        lambda: run(lambda x, out, s: make_async_copy(x[...], out, s), DMA),
        TypeError,
        "make_async_copy: expected a ref of a kernel, or a part of one by integers, slices and "
        "`ds`; got a traced f32[8].",
    ),
    (
        lambda: run(lambda x, out, s: make_async_copy(x, out, out), DMA),
        TypeError,
        "make_async_copy: expected a semaphore; got Ref{f32[8]}.",
    ),
    (
        lambda: run(lambda x, out, s: make_async_copy(x, out, s), DMA((2,))),
        ValueError,
        "make_async_copy: expected one semaphore; got [2] of them. Select one: `semaphores.at[i]`.",
    ),
    (
        lambda: run(lambda x, out, s: make_async_copy(x, out, s), COUNT),
        TypeError,
        "make_async_copy: expected a `SemaphoreType.DMA`; got a semaphore.",
    ),
    (
        lambda: run(lambda x, out, s: semaphore_signal(s), DMA),
        TypeError,
        "semaphore_signal: expected a `SemaphoreType.REGULAR`; got a dma_semaphore. Copies signal "
        "it, and their `wait` waits for it.",
    ),
    (
        lambda: run(lambda x, out, s: s[...], COUNT),
        TypeError,
        "A semaphore has no elements to read or write. Use `semaphore_signal`, `semaphore_wait`, "
        "`semaphore_read`, or pass it to a copy.",
    ),
    (
        lambda: run(lambda x, out, s: semaphore_wait(s, -1), COUNT),
        ValueError,
        "semaphore_wait: expected an amount of at least 0; got -1.",
    ),
    (
        lambda: run(lambda x, out, s: semaphore_signal(s, 1.5), COUNT),
        TypeError,
        "semaphore_signal: the amount is an integer; got ~f32[].",
    ),
    (
        lambda: run(lambda x, out, s: make_async_copy(x, out, s).wait_send(), DMA),
        ValueError,
        "wait_send: this copy is within a device. Use `wait`.",
    ),
    (
        lambda: run(lambda x, out, s: make_async_copy(x, out, s).start(priority=-1), DMA),
        ValueError,
        "start: priority is an integer from 0 on; got -1.",
    ),
    (
        lambda: run(to_device(device_id=0), DMA, DMA),
        ValueError,
        "make_async_remote_copy: there are no other devices outside of `shard_map`. Call the "
        "kernel in a function that is mapped over a mesh.",
    ),
    (
        lambda: run(to_device(device_id=(0, 1)), DMA, DMA, devices=True),
        ValueError,
        "make_async_remote_copy: device_id has 2 positions; the mesh has the axes ('x',). Give a "
        "position along each, or a dict from names to positions.",
    ),
    (
        lambda: run(to_device(device_id={"y": 1}), DMA, DMA, devices=True),
        ValueError,
        "make_async_remote_copy: device_id has axis 'y'; the axes are ('x',).",
    ),
    (
        lambda: run(to_device(device_id=7), DMA, DMA, devices=True),
        ValueError,
        "make_async_remote_copy: device_id is 7 along axis 'x', which has 4 devices.",
    ),
    (
        lambda: run(to_device(device_id=0.5), DMA, DMA, devices=True),
        TypeError,
        "make_async_remote_copy: positions of a device are integers; got ~f32[].",
    ),
    (
        lambda: run(lambda x, out: semaphore_signal(get_barrier_semaphore())),
        ValueError,
        "get_barrier_semaphore: kernel <lambda> has no barrier. Give it a number: "
        "`params=CompilerParams(collective_id=0)`.",
    ),
    (
        get_barrier_semaphore,
        ValueError,
        "get_barrier_semaphore is for the body of a kernel, and is called outside of one.",
    ),
    (
        lambda: run(lambda x, out: sync_copy(x, x)),
        ValueError,
        "Ref{f32[8]} is an input of the kernel, which cannot be written to. Write to a result, or "
        "make one with its values: `aliases={input: result}`.",
    ),
    (
        lambda: run(
            lambda x, out: emit_pipeline(
                lambda a, b: None,
                grid=(2,),
                in_specs=[Block((3,), lambda i: (i,))],
                out_specs=[Block((4,), lambda i: (i,))],
            )(x, out)
        ),
        ValueError,
        "emit_pipeline of <lambda>: blocks of [3] do not divide Ref{f32[8]}. Copies have one size: "
        "choose blocks that divide it, or pad the array.",
    ),
    (
        lambda: run(lambda x, out: emit_pipeline(lambda a: None, grid=(2,))(x, out)),
        TypeError,
        "emit_pipeline of <lambda>: expected 0 refs of arguments and 0 of results; got 2.",
    ),
]


@pytest.mark.parametrize(("f", "kind", "text"), MISTAKES)
def test_mistakes(f: Any, kind: type, text: str):
    with pytest.raises(kind) as caught:
        f()
    assert str(caught.value) == text
