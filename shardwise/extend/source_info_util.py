"""The origin of operations: the user's source lines and name scopes."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.source_info import current as current
    from shardwise._src.extend.source_info import current_name_stack as current_name_stack
    from shardwise._src.extend.source_info import extend_name_stack as extend_name_stack
    from shardwise._src.extend.source_info import new_name_stack as new_name_stack
    from shardwise._src.extend.source_info import new_source_info as new_source_info
    from shardwise._src.extend.source_info import register_exclusion as register_exclusion
    from shardwise._src.extend.source_info import reset_name_stack as reset_name_stack
    from shardwise._src.extend.source_info import set_name_stack as set_name_stack
    from shardwise._src.extend.source_info import summarize as summarize
    from shardwise._src.extend.source_info import transform_name_stack as transform_name_stack
    from shardwise._src.extend.source_info import user_context as user_context
    from shardwise._src.messages.source import NameStack as NameStack
    from shardwise._src.messages.source import SourceInfo as SourceInfo

lazy_names(__name__)
