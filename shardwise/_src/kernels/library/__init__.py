"""Kernels for common functions: each file is one page, to use and to model other kernels on."""
