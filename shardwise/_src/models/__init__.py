"""Small training libraries, modeled after JAX's `example_libraries`."""
