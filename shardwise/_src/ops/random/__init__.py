"""Ops that generate random bits, and samplers by rejection."""
