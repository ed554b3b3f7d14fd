"""Compares shardwise with JAX, row by row: `python -m benchmarks`. See README.md beside this."""
