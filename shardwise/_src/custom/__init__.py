"""Functions with custom rules: derivatives, batching, partitioning, implicit solutions."""
