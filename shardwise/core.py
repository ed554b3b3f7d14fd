"""The building blocks of programs, under JAX's names.

`make_jaxpr` returns a `Program`; its types are `ShapedArray`s, printed as `f32[8,4]`.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.errors import ConcretizationTypeError as ConcretizationTypeError
    from shardwise._src.base.errors import (
        InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    )
    from shardwise._src.base.errors import JaxprTypeError as JaxprTypeError
    from shardwise._src.compat.core_names import abstract_token as abstract_token
    from shardwise._src.compat.core_names import as_named_shape as as_named_shape
    from shardwise._src.compat.core_names import axis_frame as axis_frame
    from shardwise._src.compat.core_names import canonicalize_shape as canonicalize_shape
    from shardwise._src.compat.core_names import check_valid_jaxtype as check_valid_jaxtype
    from shardwise._src.compat.core_names import definitely_equal as definitely_equal
    from shardwise._src.compat.core_names import definitely_equal as symbolic_equal_dim
    from shardwise._src.compat.core_names import dimension_as_value as dimension_as_value
    from shardwise._src.compat.core_names import extend_axis_env as extend_axis_env
    from shardwise._src.compat.core_names import extend_axis_env_nd as extend_axis_env_nd
    from shardwise._src.compat.core_names import is_constant_dim as is_constant_dim
    from shardwise._src.compat.core_names import is_constant_shape as is_constant_shape
    from shardwise._src.compat.core_names import lattice_join as lattice_join
    from shardwise._src.compat.core_names import non_negative_dim as non_negative_dim
    from shardwise._src.compat.core_names import raise_to_shaped as raise_to_shaped
    from shardwise._src.compat.core_names import typecheck as typecheck
    from shardwise._src.compat.core_names import typematch as typematch
    from shardwise._src.compat.private_values import trace_state_clean as trace_state_clean
    from shardwise._src.core.checker import check_program as check_jaxpr
    from shardwise._src.core.eval_context import eval_context as eval_context
    from shardwise._src.core.infer import type_of as concrete_aval
    from shardwise._src.core.infer import type_of as get_aval
    from shardwise._src.core.interpreter import Interpreter as Trace
    from shardwise._src.core.program import Atom as Atom
    from shardwise._src.core.program import Equation as JaxprEqn
    from shardwise._src.core.program import Literal as Literal
    from shardwise._src.core.program import Var as Var
    from shardwise._src.core.program import eval_jaxpr as eval_jaxpr
    from shardwise._src.export.symbolic_dims import max_dim as max_dim
    from shardwise._src.export.symbolic_dims import min_dim as min_dim
    from shardwise._src.extend.jaxpr import AbstractToken as AbstractToken
    from shardwise._src.extend.jaxpr import CallPrimitive as CallPrimitive
    from shardwise._src.extend.jaxpr import ClosedJaxpr as ClosedJaxpr
    from shardwise._src.extend.jaxpr import DropVar as DropVar
    from shardwise._src.extend.jaxpr import Effect as Effect
    from shardwise._src.extend.jaxpr import Effects as Effects
    from shardwise._src.extend.jaxpr import Jaxpr as Jaxpr
    from shardwise._src.extend.jaxpr import ParamDict as ParamDict
    from shardwise._src.extend.jaxpr import Token as Token
    from shardwise._src.extend.jaxpr import call_impl as call_impl
    from shardwise._src.extend.jaxpr import call_p as call_p
    from shardwise._src.extend.jaxpr import closed_call_p as closed_call_p
    from shardwise._src.extend.jaxpr import concrete_or_error as concrete_or_error
    from shardwise._src.extend.jaxpr import find_top_trace as find_top_trace
    from shardwise._src.extend.jaxpr import gensym as gensym
    from shardwise._src.extend.jaxpr import jaxpr_as_fun as jaxpr_as_fun
    from shardwise._src.extend.jaxpr import jaxprs_in_params as jaxprs_in_params
    from shardwise._src.extend.jaxpr import mapped_aval as mapped_aval
    from shardwise._src.extend.jaxpr import new_jaxpr_eqn as new_jaxpr_eqn
    from shardwise._src.extend.jaxpr import no_effects as no_effects
    from shardwise._src.extend.jaxpr import (
        primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype,
    )
    from shardwise._src.extend.jaxpr import subjaxprs as subjaxprs
    from shardwise._src.extend.jaxpr import unmapped_aval as unmapped_aval
    from shardwise._src.extend.jaxpr import valid_jaxtype as valid_jaxtype
    from shardwise._src.extend.primitive import Primitive as Primitive
    from shardwise._src.extend.rule_tables import (
        canonicalize_dtype_handlers as pytype_aval_mappings,
    )
    from shardwise._src.jit.eval_shape import ensure_compile_time_eval as ensure_compile_time_eval
    from shardwise._src.transforms.tracer import Tracer as Tracer
    from shardwise._src.types.array_type import ArrayType as AbstractValue
    from shardwise._src.types.array_type import ArrayType as ShapedArray
    from shardwise._src.types.named_shape import NamedShape as NamedShape
    from shardwise._src.values.value import Value as Value

__all__ = [
    "AbstractToken",
    "AbstractValue",
    "Atom",
    "CallPrimitive",
    "ClosedJaxpr",
    "ConcretizationTypeError",
    "DropVar",
    "Effect",
    "Effects",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "JaxprTypeError",
    "Literal",
    "NamedShape",
    "ParamDict",
    "Primitive",
    "ShapedArray",
    "Token",
    "Trace",
    "Tracer",
    "Value",
    "Var",
    "abstract_token",
    "as_named_shape",
    "axis_frame",
    "call_impl",
    "call_p",
    "canonicalize_shape",
    "check_jaxpr",
    "check_valid_jaxtype",
    "closed_call_p",
    "concrete_aval",
    "concrete_or_error",
    "definitely_equal",
    "dimension_as_value",
    "ensure_compile_time_eval",
    "eval_context",
    "eval_jaxpr",
    "extend_axis_env",
    "extend_axis_env_nd",
    "find_top_trace",
    "gensym",
    "get_aval",
    "is_constant_dim",
    "is_constant_shape",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "lattice_join",
    "mapped_aval",
    "max_dim",
    "min_dim",
    "new_jaxpr_eqn",
    "no_effects",
    "non_negative_dim",
    "primal_dtype_to_tangent_dtype",
    "pytype_aval_mappings",
    "raise_to_shaped",
    "subjaxprs",
    "symbolic_equal_dim",
    "trace_state_clean",
    "typecheck",
    "typematch",
    "unmapped_aval",
    "valid_jaxtype",
]
lazy_names(__name__)
