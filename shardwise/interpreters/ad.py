"""Derivative rules for user-defined primitives."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.differentiation import jvp as jvp
    from shardwise._src.extend.differentiation import linearize as linearize
    from shardwise._src.extend.rules import UndefinedPrimal as UndefinedPrimal
    from shardwise._src.extend.rules import Zero as Zero
    from shardwise._src.extend.rules import add_tangents as add_tangents
    from shardwise._src.extend.rules import defbilinear as defbilinear
    from shardwise._src.extend.rules import defjvp as defjvp
    from shardwise._src.extend.rules import defjvp2 as defjvp2
    from shardwise._src.extend.rules import deflinear as deflinear
    from shardwise._src.extend.rules import deflinear2 as deflinear2
    from shardwise._src.extend.rules import get_primitive_transpose as get_primitive_transpose
    from shardwise._src.extend.rules import instantiate_zeros as instantiate_zeros
    from shardwise._src.extend.rules import is_undefined_primal as is_undefined_primal
    from shardwise._src.extend.rules import primitive_jvps as primitive_jvps
    from shardwise._src.extend.rules import primitive_transposes as primitive_transposes
    from shardwise._src.extend.rules import zeros_like_aval as zeros_like_aval
    from shardwise._src.ops.families import add as add_jaxvals
    from shardwise._src.ops.families import add as add_jaxvals_p
    from shardwise._src.transforms.jvp import JVP as JVPTrace
    from shardwise._src.transforms.jvp import JVPTracer as JVPTracer

lazy_names(__name__)
