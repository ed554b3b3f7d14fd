"""Arrays from any sharding to any other: the same devices, others, of other processes."""

from tests.processes.running import agrees, cases


@cases("moving")
def test_moving(count, part):
    agrees("moving", count, part)
