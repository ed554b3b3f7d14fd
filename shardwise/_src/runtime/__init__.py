"""The seam to jaxlib: the only package that imports it.

Plain data goes in (StableHLO text, NumPy arrays, `Tiling` records), opaque buffers and executables
come out. One module for each concern:

    backend     clients, devices, put and fetch
    program     compile, execute, statistics, serialisation
    placement   our tilings as jaxlib shardings
    window      bounds the collective programs in flight on CPU
    pytree      flattening of nested containers
"""

import os

# Before the first import of jaxlib: keeps its start-up notices off the terminal.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
