"""Ops that read and write at indices: gather, scatter, slices."""
