"""The primitive operations, one file per category; `families` creates most, one line each."""
