"""Kernels on TPUs, as modules in Mosaic's dialect of MLIR."""
