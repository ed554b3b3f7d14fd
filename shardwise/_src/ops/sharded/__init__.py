"""Ops over mesh axes: collectives, shardings, placement."""
