"""Lowering rules for user-defined primitives."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.mlir_lowering import LoweringRule as LoweringRule
    from shardwise._src.extend.mlir_lowering import LoweringRuleContext as LoweringRuleContext
    from shardwise._src.extend.mlir_lowering import ModuleContext as ModuleContext
    from shardwise._src.extend.mlir_lowering import TokenSet as TokenSet
    from shardwise._src.extend.mlir_lowering import aval_to_ir_type as aval_to_ir_type
    from shardwise._src.extend.mlir_lowering import aval_to_ir_types as aval_to_ir_types
    from shardwise._src.extend.mlir_lowering import dtype_to_ir_type as dtype_to_ir_type
    from shardwise._src.extend.mlir_lowering import emit_python_callback as emit_python_callback
    from shardwise._src.extend.mlir_lowering import flatten_ir_types as flatten_ir_types
    from shardwise._src.extend.mlir_lowering import flatten_ir_values as flatten_ir_values
    from shardwise._src.extend.mlir_lowering import ir_attribute as ir_attribute
    from shardwise._src.extend.mlir_lowering import ir_constant as ir_constant
    from shardwise._src.extend.mlir_lowering import ir_constants as ir_constants
    from shardwise._src.extend.mlir_lowering import module_to_string as module_to_string
    from shardwise._src.extend.mlir_lowering import shape_tensor as shape_tensor
    from shardwise._src.extend.mlir_lowering import token_type as token_type
    from shardwise._src.extend.primitive_effects import EffectTypeSet as EffectTypeSet
    from shardwise._src.extend.primitive_effects import lowerable_effects as lowerable_effects
    from shardwise._src.extend.rule_tables import lower_fun as lower_fun
    from shardwise._src.extend.rule_tables import register_lowering as register_lowering
    from shardwise._src.runtime.compiler.mlir_bindings import Value as Value
    from shardwise._src.runtime.compiler.mlir_bindings import custom_call as custom_call
    from shardwise._src.runtime.compiler.mlir_bindings import dense_int_array as dense_int_array
    from shardwise._src.runtime.compiler.mlir_bindings import (
        dense_int_elements as dense_int_elements,
    )
    from shardwise._src.runtime.compiler.mlir_bindings import i32_attr as i32_attr
    from shardwise._src.runtime.compiler.mlir_bindings import i64_attr as i64_attr
    from shardwise._src.runtime.compiler.mlir_bindings import ir as ir
    from shardwise._src.runtime.compiler.mlir_bindings import make_ir_context as make_ir_context

lazy_names(__name__)
