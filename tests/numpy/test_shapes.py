"""Shapes, joining, padding, rearranging, picking: traces, errors. `calls` has more values."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.numpy.rearrange import _sum_modulo
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.stage import stage
from tests.helpers.beside_jax import assert_same
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.numpy.calls import PARTS

A, X, I, M, E0 = [PARTS[name] for name in ("A", "X", "I", "M", "E0")]  # noqa: E741
PADS = [
    ((1, 2), "constant", {}),
    (2, "constant", {"constant_values": 3}),
    (((1, 0), (2, 1)), "constant", {"constant_values": ((1, 2), (3, 4))}),
    (2, "edge", {}),
    ((0, 1), "empty", {}),
    (((1, 2), (0, 0)), "linear_ramp", {}),
    (3, "linear_ramp", {"end_values": (5, 9)}),
    (1, "maximum", {}),
    (1, "minimum", {}),
    (2, "mean", {}),
    (2, "mean", {"stat_length": 2}),
    (2, "maximum", {"stat_length": ((1, 2),)}),
    (5, "reflect", {}),
    (5, "symmetric", {}),
    (7, "wrap", {}),
    (5, "reflect", {"reflect_type": "odd"}),
    (5, "symmetric", {"reflect_type": "odd"}),
]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("width, mode, kwargs", everyday(PADS, 6))
def test_pad(width, mode, kwargs, dtype):
    for x in (np.array([[4, 0, 7], [3, 9, 2]]).astype(dtype), np.array([[2], [5]]).astype(dtype)):
        # jax rounds a ramp of integers in float32, so that 5 may become 4.
        oracle = np if mode == "linear_ramp" and dtype == "int32" else jnp
        assert_same(
            snp.pad(x, width, mode, **kwargs), oracle.pad(x, width, mode, **kwargs), 1e-6, atol=0
        )


def test_pad_by_a_function_and_by_axis():
    def fill(vector, width, axis, kwargs):
        return vector.at[: width[0]].set(kwargs["value"] + axis)

    assert_same(snp.pad(A, 1, fill, value=7), jnp.pad(A, 1, fill, value=7), 1e-6, atol=0)
    np.testing.assert_array_equal(snp.pad(A, {-1: (1, 2)}), np.pad(A, ((0, 0), (1, 2))))


SHIFTS = [
    (np.array([1, 2, 3]), 1),
    (np.array([5]), (0, 1)),
    (np.array([1, -2]), (0, 1)),
    (np.array([1, 2, 3]), (0, 1, 0)),
    (np.array([7] * 16), 0),
    (np.uint32(2**32 - 1), 1),
    (np.array([-(2**31)] * 5, np.int32), 1),
    (np.int8(-100), 1),
    (np.uint8(255), 1),
    (True, 0),
]


@pytest.mark.parametrize("shift, axis", SHIFTS)
def test_rolls_add_up(shift, axis):
    """Also where the shifts, or their sum, are beyond the range of their dtype."""
    each = [int(s) for s in np.ravel(shift)]
    whole = np.roll(A, sum(each) if np.ndim(axis) == 0 else each, axis)
    traced = snp.roll(A, EAGER.array(np.asarray(shift)), axis)
    np.testing.assert_array_equal(np.asarray(traced), whole)
    np.testing.assert_array_equal(np.asarray(snp.roll(A, each, axis)), whole)


def test_many_shifts_are_few_ops():
    def lines(count, known):
        shifts = tuple(range(count)) if known else np.arange(count)
        run = sw.jit(lambda x, s: snp.roll(x, shifts if known else s, (0,) * count))
        return len(run.lower(A, np.arange(count)).as_text().splitlines())

    assert lines(64, False) == lines(4, False) <= 60
    assert lines(67, True) == lines(2, True)


def test_many_shifts_of_a_long_dimension():
    n = 2**31 - 1  # too long for two shifts to be added as int32
    shifts = np.arange(1000, dtype=np.uint32) * np.uint32(4_000_000)
    found = _sum_modulo(EAGER.array(shifts), n)
    assert int(found) == sum(int(s) for s in shifts) % n


def test_an_operand_that_comes_twice_is_computed_once():
    def chain(x, s):
        for k in range(20):  # as many as 2**20 programs to a compiler that examines all
            x = sw.lax.dynamic_slice(snp.concatenate([x, x]), (s + k,), (8,))
        return x

    lowered = sw.jit(chain).lower(np.arange(8), np.int32(0))
    assert lowered.as_text().count("stablehlo.optimization_barrier") == 20
    x = np.arange(8)
    for k in range(20):
        x = np.concatenate([x, x])[min(k, 8) :][:8]
    np.testing.assert_array_equal(np.asarray(lowered.compile()(np.arange(8), np.int32(0))), x)


@pytest.mark.parametrize(
    "join",
    [
        lambda x: snp.stack([x, x]),
        lambda x: snp.vstack([x, x]),
        lambda x: snp.column_stack([x, x]),
        lambda x: snp.dstack([x, x]),
        lambda x: sw.lax.stack([x, x]),
    ],
)
def test_joined_with_itself(join):
    text = sw.jit(lambda x: join(x * 2)).lower(np.arange(8)).as_text()
    assert text.count("stablehlo.optimization_barrier") == 1
    assert text.count("stablehlo.reshape") == 1


def test_an_operand_may_come_often():
    run = sw.jit(lambda x, y: snp.concatenate([x * 2, y, x, x, y, x]))
    found = run(np.arange(2), np.arange(3))
    np.testing.assert_array_equal(np.asarray(found), [0, 2, 0, 1, 2, 0, 1, 0, 1, 0, 1, 2, 0, 1])


def test_under_a_trace():
    def both(snp, x, i):
        return [
            snp.reshape(x, -1),
            snp.roll(x, i[0]),
            snp.roll(x, i[:2], (0, 1)),
            snp.repeat(x, i, axis=1, total_repeat_length=4),
            snp.take(x, i, axis=1),
            *snp.nonzero(x, size=3),
            snp.where(x > 2, x, i),
            snp.choose(i, [i, i, i], mode="clip"),
            *snp.split(x, 3, 1),
            snp.argwhere(x > 1, size=2),
            snp.flip(x, 0),
            x[i[0]],
            x[:, i],
            snp.put_along_axis(x, i[None, :2], 7, axis=1, inplace=False),
        ]

    x, i = EAGER.array(A), EAGER.array(I)
    program, _ = stage(lambda x, i: both(snp, x, i), [x.aval, i.aval])
    expected = jax.jit(lambda x, i: both(jnp, x, i))(A, I)
    for found, wanted in zip(program(x, i), expected, strict=True):
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


test_errors = messages(
    """
snp.reshape(A, (4, 2))
    ShapeError: reshape: an array of shape (2, 3) (6 elements) cannot have the shape (4, 2) (8
    elements).
snp.reshape(A, (-1, -1))
    ShapeError: reshape: only one size can be -1; got (-1, -1).
snp.reshape(A, (-1, 4))
    ShapeError: reshape: an array of shape (2, 3) (6 elements) cannot have the shape (-1, 4): 6 is
    not a multiple of 4.
snp.reshape([1, 2], (2, 1))
    TypeError: reshape takes arrays; got the list [1, 2]. Use asarray on it first.
snp.roll(A, EAGER.array(I[None]), 0)
    ValueError: roll: shift must be a scalar or a vector; got i32[1,3].
snp.concatenate([])
    ValueError: concatenate needs at least one array.
snp.concatenate([X, A])
    TypeError: concatenate: arrays must have the same number of dimensions; got shapes (3,), (2,
    3).
snp.concatenate([np.float32(1)])
    ValueError: concatenate: scalars have no dimension to concatenate along; use stack.
snp.stack([X, X[:2]])
    ValueError: stack: arrays must have the same shape; got (3,), (2,).
snp.split(X, 2)
    ValueError: split: dimension 0 of size 3 cannot be split into 2 equal parts: the remainder is
    1. Use array_split for parts of unequal size.
snp.broadcast_to(A, (3, 2))
    ValueError: broadcast_to: shape (2, 3) does not broadcast to (3, 2).
snp.transpose(A, (0, 0))
    ShapeError: transpose: axes must name each of the 2 dimensions once; got (0, 0).
snp.expand_dims(A, (0, 0))
    ShapeError: expand_dims: axes must be distinct; got (0, 0).
snp.pad(A, -1)
    ValueError: pad: widths must not be negative; got -1.
snp.pad(A, 1, "bad")
    NotImplementedError: pad: unknown mode 'bad'; the modes are constant, edge, empty, wrap,
    linear_ramp, maximum, mean, median, minimum, reflect, symmetric.
snp.pad(E0, 1, "edge")
    ValueError: pad: dimension 0 is empty, so mode 'edge' has no values to pad with.
snp.pad(A, 1, stat_length=2)
    ValueError: pad: mode 'constant' does not accept stat_length.
snp.take_along_axis(A, np.zeros((3, 1), int), axis=-1)
    ValueError: take_along_axis: array and indices must have equal sizes, or size 1, along all
    dimensions but axis 1; got f32[2,3] and i32[3,1].
snp.put_along_axis(A, np.zeros((3, 1), int), 0, 1, inplace=False)
    ValueError: put_along_axis: array and indices must have equal sizes, or size 1, along all
    dimensions but axis 1; got f32[2,3] and i32[3,1].
snp.take(E0, 0, axis=0)
    IndexError: take: dimension 0 is empty, so there is nothing to take.
snp.take(X, X)
    TypeError: take: indices must be integers; got f32[3].
snp.put(X, 0, 1)
    ValueError: put: arrays are immutable; pass inplace=False to get a new one.
snp.nonzero(np.float32(1))
    ValueError: nonzero: a scalar has no indices; use atleast_1d on it first.
snp.choose(I, [X, X])
    ValueError: choose: an index is out of bounds for 2 choices.
snp.compress(M, snp.asarray(X), out=X)
    NotImplementedError: compress: `out` is not supported, as arrays are immutable. Use the result.
""",
    globals(),
)


def test_traced_sizes_are_refused():
    x = EAGER.array(X)

    def message(f):
        with pytest.raises(TypeError) as caught:
            stage(lambda x: [f(x)], [x.aval])
        return re.sub(r"at \S+:\d+ \(\S+?\)", "HERE", str(caught.value))

    why = "which is not known while tracing (jit of f, called HERE)."
    assert message(snp.nonzero) == (
        f"nonzero: the number of elements depends on the values of a traced f32[3], {why} Pass "
        "`size=`."
    )
    assert message(lambda x: snp.repeat(A, x.astype("int32"), axis=1)) == (
        "repeat: without total_repeat_length, `repeats` must be concrete, since the result's shape "
        f"depends on it; got a traced i32[3], {why} The value was made HERE."
    )


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_insert_at_traced_places(axis):
    places = np.array([2, 0, -1])
    values = np.arange(3, dtype=np.float32) + 50
    spread = values if axis != 1 else A + 50
    for obj, v in ((places, spread), (places[0], values[0]), (places[:1], 7.0)):
        found = sw.jit(lambda x, i, v: snp.insert(x, i, v, axis))(A, obj, v)
        np.testing.assert_array_equal(np.asarray(found), np.insert(A, obj, v, axis))
