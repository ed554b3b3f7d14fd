"""Arrays stored in TensorStore files in JAX's formats: `experimental.array_serialization`."""
