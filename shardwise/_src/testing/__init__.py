"""Helpers for tests: checks of ops and gradients, simulated meshes."""
