"""The padding is NaN, so that a result which depends on it shows it."""

import pytest

from shardwise._src.base.config import poison_padding


@pytest.fixture(autouse=True)
def nan_padding():
    with poison_padding(True):
        yield
