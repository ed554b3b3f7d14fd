"""Programs for XLA: modules, the partitioner, callbacks and foreign functions.

The main modules:

    modules                compilation, launches, statistics, serialization
    shardy                 sharding propagation
    runtime_shardings      our tilings as jaxlib shardings
    partitioner            custom calls partitioned by the library: tiles of matrices
    partitioner_callbacks  custom calls partitioned by user functions
    callback_targets       host functions called by compiled programs
    ffi                    foreign functions
    lapack                 linear-algebra kernels on CPU
    fingerprint            the cache key of compiled programs
"""
