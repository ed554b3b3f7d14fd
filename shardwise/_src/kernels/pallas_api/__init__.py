"""JAX's names for kernels (docs/kernels.md)."""
