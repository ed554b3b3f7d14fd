"""The primitive operations, a file per category; `families` makes most of them in one line each."""
