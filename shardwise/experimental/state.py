"""`run_state`: functions that write to refs, as functions of values."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.refs.run_state import Ref as Ref
    from shardwise._src.refs.run_state import run_state as run_state

lazy_names(__name__)
