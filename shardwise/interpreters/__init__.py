"""Transform rules for user-defined primitives, at JAX's import paths."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.interpreters import ad as ad
    from shardwise.interpreters import batching as batching
    from shardwise.interpreters import mlir as mlir
    from shardwise.interpreters import partial_eval as partial_eval
    from shardwise.interpreters import pxla as pxla
    from shardwise.interpreters import xla as xla

lazy_names(__name__)
