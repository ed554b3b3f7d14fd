"""Ops that contain programs, and the staging of user functions for them: calls, loops, branches."""
