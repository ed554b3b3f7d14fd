"""The seam to jaxlib: the only package that imports it.

Plain data goes in (StableHLO text, NumPy arrays, `Tiling` records), opaque buffers and executables
come out. One module for each concern:

    backend      clients, devices, put and fetch
    host         host values as buffers, and buffers as host values
    memory       memory of large arrays on CPU
    lapack       kernels of linear algebra on CPU
    batches      instructions that XLA does not split along batches
    modules      compile, execute, statistics, serialisation
    shardy       propagation of shardings
    shardings    our tilings as jaxlib shardings
    callbacks    calls of host functions by devices
    divided      calls that the partitioner asks about: tiles of matrices
    questions    the same for functions of the user
    in_flight    bounds the collective programs in flight on CPU
    fingerprint  what a compiled program depends on
    pytree       flattening of nested containers
    cuda         CUDA's plugin
    profiler     profiles, and annotations in them
    processes    this process among others; what launches and waits of their programs pass
    transports   Gloo, between CPU devices of processes
    coordinator  the process that the others meet at; its `coordinator_server`
"""

import os

# Before the first import of jaxlib: keeps its start-up notices off the terminal.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
