"""Calls of scipy's modules, those of matrices and Fourier transforms apart."""

from benchmarks.tables.kinds import Table

TABLE: Table = {}
