"""Mistakes that a review of the launches found, one test for each."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental import pallas as pl
from shardwise.kernels import VMEM, Block, call, num_programs, program_id, run_scoped
from tests.helpers.errors import message
from tests.kernels.kernels import like

ELEMENTS = Block((1,), lambda i: (i,))


def over(body, grid, dtype="int32", **options):
    return call(body, like(grid, dtype=dtype), grid=grid, out_specs=ELEMENTS, **options)()


# -- cached programs know the kernel that they are in --


def add_size(i, carry):
    return carry + num_programs(0)


add_size_jitted = sw.jit(lambda carry: carry + num_programs(0))
add_index_jitted = sw.jit(lambda carry: carry + program_id(0))


def size():
    return jnp.int32(num_programs(0))


def no_size():
    return jnp.int32(-1)


SIZES = {
    "loop": lambda: lax.fori_loop(0, 1, add_size, jnp.int32(0)),
    "jit": lambda: add_size_jitted(jnp.int32(0)),
    "cond": lambda: lax.cond(program_id(0) >= 0, size, no_size),
}


@pytest.mark.parametrize("form", SIZES)
def test_cached_programs_use_the_size_of_their_kernel(form):
    def body(out):
        out[...] = jnp.full((1,), SIZES[form]())

    for grid in (2, 5, 2):
        np.testing.assert_array_equal(over(body, grid), [grid] * grid)


def test_cached_programs_use_the_index_of_their_kernel():
    def body(out):
        out[...] = jnp.full((1,), add_index_jitted(jnp.int32(0)))

    def other(out):
        out[...] = jnp.full((1,), 10 * add_index_jitted(jnp.int32(0)))

    np.testing.assert_array_equal(over(body, 3), [0, 1, 2])
    np.testing.assert_array_equal(over(other, 3), [0, 10, 20])


def test_cached_programs_use_the_memory_of_their_kernel():
    def scoped(i, carry):
        return carry + run_scoped(lambda ref: ref[0], VMEM((1,), "float32"))

    def body(out):
        out[...] = jnp.full((1,), lax.fori_loop(0, 1, scoped, jnp.float32(0)))

    plain, simulated = [
        pl.pallas_call(body, like(1), interpret=interpret)() for interpret in (False, True)
    ]
    assert plain[0] == 0 and np.isnan(simulated[0])


def test_a_program_cached_in_a_kernel_is_not_used_outside():
    def body(out):
        out[...] = jnp.full((1,), add_size_jitted(jnp.int32(0)))

    over(body, 2)
    assert message(ValueError, add_size_jitted, jnp.int32(0)) == (
        "num_programs is for the body of a kernel, and is called outside of one."
    )
