"""Samples of every op, by name, collected from a file per category."""

from __future__ import annotations

from shardwise.testing import Sample
from tests.ops import (
    samples_arrays,
    samples_basis,
    samples_elementwise,
    samples_factors,
    samples_fourier,
    samples_matrices,
    samples_random,
    samples_reduce,
    samples_windows,
)

SAMPLES: dict[str, list[Sample]] = {
    **samples_basis.SAMPLES,
    **samples_elementwise.SAMPLES,
    **samples_arrays.SAMPLES,
    **samples_reduce.SAMPLES,
    **samples_random.SAMPLES,
    **samples_matrices.SAMPLES,
    **samples_fourier.SAMPLES,
    **samples_factors.SAMPLES,
    **samples_windows.SAMPLES,
}

# Ops that cannot be checked alone, with the reason.
UNSAMPLED: dict[str, str] = {
    "mosaic_call": "TPU's form of kernel_call: tests/kernels/test_mosaic.py",
    "jit": "holds a program; tests/api",
    "call_exported": "holds a module; tests/export",
    "platform_number": "in exported programs; tests/export/test_symbolic_lowering.py",
    "reduce": "holds a program; tests/control",
    "reduce_window": "holds a program; tests/lax/test_reduce_windows.py",
    "scan": "holds a program; tests/control",
    "cond": "holds programs; tests/control",
    "shard_map": "holds a program; tests/maps/test_shard_map.py",
    **{
        name: "knows what is shared along a named axis; tests/autodiff/test_grad_by_name.py"
        for name in ("share", "shared_sum")
    },
    "pcast": "changes types inside of a shard_map; tests/maps/test_shard_map_states.py",
    **{
        name: "is between the values of a mapped axis; tests/lax/test_parallel.py"
        for name in (
            "psum",
            "unreduced_psum",
            "pmax",
            "pmin",
            "all_gather",
            "reduce_scatter",
            "unreduced_reduce_scatter",
            "all_to_all",
            "ppermute",
            "pbroadcast",
            "axis_index",
            "pdot",
        )
    },
    **{
        name: "accesses refs of kernels; tests/kernels"
        for name in (
            "kernel_call",
            "effectful_kernel_call",
            "kernel_loop",
            "differentiated_loop",
            "kernel_load",
            "kernel_store",
            "kernel_check",
            "kernel_memory",
            "kernel_atomic_cas",
            "triton_call",
            "kernel_multiple_of",
            "kernel_copy",
            "kernel_wait_copy",
            "kernel_signal",
            "kernel_wait",
            "kernel_prng_seed",
            "kernel_prng_bits",
            "kernel_stochastic_round",
            "elementwise_inline_asm",
        )
    },
    "axes": "only where words are checked; tests/named/test_check.py",
    "while_loop": "holds programs; tests/control",
    "custom_linear_solve": "holds programs; tests/custom",
    "check": "has no results; tests/debug/test_checkify.py",
    "debug_check": "the same",
    "pure_callback": "calls the user's function; tests/effects/test_callbacks.py",
    "io_callback": "calls the user's function; tests/effects/test_callbacks.py",
    "ordered_io_callback": "calls the user's function; tests/effects/test_callbacks.py",
    "debug_callback": "calls the user's function; tests/effects/test_callbacks.py",
    "ordered_debug_callback": "calls the user's function; tests/effects/test_callbacks.py",
    **{
        name: "of values of one process; tests/processes/test_host_local.py"
        for name in ("host_local_array_to_global_array", "global_array_to_host_local_array")
    },
    "ffi_call": "calls a foreign function; tests/ffi/test_ffi_call.py",
    "effectful_ffi_call": "calls a foreign function; tests/ffi/test_ffi_call.py",
    **{
        name: "needs cuDNN; tests/nn/test_cudnn_attention.py"
        for name in ("fused_attention", "fused_attention_gradients")
    },
    "buffer_callback": "calls the user's function; tests/ffi/test_buffer_callback.py",
    "effectful_buffer_callback": "calls the user's function; tests/ffi/test_buffer_callback.py",
    "device_put": "moves its operand; tests/placement/test_device_put.py",
    "to_memory": "moves its operand; tests/placement/test_layouts.py",
    "no_value": "has no value; tests/arguments/test_shape_dtype_struct.py",
    "dim_value": "has its value in exports; tests/export/test_symbolic_lowering.py",
    "dce_sink": "has no results; tests/lax/test_composite_function.py",
    "xla_metadata_value": "says something of another instruction; tests/debug/test_xla_metadata.py",
    "xla_metadata_call": "holds a program; tests/debug/test_xla_metadata.py",
    "compute_on": "holds a program; tests/debug/test_xla_metadata.py",
    "layout_constraint": "says where its operand lies; tests/placement/test_layout_constraints.py",
    "control_dep": "has no results; tests/placement/test_layout_constraints.py",
    "rng_uniform": "its numbers come of a hidden state; tests/lax/test_tokens.py",
    "composite": "holds a program; tests/lax/test_composite_function.py",
    "custom_partitioning": "holds a program; tests/extend/test_custom_partitioning.py",
    "inspect_sharding": "has no results; tests/explain",
    "checkpoint": "holds a program; tests/remat",
    "custom_vmap_call": "holds the user's functions; tests/custom",
    "linear_call": "holds programs; tests/api",
    "custom_jvp_call": "holds the user's functions; tests/custom",
    "custom_remat": "holds the user's functions; tests/autodiff/test_custom_remat.py",
    "custom_remat_linear": "the same",
    "custom_vjp_call": "holds the user's functions; tests/custom",
    "custom_vjp_linear": "holds the user's functions; tests/custom",
    "custom_vjp_linear_with_refs": "the same; tests/refs/test_ref_arguments.py",
}
