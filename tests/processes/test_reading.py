"""Reading arrays that span processes: values, shards, strings, and rejected reads."""

from tests.processes.running import agrees, cases


@cases("reading")
def test_reading(count, part):
    agrees("reading", count, part)
