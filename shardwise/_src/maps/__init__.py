"""`vmap`, `shard_map`, `pmap`, `xmap`, `vectorize` and ufuncs: a function over axes of arrays."""
