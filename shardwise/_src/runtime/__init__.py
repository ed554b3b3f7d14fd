"""The interface to jaxlib: the only package that imports it.

It takes plain data (StableHLO text, NumPy arrays, `Tiling` records) and returns opaque buffers and
executables. The main modules:

    backend      clients and devices
    buffers      transfers between host and devices, and tracking of shared memory
    host         shards of CPU buffers as NumPy arrays
    host_memory  memory of large arrays on CPU
    in_flight    bounds the number of programs with collectives in flight on CPU
    pytree       flattening of nested containers
    cuda         the CUDA plugin
    profiler     profiles, and annotations in them
    processes    multi-process membership; the gate for launches and waits of their programs
    transports   Gloo's connections between CPU devices of several processes
    shutdown     waits for running programs when a process exits

Programs are compiled and launched in the subpackage `compiler`.
"""

import os

# Before the first import of jaxlib: keeps its start-up notices off the terminal.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
