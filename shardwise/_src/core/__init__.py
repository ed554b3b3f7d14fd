"""`Op`, interpreters and the eval context, type inference, `Program` and its tools."""
