"""Effects of programs on the outside: calls of host functions."""
