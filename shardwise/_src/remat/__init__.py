"""Rematerialization: which values reverse mode saves and which it recomputes."""
