"""What reaches out of a program: calls of host functions."""
