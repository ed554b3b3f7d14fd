"""The NumPy API as plain typed functions over ops, with one file per subject.

Methods of values call functions in modules that need `Value`; those modules load on first use.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy import at as at
    from shardwise._src.numpy import binary as binary
    from shardwise._src.numpy import contractions as contractions
    from shardwise._src.numpy import creation as creation
    from shardwise._src.numpy import indexing as indexing
    from shardwise._src.numpy import linalg as linalg
    from shardwise._src.numpy import picking as picking
    from shardwise._src.numpy import rearrange as rearrange
    from shardwise._src.numpy import reductions as reductions
    from shardwise._src.numpy import scans as scans
    from shardwise._src.numpy import searching as searching
    from shardwise._src.numpy import shapes as shapes
    from shardwise._src.numpy import sorting as sorting
    from shardwise._src.numpy import statistics as statistics
    from shardwise._src.numpy import unary as unary

lazy_names(__name__)
