"""Optimizers and schedules of their step sizes."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.api_util import safe_map as map
    from shardwise._src.extend.api_util import safe_zip as zip
    from shardwise._src.models.optimizers import Array as Array
    from shardwise._src.models.optimizers import InitFn as InitFn
    from shardwise._src.models.optimizers import JoinPoint as JoinPoint
    from shardwise._src.models.optimizers import Optimizer as Optimizer
    from shardwise._src.models.optimizers import OptimizerState as OptimizerState
    from shardwise._src.models.optimizers import Params as Params
    from shardwise._src.models.optimizers import ParamsFn as ParamsFn
    from shardwise._src.models.optimizers import Schedule as Schedule
    from shardwise._src.models.optimizers import State as State
    from shardwise._src.models.optimizers import Step as Step
    from shardwise._src.models.optimizers import UpdateFn as UpdateFn
    from shardwise._src.models.optimizers import Updates as Updates
    from shardwise._src.models.optimizers import adagrad as adagrad
    from shardwise._src.models.optimizers import adam as adam
    from shardwise._src.models.optimizers import adamax as adamax
    from shardwise._src.models.optimizers import clip_grads as clip_grads
    from shardwise._src.models.optimizers import constant as constant
    from shardwise._src.models.optimizers import exponential_decay as exponential_decay
    from shardwise._src.models.optimizers import inverse_time_decay as inverse_time_decay
    from shardwise._src.models.optimizers import l2_norm as l2_norm
    from shardwise._src.models.optimizers import make_schedule as make_schedule
    from shardwise._src.models.optimizers import momentum as momentum
    from shardwise._src.models.optimizers import nesterov as nesterov
    from shardwise._src.models.optimizers import optimizer as optimizer
    from shardwise._src.models.optimizers import pack_optimizer_state as pack_optimizer_state
    from shardwise._src.models.optimizers import piecewise_constant as piecewise_constant
    from shardwise._src.models.optimizers import polynomial_decay as polynomial_decay
    from shardwise._src.models.optimizers import rmsprop as rmsprop
    from shardwise._src.models.optimizers import rmsprop_momentum as rmsprop_momentum
    from shardwise._src.models.optimizers import sgd as sgd
    from shardwise._src.models.optimizers import sm3 as sm3
    from shardwise._src.models.optimizers import unpack_optimizer_state as unpack_optimizer_state

lazy_names(__name__)
