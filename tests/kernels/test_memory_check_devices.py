"""`kernels.checked`: kernels on several devices, and in functions; errors with whole messages."""

import functools

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as jnp
from shardwise._src.kernels.checking import memory_interpreter
from shardwise.errors import KernelError
from shardwise.kernels import (
    VMEM,
    Block,
    CompilerParams,
    SemaphoreType,
    call,
    ds,
    get_barrier_semaphore,
    library,
    make_async_remote_copy,
    semaphore_read,
    semaphore_signal,
    semaphore_wait,
    when,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.kernels.kernels import like
from tests.kernels.test_memory_check import with_lines

N = 4
DMA, REGULAR = SemaphoreType.DMA, SemaphoreType.REGULAR
X = np.arange(N * 2, dtype=np.float32).reshape(N, 2)


def mapped(body, out=(1, 2), scratch=(), **options):
    """The kernel on each of 4 devices, of rows of X."""
    params = CompilerParams(collective_id=0)
    f = call(body, like(*out), scratch=scratch, params=params, **options)
    mesh = sw.make_mesh((N,), ("x",))
    return sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))


def me():
    return lax.axis_index("x")


def right():
    return lax.rem(me() + 1, N)


def left():
    return lax.rem(me() + N - 1, N)


def barrier():
    """Waits for both neighbors."""
    semaphore = get_barrier_semaphore()
    semaphore_signal(semaphore, device_id=left())
    semaphore_signal(semaphore, device_id=right())
    semaphore_wait(semaphore, 2)


# -- correct --


def shifted(x, out, send, receive):
    barrier()
    copy = make_async_remote_copy(x, out, send, receive, right())
    copy.start()
    copy.wait()


def gathered(x, out, send, receive):
    """A ring: a semaphore for each step, since a neighbor may be a step ahead."""
    barrier()
    out[ds(me(), 1)] = x[...]

    def step(i, _):
        row = lax.rem(me() - i + N, N)
        place = out.at[ds(row, 1)]
        copy = make_async_remote_copy(place, place, send, receive.at[i], right())
        copy.start()
        copy.wait()
        return 0

    lax.fori_loop(0, N - 1, step, 0)


def reduced(x, out, buffers, send, receive, capacity):
    """A ring that adds in two buffers; a neighbor signals when a buffer may be written again."""
    barrier()
    buffers[0] = x[...]
    out[...] = x[...]

    def step(i, _):
        slot, other = lax.rem(i, 2), lax.rem(i + 1, 2)
        when(i > 0)(lambda: semaphore_wait(capacity))
        copy = make_async_remote_copy(
            buffers.at[slot], buffers.at[other], send, receive.at[other], right()
        )
        copy.start()
        copy.wait()
        out[...] += buffers[other]
        when(i < N - 2)(lambda: semaphore_signal(capacity, device_id=left()))
        return 0

    lax.fori_loop(0, N - 1, step, 0)


def by_roles(x, out, receive, send):
    """Device 0 sends to all others when these have started."""
    started = get_barrier_semaphore()

    @when(me() != 0)
    def _():
        semaphore_signal(started, device_id=0)

    @when(me() == 0)
    def _():
        out[...] = x[...]
        semaphore_wait(started, N - 1)

        def step(i, _):
            copy = make_async_remote_copy(x, out, send, receive, i)
            copy.start()
            copy.wait_send()
            return 0

        lax.fori_loop(1, N, step, 0)

    @when(me() != 0)
    def _():
        make_async_remote_copy(x, out, send, receive, 0).wait_recv()


RING = [VMEM((2, 1, 2), np.float32), DMA, DMA((2,)), REGULAR]
CORRECT = [
    (mapped(shifted, scratch=[DMA, DMA]), np.roll(X, 1, 0)),
    (mapped(gathered, (N, 2), [DMA, DMA((N - 1,))]), np.tile(X, (N, 1))),
    (mapped(reduced, scratch=RING), np.tile(X.sum(0), (N, 1))),
    (mapped(by_roles, scratch=[DMA, DMA]), np.tile(X[0], (N, 1))),
]


@pytest.mark.parametrize("f, wanted", CORRECT, ids=["shifted", "gathered", "reduced", "by_roles"])
def test_correct_kernels_are_silent(f, wanted):
    np.testing.assert_array_equal(np.asarray(kernels.checked(f)(X)), wanted)


# -- errors --


WRONG = []


def wrong(text, **options):
    def add(body):
        WRONG.append(pytest.param(body, text, options, id=body.__name__))
        return body

    return add


@wrong(
    "kernel no_barrier: the copy that device 0 starts at `copy.start()` writes to out of "
    "device 1, which may not have started the kernel yet. Let the devices wait for each other"
    " first: see `get_barrier_semaphore`.",
    scratch=[DMA, DMA],
)
def no_barrier(x, out, send, receive):
    copy = make_async_remote_copy(x, out, send, receive, right())
    copy.start()
    copy.wait()


@wrong(
    "kernel barrier_with_the_wrong_neighbor: the copy that device 1 starts at `copy.start()` "
    "writes to out of device 2, which may not have started the kernel yet. Let the devices "
    "wait for each other first: see `get_barrier_semaphore`.",
    scratch=[DMA, DMA],
)
def barrier_with_the_wrong_neighbor(x, out, send, receive):
    semaphore_signal(get_barrier_semaphore(), device_id=right())
    semaphore_wait(get_barrier_semaphore())
    copy = make_async_remote_copy(x, out, send, receive, right())
    copy.start()
    copy.wait()


@wrong(
    "kernel signal_before_the_start: device 0, at `semaphore_signal(ready, "
    "device_id=right())`, accesses ready of device 1, which may not have started the kernel "
    "yet. Let the devices wait for each other first: see `get_barrier_semaphore`.",
    scratch=[REGULAR],
)
def signal_before_the_start(x, out, ready):
    semaphore_signal(ready, device_id=right())
    semaphore_wait(ready)
    out[...] = x[...]


@wrong(
    "kernel one_semaphore_for_all_steps: a race on element (0, 0) of out of device 1: the "
    "copy that device 0 starts at `copy.start()` writes it, and the copy that device 1 starts"
    " at `copy.start()` reads it, and neither waits for the other. A wait for the semaphore "
    "of the copy may have ended because of another one that signals it: give each its own.",
    scratch=[DMA, DMA],
    out=(N, 2),
)
def one_semaphore_for_all_steps(x, out, send, receive):
    barrier()
    out[ds(me(), 1)] = x[...]
    for i in range(2):
        place = out.at[ds(lax.rem(me() - i + N, N), 1)]
        copy = make_async_remote_copy(place, place, send, receive, right())
        copy.start()
        copy.wait()


@wrong(
    "kernel no_capacity_semaphore: a race on element (0, 0, 0) of buffers of device 1: the "
    "copy that device 0 starts at `copy.start()` writes it, and the copy that device 1 starts"
    " at `copy.start()` reads it, and neither waits for the other. Device 1 must wait for "
    "what arrives before it uses it (`wait_recv`), and signal device 0 when it may be "
    "overwritten (`semaphore_signal`).",
    scratch=RING[:3],
)
def no_capacity_semaphore(x, out, buffers, send, receive):
    buffers[0] = x[...]
    barrier()
    for i in range(3):
        copy = make_async_remote_copy(
            buffers.at[i % 2], buffers.at[1 - i % 2], send, receive.at[1 - i % 2], right()
        )
        copy.start()
        copy.wait()
    out[...] = buffers[1]


@wrong(
    "kernel sending_not_waited_for: the copy that device 0 starts at `copy.start()` reads "
    "argument x of device 0, and may not have ended at the end of the kernel. Call its "
    "`wait`.",
    scratch=[DMA, DMA],
)
def sending_not_waited_for(x, out, send, receive):
    barrier()
    copy = make_async_remote_copy(x, out, send, receive, right())
    copy.start()
    copy.wait_recv()


@wrong(
    "kernel receiving_not_waited_for: the copy that device 3 starts at `copy.start()` writes "
    "out of device 0, and may not have ended at the end of the kernel. Call its `wait`.",
    scratch=[DMA, DMA],
)
def receiving_not_waited_for(x, out, send, receive):
    barrier()
    copy = make_async_remote_copy(x, out, send, receive, right())
    copy.start()
    copy.wait_send()


@wrong(
    "kernel read_before_it_arrives: a race on element (0, 0) of out of device 0: the copy "
    "that device 3 starts at `copy.start()` writes it, and device 0 reads it at `out[...] += "
    "1.0`, and neither waits for the other. Device 0 must wait for what arrives before it "
    "uses it (`wait_recv`), and signal device 3 when it may be overwritten "
    "(`semaphore_signal`).",
    scratch=[DMA, DMA],
)
def read_before_it_arrives(x, out, send, receive):
    barrier()
    copy = make_async_remote_copy(x, out, send, receive, right())
    copy.start()
    out[...] += 1.0
    copy.wait()


@wrong(
    "kernel source_overwritten: a race on element (0, 0) of held of device 0: the copy that "
    "device 0 starts at `copy.start()` reads it, and device 0 writes it at `held[...] = "
    "x[...] * 2`, and neither waits for the other. Call the copy's `wait` first.",
    scratch=[VMEM((1, 2), np.float32), DMA, DMA],
)
def source_overwritten(x, out, held, send, receive):
    barrier()
    held[...] = x[...]
    copy = make_async_remote_copy(held, out, send, receive, right())
    copy.start()
    copy.wait_recv()
    held[...] = x[...] * 2
    copy.wait_send()


@wrong(
    "kernel two_senders_to_one_place: a race on element (0, 0) of out of device 1: the copy "
    "that device 0 starts at `copy.start()` writes it, and the copy that device 2 starts at "
    "`copy.start()` writes it, and neither waits for the other. Let the one device signal a "
    "semaphore of the other, which waits for it (`semaphore_signal`, `semaphore_wait`).",
    scratch=[DMA, DMA],
)
def two_senders_to_one_place(x, out, send, receive):
    barrier()

    @when(me() % 2 == 0)
    def _():
        for to in (left(), right()):
            copy = make_async_remote_copy(x, out, send, receive, to)
            copy.start()
            copy.wait_send()

    @when(me() % 2 == 1)
    def _():
        for _ in range(2):
            make_async_remote_copy(x, out, send, receive, 0).wait_recv()

    when(me() % 2 == 0)(lambda: out.__setitem__(..., x[...]))


@wrong(
    "kernel deadlock: a deadlock: device 0 waits for 1 of the semaphore first, which has 0, "
    "at `semaphore_wait(first)`; device 1 waits for 1 of the semaphore second, which has 0, "
    "at `semaphore_wait(second)`. No copy or signal is left that could end the wait.",
    scratch=[REGULAR, REGULAR],
)
def deadlock(x, out, first, second):
    barrier()
    out[...] = x[...]

    @when(me() == 0)
    def _():
        semaphore_wait(first)
        semaphore_signal(second, device_id=1)

    @when(me() == 1)
    def _():
        semaphore_wait(second)
        semaphore_signal(first, device_id=0)


@wrong(
    "kernel no_such_device: there is no device 4: the mesh has 4 devices: device 3, at "
    "`copy.start()`.",
    scratch=[DMA, DMA],
)
def no_such_device(x, out, send, receive):
    copy = make_async_remote_copy(x, out, send, receive, me() + 1)
    barrier()
    copy.start()
    copy.wait()


@wrong(
    "kernel signaled_too_often: the semaphore ready of device 0 has 3 at the end of the "
    "kernel, and must have 0. Its last signal is from device 3, at `semaphore_signal(ready, "
    "me(), device_id=right())`.",
    scratch=[REGULAR],
)
def signaled_too_often(x, out, ready):
    barrier()
    out[...] = x[...]
    semaphore_signal(ready, me(), device_id=right())
    when(me() > 0)(lambda: semaphore_wait(ready, me() - 1))


@pytest.mark.parametrize("body, text, options", WRONG)
def test_errors(body, text, options):
    checked = kernels.checked(mapped(body, **options))
    assert with_lines(message(KernelError, checked, X), __file__) == text


# -- functions with launches --


def double(x, out):
    out[...] = 2 * x[...]


def unwritten(x, out):
    out[0] = x[0]


def launches(f, *args, **options):
    """The result of a checked function, and the names of its launches."""
    names = []
    found = kernels.checked(f, note=lambda launch, _: names.append(launch.name), **options)(*args)
    return np.asarray(found), names


doubled = call(double, like(2))


@sw.custom_vjp
def custom(x):
    return doubled(x)


custom.defvjp(lambda x: (doubled(x), None), lambda _, ct: (doubled(ct),))


def in_a_loop(x):
    return lax.scan(lambda c, y: (doubled(c) + y, c), x, jnp.ones((3, 2)), reverse=True)[0]


def in_a_while_loop(x):
    return lax.while_loop(lambda x: x.sum() < 20, sw.jit(doubled), x)


def in_a_branch(x):
    return lax.cond(x[0] > 0, lambda x: doubled(doubled(x)), lambda x: x, x)


V = np.array([1, 2], np.float32)
FUNCTIONS = {
    "jit": (sw.jit(lambda x: doubled(x + 1) - 1), V, [3, 5], 1),
    "scan": (in_a_loop, V, [15, 23], 3),
    "while": (in_a_while_loop, V, [8, 16], 3),
    "cond": (in_a_branch, V, [4, 8], 2),
    "vmap": (sw.vmap(doubled), V[None], [[2, 4]], 1),
    "checkpoint": (sw.checkpoint(doubled), V, [2, 4], 1),
    "grad": (sw.grad(lambda x: (custom(x) ** 2).sum()), V, [8, 16], 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("level", ["memory", "blocks"])
def test_functions(name, level):
    f, x, wanted, count = FUNCTIONS[name]
    found, names = launches(f, x, level=level)
    np.testing.assert_array_equal(found, wanted)
    assert names == ["double"] * count


def squares(x):
    return (doubled(x) ** 2).sum()


@pytest.mark.parametrize(
    ("f", "x", "count"),
    [
        (sw.grad(squares), V, 2),
        (sw.jit(sw.grad(sw.jit(squares))), V, 2),
        (sw.vmap(sw.grad(squares)), np.stack([V, 2 * V]), 2),
        (sw.grad(lambda x: sw.vmap(squares)(x).sum()), np.stack([V, 2 * V]), 2),
        (sw.jit(lambda x: sw.jvp(doubled, (x,), (4 * x,))[1]), V, 1),
    ],
    ids=["grad", "jit", "vmap of grad", "grad of vmap", "jvp"],
)
def test_derivatives(f, x, count):
    """Launches of the backward pass are checked like others; of tangents, the launch itself."""
    found, names = launches(f, x)
    np.testing.assert_allclose(found, 8 * x)
    assert names == ["double"] * count


def test_derivatives_over_devices():
    def total(f):
        return sw.jit(sw.grad(lambda x: (f(x) ** 2).sum()))

    found, names = launches(total(mapped(shifted, scratch=[DMA, DMA])), X)
    np.testing.assert_allclose(found, 2 * X)
    assert names == ["shifted"]
    f = kernels.checked(total(mapped(no_barrier, scratch=[DMA, DMA])))
    assert "may not have started the kernel yet" in message(KernelError, f, X)


def in_a_mesh(f, x):
    mesh = sw.make_mesh((2, 2), ("x", "y"))
    return sw.jit(sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x", "y")))(x)


def around_a_launch(x):
    """Work of each device and of all, around two launches and in a loop."""
    x = x[:, None] + lax.psum(x, "x")[None] * lax.axis_index("y")
    launch = call(double, like(*x.shape))
    y = lax.fori_loop(0, 2, lambda i, x: launch(x), x)
    return lax.cond(lax.psum(1, "x") > 1, launch, lambda y: y, y) + x


def test_functions_of_devices():
    f = functools.partial(in_a_mesh, around_a_launch)
    x = np.arange(4, dtype=np.float32)
    found, names = launches(f, x)
    np.testing.assert_array_equal(found, f(x))
    assert names == ["double"] * 3


def test_several_axes_of_devices():
    def corner(x, out, send, receive):
        """From each device to the one that is opposite along both axes."""
        semaphore = get_barrier_semaphore()
        to = 1 - lax.axis_index("x"), 1 - lax.axis_index("y")
        semaphore_signal(semaphore, device_id=to)
        semaphore_wait(semaphore)
        copy = make_async_remote_copy(x, out, send, receive, to)
        copy.start()
        copy.wait()

    params = CompilerParams(collective_id=1)
    f = call(corner, like(1, 1), scratch=[DMA, DMA], params=params)
    mesh = sw.make_mesh((2, 2), ("x", "y"))
    g = sw.shard_map(f, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    found, _ = launches(g, x)
    np.testing.assert_array_equal(found, x[::-1, ::-1])


def test_faults_in_functions():
    f = sw.jit(lambda x: call(unwritten, like(2))(doubled(x)))
    assert with_lines(message(KernelError, kernels.checked(f), V)) == (
        "kernel unwritten: no program writes element (1,) of out."
    )
    assert message(KernelError, kernels.checked(f, level="blocks"), V) == (
        "kernel unwritten: 1 elements of out, the first at (1,), depend on memory that was not "
        "written: of scratch, of a result, or beyond the end of an argument. Write it first, or "
        "mask it."
    )


def differs(x):
    return lax.cond(x[0, 0] > 0, call(double, like(1, 2)), lambda x: x, x)


def test_blocks_in_a_mesh():
    row = Block((1, 1), lambda i: (0, i))
    f = mapped(double, grid=1, in_specs=row, out_specs=row)
    assert message(KernelError, kernels.checked(f), X) == (
        "kernel double: out, f32[1,2]: no program has block (0, 1), and 1 of 2 blocks are not "
        "visited, so that the result is not written there."
    )


def sums_over_devices(x, out):
    out[...] = lax.psum(x[...], "x")


def test_mistakes():
    assert message(NotImplementedError, kernels.checked(mapped(sums_over_devices)), X) == (
        "kernel sums_over_devices: its body has the operation psum over devices, which the check "
        "does not interpret. Use copies and semaphores, or call it outside of the kernel."
    )
    assert message(ValueError, kernels.checked, double, level="all") == (
        "checked: the level is 'memory' or 'blocks'; got 'all' of type str."
    )
    assert message(ValueError, call, double, like(2), check="blocks") == (
        "kernel double: check is True, False or 'memory'; got 'blocks' of type str."
    )
    assert message(ValueError, sw.jit(kernels.checked(doubled)), V) == (
        "kernel double: `kernels.checked` cannot be called inside of `jit` and other transforms. "
        "Call it outside of them: `checked(jit(f))`."
    )
    assert message(ValueError, sw.jit(call(double, like(2), check="memory")), V) == (
        "kernel double: check='memory' runs the kernel step by step or several times, so that it "
        "cannot be traced. Check it outside of `jit` and other transforms, or with the function "
        "around it: `kernels.checked(f)`."
    )
    mesh = sw.make_mesh((N,), ("x",))
    f = sw.shard_map(differs, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    assert message(NotImplementedError, kernels.checked(f), X) == (
        "checked: a condition around a kernel differs between devices inside of `shard_map`. Put "
        "the condition into the kernel."
    )
    f = mapped(shifted, scratch=[DMA, DMA])
    assert message(ValueError, kernels.checked(f, level="blocks"), X) == (
        "kernel shifted: level='blocks' does not check kernels inside of `shard_map`. Use "
        "level='memory'."
    )


# -- kernels of the library --


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def gradient(f, count):
    return sw.grad(lambda *xs: (f(*xs) ** 2).sum(), tuple(range(count)))


attention = functools.partial(library.flash_attention, is_causal=True, blocks=(16, 16))
QKV = normal(1, 20, 2, 8), normal(1, 20, 1, 8), normal(1, 20, 1, 8)
POOL = normal(2, 2, 8), normal(1, 4, 16, 8), normal(1, 4, 16, 8)
PAGES = np.array([17, 1]), np.array([[3, 1], [2, 9]])
products = functools.partial(library.grouped_matmul, group_sizes=np.array([5, 0, 7]))


def in_a_ring(f, *specs):
    mesh = sw.make_mesh((3,), ("i",), devices=sw.devices()[:3])
    return sw.jit(sw.shard_map(f, mesh=mesh, in_specs=specs, out_specs=specs[-1]))


def ring_matmul(x, w):
    return library.collective_matmul(x, w, "i")


LIBRARY = {
    "ring": (
        gradient(in_a_ring(ring_matmul, P("i"), P(None, "i")), 2),
        (normal(6, 5), normal(5, 12)),
    ),
    "softmax": (gradient(library.softmax, 1), (normal(5, 40),)),
    "paged": (lambda *xs: library.paged_attention(*xs, *PAGES), POOL),
    "flash": (gradient(attention, 3), QKV),
    "grouped": (gradient(products, 2), (normal(12, 8), normal(3, 8, 8))),
}


@pytest.mark.parametrize("name", everyday(LIBRARY, 2))
def test_kernels_of_the_library_are_silent(name):
    f, args = LIBRARY[name]
    found, wanted = kernels.checked(f)(*args), f(*args)
    close(found, wanted, rtol=1e-4, atol=1e-5)


def polled(x, out, ready):
    barrier()
    semaphore_signal(ready, device_id=right())
    lax.while_loop(lambda n: n < 1, lambda n: semaphore_read(ready), jnp.int32(0))
    semaphore_wait(ready)
    out[...] = x[...]


def polled_without_end(x, out, ready):
    out[...] = x[...]
    lax.while_loop(lambda n: n < 1, lambda n: semaphore_read(ready), jnp.int32(0))


def test_semaphores_that_are_read(monkeypatch):
    f = mapped(polled, scratch=[REGULAR])
    np.testing.assert_array_equal(np.asarray(kernels.checked(f)(X)), X)
    monkeypatch.setattr(memory_interpreter, "POLLS", 10)
    f = kernels.checked(mapped(polled_without_end, scratch=[REGULAR]))
    reads = "reads the semaphore ready, which has 0, at `lax.while_loop(lambda n: n < 1, lambda n: semaphore_read(ready), jnp.int32(0))`"
    assert with_lines(message(KernelError, f, X), __file__) == (
        f"kernel polled_without_end: a deadlock: {'; '.join([f'device {i} {reads}' for i in range(N)])}. No copy or "
        "signal is left that could end the wait."
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool", "float8_e4m3fn"])
def test_dtypes(dtype):
    def body(x, out, held):
        out[...] = jnp.where(x[...] > 0, x[...], held[...])
        held[...] = x[...]

    x = jnp.ones((2, 2), dtype)
    f = call(body, x, scratch=[VMEM((2, 2), x.dtype)], check="memory")
    np.testing.assert_array_equal(f(x), x)
    assert "which was not written" in message(KernelError, f, jnp.zeros_like(x))
    f = call(lambda x, out: out.set(x[...]), like(0, 2), check="memory")
    assert f(np.zeros((0, 2), np.float32)).shape == (0, 2)
