"""Building blocks for transforms of functions of pytrees."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.api_util import argnums_partial as argnums_partial
    from shardwise._src.extend.api_util import debug_info as debug_info
    from shardwise._src.extend.api_util import donation_vector as donation_vector
    from shardwise._src.extend.api_util import flatten_axes as flatten_axes
    from shardwise._src.extend.api_util import flatten_fun as flatten_fun
    from shardwise._src.extend.api_util import flatten_fun_nokwargs as flatten_fun_nokwargs
    from shardwise._src.extend.api_util import rebase_donate_argnums as rebase_donate_argnums
    from shardwise._src.extend.api_util import safe_map as safe_map
    from shardwise._src.extend.api_util import shaped_abstractify as shaped_abstractify

lazy_names(__name__)
