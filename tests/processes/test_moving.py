"""Arrays from any sharding to any other: same devices, others, or devices of other processes."""

from tests.processes.running import agrees, cases


@cases("moving")
def test_moving(count, part):
    agrees("moving", count, part)
