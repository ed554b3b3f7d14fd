"""Derivative checks against finite differences, at JAX's import path."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.testing.grads import check_grads as check_grads
    from shardwise._src.testing.grads import check_jvp as check_jvp
    from shardwise._src.testing.grads import check_vjp as check_vjp

lazy_names(__name__)
