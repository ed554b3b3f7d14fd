"""The building blocks of programs, under JAX's names.

`make_jaxpr` returns a `Program`; its types are `ShapedArray`s, printed as `f32[8,4]`.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.core.checker import check_program as check_jaxpr
    from shardwise._src.core.eval_context import eval_context as eval_context
    from shardwise._src.core.infer import type_of as get_aval
    from shardwise._src.core.interpreter import Interpreter as Trace
    from shardwise._src.core.program import Atom as Atom
    from shardwise._src.core.program import Equation as JaxprEqn
    from shardwise._src.core.program import Literal as Literal
    from shardwise._src.core.program import Program as Jaxpr
    from shardwise._src.core.program import Var as Var
    from shardwise._src.core.program import eval_jaxpr as eval_jaxpr
    from shardwise._src.export.symbolic_dims import max_dim as max_dim
    from shardwise._src.export.symbolic_dims import min_dim as min_dim
    from shardwise._src.extend.jaxpr import ParamDict as ParamDict
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
    "AbstractValue",
    "Atom",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "NamedShape",
    "ParamDict",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Value",
    "Var",
    "check_jaxpr",
    "ensure_compile_time_eval",
    "eval_context",
    "eval_jaxpr",
    "get_aval",
    "max_dim",
    "min_dim",
    "pytype_aval_mappings",
]
lazy_names(__name__)
