"""LSTM layers against jax's reference, full and ragged sequences, in one and two directions."""

import inspect

import jax
import numpy as np
import pytest
from jax.experimental import rnn as theirs

import shardwise as sw
from shardwise.experimental import rnn as ours
from tests.helpers.everyday import everyday

SIZES = 3, 4, 2  # of inputs, of states, number of layers


def case(bidirectional, lengths):
    rng = np.random.default_rng(0)
    batch, ways = len(lengths), 1 + bidirectional
    x = rng.normal(size=(batch, 4, 3)).astype(np.float32)
    h, c = rng.normal(size=(2, 2 * ways, batch, 4)).astype(np.float32)
    weights = ours.init_lstm_weight(sw.random.key(0), *SIZES, bidirectional)
    return x, h, c, np.asarray(weights), np.int32(lengths)


def pair(bidirectional):
    """Operands, the other arguments, and jax's results with the sum of their squares."""
    x, h, c, w, n = case(bidirectional, [4, 2, 1])
    rest = (*SIZES, 0.0, bidirectional)

    def reference(x, w):
        unpacked = theirs.unpack_lstm_weights(w, *SIZES, bidirectional)
        outs = theirs.lstm_ref(x, h, c, *unpacked, n, *rest)
        return total(outs), outs

    return (x, h, c, w, n), rest, reference


def total(outs):
    return sum([(o**2).sum() for o in outs])


@pytest.mark.parametrize("bidirectional", everyday([False, True], 1))
def test_values(bidirectional):
    (x, h, c, w, n), rest, reference = pair(bidirectional)
    np.testing.assert_allclose(
        w, theirs.init_lstm_weight(jax.random.key(0), *SIZES, bidirectional), rtol=1e-6
    )
    unpacked = theirs.unpack_lstm_weights(w, *SIZES, bidirectional)
    for got, want in zip(ours.unpack_lstm_weights(w, *SIZES, bidirectional), unpacked, strict=True):
        assert [*got] == [*want]
        for k in got:
            np.testing.assert_array_equal(got[k], want[k])
    _, want = jax.jit(reference)(x, w)
    slowly = lambda *a: ours.lstm_ref(*a, *rest)  # noqa: E731
    slowly = sw.jit(slowly) if bidirectional else slowly  # it is many ops
    run = sw.jit(lambda *a: ours.lstm(*a, *rest))
    for got in (run(x, h, c, w, n), slowly(x, h, c, *unpacked, n)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("bidirectional", everyday([False, True], 1))
def test_derivatives(bidirectional):
    (x, h, c, w, n), rest, reference = pair(bidirectional)
    run = sw.jit(lambda *a: ours.lstm(*a, *rest))
    by_x, by_w = sw.grad(lambda x, w: total(run(x, h, c, w, n)), (0, 1))(x, w)
    want_x, want_w = jax.jit(jax.grad(lambda x, w: reference(x, w)[0], (0, 1)))(x, w)
    np.testing.assert_allclose(by_x, want_x, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(by_w, want_w, rtol=1e-3, atol=1e-4)


def test_gates_change_places():
    w = np.arange(ours.get_num_params_in_lstm(*SIZES, False), dtype=np.float32)
    assert w.size == theirs.get_num_params_in_lstm(*SIZES, False)
    swapped = ours.swap_lstm_gates(w, *SIZES, False)
    np.testing.assert_array_equal(swapped, theirs.swap_lstm_gates(w, *SIZES, False))
    np.testing.assert_array_equal(ours.swap_lstm_gates(swapped, *SIZES, False), w)


def test_mistakes():
    x, h, c, w, n = case(False, [4])
    with pytest.raises(NotImplementedError, match=r"^lstm: dropout must be 0, as cuDNN's "):
        ours.lstm(x, h, c, w, n, *SIZES, 0.5, False)
    with pytest.raises(TypeError, match="lstm: seq_lengths must be int32; got float32"):
        ours.lstm(x, h, c, w, np.float32(n), *SIZES, 0.0, False)
    for name in [n for n in dir(ours) if n[0] != "_"]:
        a, b = (inspect.signature(getattr(lib, name)).parameters for lib in (ours, theirs))
        assert [*a] == [*b]
