"""Per-device programs for one sharded matrix or array; see `columns`, `fourier`."""
