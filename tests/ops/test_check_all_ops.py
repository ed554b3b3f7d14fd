"""Every op in the table passes `check_op` on its samples, and has samples."""

from __future__ import annotations

import pytest

from shardwise._src.core.op import every_op
from shardwise.testing import Sample, check_op
from tests.helpers.everyday import everyday
from tests.ops.samples import SAMPLES, UNSAMPLED

OPS = every_op()

NAMES = sorted(OPS)


@pytest.mark.parametrize("name", everyday([n for n in NAMES if n not in UNSAMPLED], 8))
def test_op(name: str):
    if not SAMPLES.get(name):
        pytest.fail(
            f"op '{name}' has no samples: add some to a file tests/ops/samples_*.py, or say in "
            "tests/ops/samples.py why it cannot be checked alone",
            pytrace=False,
        )
    first, *others = SAMPLES[name]
    check_op(OPS[name], [first, *everyday(others, 1 / 6, name, Sample.describe)])


def test_no_samples_of_ops_that_do_not_exist():
    assert {*SAMPLES, *UNSAMPLED} - set(NAMES) == set()


def test_either_sampled_or_excused():
    assert not set(SAMPLES) & set(UNSAMPLED)
    assert all(UNSAMPLED.values())
