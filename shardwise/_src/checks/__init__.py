"""Errors as values: `checkify`, and the rules by which programs are checked."""
