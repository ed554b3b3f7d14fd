"""Machines that are not there, by name: descriptions of GPUs and TPUs for their compilers."""
