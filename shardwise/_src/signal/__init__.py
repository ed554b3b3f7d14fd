"""Fourier transforms, filters, windows and polynomials, under NumPy's, SciPy's and lax's names."""
