"""Reductions and functions based on them: sums, means, quantiles, counts, running sums."""
