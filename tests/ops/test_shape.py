"""Ops that move elements: against NumPy, their derivatives, batching and placements."""

import numpy as np
import pytest

from shardwise._src.ops import shape as op
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape, transpose
from shardwise._src.running.eager import EAGER
from shardwise._src.testing.check_op import check_op
from shardwise._src.testing.sample import Sample
from shardwise._src.types.array_type import array_type

F32 = np.dtype("float32")
EMPTY = "XLA cannot partition or split what is empty"
ALIGNED = "these places happen to fall on the same parts; others would not"


def f32(*shape, start=1):
    size = int(np.prod(shape))
    return (np.arange(start, size + start, dtype=np.float32) / 4).reshape(shape)


def i32(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


def padded(x, value, *, padding_config):
    """`pad`, element by element."""
    shape = [lo + hi + (n + (n - 1) * k if n else 0)
             for n, (lo, hi, k) in zip(x.shape, padding_config, strict=True)]
    out = np.full(shape, value, x.dtype)
    for index in np.ndindex(*x.shape):
        to = [lo + i * (k + 1) for i, (lo, _, k) in zip(index, padding_config, strict=True)]
        if all(0 <= i < n for i, n in zip(to, shape, strict=True)):
            out[tuple(to)] = x[index]
    return out


def test_concatenate():
    check_op(op.concatenate, [
        Sample((f32(2, 4), f32(2, 4)), {"dimension": 0}, lambda *xs: np.concatenate(xs, 0)),
        Sample((f32(2, 3), f32(2, 1), f32(2, 0)), {"dimension": 1},
               lambda *xs: np.concatenate(xs, 1), placed=False, why=EMPTY),
        Sample((f32(2, 3), f32(2, 1)), {"dimension": 1}, lambda *xs: np.concatenate(xs, 1)),
        Sample((i32(2),), {"dimension": 0}, lambda x: x),
    ])


CONFIGS = [((1, 2, 0), (0, 0, 0)), ((0, 0, 2), (-1, 1, 0)), ((-1, -1, 1), (2, 0, 3))]


@pytest.mark.parametrize("config", CONFIGS)
def test_pad(config):
    value = np.float32(7)
    params = {"padding_config": config}
    check_op(op.pad, [
        Sample((f32(3, 4), value), params, lambda x, v: padded(x, v, padding_config=config)),
    ])


def test_pad_of_integers_and_nothing():
    check_op(op.pad, [
        Sample((i32(3), np.int32(9)), {"padding_config": ((1, -1, 1),)},
               lambda x, v: padded(x, v, padding_config=((1, -1, 1),))),
        Sample((f32(0), np.float32(2)), {"padding_config": ((2, 1, 3),)},
               lambda x, v: np.full(3, 2, np.float32)),
        Sample((np.float32(2), np.float32(1)), {"padding_config": ()}, lambda x, v: x),
    ])


def test_slice():
    check_op(op.slice_, [
        Sample((f32(4, 6),), {"start_indices": (0, 1), "limit_indices": (4, 5)},
               lambda x: x[:, 1:5], unnamed=((0, 1),), why=ALIGNED),
        Sample((f32(5, 4),),
               {"start_indices": (1, 0), "limit_indices": (5, 4), "strides": (3, 2)},
               lambda x: x[1:5:3, ::2], unnamed=((0, 1),), why=ALIGNED),
        Sample((i32(3),), {"start_indices": (2,), "limit_indices": (2,)}, lambda x: x[2:2]),
    ])


def test_rev():
    check_op(op.rev, [
        Sample((f32(2, 4),), {"dimensions": (1,)}, lambda x: x[:, ::-1]),
        Sample((f32(2, 3),), {"dimensions": (0, 1)}, lambda x: x[::-1, ::-1]),
        Sample((i32(2),), {"dimensions": ()}, lambda x: x),
    ])


def test_split():
    check_op(op.split, [
        Sample((f32(2, 5),), {"sizes": (2, 0, 3), "axis": 1},
               lambda x: [x[:, :2], x[:, 2:2], x[:, 2:]], placed=False, why=EMPTY),
        Sample((f32(2, 5),), {"sizes": (2, 3), "axis": 1}, lambda x: [x[:, :2], x[:, 2:]]),
    ])


def test_basis():
    check_op(broadcast_in_dim, [
        Sample((f32(2, 1),), {"shape": (2, 3, 4), "dims": (0, 2)},
               lambda x: np.broadcast_to(x[:, None], (2, 3, 4))),
        Sample((np.float32(2),), {"shape": (4,), "dims": ()}, lambda x: np.full(4, x)),
    ])
    check_op(transpose, [
        Sample((f32(2, 3, 4),), {"perm": (2, 0, 1)}, lambda x: x.transpose(2, 0, 1)),
    ])
    check_op(reduce_sum, [
        Sample((f32(2, 4),), {"axes": (1,)}, lambda x: x.sum(1)),
        Sample((f32(2, 0),), {"axes": (0, 1)}, lambda x: x.sum(), placed=False,
               why=EMPTY),
    ])


RESHAPES = [
    ((4, 6), (24,)), ((8,), (2, 4)), ((2, 3, 4), (6, 4)), ((4, 1, 2), (4, 2)), ((4, 2), (1, 4, 2)),
    ((2, 6), (3, 4)), ((1,), ()), ((), (1, 1)), ((0, 4), (4, 0)), ((2, 2, 3), (4, 3, 1)),
]


@pytest.mark.parametrize("before, after", RESHAPES)
def test_reshape(before, after):
    check_op(reshape, [Sample((f32(*before),), {"shape": after}, lambda x: x.reshape(after))])


@pytest.mark.parametrize("before, after, ins, outs", [
    ((4, 6), (24,), (("a", "a'"), None), (("a", "a'"),)),
    ((8, 3), (2, 4, 3), (("a", "a'"), "b"), (("a", "a'"), None, "b")),
    ((4, 1, 2), (4, 2), ("a", None, "b"), ("a", "b")),
    ((5,), (5, 1), ("a",), ("a", None)),
])
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


ERRORS = [
    (lambda x: op.concatenate(dimension=0), TypeError,
     "[concatenate] takes at least one operand; got none."),
    (lambda x: op.concatenate(x, x, dimension=2), ValueError,
     "[concatenate] dimension must be one of the 2 dimensions of f32[2,3]; got 2."),
    (lambda x: op.concatenate(x, i32(2, 3), dimension=0), TypeError,
     "[concatenate] operands must have equal dtypes; got f32[2,3] and i32[2,3]."),
    (lambda x: op.concatenate(x, f32(2, 4), dimension=0), TypeError,
     "[concatenate] operands must have equal sizes in all dimensions but 0; got f32[2,3] and "
     "f32[2,4]."),
    (lambda x: op.slice_(x, start_indices=(0, 0), limit_indices=(3, 3)), TypeError,
     "[slice] starts must not exceed limits, limits not the sizes of f32[2,3], and strides must "
     "be positive; got (0, 0), (3, 3) and None."),
    (lambda x: op.slice_(x, start_indices=(0,), limit_indices=(1,)), TypeError,
     "[slice] takes a start, a limit and a stride for each of the 2 dimensions of f32[2,3]; got "
     "(0,), (1,) and None."),
    (lambda x: op.pad(x, np.int32(0), padding_config=((0, 0, 0),) * 2), TypeError,
     "[pad] takes an array and a scalar of its dtype; got f32[2,3] and i32[]."),
    (lambda x: op.pad(x, np.float32(0), padding_config=((0, 0, 0),)), TypeError,
     "[pad] padding_config must be (lo, hi, interior) for each of the 2 dimensions of f32[2,3], "
     "interior not negative; got ((0, 0, 0),)."),
    (lambda x: op.pad(x, np.float32(0), padding_config=((-2, -1, 0), (0, 0, 0))), ValueError,
     "[pad] f32[2,3] with padding_config ((-2, -1, 0), (0, 0, 0)) would get the shape (-1, 3): it "
     "cuts off more than there is."),
    (lambda x: op.rev(x, dimensions=(2,)), ValueError,
     "[rev] axes must be distinct and within the 2 dimensions of f32[2,3]; got (2,)."),
    (lambda x: op.split(x, sizes=(1, 1), axis=1), ValueError,
     "[split] sizes must add up to the size of dimension 1 of f32[2,3]; got (1, 1)."),
]


@pytest.mark.parametrize("call, kind, message", ERRORS)
def test_errors(call, kind, message):
    with pytest.raises(kind) as caught:
        call(EAGER.array(f32(2, 3)))
    assert str(caught.value) == message
