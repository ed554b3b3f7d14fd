"""Errors as values: makes programs report failures (the transform `checkify`)."""
