"""Ops on matrices: factorizations and triangular solves."""
