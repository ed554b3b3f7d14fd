"""Neural networks as pairs of functions."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.models.stax import AvgPool as AvgPool
    from shardwise._src.models.stax import BatchNorm as BatchNorm
    from shardwise._src.models.stax import Conv as Conv
    from shardwise._src.models.stax import Conv1DTranspose as Conv1DTranspose
    from shardwise._src.models.stax import ConvTranspose as ConvTranspose
    from shardwise._src.models.stax import Dense as Dense
    from shardwise._src.models.stax import Dropout as Dropout
    from shardwise._src.models.stax import Elu as Elu
    from shardwise._src.models.stax import Exp as Exp
    from shardwise._src.models.stax import FanInConcat as FanInConcat
    from shardwise._src.models.stax import FanInSum as FanInSum
    from shardwise._src.models.stax import FanOut as FanOut
    from shardwise._src.models.stax import Flatten as Flatten
    from shardwise._src.models.stax import Gelu as Gelu
    from shardwise._src.models.stax import GeneralConv as GeneralConv
    from shardwise._src.models.stax import GeneralConvTranspose as GeneralConvTranspose
    from shardwise._src.models.stax import Identity as Identity
    from shardwise._src.models.stax import LeakyRelu as LeakyRelu
    from shardwise._src.models.stax import LogSoftmax as LogSoftmax
    from shardwise._src.models.stax import MaxPool as MaxPool
    from shardwise._src.models.stax import Relu as Relu
    from shardwise._src.models.stax import Selu as Selu
    from shardwise._src.models.stax import Sigmoid as Sigmoid
    from shardwise._src.models.stax import Softmax as Softmax
    from shardwise._src.models.stax import Softplus as Softplus
    from shardwise._src.models.stax import SumPool as SumPool
    from shardwise._src.models.stax import Tanh as Tanh
    from shardwise._src.models.stax import elementwise as elementwise
    from shardwise._src.models.stax import glorot as glorot
    from shardwise._src.models.stax import logsoftmax as logsoftmax
    from shardwise._src.models.stax import parallel as parallel
    from shardwise._src.models.stax import randn as randn
    from shardwise._src.models.stax import serial as serial
    from shardwise._src.models.stax import shape_dependent as shape_dependent

lazy_names(__name__)
