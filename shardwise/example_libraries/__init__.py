"""Small libraries for training, with JAX's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.example_libraries import optimizers as optimizers
    from shardwise.example_libraries import stax as stax

lazy_names(__name__)
