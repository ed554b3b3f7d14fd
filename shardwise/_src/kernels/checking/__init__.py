"""Checks of kernels that interpret them: see `memory_interpreter`."""
