"""Ops that make random bits, and what draws from them by rejection."""
