"""Reductions and what is built on them: sums, means, quantiles, counts, running sums."""
