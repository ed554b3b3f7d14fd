"""The NumPy API as plain typed functions over ops, with one file per subject.

Methods of values call functions of these modules, which load on first use.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy import bit_views as bit_views
    from shardwise._src.numpy import creation as creation
    from shardwise._src.numpy import picking as picking
    from shardwise._src.numpy import rearrange as rearrange
    from shardwise._src.numpy import shapes as shapes
    from shardwise._src.numpy import unary as unary
    from shardwise._src.numpy.ordering import searching as searching
    from shardwise._src.numpy.ordering import sorting as sorting
    from shardwise._src.numpy.products import contractions as contractions
    from shardwise._src.numpy.statistics import averages as averages
    from shardwise._src.numpy.statistics import reductions as reductions
    from shardwise._src.numpy.statistics import scans as scans

lazy_names(__name__)
