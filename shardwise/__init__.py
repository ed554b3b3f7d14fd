"""shardwise: NumPy-style programs over global, sharded arrays."""

from shardwise.engine.eager import EAGER
