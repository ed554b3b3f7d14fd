"""Compares shardwise with JAX, row by row: `python -m benchmarks`. See README.md in this folder."""
