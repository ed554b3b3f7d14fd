"""Small libraries for training, after JAX's `example_libraries`."""
