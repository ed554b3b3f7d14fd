"""Debugging of programs: host callbacks, breakpoints, `checkify`, names, shardings of values."""
