"""The public transforms and placement functions."""
