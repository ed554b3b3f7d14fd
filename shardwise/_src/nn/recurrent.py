"""Long short-term memory: layers of LSTM cells over sequences, with cuDNN's weight layout."""

from __future__ import annotations

import math
from typing import Any

from shardwise._src.control.scan_api import scan
from shardwise._src.nn.activations import sigmoid
from shardwise._src.numpy.creation import asarray, zeros_like
from shardwise._src.numpy.joining import concatenate, stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.picking import take_along_axis
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.unary import tanh
from shardwise._src.random.draws import uniform
from shardwise._src.types.annotations import Array, ArrayLike

Weights = dict[int, Any]  # by layer number; backward layers are odd, if bidirectional


def _shapes(
    input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> list[tuple[int, ...]]:
    """Shapes of W_ih and W_hh for each layer, then of b_ih and b_hh."""
    ways, rows = 1 + bool(bidirectional), 4 * hidden_size
    found: list[tuple[int, ...]] = []
    for layer in range(num_layers * ways):
        inputs = input_size if layer < ways else ways * hidden_size
        found += [(rows, inputs), (rows, hidden_size)]
    return found + [(rows,)] * (2 * num_layers * ways)


def get_num_params_in_lstm(
    input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> int:
    """The number of weights that `lstm` takes."""
    shapes = _shapes(input_size, hidden_size, num_layers, bidirectional)
    return sum(math.prod(s) for s in shapes)


def init_lstm_weight(
    rng: Array, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Array:
    """A vector of weights, uniform in ±1 / √hidden_size."""
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    k = hidden_size**-0.5
    return uniform(rng, (count,), "float32", -k, k)


def _pieces(weights: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    found, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        found.append(weights[start:end].reshape(shape))
        start = end
    return found


def unpack_lstm_weights(
    weights: ArrayLike, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[Weights, Weights, Weights, Weights]:
    """(W_ih, W_hh, b_ih, b_hh) by layer, from a vector of weights.

    Rows are in the order of the gates i, f, g, o; with two directions, backward layers are odd.
    """
    shapes = _shapes(input_size, hidden_size, num_layers, bidirectional)
    found = _pieces(asarray(weights), shapes)
    half = len(found) // 2
    parts = found[:half:2], found[1:half:2], found[half::2], found[half + 1 :: 2]
    w_ih, w_hh, b_ih, b_hh = [dict(enumerate(p)) for p in parts]
    return w_ih, w_hh, b_ih, b_hh


def swap_lstm_gates(
    weights: ArrayLike, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Array:
    """A vector of weights with the last two gates, g and o, swapped."""
    shapes = _shapes(input_size, hidden_size, num_layers, bidirectional)
    n = hidden_size
    pieces = _pieces(asarray(weights), shapes)
    swapped = [concatenate([p[: 2 * n], p[3 * n :], p[2 * n : 3 * n]]) for p in pieces]
    return concatenate([p.reshape(-1) for p in swapped])


def lstm(
    x: ArrayLike,
    h_0: ArrayLike,
    c_0: ArrayLike,
    weights: ArrayLike,
    seq_lengths: ArrayLike,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any = None,
) -> tuple[Array, Array, Array]:
    """Layers of LSTM cells over sequences.

    Args:
      x: (batch, time, input_size). h_0, c_0: (layers · directions, batch, hidden_size).
      weights: a vector; see `get_num_params_in_lstm` and `unpack_lstm_weights`.
      seq_lengths: int32[batch]: the valid length of each sequence.
      dropout: must be 0. precision: of matrix products.

    Returns:
      (outputs (batch, time, directions · hidden_size), 0 past the sequence ends; last h; last c)

    A composition on every device, with all derivatives; cuDNN is not called.
    """
    args = input_size, hidden_size, num_layers
    unpacked = unpack_lstm_weights(weights, *args, bidirectional)
    return _lstm(x, h_0, c_0, unpacked, seq_lengths, num_layers, dropout, bidirectional, precision)


def lstm_ref(
    x: ArrayLike,
    h_0: ArrayLike,
    c_0: ArrayLike,
    W_ih: Weights,
    W_hh: Weights,
    b_ih: Weights,
    b_hh: Weights,
    seq_lengths: ArrayLike,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
) -> tuple[Array, Array, Array]:
    """`lstm` with weights by layer."""
    unpacked = W_ih, W_hh, b_ih, b_hh
    return _lstm(x, h_0, c_0, unpacked, seq_lengths, num_layers, dropout, bidirectional, None)


def _lstm(
    x: Any,
    h_0: Any,
    c_0: Any,
    weights: tuple[Weights, ...],
    lengths: Any,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any,
) -> tuple[Any, Any, Any]:
    lengths, h_0, c_0 = asarray(lengths), asarray(h_0), asarray(c_0)
    if lengths.dtype != "int32":
        raise TypeError(f"lstm: seq_lengths must be int32; got {lengths.dtype}.")
    if dropout:
        raise NotImplementedError(
            "lstm: dropout must be 0, as cuDNN's dropout mask cannot be reproduced; got "
            f"{dropout}. Call it for each layer with num_layers=1, and multiply the output of each "
            "layer but the last by `shardwise.random.bernoulli(key, 1 - dropout, x.shape) / (1 - "
            "dropout)`."
        )
    ways, x = 1 + bool(bidirectional), asarray(x).transpose((1, 0, 2))
    steps = arange(x.shape[0], dtype="int32")[:, None]
    there = steps < lengths
    turned = where(there, lengths - 1 - steps, steps)[..., None]  # each sequence reversed
    last: list[Any] = []
    for layer in range(num_layers):
        outputs = []
        for way in range(ways):
            k = layer * ways + way
            given = take_along_axis(x, turned, 0) if way else x
            own = [w[k] for w in weights]
            h, c, y = _layer(given, h_0[k], c_0[k], own, there[..., None], precision)
            outputs.append(take_along_axis(y, turned, 0) if way else y)
            last.append((h, c))
        x = outputs[0] if ways == 1 else concatenate(outputs, -1)
    return x.transpose((1, 0, 2)), stack([h for h, _ in last]), stack([c for _, c in last])


def _layer(x: Any, h: Any, c: Any, weights: list[Any], there: Any, precision: Any) -> Any:
    """One layer over (time, batch, inputs); states are frozen after sequences end."""
    w_ih, w_hh, b_ih, b_hh = weights
    gates = matmul(x, w_ih.T, precision=precision) + (b_ih + b_hh)

    def step(state: Any, given: Any) -> tuple[Any, Any]:
        (h, c), (z, on) = state, given
        z = z + matmul(h, w_hh.T, precision=precision)
        n = h.shape[-1]
        i, f, g, o = [z[..., k * n : (k + 1) * n] for k in range(4)]
        new_c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        new_h = sigmoid(o) * tanh(new_c)
        y = where(on, new_h, zeros_like(new_h))
        return (where(on, new_h, h), where(on, new_c, c)), y

    (h, c), y = scan(step, (h, c), (gates, there))
    return h, c, y
