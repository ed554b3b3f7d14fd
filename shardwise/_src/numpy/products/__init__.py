"""Products of arrays: `dot`, `matmul`, `tensordot`, `einsum`."""
