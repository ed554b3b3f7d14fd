"""Kernels: launches of functions over grids of blocks (docs/design/0044)."""
