"""The core: `Op` and `bind`, interpreters, type inference, `Program` with printer and checker."""
