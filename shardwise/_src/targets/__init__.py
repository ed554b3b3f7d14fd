"""Machines that are not attached, by name: descriptions of GPUs and TPUs for their compilers."""
