"""Random arrays under random shardings, moved and computed with, for a range of seeds."""

import pytest

from tests.processes.running import agrees, cases


@pytest.mark.sweep
@cases("searched")
def test_searched(count, part):
    agrees("searched", count, part)
