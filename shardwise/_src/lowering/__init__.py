"""A program with shardings becomes the text of one StableHLO module."""
