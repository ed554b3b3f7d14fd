"""Logical axes: names for the dimensions of arrays, and one table that maps them to mesh axes.

`logical_axes` parses them, `logical_axis_rules` has the table, `declarations` checks and places
values where a function declares their axes, `algebra` computes by axis names, `named_trees` applies
them to parameters and states, and `check` propagates them through programs.
"""
