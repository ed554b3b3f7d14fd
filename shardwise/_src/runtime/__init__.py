"""The interface to jaxlib: the only package that imports it.

It takes plain data (StableHLO text, NumPy arrays, `Tiling` records) and returns opaque buffers and
executables. One module for each concern:

    backend      clients, devices, put and fetch
    host         host values as buffers, and buffers as host values
    memory       memory of large arrays on CPU
    lapack       linear-algebra kernels on CPU
    modules      compile, execute, statistics, serialization
    shardy       sharding propagation
    shardings    our tilings as jaxlib shardings
    callbacks    host functions called by devices
    partitioner  custom calls partitioned by a callback: tiles of matrices
    partitioner_callbacks  the same for user functions
    in_flight    bounds the collective programs in flight on CPU
    fingerprint  the cache key of compiled programs
    pytree       flattening of nested containers
    cuda         the CUDA plugin
    profiler     profiles, and annotations in them
    processes    multi-process membership; the gate for launches and waits of their programs
    transports   Gloo, between CPU devices of processes
    coordinator  the rendezvous process; its `coordinator_server`
"""

import os

# Before the first import of jaxlib: keeps its start-up notices off the terminal.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
