"""Arrays from any sharding to any other: the same devices, others, of other processes."""

from tests.processes.running import agrees, counts


@counts
def test_moving(count):
    agrees("moving", count)
