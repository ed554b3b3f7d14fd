"""Matrices stay sharded, however small."""

import pytest

from shardwise._src.base.config import sharded_linalg_min_size_bytes


@pytest.fixture(autouse=True)
def no_matrix_is_gathered():
    with sharded_linalg_min_size_bytes(0):
        yield
