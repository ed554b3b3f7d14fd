"""Lowering: turns a program with shardings into the text of one StableHLO module."""
