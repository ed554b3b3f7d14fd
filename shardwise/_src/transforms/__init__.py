"""The interpreters behind the transforms: stage, jvp, linearize, transpose, batch.

`tape` is what eager reverse mode records.
"""
