"""Computing with arrays that span processes: op by op, compiled, under transforms."""

from tests.processes.running import agrees, cases


@cases("computing")
def test_computing(count, part):
    agrees("computing", count, part)
