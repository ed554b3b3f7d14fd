"""Checkpoints (`shardwise.checkpoints`), and arrays in TensorStore files in JAX's formats
(`experimental.array_serialization`)."""
