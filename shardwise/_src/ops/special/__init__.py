"""Ops for special functions."""
