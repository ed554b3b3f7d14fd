"""Fixtures for cached functions: empty caches, and what is staged. A mesh in scope."""

import weakref
from collections.abc import Iterator

import pytest

from shardwise._src.api import staging, trace_cache
from shardwise._src.core import fingerprints
from shardwise.sharding import Mesh, set_mesh
from tests.helpers.explicit import MESH


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


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    """A mesh of explicit axes, in scope."""
    with set_mesh(MESH):
        yield MESH
