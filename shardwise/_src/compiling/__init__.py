"""Text becomes a loaded program: compiled once, and kept in memory and on disk."""
