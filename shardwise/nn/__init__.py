"""Functions for neural networks: activations, softmax and similar functions, attention, initializers."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.nn.activations import celu as celu
    from shardwise._src.nn.activations import elu as elu
    from shardwise._src.nn.activations import gelu as gelu
    from shardwise._src.nn.activations import glu as glu
    from shardwise._src.nn.activations import hard_sigmoid as hard_sigmoid
    from shardwise._src.nn.activations import hard_silu as hard_silu
    from shardwise._src.nn.activations import hard_swish as hard_swish
    from shardwise._src.nn.activations import hard_tanh as hard_tanh
    from shardwise._src.nn.activations import identity as identity
    from shardwise._src.nn.activations import leaky_relu as leaky_relu
    from shardwise._src.nn.activations import log1mexp as log1mexp
    from shardwise._src.nn.activations import log_sigmoid as log_sigmoid
    from shardwise._src.nn.activations import mish as mish
    from shardwise._src.nn.activations import relu as relu
    from shardwise._src.nn.activations import relu6 as relu6
    from shardwise._src.nn.activations import selu as selu
    from shardwise._src.nn.activations import sigmoid as sigmoid
    from shardwise._src.nn.activations import silu as silu
    from shardwise._src.nn.activations import soft_sign as soft_sign
    from shardwise._src.nn.activations import softplus as softplus
    from shardwise._src.nn.activations import sparse_plus as sparse_plus
    from shardwise._src.nn.activations import sparse_sigmoid as sparse_sigmoid
    from shardwise._src.nn.activations import squareplus as squareplus
    from shardwise._src.nn.activations import swish as swish
    from shardwise._src.nn.activations import tanh as tanh
    from shardwise._src.nn.attention import dot_product_attention as dot_product_attention
    from shardwise._src.nn.normalize import log_softmax as log_softmax
    from shardwise._src.nn.normalize import logmeanexp as logmeanexp
    from shardwise._src.nn.normalize import logsumexp as logsumexp
    from shardwise._src.nn.normalize import one_hot as one_hot
    from shardwise._src.nn.normalize import softmax as softmax
    from shardwise._src.nn.normalize import standardize as standardize
    from shardwise._src.nn.scaled import (
        get_scaled_dot_general_config as get_scaled_dot_general_config,
    )
    from shardwise._src.nn.scaled import scaled_dot_general as scaled_dot_general
    from shardwise._src.nn.scaled import scaled_matmul as scaled_matmul
    from shardwise.nn import initializers as initializers

lazy_names(__name__)
