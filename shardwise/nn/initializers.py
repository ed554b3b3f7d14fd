"""Initial values of parameters: functions that return initializers `(key, shape, dtype) → array`.

    init = he_normal()
    weights = init(random.key(0), (784, 256), "float32")

The `variance_scaling` family scales with the number of inputs (`fan_in`) or outputs (`fan_out`) of
a layer: the sizes of `in_axis` and `out_axis` times those of the receptive field, all other axes.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.nn.initializers import Axes as Axes
    from shardwise._src.nn.initializers import Initializer as Initializer
    from shardwise._src.nn.initializers import constant as constant
    from shardwise._src.nn.initializers import delta_orthogonal as delta_orthogonal
    from shardwise._src.nn.initializers import glorot_normal as glorot_normal
    from shardwise._src.nn.initializers import glorot_uniform as glorot_uniform
    from shardwise._src.nn.initializers import he_normal as he_normal
    from shardwise._src.nn.initializers import he_uniform as he_uniform
    from shardwise._src.nn.initializers import kaiming_normal as kaiming_normal
    from shardwise._src.nn.initializers import kaiming_uniform as kaiming_uniform
    from shardwise._src.nn.initializers import lecun_normal as lecun_normal
    from shardwise._src.nn.initializers import lecun_uniform as lecun_uniform
    from shardwise._src.nn.initializers import normal as normal
    from shardwise._src.nn.initializers import ones as ones
    from shardwise._src.nn.initializers import orthogonal as orthogonal
    from shardwise._src.nn.initializers import truncated_normal as truncated_normal
    from shardwise._src.nn.initializers import uniform as uniform
    from shardwise._src.nn.initializers import variance_scaling as variance_scaling
    from shardwise._src.nn.initializers import xavier_normal as xavier_normal
    from shardwise._src.nn.initializers import xavier_uniform as xavier_uniform
    from shardwise._src.nn.initializers import zeros as zeros

lazy_names(__name__)
