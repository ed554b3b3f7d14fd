"""Random arrays under random shardings, moved and computed with, for the seeds of a range."""

from tests.processes.running import agrees, cases


@cases("searched")
def test_searched(count, part):
    agrees("searched", count, part)
