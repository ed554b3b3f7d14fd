"""Kernels for GPUs: launches as programs in Triton's dialect of MLIR, which XLA compiles."""
