"""Mutable references, and the conversion of programs that write to them to pure programs."""
