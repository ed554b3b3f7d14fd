"""Programs as portable bytes, in JAX's format: written, read, and called."""
