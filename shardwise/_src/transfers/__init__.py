"""Transfers: arrays from the host, to the host, and between devices and shardings."""
