"""Functions with custom derivative rules, and helpers for writing such rules."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.api.derivatives import closure_convert as closure_convert
    from shardwise._src.api.derivatives import custom_gradient as custom_gradient
    from shardwise._src.api.derivatives import (
        custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
    )
    from shardwise._src.api.derivatives import zero_from_primal as zero_from_primal
    from shardwise._src.custom.common import SymbolicZero as SymbolicZero
    from shardwise._src.custom.jvp import custom_jvp as custom_jvp
    from shardwise._src.custom.jvp import custom_jvp_call as custom_jvp_call_p
    from shardwise._src.custom.linear_call import linear_call as linear_call
    from shardwise._src.custom.vjp import CustomVJPPrimal as CustomVJPPrimal
    from shardwise._src.custom.vjp import custom_vjp as custom_vjp
    from shardwise._src.custom.vjp import custom_vjp_call as custom_vjp_call_p

lazy_names(__name__)
