"""Text of errors: argument names and paths, the user's lines, tracebacks, leaks, formatting."""
