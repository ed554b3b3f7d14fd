"""Partial evaluation of functions, and dead code elimination in programs."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.partial_eval import PartialVal as PartialVal
    from shardwise._src.extend.partial_eval import Val as Val
    from shardwise._src.extend.partial_eval import (
        custom_partial_eval_rules as custom_partial_eval_rules,
    )
    from shardwise._src.extend.partial_eval import dce_jaxpr as dce_jaxpr
    from shardwise._src.extend.partial_eval import dce_jaxpr_call_rule as dce_jaxpr_call_rule
    from shardwise._src.extend.partial_eval import dce_jaxpr_call_rule as dce_jaxpr_closed_call_rule
    from shardwise._src.extend.partial_eval import dce_jaxpr_consts as dce_jaxpr_consts
    from shardwise._src.extend.partial_eval import (
        partial_eval_jaxpr_custom_rules as partial_eval_jaxpr_custom_rules,
    )
    from shardwise._src.extend.partial_eval import trace_to_jaxpr_dynamic as trace_to_jaxpr_dynamic
    from shardwise._src.extend.partial_eval import trace_to_jaxpr_nounits as trace_to_jaxpr_nounits
    from shardwise._src.extend.rule_tables import dce_rules as dce_rules
    from shardwise._src.transforms.stage import StageTracer as DynamicJaxprTracer
    from shardwise._src.transforms.stage import StageTracer as JaxprTracer

lazy_names(__name__)
