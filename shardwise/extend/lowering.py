"""The arguments of lowering rules, and a context for MLIR's bindings."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.mlir_lowering import LoweringRuleContext as LoweringRuleContext
    from shardwise._src.runtime.compiler.mlir_bindings import JaxIrContext as JaxIrContext
    from shardwise._src.runtime.compiler.mlir_bindings import upstream_dialects as upstream_dialects

lazy_names(__name__)
