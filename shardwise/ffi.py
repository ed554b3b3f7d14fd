"""Foreign functions: kernels in C++ (or CUDA) as functions of arrays.

For example:

    library = shardwise.ffi.build_and_load("rms_norm.cc", {"rms_norm": "RmsNorm"})
    y = shardwise.ffi.ffi_call("rms_norm", ShapeDtypeStruct(x.shape, x.dtype))(x, eps=1e-5)
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.ffi.call_description import (
        build_ffi_lowering_function as build_ffi_lowering_function,
    )
    from shardwise._src.ffi.call_description import ffi_lowering as ffi_lowering
    from shardwise._src.ffi.cpp_building import build_and_load as build_and_load
    from shardwise._src.ffi.ffi_call import ffi_call as ffi_call
    from shardwise._src.ffi.ffi_targets import include_dir as include_dir
    from shardwise._src.ffi.ffi_targets import pycapsule as pycapsule
    from shardwise._src.ffi.ffi_targets import register_ffi_target as register_ffi_target
    from shardwise._src.ffi.ffi_targets import (
        register_ffi_target_as_batch_partitionable as register_ffi_target_as_batch_partitionable,
    )
    from shardwise._src.ffi.ffi_targets import register_ffi_type as register_ffi_type
    from shardwise._src.ffi.ffi_targets import register_ffi_type_id as register_ffi_type_id

lazy_names(__name__)
