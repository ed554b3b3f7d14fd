"""Launches are staged once for the types of their arguments."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels
from shardwise import numpy as jnp
from shardwise.kernels import Block, CompilerParams, call
from tests.kernels.kernels import CASES, like

X = np.arange(8, dtype=np.float32)
HALF = Block((4,), lambda i: (i,))


def counted():
    """A launch, and a list that grows when its body is staged."""
    staged = []

    def body(x, out):
        staged.append(x.dtype.name)
        out[...] = 2 * x[...]

    return call(body, like(8), grid=2, in_specs=HALF, out_specs=HALF), staged


def test_calls_stage_once_for_each_type():
    f, staged = counted()
    for _ in range(3):
        np.testing.assert_array_equal(f(X), 2 * X)
        f(jnp.asarray(X))
        f(X.astype(np.int32))
    assert staged == ["float32", "int32"]
    sw.jit(f)(X)
    sw.vmap(f)(np.stack([X, X]))
    assert staged == ["float32", "int32"]
    with sw.numpy_dtype_promotion("strict"):
        f(X)
    assert staged == ["float32", "int32", "float32"]
    sw.clear_caches()
    f(X)
    assert len(staged) == 4


def scaled_by(factor, index=lambda i: (i,)):
    def body(x, out):
        out[...] = factor * x[...]

    return call(body, like(8), grid=2, in_specs=Block((4,), index), out_specs=HALF)


def body_of(f):
    (eqn,) = sw.make_jaxpr(f)(X).eqns
    return eqn.params["body"]


def test_launches_of_the_same_code_share_their_programs():
    assert body_of(scaled_by(2.0)) is body_of(scaled_by(2.0))
    assert body_of(scaled_by(2.0)) is not body_of(scaled_by(3.0))
    for factor in (2.0, 3.0, 2.0):
        np.testing.assert_array_equal(scaled_by(factor)(X), factor * X)
    swapped = scaled_by(2.0, lambda i: (1 - i,))
    for _ in range(2):
        np.testing.assert_array_equal(swapped(X), 2 * np.roll(X, 4))
        np.testing.assert_array_equal(scaled_by(2.0)(X), 2 * X)


def test_blocks_with_each_others_indices():
    def straight(i):
        return (i,)

    def swapped(i):
        return (1 - i,)

    def body(x, y, out):
        out[...] = x[...] - 2 * y[...]

    y = X + 1
    for first, second in ((straight, straight), (straight, swapped), (swapped, straight)):
        specs = [Block((4,), first), Block((4,), second)]
        f = call(body, like(8), grid=2, in_specs=specs, out_specs=Block((4,), straight))
        taken = [
            x if index is straight else np.roll(x, 4) for x, index in ((X, first), (y, second))
        ]
        np.testing.assert_array_equal(f(X, y), taken[0] - 2 * taken[1])
    specs = [Block((4,), straight)] * 2
    f = call(body, like(8), grid=2, in_specs=specs, out_specs=Block((4,), swapped))
    np.testing.assert_array_equal(f(X, y), np.roll(X - 2 * y, 4))


def test_bodies_are_methods_and_callable_objects():
    class Scale:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x, out):
            out[...] = self.factor * x[...]

        def method(self, x, out):
            self(x, out)

    for factor in (2, 3):
        scale = Scale(factor)
        for body in (scale, scale.method):
            f = call(body, like(8), name="scale")
            np.testing.assert_array_equal(f(X), factor * X)
            np.testing.assert_array_equal(f(X), factor * X)


def test_closures_that_change_are_read_when_the_body_is_staged():
    factor = 2.0

    def body(x, out):
        out[...] = factor * x[...]

    f = call(body, like(8))
    np.testing.assert_array_equal(f(X), 2 * X)
    factor = 3.0
    np.testing.assert_array_equal(f(X), 2 * X)
    np.testing.assert_array_equal(sw.jit(f)(X), 2 * X)


def test_sizes_of_the_grid_that_are_arrays():
    staged = []

    def body(x, out):
        staged.append(1)
        out[...] = x[...] + 1

    for n in (1, 2):
        options = {"in_specs": HALF, "out_specs": HALF, "aliases": {0: 0}}
        f = call(body, like(8), grid=jnp.int32(n), **options)
        wanted = np.where(np.arange(8) < 4 * n, X + 1, X)
        np.testing.assert_array_equal(f(X), wanted)
        np.testing.assert_array_equal(f(X), wanted)
    assert staged == [1]


def test_bodies_that_raise_are_staged_again():
    fails = [True]

    def body(x, out):
        if fails:
            raise RuntimeError("not ready")
        out[...] = x[...]

    f = call(body, like(8))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^not ready$"):
            f(X)
    fails.clear()
    np.testing.assert_array_equal(f(X), X)


def test_parameters_for_compilers_may_be_lists():
    def body(x, out):
        out[...] = x[...]

    params = CompilerParams(allow_input_fusion=[True])
    f = call(body, like(8), grid=2, in_specs=HALF, out_specs=HALF, params=params)
    np.testing.assert_array_equal(f(X), X)


def test_checked_launches_stage_once():
    staged = []

    def body(x, out):
        staged.append(1)
        out[...] = x[...]

    f = kernels.call(body, like(8), grid=2, in_specs=HALF, out_specs=HALF, check=True)
    for _ in range(2):
        np.testing.assert_array_equal(f(X), X)
    assert staged == [1]


def test_pytrees_of_arguments_are_part_of_the_key():
    def body(pair, out):
        first = pair["a"] if isinstance(pair, dict) else pair[0]
        out[...] = first[...]

    f = call(body, like(8))
    np.testing.assert_array_equal(f({"a": X, "b": -X}), X)
    np.testing.assert_array_equal(f([-X, X]), -X)
    np.testing.assert_array_equal(f({"b": X, "a": -X}), -X)


def test_results_are_those_of_jit():
    case = CASES["flash"]
    f = case.launch()
    for _ in range(2):
        np.testing.assert_array_equal(f(*case.args), sw.jit(f)(*case.args))
