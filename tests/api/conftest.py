"""For tests of functions that are found again: nothing is known before, and what is staged."""

import weakref

import pytest

from shardwise._src.api import known, staging
from shardwise._src.core import recipes


@pytest.fixture
def nothing_known(monkeypatch):
    monkeypatch.setattr(known, "_by_function", {})
    monkeypatch.setattr(known, "_shelves", {})
    monkeypatch.setattr(recipes, "_notes", weakref.WeakKeyDictionary())


@pytest.fixture
def traces(monkeypatch):
    """The name of each function that `jit` stages."""
    found = []
    stage = staging.stage

    def counting(*args, **kwargs):
        found.append(kwargs["name"])
        return stage(*args, **kwargs)

    monkeypatch.setattr(staging, "stage", counting)
    return found
