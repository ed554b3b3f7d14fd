"""User-defined operations, and programs as data."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.errors import (
        InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    )
    from shardwise._src.base.errors import JaxprTypeError as JaxprTypeError
    from shardwise._src.core.checker import check_program as check_jaxpr
    from shardwise._src.core.program import DebugInfo as DebugInfo
    from shardwise._src.core.program import Equation as JaxprEqn
    from shardwise._src.core.program import Literal as Literal
    from shardwise._src.core.program import Var as Var
    from shardwise._src.extend.jaxpr import AbstractToken as AbstractToken
    from shardwise._src.extend.jaxpr import CallPrimitive as CallPrimitive
    from shardwise._src.extend.jaxpr import ClosedJaxpr as ClosedJaxpr
    from shardwise._src.extend.jaxpr import DropVar as DropVar
    from shardwise._src.extend.jaxpr import Effect as Effect
    from shardwise._src.extend.jaxpr import Effects as Effects
    from shardwise._src.extend.jaxpr import Jaxpr as Jaxpr
    from shardwise._src.extend.jaxpr import Token as Token
    from shardwise._src.extend.jaxpr import TraceTag as TraceTag
    from shardwise._src.extend.jaxpr import array_types as array_types
    from shardwise._src.extend.jaxpr import axis_names as unsafe_get_axis_names_DO_NOT_USE
    from shardwise._src.extend.jaxpr import call_impl as call_impl
    from shardwise._src.extend.jaxpr import concrete_or_error as concrete_or_error
    from shardwise._src.extend.jaxpr import find_top_trace as find_top_trace
    from shardwise._src.extend.jaxpr import gensym as gensym
    from shardwise._src.extend.jaxpr import get_opaque_trace_state as get_opaque_trace_state
    from shardwise._src.extend.jaxpr import jaxpr_as_fun as jaxpr_as_fun
    from shardwise._src.extend.jaxpr import jaxprs_in_params as jaxprs_in_params
    from shardwise._src.extend.jaxpr import mapped_aval as mapped_aval
    from shardwise._src.extend.jaxpr import new_jaxpr_eqn as new_jaxpr_eqn
    from shardwise._src.extend.jaxpr import no_effects as no_effects
    from shardwise._src.extend.jaxpr import nonempty_axis_env as nonempty_axis_env_DO_NOT_USE
    from shardwise._src.extend.jaxpr import (
        primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype,
    )
    from shardwise._src.extend.jaxpr import set_current_trace as set_current_trace
    from shardwise._src.extend.jaxpr import subjaxprs as subjaxprs
    from shardwise._src.extend.jaxpr import take_current_trace as take_current_trace
    from shardwise._src.extend.jaxpr import under_jit as unsafe_am_i_under_a_jit_DO_NOT_USE
    from shardwise._src.extend.jaxpr import under_vmap as unsafe_am_i_under_a_vmap_DO_NOT_USE
    from shardwise._src.extend.jaxpr import unmapped_aval as unmapped_aval
    from shardwise._src.extend.jaxpr import valid_jaxtype as valid_jaxtype
    from shardwise._src.extend.primitive import Primitive as Primitive
    from shardwise.extend.core import primitives as primitives

lazy_names(__name__)
