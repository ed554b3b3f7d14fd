"""The interpreters behind the transforms: stage, jvp, linearize, transpose, batch."""
