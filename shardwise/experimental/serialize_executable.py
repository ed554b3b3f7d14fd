"""Compiled programs as bytes, for other processes on machines like this one."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.jit.serialize_executable import deserialize_and_load as deserialize_and_load
    from shardwise._src.jit.serialize_executable import serialize as serialize

lazy_names(__name__)
