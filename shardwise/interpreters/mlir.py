"""How users' primitives are compiled."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.rules import lower_fun as lower_fun
    from shardwise._src.extend.rules import register_lowering as register_lowering

lazy_names(__name__)
