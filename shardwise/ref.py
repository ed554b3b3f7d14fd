"""Mutable references: `new_ref`, `freeze`, and reading and writing as functions.

For example:

    r = new_ref(x)
    set(r, 0, 1.0)      # r[0] = 1.0
    get(r, slice(2))    # r[:2]
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.refs.ref_functions import AbstractRef as AbstractRef
    from shardwise._src.refs.ref_functions import Ref as Ref
    from shardwise._src.refs.ref_functions import addupdate as addupdate
    from shardwise._src.refs.ref_functions import empty_ref as empty_ref
    from shardwise._src.refs.ref_functions import free_ref as free_ref
    from shardwise._src.refs.ref_functions import freeze as freeze
    from shardwise._src.refs.ref_functions import get as get
    from shardwise._src.refs.ref_functions import new_ref as new_ref
    from shardwise._src.refs.ref_functions import set as set
    from shardwise._src.refs.ref_functions import swap as swap

lazy_names(__name__)
