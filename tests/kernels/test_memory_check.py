"""`check="memory"` on one device: faulty kernels, with whole messages; correct ones are silent.

In messages, source lines of this file replace their numbers.
"""

import functools
import re

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.errors import KernelError
from shardwise.kernels import (
    ANY,
    VMEM,
    Block,
    BoundedSlice,
    SemaphoreType,
    atomic_add,
    call,
    ds,
    emit_pipeline,
    load,
    make_async_copy,
    program_id,
    run_scoped,
    semaphore_read,
    semaphore_signal,
    semaphore_wait,
    store,
    when,
)
from tests.helpers.errors import message
from tests.kernels import kernels as other_kernels
from tests.kernels.kernels import CASES, INTEGERS, like

X = np.arange(32, dtype=np.float32).reshape(8, 4)
ROWS = Block((2, 4), lambda i: (i, 0))
ROW = Block((1, 4), lambda i, *_: (i, 0))
PARTS = Block((BoundedSlice(5), 4), lambda i, ends: (ds(ends[i], ends[i + 1] - ends[i]), 0))
DMA, REGULAR = SemaphoreType.DMA, SemaphoreType.REGULAR
WHOLE = Block(space=ANY)


def with_lines(text, file=__file__):
    """The message with `source` in place of file:line (function)."""
    with open(file) as source:
        rows = source.read().split("\n")

    def row(found):
        return f"`{rows[int(found[1]) - 1].strip()}`"

    return re.sub(re.escape(file) + r":(\d+) \([^)]*\)", row, text)


def launched(body, out=(8, 4), **options):
    return call(body, like(*out), check="memory", **options)


WRONG = []


def wrong(text, *args, **options):
    """A kernel, and the message of its launch."""

    def add(body):
        WRONG.append(pytest.param(body, text, args or (X,), options, id=body.__name__))
        return body

    return add


# -- copies --


@wrong(
    "kernel copy_not_waited: the copy that the kernel starts at `make_async_copy(x, held, "
    "sem).start()` writes held, and may not have ended at the end of the kernel. Call its "
    "`wait`.",
    scratch=[VMEM((8, 4), np.float32), DMA],
)
def copy_not_waited(x, out, held, sem):
    make_async_copy(x, held, sem).start()
    out[...] = x[...]


@wrong(
    "kernel target_read_before_wait: a race on element (0, 0) of held: the copy that the "
    "kernel starts at `copy.start()` writes it, and the kernel reads it at `out[...] = "
    "held[...]`, and neither waits for the other. Call the copy's `wait` first.",
    scratch=[VMEM((8, 4), np.float32), DMA],
)
def target_read_before_wait(x, out, held, sem):
    copy = make_async_copy(x, held, sem)
    copy.start()
    out[...] = held[...]
    copy.wait()


@wrong(
    "kernel source_overwritten: a race on element (0, 0) of held: the copy that the kernel "
    "starts at `copy.start()` reads it, and the kernel writes it at `held[0] = x[1]`, and "
    "neither waits for the other. Call the copy's `wait` first.",
    scratch=[VMEM((8, 4), np.float32), DMA],
)
def source_overwritten(x, out, held, sem):
    held[...] = x[...]
    copy = make_async_copy(held, out, sem)
    copy.start()
    held[0] = x[1]
    copy.wait()


@wrong(
    "kernel wait_without_start: a deadlock: the kernel waits for 128 bytes of the semaphore "
    "sem, which has 0, at `make_async_copy(x, held, sem).wait()`. No copy or signal is left "
    "that could end the wait.",
    scratch=[VMEM((8, 4), np.float32), DMA],
)
def wait_without_start(x, out, held, sem):
    make_async_copy(x, held, sem).wait()
    out[...] = held[...]


@wrong(
    "kernel waited_twice: a deadlock: the kernel waits for 128 bytes of the semaphore sem, "
    "which has 0, at `copy.wait()`. No copy or signal is left that could end the wait.",
    scratch=[DMA],
)
def waited_twice(x, out, sem):
    copy = make_async_copy(x, out, sem)
    copy.start()
    copy.wait()
    copy.wait()


@wrong(
    "kernel waits_for_too_much: a deadlock: the kernel waits for 128 bytes of the semaphore "
    "sem, which has 64, at `make_async_copy(x, out, sem).wait()`. No copy or signal is left "
    "that could end the wait.",
    scratch=[DMA],
)
def waits_for_too_much(x, out, sem):
    make_async_copy(x.at[ds(0, 4)], out.at[ds(0, 4)], sem).start()
    make_async_copy(x, out, sem).wait()


@wrong(
    "kernel waits_for_too_little: the semaphore sem has 64 bytes at the end of the kernel, "
    "and must have 0. Its last signal is from the kernel, at `make_async_copy(x, out, "
    "sem).start()`.",
    scratch=[DMA],
)
def waits_for_too_little(x, out, sem):
    make_async_copy(x, out, sem).start()
    make_async_copy(x.at[ds(0, 4)], out.at[ds(0, 4)], sem).wait()


@wrong(
    "kernel two_copies_to_one_place: a race on element (0, 0) of out: the copy that the "
    "kernel starts at `copy.start()` writes it, and the copy that the kernel starts at "
    "`copy.start()` writes it, and neither waits for the other. Wait for the first copy "
    "before the second one starts.",
    scratch=[DMA((2,))],
)
def two_copies_to_one_place(x, out, sems):
    copies = [make_async_copy(x, out, sems.at[i]) for i in range(2)]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()


@wrong(
    "kernel two_copies_one_semaphore: a race on element (0, 0, 0) of held: the copy that the "
    "kernel starts at `copy.start()` writes it, and the kernel reads it at `out[ds(0, 4)] = "
    "held[0]`, and neither waits for the other. A wait for the semaphore of the copy may have"
    " ended because of another one that signals it: give each its own.",
    scratch=[VMEM((2, 4, 4), np.float32), DMA],
)
def two_copies_one_semaphore(x, out, held, sem):
    copies = [make_async_copy(x.at[ds(4 * i, 4)], held.at[i], sem) for i in range(2)]
    for copy in copies:
        copy.start()
    copies[0].wait()
    out[ds(0, 4)] = held[0]
    copies[1].wait()
    out[ds(4, 4)] = held[1]


@wrong(
    "kernel next_block_in_the_same_buffer: a race on element (0, 0, 0) of held: the copy that"
    " program (0,) starts at `when(i == 0)(copy(i).start)` writes it, and the copy that "
    "program (0,) starts at `when(i < 3)(copy(i + 1).start)` writes it, and neither waits for"
    " the other. Wait for the first copy before the second one starts.",
    scratch=[VMEM((2, 2, 4), np.float32), DMA((2,))],
    grid=4,
    in_specs=WHOLE,
    out_specs=ROWS,
)
def next_block_in_the_same_buffer(x, out, held, sems):
    i = program_id(0)

    def copy(i):
        return make_async_copy(x.at[ds(2 * i, 2)], held.at[0], sems.at[lax.rem(i, 2)])

    when(i == 0)(copy(i).start)
    when(i < 3)(copy(i + 1).start)
    copy(i).wait()
    out[...] = held[0]


@wrong(
    "kernel scoped_memory_in_flight: the copy that the kernel starts at `make_async_copy(x, "
    "held, sem).start()` writes memory of `run_scoped`, and may not have ended when the "
    "memory of `run_scoped` ends. Call its `wait`."
)
def scoped_memory_in_flight(x, out):
    def scoped(held, sem):
        make_async_copy(x, held, sem).start()

    run_scoped(scoped, VMEM((8, 4), np.float32), DMA)
    out[...] = x[...]


# -- semaphores --


@wrong(
    "kernel semaphore_left: the semaphore sems[1] has 1 at the end of the kernel, and must "
    "have 0. Its last signal is from the kernel, at `semaphore_signal(sems.at[1], 2)`.",
    scratch=[REGULAR((2,))],
)
def semaphore_left(x, out, sems):
    semaphore_signal(sems.at[1], 2)
    semaphore_wait(sems.at[1])
    out[...] = x[...]


@wrong(
    "kernel semaphore_never_signaled: a deadlock: the kernel waits for 1 of the semaphore "
    "ready, which has 0, at `semaphore_wait(ready)`. No copy or signal is left that could end"
    " the wait.",
    scratch=[REGULAR],
)
def semaphore_never_signaled(x, out, ready):
    out[...] = x[...]
    semaphore_wait(ready)


@wrong(
    "kernel scoped_semaphore_left: the semaphore memory of `run_scoped` has 1 when the memory"
    " of `run_scoped` ends, and must have 0. Its last signal is from the kernel, at "
    "`run_scoped(semaphore_signal, REGULAR)`."
)
def scoped_semaphore_left(x, out):
    run_scoped(semaphore_signal, REGULAR)
    out[...] = x[...]


# -- memory that was not written --


@wrong(
    "kernel scratch_not_written: the kernel writes element (7, 0) of out at `out[...] = "
    "x[...] + held[...]`, and the value depends on element (7, 0) of held, which was not "
    "written before it is read at `out[...] = x[...] + held[...]`.",
    scratch=[VMEM((8, 4), np.float32)],
)
def scratch_not_written(x, out, held):
    held[ds(0, 7)] = x[ds(0, 7)]
    out[...] = x[...] + held[...]


@wrong(
    "kernel scoped_not_written: the kernel writes element (0, 0) of out at `out[...] = x[...]"
    " + held[...]`, and the value depends on element (0, 0) of memory of `run_scoped`, which "
    "was not written before it is read at `out[...] = x[...] + held[...]`."
)
def scoped_not_written(x, out):
    def scoped(held):
        out[...] = x[...] + held[...]

    run_scoped(scoped, VMEM((8, 4), np.float32))


@wrong(
    "kernel result_not_written: no program writes element (6, 0) of out.",
    grid=4,
    in_specs=ROWS,
    out_specs=ROWS,
)
def result_not_written(x, out):
    @when(program_id(0) < 3)
    def _():
        out[...] = x[...]


@wrong(
    "kernel accumulates_in_nothing: program (3,) writes element (0, 0) of out at `out[...] +="
    " x[...]`, and the value depends on element (0, 0) of out, which was not written before "
    "it is read at `out[...] += x[...]`.",
    grid=4,
    in_specs=ROWS,
    out_specs=Block((2, 4), lambda i: (0, 0)),
    out=(2, 4),
)
def accumulates_in_nothing(x, out):
    out[...] += x[...]


@wrong(
    "kernel beyond_the_end: the kernel writes element (0, 0) of out at `out[...] = "
    "x[...].sum(0, keepdims=True)`, and the value depends on element (8, 0) of argument x, "
    "outside of the array, read at `out[...] = x[...].sum(0, keepdims=True)`. Mask it.",
    in_specs=Block((16, 4), lambda: (0, 0)),
    out=(1, 4),
)
def beyond_the_end(x, out):
    out[...] = x[...].sum(0, keepdims=True)


@wrong(
    "kernel wrong_mask: program (2,) writes element (2, 0) of out at `out[...] = load(x, ...,"
    " mask=rows <= 8).sum(0, keepdims=True)`, and the value depends on element (8, 0) of "
    "argument x, outside of the array, read at `out[...] = load(x, ..., mask=rows <= "
    "8).sum(0, keepdims=True)`. Mask it.",
    grid=3,
    in_specs=Block((3, 4), lambda i: (i, 0)),
    out_specs=Block((1, 4), lambda i: (i, 0)),
    out=(3, 4),
)
def wrong_mask(x, out):
    rows = 3 * program_id(0) + lax.broadcasted_iota(jnp.int32, (3, 4), 0)
    out[...] = load(x, ..., mask=rows <= 8).sum(0, keepdims=True)


@wrong(
    "kernel condition_not_written: the condition of the kernel, at `@when(held[0] > 3)`, "
    "depends on element (0,) of held, which was not written before it is read at "
    "`@when(held[0] > 3)`.",
    scratch=[VMEM((1,), np.int32)],
)
def condition_not_written(x, out, held):
    out[...] = x[...]

    @when(held[0] > 3)
    def _():
        out[...] = -x[...]


@wrong(
    "kernel index_not_written: an index of the kernel, at `out[held[0]] = x[0]`, depends on "
    "element (0,) of held, which was not written before it is read at `out[held[0]] = x[0]`.",
    scratch=[VMEM((1,), np.int32)],
)
def index_not_written(x, out, held):
    out[...] = x[...]
    out[held[0]] = x[0]


@wrong(
    "kernel beyond_the_end_of_a_part: program (0,) writes element (0, 0) of out at `out[...] "
    "= x[...].sum(0, keepdims=True)`, and the value depends on what is outside of the block "
    "or ref of argument x, read at `out[...] = x[...].sum(0, keepdims=True)`. Mask it.",
    np.array([0, 3, 8], np.int32),
    X,
    grid=2,
    prefetch=1,
    in_specs=PARTS,
    out=(2, 4),
    out_specs=ROW,
)
def beyond_the_end_of_a_part(ends, x, out):
    out[...] = x[...].sum(0, keepdims=True)


# -- places --


@wrong(
    "kernel slice_outside: argument x: elements 7 to 8 are outside of the ref of (8, 4) "
    "elements along dimension 0, of size 8: program (3,), at `out[...] = x[ds(2 * "
    "program_id(0) + 1, 2)]`. Compiled, other elements are accessed.",
    grid=4,
    in_specs=Block(),
    out_specs=ROWS,
)
def slice_outside(x, out):
    out[...] = x[ds(2 * program_id(0) + 1, 2)]


@wrong(
    "kernel negative_index: argument x: element -1 is outside of the ref of (2, 4) elements "
    "along dimension 0, of size 2: program (0,), at `out[1] = x[program_id(0) - 1]`. "
    "Compiled, other elements are accessed.",
    grid=4,
    in_specs=ROWS,
    out_specs=ROWS,
)
def negative_index(x, out):
    out[0] = x[0]
    out[1] = x[program_id(0) - 1]


@wrong(
    "kernel gather_outside: the kernel writes element (2, 0) of out at `out[...] = "
    "x[rows[...]]`, and the value depends on what is outside of the block or ref of argument "
    "x, read at `out[...] = x[rows[...]]`. Mask it.",
    np.array([0, 3, 8, 1], np.int32),
    X,
    out=(4, 4),
)
def gather_outside(rows, x, out):
    out[...] = x[rows[...]]


@wrong(
    "kernel scatter_outside: out: the index (8,) of an array of indices is outside of the ref"
    " of (8, 4) elements, and what is written there is dropped: the kernel, at "
    "`out[rows[...]] = x[ds(0, 4)]`.",
    np.array([0, 3, 8, 1], np.int32),
    X,
)
def scatter_outside(rows, x, out):
    out[...] = x[...]
    out[rows[...]] = x[ds(0, 4)]


# -- parallel axes --


@wrong(
    "kernel parallel_writes: a race on element (1, 0) of out: program (0,) writes it at "
    "`out[ds(program_id(0), 2)] = x[...]`, and program (1,) writes it at "
    "`out[ds(program_id(0), 2)] = x[...]`, and neither waits for the other. The programs "
    "differ along a parallel axis of the grid, so that they may run at the same time, and "
    "both write the element. Use `atomic_add` and the other atomics, or an axis that is not parallel.",
    grid=4,
    in_specs=ROWS,
    out_specs=Block(),
    out=(5, 4),
    parallel=[0],
)
def parallel_writes(x, out):
    out[ds(program_id(0), 2)] = x[...]


@wrong(
    "kernel parallel_sum: a race on element (0,) of out: program (0,) writes it at "
    "`store(out, ..., load(out, ...) + x[0])`, and program (1,) reads it at `store(out, ..., "
    "load(out, ...) + x[0])`, and neither waits for the other. The programs differ along a "
    "parallel axis of the grid, so that they may run at the same time, and both use the "
    "element. Use `atomic_add` and the other atomics, or an axis that is not parallel.",
    grid=4,
    in_specs=ROWS,
    out_specs=Block(),
    out=(4,),
    parallel=[0],
)
def parallel_sum(x, out):
    store(out, ..., load(out, ...) + x[0])


@wrong(
    "kernel parallel_neighbor: a race on element (0, 0) of out: program (0,) writes it at "
    "`out[ds(2 * i, 2)] = x[...]`, and program (3,) reads it at `out[7] = out[0]`, and "
    "neither waits for the other. The programs differ along a parallel axis of the grid, so "
    "that they may run at the same time, and both use the element. Use `atomic_add` and the other atomics, or an axis that is not parallel.",
    grid=4,
    in_specs=ROWS,
    out_specs=Block(),
    parallel=[0],
)
def parallel_neighbor(x, out):
    i = program_id(0)
    out[ds(2 * i, 2)] = x[...]

    @when(i == 3)
    def _():
        out[7] = out[0]


@wrong(
    "kernel scratch_of_a_parallel_program: program (1,) writes element (2, 0) of out at "
    "`out[...] = held[...]`, and the value depends on element (0, 0) of held, which was not "
    "written before it is read at `held[...] = jnp.where(program_id(0) == 0, 0.0, held[...]) "
    "+ x[...]`.",
    grid=4,
    in_specs=ROWS,
    out_specs=ROWS,
    parallel=[0],
    scratch=[VMEM((2, 4), np.float32)],
)
def scratch_of_a_parallel_program(x, out, held):
    held[...] = jnp.where(program_id(0) == 0, 0.0, held[...]) + x[...]
    out[...] = held[...]


@pytest.mark.parametrize("body, text, args, options", WRONG)
def test_errors(body, text, args, options):
    assert with_lines(message(KernelError, launched(body, **options), *args)) == text


# -- correct kernels --


CORRECT = []


def correct(wanted, *args, **options):
    def add(body):
        CORRECT.append(pytest.param(body, wanted, args or (X,), options, id=body.__name__))
        return body

    return add


@correct(
    X.sum(0, keepdims=True),
    out=(1, 4),
    in_specs=WHOLE,
    scratch=[VMEM((2, 2, 4), np.float32), DMA((2,))],
)
def two_buffers(x, out, buffers, sems):
    def copy(i):
        slot = lax.rem(i, 2)
        return make_async_copy(x.at[ds(i * 2, 2)], buffers.at[slot], sems.at[slot])

    copy(jnp.int32(0)).start()
    out[...] = jnp.zeros(out.shape)

    def step(i, _):
        when(i < 3)(copy(i + 1).start)
        copy(i).wait()
        out[...] += buffers[lax.rem(i, 2)].sum(0, keepdims=True)

    lax.fori_loop(0, 4, step, None)


@correct(
    X, in_specs=WHOLE, out_specs=WHOLE, grid=4, scratch=[VMEM((2, 2, 4), np.float32), DMA((2, 2))]
)
def copies_between_programs(x, out, buffers, sems):
    """Copies in for the next program, and out for the one before the last."""
    i = program_id(0)

    def move(i, is_out):
        slot = lax.rem(i, 2)
        ends = x.at[ds(i * 2, 2)], buffers.at[slot]
        ends = (buffers.at[slot], out.at[ds(i * 2, 2)]) if is_out else ends
        return make_async_copy(*ends, sems.at[int(is_out), slot])

    when(i == 0)(move(i, False).start)
    when(i > 0)(move(i - 1, True).wait)
    when(i < 3)(move(i + 1, False).start)
    move(i, False).wait()
    move(i, True).start()
    when(i == 3)(move(i, True).wait)


@correct(X, scratch=[DMA])
def one_semaphore_and_both_waits(x, out, sem):
    copies = [make_async_copy(x.at[ds(4 * i, 4)], out.at[ds(4 * i, 4)], sem) for i in range(2)]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()
    out[...] = out[...]


@correct(X * 2)
def blocks_of_a_pipeline(x, out):
    rows = Block((2, 4), lambda i: (i, 0))

    def double(x, out):
        out[...] = 2 * x[...]

    emit_pipeline(double, grid=(4,), in_specs=[rows], out_specs=[rows])(x, out)


@correct(X, scratch=[REGULAR])
def counting(x, out, ready):
    semaphore_signal(ready, 3)
    semaphore_wait(ready, 2)
    semaphore_wait(ready, 1, decrement=False)

    @when(semaphore_read(ready) == 1)
    def _():
        out[...] = x[...]

    semaphore_wait(ready)


@correct(
    X + 1,
    grid=3,
    in_specs=Block((3, 4), lambda i: (i, 0)),
    out_specs=Block((3, 4), lambda i: (i, 0)),
)
def partial_blocks(x, out):
    out[...] = x[...] + 1


@correct(X.sum(0)[None], in_specs=Block((16, 4), lambda: (0, 0)), out=(1, 4))
def masked_sum(x, out):
    rows = lax.broadcasted_iota(jnp.int32, (16, 4), 0)
    out[...] = jnp.where(rows < 8, x[...], 0).sum(0, keepdims=True)


@correct(X.sum(0)[None], grid=3, in_specs=Block((3, 4), lambda i: (i, 0)), out=(1, 4))
def masked_loads(x, out):
    when(program_id(0) == 0)(lambda: store(out, ..., jnp.zeros((1, 4))))
    rows = 3 * program_id(0) + lax.broadcasted_iota(jnp.int32, (3, 4), 0)
    out[...] += load(x, ..., mask=rows < 8).sum(0, keepdims=True)


@correct(X[[0, 1, 0, 3]], np.array([0, 3, 9, 1], np.int32), X, out=(4, 4))
def masked_gather(rows, x, out):
    inside = (rows[...] < 8)[:, None]
    out[...] = jnp.where(inside, load(x, (rows[...],), mask=inside), x[0])
    store(out, (rows[...],), load(out, ...), mask=inside)


@correct(
    np.bincount(np.arange(8) % 3).astype(np.float32),
    np.arange(8, dtype=np.int32) % 3,
    np.zeros(3, np.float32),
    grid=8,
    in_specs=[Block((1,), lambda i: (i,)), Block()],
    out=(3,),
    out_specs=Block(),
    parallel=[0],
    aliases={1: 0},
)
def atomic_counts(x, zeros, out):
    atomic_add(out, x[0], 1.0)


@correct(X[::-1], grid=8, in_specs=Block(), out_specs=Block(), parallel=[0])
def disjoint_rows(x, out):
    out[7 - program_id(0)] = x[program_id(0)]


@correct(
    np.cumsum(X, 0),
    grid=8,
    in_specs=Block((1, 4), lambda i: (i, 0)),
    out_specs=Block((1, 4), lambda i: (i, 0)),
    scratch=[VMEM((1, 4), np.float32)],
)
def running_sum(x, out, total):
    when(program_id(0) == 0)(lambda: total.set(jnp.zeros((1, 4))))
    total[...] += x[...]
    out[...] = total[...]


@correct(X * 8)
def loops_and_branches(x, out):
    out[...] = x[...]

    def step(state):
        i = state
        lax.cond(i > 0, lambda: out.set(out[...] * 2), lambda: None)
        return i + 1

    lax.while_loop(lambda i: i < 4, step, jnp.int32(0))


@correct(X[:, ::-1])
def scratch_in_a_scan(x, out):
    def scoped(held):
        def row(i, _):
            held[...] = x[i]
            out[i] = held[...][::-1]
            return i + 1, held[0]

        lax.scan(row, jnp.int32(0), None, length=8)

    run_scoped(scoped, VMEM((4,), np.float32))


@correct(
    2 * X, np.array([0, 3, 8], np.int32), X, grid=2, prefetch=1, in_specs=PARTS, out_specs=PARTS
)
def blocks_of_several_sizes(ends, x, out):
    out[...] = 2 * x[...]


@pytest.mark.parametrize("body, wanted, args, options", CORRECT)
def test_correct_kernels_are_silent(body, wanted, args, options):
    found = launched(body, **options)(*args)
    assert isinstance(found, sw.Array)
    np.testing.assert_array_equal(found, wanted)


KNOWN = {name: case for name, case in {**CASES, **INTEGERS}.items() if name != "windows"}


@pytest.mark.parametrize("name", KNOWN)
def test_kernels_of_other_tests_are_silent(name, monkeypatch):
    case = KNOWN[name]
    monkeypatch.setattr(other_kernels, "call", functools.partial(call, check="memory"))
    found, wanted = case.launch()(*case.args), case.wanted(*case.args)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_scoped_memory_ends():
    def escapes(x, out):
        refs = []
        run_scoped(refs.append, VMEM((8, 4), np.float32))
        out[...] = refs[0][...]

    assert message(ValueError, launched(escapes), X) == (
        "Ref{f32[8,4]} was memory of `run_scoped`, which ends with its function, and can no longer "
        "be used."
    )
