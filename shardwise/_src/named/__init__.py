"""Logical axes: names for the dimensions of arrays, and one table that maps them to mesh axes.

`words` parses them, `rules` has the table, `borders` checks and places values where a function
declares their axes, `algebra` computes by axis names, `trees` applies them to parameters and
states, and `check` propagates them through programs.
"""
