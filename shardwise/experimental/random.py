"""A random number generator that stores its own state: `stateful_rng`."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.random.stateful import StatefulPRNG as StatefulPRNG
    from shardwise._src.random.stateful import stateful_rng as stateful_rng

lazy_names(__name__)
