"""Recurrent neural networks."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.arrays.array import Array as PRNGKeyArray
    from shardwise._src.nn.activations import sigmoid as sigmoid
    from shardwise._src.nn.recurrent import get_num_params_in_lstm as get_num_params_in_lstm
    from shardwise._src.nn.recurrent import init_lstm_weight as init_lstm_weight
    from shardwise._src.nn.recurrent import lstm as lstm
    from shardwise._src.nn.recurrent import lstm_ref as lstm_ref
    from shardwise._src.nn.recurrent import swap_lstm_gates as swap_lstm_gates
    from shardwise._src.nn.recurrent import unpack_lstm_weights as unpack_lstm_weights
    from shardwise._src.numpy.unary import tanh as tanh

lazy_names(__name__)
