"""`Op`, interpreters and the ground, inference of types, `Program` and its tools."""
