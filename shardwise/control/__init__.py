"""Ops that hold programs: call, scan, custom rules."""
