"""The interpreters of the transforms: stage, jvp, linearize, transpose, batch.

Eager reverse mode records a `tape`.
"""
