"""Functions wrapped in transformations."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.linear_util import StoreException as StoreException
    from shardwise._src.extend.linear_util import WrappedFun as WrappedFun
    from shardwise._src.extend.linear_util import cache as cache
    from shardwise._src.extend.linear_util import merge_linear_aux as merge_linear_aux
    from shardwise._src.extend.linear_util import transformation as transformation
    from shardwise._src.extend.linear_util import transformation2 as transformation2
    from shardwise._src.extend.linear_util import transformation_with_aux as transformation_with_aux
    from shardwise._src.extend.linear_util import (
        transformation_with_aux2 as transformation_with_aux2,
    )
    from shardwise._src.extend.linear_util import wrap_init as wrap_init

lazy_names(__name__)
