"""Options for XLA's compiler."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.backend_clients import (
        create_compile_options as create_compile_options,
    )

lazy_names(__name__)
