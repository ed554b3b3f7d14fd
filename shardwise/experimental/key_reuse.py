"""Checks that no random key is used twice: the flag `debug_key_reuse`.

For example:

    with debug_key_reuse(True):
        random.normal(key)
        random.normal(key)      # KeyReuseError
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.config import debug_key_reuse as debug_key_reuse
    from shardwise._src.base.errors import KeyReuseError as KeyReuseError

lazy_names(__name__)
