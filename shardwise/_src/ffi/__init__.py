"""Foreign functions: kernels in C++ as ops, and functions that write into buffers of results."""
