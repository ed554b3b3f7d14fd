"""Platform clients and their compiled executables."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.backend_clients import backend_xla_version as backend_xla_version
    from shardwise._src.extend.backend_clients import backends as backends
    from shardwise._src.extend.backend_clients import clear_backends as clear_backends
    from shardwise._src.extend.backend_clients import (
        clear_in_memory_compilation_cache as clear_in_memory_compilation_cache,
    )
    from shardwise._src.extend.backend_clients import get_backend as get_backend
    from shardwise._src.extend.backend_clients import get_compile_options as get_compile_options
    from shardwise._src.extend.backend_clients import get_default_device as get_default_device
    from shardwise._src.extend.backend_clients import (
        register_backend_cache as register_backend_cache,
    )
    from shardwise._src.extend.backend_clients import (
        register_backend_factory as register_backend_factory,
    )
    from shardwise._src.extend.backend_clients import register_platform as register_platform
    from shardwise._src.runtime.platforms import Platform as Platform
    from shardwise._src.runtime.platforms import pjrt_plugin as pjrt_plugin

lazy_names(__name__)
