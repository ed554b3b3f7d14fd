"""Which axes of a grid may be run in any order."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels
from shardwise import numpy as jnp
from shardwise._src.kernels.grid_values import MOST_PROGRAMS
from shardwise._src.kernels.independent_axes import independent_axes
from shardwise.kernels import VMEM, Block, Element, call, program_id, when
from tests.helpers.targets import TPU, needs_tpu, on
from tests.kernels.kernels import CASES, INTEGERS, like

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def copy(x, out):
    out[...] = x[...]


def add(x, out):
    out[...] += x[...]


def first_only(x, out):
    @when(program_id(0) == 0)
    def _():
        out[...] = x[...]


def printing(x, out):
    sw.debug.print("{}", x[0, 0])
    out[...] = x[...]


def over(index, shape=(4, 8), ins=None, body=copy, grid=(2, 3), count=1, **options):
    """The independent axes of a launch whose result has these blocks."""
    block = Block(shape, index)
    f = call(body, like(8, 8), grid=grid, in_specs=ins or block, out_specs=block, **options)
    return axes_of(f, *[X] * count)


def axes_of(f, *args):
    program = sw.make_jaxpr(f)(*args)
    (eqn,) = [e for e in program.eqns if e.op.name == "kernel_call"]
    p = eqn.params
    return independent_axes(p["launch"], p["body"], p["maps"])


@pytest.mark.parametrize(
    "name, axes",
    [
        ("softmax", (True,)),
        ("matmul", (True, True, False)),
        ("flash", (True, True)),
        ("windows", (True,)),
        ("ragged", (True, True)),
        ("prefetched", (True,)),
        ("strided", ()),
        ("aliased", (True,)),
        ("counts", (False,)),
    ],
)
def test_kernels(name, axes):
    case = (CASES | INTEGERS)[name]
    assert axes_of(case.launch(), *case.args) == axes


def rows(i, j):
    return i, 0


def reading(x, other, out):
    out[...] = x[...] + other[...]


def not_reading(x, other, out):
    out[...] += x[...]


IN_PLACE = {"count": 2, "aliases": {1: 0}}
PROVEN = [
    (lambda: over(rows), (True, False)),
    (lambda: over(rows, grid=(2, 1)), (True, True)),
    (lambda: over(rows, grid=(0, 3)), (True, True)),
    (lambda: over(lambda i, j: (j, 0), (2, 8), grid=(3, 4)), (False, True)),
    (lambda: over(lambda i, j: (3 - i, j // 3), (2, 4), grid=(4, 6)), (True, False)),
    (lambda: over(lambda i, j: (2 * i + j, 0), (2, 8), grid=(2, 2)), (True, True)),
    (lambda: over(lambda i, j: (i + j, 0), (2, 8), grid=(2, 2)), (False, False)),
    (lambda: over(rows, (8, 8)), (False, False)),
    (lambda: over(None, None), (False, False)),
    (lambda: over(rows, body=first_only), (True, False)),
    # blocks beyond the end are those at the end
    (lambda: over(rows, grid=(3, 1)), (False, True)),
    # blocks of elements
    (lambda: over(lambda i, j: (4 * i, 0), (Element(4), 8)), (True, False)),
    (lambda: over(lambda i, j: (3 * i, 0), (Element(4), 8)), (False, False)),
    (lambda: over(lambda i, j: (2 * i, j), (Element(3), 4), grid=(3, 2)), (False, True)),
    # results that alias an argument
    (lambda: over(rows, body=reading, **IN_PLACE), (True, False)),
    (
        lambda: over(rows, body=not_reading, ins=(Block((4, 8), rows), Block()), **IN_PLACE),
        (True, False),
    ),
    (
        lambda: over(rows, ins=Block((4, 8), lambda i, j: (1 - i, 0)), body=reading, **IN_PLACE),
        (False, False),
    ),
    (lambda: over(rows, ins=Block((2, 8), rows), body=reading_twice, **IN_PLACE), (False, False)),
    # not proven
    (lambda: over(rows, body=printing), (False, False)),
    (lambda: over(rows, body=printing, parallel=[0]), (True, False)),
    (lambda: over(rows, body=held, scratch=[VMEM((1,), np.float32)]), (False, False)),
    (lambda: over(rows, body=held, scratch=[VMEM((1,), np.float32)], parallel=[1]), (False, True)),
    (lambda: over(rows, (1, 8), grid=(8, MOST_PROGRAMS // 8)), (True, False)),
    (lambda: over(rows, (1, 8), grid=(8, MOST_PROGRAMS // 8 + 1)), (False, False)),
]


def reading_twice(x, other, out):
    out[...] = jnp.concatenate([x[...], other[...]])


def held(x, out, scratch):
    out[...] = x[...]


@pytest.mark.parametrize("number", range(len(PROVEN)))
def test_proofs(number):
    axes, wanted = PROVEN[number]
    assert axes() == wanted


def test_results_that_are_only_read_do_not_matter():
    def body(x, y, total, out):
        out[...] = x[...] + total[0]

    block = Block((4, 8), lambda i: (i, 0))
    options: Any = {"in_specs": (block, Block()), "out_specs": (Block(), block)}
    f = call(body, (like(8, 8), like(8, 8)), grid=2, aliases={1: 0}, **options)
    assert axes_of(f, X, X) == (True,)


def test_blocks_that_depend_on_prefetched_arrays():
    block = Block((4, 8), lambda i, rows: (rows[i], 0))
    rows = np.array([1, 0], np.int32)

    def body(rows, x, out):
        out[...] = x[...]

    f = call(body, like(8, 8), grid=2, in_specs=block, out_specs=block, prefetch=1)
    assert axes_of(f, rows, X) == (False,)
    declared = call(
        body, like(8, 8), grid=2, in_specs=block, out_specs=block, prefetch=1, parallel=[0]
    )
    assert axes_of(declared, rows, X) == (True,)


def test_sizes_that_are_traced():
    block = Block((4, 8), lambda i: (i, 0))
    f = lambda n, x: call(copy, like(8, 8), grid=n, in_specs=block, out_specs=block)(x)  # noqa: E731
    assert axes_of(f, np.int32(2), X) == (False,)


def test_mapped_axes_and_tangents():
    case = CASES["flash"]
    f = case.launch()
    many = [np.stack([x] * 2) for x in case.args]
    assert axes_of(sw.vmap(f), *many) == (True, True, True)
    tangents = lambda *xs: sw.jvp(f, xs, xs)[1]  # noqa: E731
    assert axes_of(tangents, *case.args) == (True, True)


@needs_tpu
def test_blocks_are_computed_without_the_device():
    seen = []

    def f(x):
        block = Block((4, 8), lambda i, j: (1 - i, 0))
        g = kernels.call(copy, like(8, 8), grid=(2, 3), in_specs=block, out_specs=block)
        seen.append(axes_of(g, x))
        return x

    with sw.default_device(sw.targets.devices(TPU)[0]):
        sw.jit(f).lower(on(TPU, X))
    assert seen == [(True, False)]
