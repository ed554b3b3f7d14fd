"""Special functions under the names of SciPy and lax."""
