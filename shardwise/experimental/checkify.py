"""Errors as values: functions that return an error in addition to their result.

For example:

    error, y = checkify(jit(f))(x)
    error.throw()
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.debug.checkify import Error as Error
    from shardwise._src.debug.checkify import ErrorCategory as ErrorCategory
    from shardwise._src.debug.checkify import JaxRuntimeError as JaxRuntimeError
    from shardwise._src.debug.checkify import all_checks as all_checks
    from shardwise._src.debug.checkify import automatic_checks as automatic_checks
    from shardwise._src.debug.checkify import check as check
    from shardwise._src.debug.checkify import check_error as check_error
    from shardwise._src.debug.checkify import checkify as checkify
    from shardwise._src.debug.checkify import debug_check as debug_check
    from shardwise._src.debug.checkify import div_checks as div_checks
    from shardwise._src.debug.checkify import float_checks as float_checks
    from shardwise._src.debug.checkify import index_checks as index_checks
    from shardwise._src.debug.checkify import init_error as init_error
    from shardwise._src.debug.checkify import nan_checks as nan_checks
    from shardwise._src.debug.checkify import user_checks as user_checks

lazy_names(__name__)
