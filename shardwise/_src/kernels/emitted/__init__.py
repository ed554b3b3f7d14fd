"""What compilers of kernels for GPUs and TPUs share: programs as text in MLIR."""
