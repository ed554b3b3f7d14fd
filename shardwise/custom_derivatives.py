"""Functions with derivative rules of their own, and what such rules are written with."""

from shardwise.api.derivatives import closure_convert as closure_convert
from shardwise.api.derivatives import custom_gradient as custom_gradient
from shardwise.api.derivatives import (
    custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
)
from shardwise.api.derivatives import zero_from_primal as zero_from_primal
from shardwise.control.custom_common import SymbolicZero as SymbolicZero
from shardwise.control.custom_jvp import custom_jvp as custom_jvp
from shardwise.control.custom_vjp import CustomVJPPrimal as CustomVJPPrimal
from shardwise.control.custom_vjp import custom_vjp as custom_vjp
from shardwise.control.linear_call import linear_call as linear_call
