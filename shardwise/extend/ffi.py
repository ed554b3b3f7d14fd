"""Foreign functions, at JAX's former import path: see `shardwise.ffi`."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.ffi.call_description import ffi_lowering as ffi_lowering
    from shardwise._src.ffi.ffi_call import ffi_call as ffi_call
    from shardwise._src.ffi.ffi_targets import include_dir as include_dir
    from shardwise._src.ffi.ffi_targets import pycapsule as pycapsule

lazy_names(__name__)
