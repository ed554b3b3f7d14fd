"""Checkpoints in other formats: Orbax, safetensors, JAX's serialized pytrees."""
