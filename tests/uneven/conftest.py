"""The padding is NaN, so that results that depend on it are visibly wrong."""

import pytest

from shardwise._src.base.config import poison_padding


@pytest.fixture(autouse=True)
def nan_padding():
    with poison_padding(True):
        yield
