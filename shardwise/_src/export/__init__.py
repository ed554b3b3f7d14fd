"""Programs as portable bytes, in JAX's format: exporting, serializing and calling them."""
