"""Random programs match one device under every sharding: see `tests.values.programs`.

The seeds are the same in every run; the everyday run takes some groups of them. A program that
fails is reduced and printed. `python -m tests.values.programs 17 --shrink` does that for one seed.
"""

import pytest

from tests.helpers.everyday import everyday
from tests.values.programs.sweep import sweep

EACH = 25
GROUPS = 120


@pytest.mark.parametrize("group", everyday(range(GROUPS), 1))
def test_like_one_device(group, record_property):
    report = sweep(range(EACH * group, EACH * (group + 1)), shrink=30)
    for what, count in report.counts().items():
        record_property(f"random programs: {what}", count)
    assert not report.failures, "\n\n".join(report.failures)
