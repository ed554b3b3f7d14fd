"""Reading arrays that span processes: values, parts, text, and what is refused."""

from tests.processes.running import agrees, counts


@counts
def test_reading(count):
    agrees("reading", count)
