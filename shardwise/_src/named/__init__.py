"""Logical axes: words for the dimensions of arrays, and one table of where they go on a mesh.

`words` reads them, `rules` holds the table, `borders` checks and places values where a function
says their words, `algebra` computes by words, `trees` follows them through parameters and states,
and `check` infers them through programs.
"""
