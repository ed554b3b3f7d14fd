"""The arguments of public functions: flattened, checked, and described by their types."""
