"""Test helpers: checks of ops and gradients, simulated meshes."""
