"""Layouts of arrays over several processes, including layouts that the compiler chooses."""

from tests.processes.running import agrees, cases


@cases("layouts")
def test_layouts(count, part):
    agrees("layouts", count, part)
