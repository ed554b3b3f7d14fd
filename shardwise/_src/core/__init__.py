"""The core: `Op`, interpreters and the ground, type inference, `Program` with printer and checker."""
