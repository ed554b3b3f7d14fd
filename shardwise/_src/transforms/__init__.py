"""The interpreters behind the transforms: stage, jvp, linearize, transpose, batch, and the tape of eager gradients."""
