"""Reports and pictures of what programs do and where arrays are."""
