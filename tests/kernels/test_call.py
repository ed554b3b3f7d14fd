"""`kernels.call`: its arguments, refs in kernels, and messages."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels
from shardwise import numpy as jnp
from shardwise.kernels import (
    SMEM,
    VMEM,
    Block,
    CompilerParams,
    Element,
    call,
    ds,
    load,
    program_id,
    store,
    swap,
)
from tests.helpers.errors import message
from tests.kernels.kernels import like

X = np.arange(8, dtype=np.float32)


def copy(x, out):
    out[...] = x[...]


def run(body, out=None, **options):
    return call(body, out or like(8), **options)(X)


def test_pytrees_of_arguments_results_and_scratch():
    def body(pair, z, first, second, held):
        held[...] = pair["a"][...] + pair["b"][...]
        first[...], second[...] = held[...], z[...] * 2

    f = call(body, (like(8), like(8)), scratch={"held": VMEM((8,), np.float32)})
    first, second = f({"a": X, "b": X + 1}, X)
    np.testing.assert_array_equal(first, 2 * X + 1)
    np.testing.assert_array_equal(second, 2 * X)
    rows = Block((4,), lambda i: (i,))
    found = call(
        lambda pair, z, out: copy(pair["b"], out),
        like(8),
        grid=2,
        in_specs=({"a": rows, "b": rows}, None),
        out_specs=rows,
    )({"a": X, "b": -X}, X)
    np.testing.assert_array_equal(found, -X)


def test_accesses_with_masks():
    def body(x, out):
        store(out, ..., load(x, ..., mask=x[...] > 2, other=-1.0))
        old = swap(out, ds(0, 2), jnp.float32(7), mask=jnp.arange(2) < 1)
        out[-1] = old[0] + load(x.at[3])

    np.testing.assert_array_equal(run(body), [7, -1, -1, 3, 4, 5, 6, 2])


def test_arrays_as_indices():
    def body(x, out):
        order = jnp.arange(8)[::-1]
        out[...] = jnp.zeros(8)
        out[order] += x[order] * 2

    np.testing.assert_array_equal(run(body), 2 * X)


def test_masked_updates_at_arrays_of_indices_change_nothing_else():
    place, mask = np.array([1, 3, 3, 5]), np.array([True, True, False, False])
    wanted = {"add": [0, 11, 2, 13, 4, 5, 6, 7], "max": [0, 10, 2, 10, 4, 5, 6, 7],
              "min": [0, 1, 2, 3, 4, 5, 6, 7]}  # fmt: skip
    for mode, values in wanted.items():

        def body(x, i, m, out, mode=mode):
            out[...] = x[...]
            getattr(kernels, f"atomic_{mode}")(out, i[...], jnp.full(4, 10.0), mask=m[...])

        np.testing.assert_array_equal(call(body, like(8))(X, place, mask), values)


def test_arrays_of_one_element_without_its_dimension():
    def add(x, out):
        @kernels.when(x[0] > 0)
        def _():
            out[...] += x[...]

    block = Block((None, 1), lambda i: (i, 0))
    f = call(
        lambda x, start, out: add(x, out), like(1, 1), grid=1, in_specs=[block, block],
        out_specs=block, aliases={1: 0},
    )  # fmt: skip
    np.testing.assert_array_equal(f(X[1:2, None], X[2:3, None]), [[3]])


def test_integers_are_cast_and_results_keep_their_dtype():
    def body(x, out):
        out[...] = 3
        out[0] = True

    found = run(body, like(8, dtype=np.int8))
    assert found.dtype == np.int8 and found.tolist() == [1, *[3] * 7]


def test_results_and_the_arguments_that_they_alias_may_have_other_blocks():
    def add(x, y, out):
        out[...] += x[...]

    ragged, whole = Block((3,), lambda i: (i,)), Block()
    for of_y in (ragged, whole, Block((5,))):
        f = call(add, like(8), grid=3, in_specs=(ragged, of_y), out_specs=ragged, aliases={1: 0})
        np.testing.assert_array_equal(f(X, 10 * X), 11 * X)


def test_blocks_of_whole_arrays_without_a_dimension():
    row = Block((None, 8), lambda i: (0, 0))

    def body(x, out):
        assert x.shape == out.shape == (8,)
        out[...] = x[...] + program_id(0)

    f = call(body, like(1, 8), grid=2, in_specs=row, out_specs=row)
    np.testing.assert_array_equal(f(X[None]), X[None] + 1)


def test_blocks_are_kept_along_axes_on_which_they_do_not_depend():
    """The programs of one block follow each other, or others have it in between."""

    def body(x, out):
        out[...] = 2 * out[...] + x[...]

    x = np.arange(6, dtype=np.float32)
    taken = Block((1,), lambda i, j, k: (2 * i + k,))
    for grid, index in (((3, 1, 2), lambda i, j, k: (i,)), ((3, 2, 2), lambda i, j, k: (k,))):
        out = Block((1,), index)
        options = {"in_specs": (taken, out), "out_specs": out, "aliases": {1: 0}}
        f = call(lambda x, _, out: body(x, out), like(3), grid=grid, **options)
        wanted = np.zeros(3, np.float32)
        for i, j, k in np.ndindex(*grid):
            wanted[index(i, j, k)] = 2 * wanted[index(i, j, k)] + x[2 * i + k]
        np.testing.assert_array_equal(f(x, np.zeros(3, np.float32)), wanted)
        if grid == (3, 1, 2):
            assert f(x, np.zeros(3, np.float32)).tolist() == [1, 7, 13]


def add_outside(array):
    def body(x, out):
        out[...] = x[...] + array

    return body


MISTAKES = [
    (
        lambda: call(3, like(8)),
        TypeError,
        "kernels.call: the body is a function; got 3 of type int.",
    ),
    (
        lambda: run(copy, out=3),
        TypeError,
        "kernel copy: out has objects with a shape and a dtype, such as ShapeDtypeStruct; got 3 "
        "of type int.",
    ),
    (
        lambda: run(copy, grid=-1),
        ValueError,
        "kernel copy: the grid has a negative size: -1 of type int.",
    ),
    (
        lambda: run(copy, grid=(2.5,)),
        TypeError,
        "kernel copy: the sizes of a grid are integers, or traced scalars; got 2.5 of type float.",
    ),
    (
        lambda: run(copy, in_specs=[Block((2, 4))]),
        ValueError,
        "kernel copy: the block of argument x has 2 dimensions, (2, 4) of type tuple, but argument "
        "x is f32[8]. Write a size for each dimension, or None for one element without its dimension.",
    ),
    (
        lambda: run(copy, in_specs=[Block((0,))]),
        ValueError,
        "kernel copy: the block of argument x has 0 of type int along dimension 0; expected a positive "
        "integer, None, Element(size), BoundedSlice(size) or Indirect(size).",
    ),
    (
        lambda: run(copy, in_specs=[Block(), Block()]),
        ValueError,
        "kernel copy: in_specs must be a prefix of the pytree of 1 arrays, with a Block at each "
        "leaf; got (Block(shape=None, index=None, space=None), Block(shape=N... of type tuple.",
    ),
    (
        lambda: run(copy, in_specs=[8]),
        ValueError,
        "kernel copy: in_specs must be a prefix of the pytree of 1 arrays, with a Block at each "
        "leaf; got (8,) of type tuple.",
    ),
    (
        lambda: run(copy, like(4), grid=2, in_specs=[Block((4,), lambda i: (i, 0))]),
        ValueError,
        "kernel copy: the index of the block of argument x has 2 entries; expected 1, one for "
        "each dimension of f32[8].",
    ),
    (
        lambda: run(copy, like(4), grid=2, in_specs=[Block((4,), lambda i: i * 0.5)]),
        ValueError,
        "kernel copy: the index of the block of argument x has an entry of type ~f32[]; "
        "expected integers.",
    ),
    (
        lambda: run(copy, grid=(2, 2), in_specs=Block((8,), lambda i: (i,))),
        TypeError,
        "kernel copy: the index of the block of argument x is a function of 2 indices, one for each "
        "axis of the grid: too many positional arguments.",
    ),
    (
        lambda: run(copy, params=CompilerParams(dimension_semantics=("parallel",))),
        ValueError,
        "kernel copy: dimension_semantics is for `pallas_call`. List the axes whose programs may "
        "run in any order: `parallel=`.",
    ),
    (
        lambda: run(copy, scratch=[3]),
        TypeError,
        "kernel copy: scratch memory is made by a memory space, such as VMEM((8, 128), 'float32'), "
        "or is a `SemaphoreType`; got 3 of type int.",
    ),
    (
        lambda: run(copy, grid=(("i", 1),), parallel=["j"]),
        ValueError,
        "kernel copy: parallel has axis 'j' of type str, which the grid of 1 axes does not have.",
    ),
    (
        lambda: run(copy, aliases={0: 1}),
        ValueError,
        "kernel copy: aliases has 0: 1; there are 1 arguments and 1 results.",
    ),
    (
        lambda: run(copy, out=like(8, dtype=np.int32), aliases={0: 0}),
        ValueError,
        "kernel copy: argument 0, f32[8], and result 0, i32[8], cannot share memory: they must have "
        "one shape and dtype.",
    ),
    (
        lambda: run(lambda x, out: x[...], name="f"),
        ValueError,
        "kernel f returned a traced f32[8]. A kernel writes its results to refs, and returns None.",
    ),
    (
        lambda: run(lambda x, out: x.set(0.0), name="f"),
        ValueError,
        "Ref{f32[8]} is an input of the kernel, which cannot be written to. Write to a result, or "
        "make one with its values: `aliases={input: result}`.",
    ),
    (
        lambda: run(add_outside(jnp.ones(8))),
        ValueError,
        "kernel body uses arrays from outside: f32[8]. Pass them as arguments, with blocks of their "
        "own.",
    ),
    (
        lambda: run(lambda x, out: copy(x.at[9], out), name="f"),
        IndexError,
        "Ref{f32[8]}: elements 9 to 9 along dimension 0 are outside of its size 8.",
    ),
    (
        lambda: run(lambda x, out: x[ds(6, 4)], name="f"),
        IndexError,
        "Ref{f32[8]}: elements 6 to 9 along dimension 0 are outside of its size 8.",
    ),
    (
        lambda: run(lambda x, out: x[kernels.program_id(0) : 8], grid=1, name="f"),
        IndexError,
        "Ref{f32[8]}: the bounds of a slice are traced, so that its size is unknown. Use `ds(start, size)`.",
    ),
    (
        lambda: run(lambda x, out: out.set(jnp.ones((2, 8))), name="f"),
        ValueError,
        "Ref{f32[8]}: a value of type f32[2,8] cannot be broadcast to the [8] elements that the "
        "index selects.",
    ),
    (
        lambda: run(lambda x, out: out.set(1j), name="f"),
        TypeError,
        "Ref{f32[8]} cannot hold ~c64[]: its dtype cannot change. Cast the value with "
        "`.astype(ref.dtype)`.",
    ),
    (
        lambda: run(lambda x, out: kernels.program_id(1), grid=1, name="f"),
        ValueError,
        "program_id: f has a grid of 1 axes; got axis 1 of type int.",
    ),
    (
        lambda: kernels.program_id(0),
        ValueError,
        "program_id is for the body of a kernel, and is called outside of one.",
    ),
    (
        lambda: run(lambda x, out: kernels.when(x[...])(lambda: None), name="f"),
        TypeError,
        "when: the condition is one boolean; got f32[8].",
    ),
    (
        lambda: load(sw.new_ref(X), 0),
        TypeError,
        "load: expected a ref of a kernel; got Ref([0., 1., 2., 3., 4., 5., 6., 7.], "
        "dtype=float32) of type Ref. Other refs are read and written by `ref[index]`.",
    ),
    (
        lambda: run(copy, in_specs=[Block((Element(0),))]),
        ValueError,
        "kernel copy: the block of argument x has Element(block_size=0, padding=(0, 0)) of type "
        "Element along dimension 0; expected a positive integer, None, "
        "Element(size), BoundedSlice(size) or Indirect(size).",
    ),
    (
        lambda: run(copy, in_specs=[Block((Element(8, (-1, 0)),))]),
        ValueError,
        "kernel copy: the block of argument x has negative padding: "
        "Element(block_size=8, padding=(-1, 0)).",
    ),
    (
        lambda: call(copy, like(8), grid=(("i", 1), ("i", 2))),
        ValueError,
        "kernel copy: two axes of the grid have the name 'i'.",
    ),
    (
        lambda: call(copy, like(8), aliases={0: 0, 1: 0})(X, X),
        ValueError,
        "kernel copy: result 0 is aliased with two arguments.",
    ),
    (
        lambda: call(copy, like(8), prefetch=-1),
        ValueError,
        "kernel copy: prefetch is a number of arguments; got -1 of type int.",
    ),
    (
        lambda: call(copy, like(8), prefetch=2)(X),
        TypeError,
        "kernel copy: 2 arguments are prefetched; got 1 arguments.",
    ),
]


@pytest.mark.parametrize("f, kind, text", MISTAKES)
def test_mistakes(f, kind, text):
    assert message(kind, f) == text


def test_refs_do_not_escape():
    kept = []
    run(lambda x, out: kept.append(out) or copy(x, out), name="f")
    assert "used where it cannot be reached" in message(ValueError, lambda: kept[0][...])


def test_other_platforms_are_rejected():
    from tests.helpers.bare import bare_devices

    x = sw.device_put(X, bare_devices()[0])
    assert message(NotImplementedError, call(copy, like(8)), x).startswith(
        "kernel copy cannot be compiled for 'bare' yet: kernels run on CPUs, GPUs and TPUs."
    )


def test_spaces_of_scratch():
    assert repr(VMEM) == "VMEM" and SMEM((), np.int32).type.shape == ()
