"""Errors as values: how programs are made to tell what went wrong (the transform `checkify`)."""
