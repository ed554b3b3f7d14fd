"""Functions with custom derivative rules, and helpers for writing such rules."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.autodiff.jvp_vjp import closure_convert as closure_convert
    from shardwise._src.autodiff.jvp_vjp import custom_gradient as custom_gradient
    from shardwise._src.autodiff.jvp_vjp import (
        custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
    )
    from shardwise._src.autodiff.jvp_vjp import zero_from_primal as zero_from_primal
    from shardwise._src.custom.custom_calls import SymbolicZero as SymbolicZero
    from shardwise._src.custom.custom_jvp import custom_jvp as custom_jvp
    from shardwise._src.custom.custom_jvp import custom_jvp_call as custom_jvp_call_p
    from shardwise._src.custom.custom_vjp import CustomVJPPrimal as CustomVJPPrimal
    from shardwise._src.custom.custom_vjp import custom_vjp as custom_vjp
    from shardwise._src.custom.custom_vjp import custom_vjp_call as custom_vjp_call_p
    from shardwise._src.custom.linear_call import linear_call as linear_call

lazy_names(__name__)
