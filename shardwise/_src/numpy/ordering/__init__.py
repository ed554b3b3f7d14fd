"""Sorting, searching, and sets of elements."""
