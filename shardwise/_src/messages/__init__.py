"""How errors speak: arguments' names and paths, the user's lines, tracebacks, leaks, words."""
