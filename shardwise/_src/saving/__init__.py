"""Arrays in files of TensorStore, in JAX's formats: `experimental.array_serialization`."""
