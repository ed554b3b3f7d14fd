"""Older spellings of what the library does in one way now, and classes that only these have."""
