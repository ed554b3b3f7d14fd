"""Older spellings, as thin aliases of what the library does in one way now."""
