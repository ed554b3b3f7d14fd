"""Mutable references, and how programs that write to them become programs of values."""
