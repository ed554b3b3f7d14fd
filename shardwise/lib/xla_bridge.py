"""Backends, at JAX's former import path."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.backend_clients import get_backend as get_backend
    from shardwise._src.extend.backend_clients import get_compile_options as get_compile_options
    from shardwise._src.placement.device_put import default_backend as default_backend

lazy_names(__name__)
