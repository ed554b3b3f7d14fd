"""Foreign functions: C++ kernels as ops, and functions that write into result buffers."""
