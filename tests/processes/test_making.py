"""Constructors, over meshes whose devices are in several orders."""

from tests.processes.running import agrees, counts


@counts
def test_making(count):
    agrees("making", count)
