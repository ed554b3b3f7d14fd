"""Linear algebra under the names of NumPy, SciPy and lax."""
