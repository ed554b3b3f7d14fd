"""Compilation: turns module text into a loaded program, cached in memory and on disk."""
