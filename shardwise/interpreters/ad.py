"""Derivative rules for user-defined primitives."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.differentiation import jvp as jvp
    from shardwise._src.extend.differentiation import linearize as linearize
    from shardwise._src.extend.rule_tables import UndefinedPrimal as UndefinedPrimal
    from shardwise._src.extend.rule_tables import Zero as Zero
    from shardwise._src.extend.rule_tables import add_tangents as add_tangents
    from shardwise._src.extend.rule_tables import defbilinear as defbilinear
    from shardwise._src.extend.rule_tables import defjvp as defjvp
    from shardwise._src.extend.rule_tables import defjvp2 as defjvp2
    from shardwise._src.extend.rule_tables import deflinear as deflinear
    from shardwise._src.extend.rule_tables import deflinear2 as deflinear2
    from shardwise._src.extend.rule_tables import get_primitive_transpose as get_primitive_transpose
    from shardwise._src.extend.rule_tables import instantiate_zeros as instantiate_zeros
    from shardwise._src.extend.rule_tables import is_undefined_primal as is_undefined_primal
    from shardwise._src.extend.rule_tables import primitive_jvps as primitive_jvps
    from shardwise._src.extend.rule_tables import primitive_transposes as primitive_transposes
    from shardwise._src.extend.rule_tables import zeros_like_aval as zeros_like_aval
    from shardwise._src.ops.families import add as add_jaxvals
    from shardwise._src.ops.families import add as add_jaxvals_p
    from shardwise._src.transforms.jvp import JVP as JVPTrace
    from shardwise._src.transforms.jvp import JVPTracer as JVPTracer

lazy_names(__name__)
