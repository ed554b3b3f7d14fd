"""Ops that move elements: reshape factors, composed functions, messages."""

import numpy as np
import pytest

from shardwise._src.ops import shape as op
from shardwise._src.ops.basis import reshape
from shardwise._src.running.eager import EAGER
from shardwise._src.types.array_type import array_type
from tests.helpers.errors import messages

F32 = np.dtype("float32")


def f32(*shape, start=1):
    size = int(np.prod(shape))
    return (np.arange(start, size + start, dtype=np.float32) / 4).reshape(shape)


def i32(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


@pytest.mark.parametrize(
    "before, after, ins, outs",
    [
        ((4, 6), (24,), (("a", "a'"), None), (("a", "a'"),)),
        ((8, 3), (2, 4, 3), (("a", "a'"), "b"), (("a", "a'"), None, "b")),
        ((4, 1, 2), (4, 2), ("a", None, "b"), ("a", "b")),
        ((5,), (5, 1), ("a",), ("a", None)),
    ],
)
def test_reshape_factors(before, after, ins, outs):
    dims = reshape.dims(reshape, array_type(before, F32), shape=after)

    def names(groups):
        seen = {}

        def name(f):
            return None if f is None else seen.setdefault(f, len(seen))

        return [[name(f) for f in g] for g in groups]

    assert names((*dims.inputs, *dims.outputs)) == names((ins, outs))


def test_functions_over_reshape():
    x = EAGER.array(f32(2, 1, 3))
    assert op.squeeze(x, (1,)).shape == (2, 3)
    assert op.expand_dims(x, (0, 4)).shape == (1, 2, 1, 3, 1)
    np.testing.assert_array_equal(op.tile(x, (2, 3, 1)), np.tile(f32(2, 1, 3), (2, 3, 1)))


ARRAY = EAGER.array(f32(2, 3))
test_errors = messages(
    """
op.concatenate(dimension=0)
    TypeError: [concatenate] takes at least one operand; got none.
op.concatenate(ARRAY, ARRAY, dimension=2)
    ValueError: [concatenate] dimension must be one of the 2 dimensions of f32[2,3]; got 2.
op.concatenate(ARRAY, i32(2, 3), dimension=0)
    TypeError: [concatenate] operands must have equal dtypes; got f32[2,3] and i32[2,3].
op.concatenate(ARRAY, f32(2, 4), dimension=0)
    TypeError: [concatenate] operands must have equal sizes in all dimensions but 0; got f32[2,3]
    and f32[2,4].
op.slice_(ARRAY, start_indices=(0, 0), limit_indices=(3, 3))
    TypeError: [slice] starts must not exceed limits, limits must not exceed the sizes of f32[2,3],
    and strides must be positive; got (0, 0), (3, 3) and None.
op.slice_(ARRAY, start_indices=(0,), limit_indices=(1,))
    ShapeError: [slice] takes a start, a limit and a stride for each of the 2 dimensions of
    f32[2,3]; got (0,), (1,) and None.
op.pad(ARRAY, np.int32(0), padding_config=((0, 0, 0),) * 2)
    TypeError: [pad] takes an array and a scalar of its dtype; got f32[2,3] and i32[].
op.pad(ARRAY, np.float32(0), padding_config=((0, 0, 0),))
    ShapeError: [pad] padding_config must be (lo, hi, interior) for each of the 2 dimensions of
    f32[2,3], interior not negative; got ((0, 0, 0),).
op.pad(ARRAY, np.float32(0), padding_config=((-2, -1, 0), (0, 0, 0)))
    ValueError: [pad] f32[2,3] with padding_config ((-2, -1, 0), (0, 0, 0)) would have shape (-1,
    3): the padding removes more elements than there are.
op.rev(ARRAY, dimensions=(2,))
    ShapeError: [rev] axes must be distinct and within the 2 dimensions of f32[2,3]; got (2,).
op.split(ARRAY, sizes=(1, 1), axis=1)
    ValueError: [split] sizes must add up to the size of dimension 1 of f32[2,3]; got (1, 1).
""",
    globals(),
)
