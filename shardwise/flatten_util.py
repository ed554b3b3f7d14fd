"""Pytrees of arrays as vectors."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy.raveled import ravel_pytree as ravel_pytree

lazy_names(__name__)
