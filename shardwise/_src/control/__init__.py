"""Ops that hold programs, and the staging of users' functions for them: calls, loops, branches."""
