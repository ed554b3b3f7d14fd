"""Dtypes: names for some of them, and information about each."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.errors import TypePromotionError as TypePromotionError
    from shardwise._src.types.dtypes import bfloat16 as bfloat16
    from shardwise._src.types.dtypes import canonicalize_dtype as canonicalize_dtype
    from shardwise._src.types.dtypes import extended as extended
    from shardwise._src.types.dtypes import finfo as finfo
    from shardwise._src.types.dtypes import float0 as float0
    from shardwise._src.types.dtypes import iinfo as iinfo
    from shardwise._src.types.dtypes import issubdtype as issubdtype
    from shardwise._src.types.dtypes import itemsize_bits as itemsize_bits
    from shardwise._src.types.dtypes import prng_key as prng_key
    from shardwise._src.types.promotion import result_type as result_type
    from shardwise._src.types.promotion import scalar_type_of as scalar_type_of

lazy_names(__name__)
