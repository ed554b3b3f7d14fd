"""`Value`: operators, methods and indexing that arrays and tracers share."""
