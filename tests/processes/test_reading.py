"""Reading arrays that span processes: values, parts, text, and what is refused."""

from tests.processes.running import agrees, cases


@cases("reading")
def test_reading(count, part):
    agrees("reading", count, part)
