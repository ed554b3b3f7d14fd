"""Tests that hang are reported and terminated; no failure remains for the next test."""

import faulthandler
from collections.abc import Iterator

import pytest

import shardwise as sw
from tests.helpers.callbacks import SECONDS


@pytest.fixture(autouse=True)
def ends_in_time() -> Iterator[None]:
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    sw.effects_barrier()
    faulthandler.cancel_dump_traceback_later()
