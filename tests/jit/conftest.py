"""Fixtures for cached functions: empty caches, and what is staged."""

import weakref

import pytest

from shardwise._src.core import fingerprints
from shardwise._src.jit import staging, trace_cache


@pytest.fixture
def nothing_known(monkeypatch):
    monkeypatch.setattr(trace_cache, "_by_function", {})
    monkeypatch.setattr(trace_cache, "_cache_groups", {})
    monkeypatch.setattr(fingerprints, "_notes", weakref.WeakKeyDictionary())


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
