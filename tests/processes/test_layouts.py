"""Layouts of arrays over several processes, also those that the compiler chooses."""

from tests.processes.running import agrees, cases


@cases("layouts")
def test_layouts(count, part):
    agrees("layouts", count, part)
