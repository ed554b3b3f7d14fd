"""Loaded modules by their text: found again, and evicted by number and size."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.compiling import module_cache

V = np.arange(5, dtype=np.float32)


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    sw.clear_caches()
    monkeypatch.setattr(module_cache, "_added", 0)


def programs(count, first=0):
    return [sw.jit(lambda x, k=k: x * (k + 0.123)) for k in range(first, first + count)]


def held():
    return [key[0] for key in module_cache._modules]


def test_modules_are_evicted_by_the_size_of_their_texts(monkeypatch):
    one = programs(1)[0]
    one(V)
    size = len(held()[-1]) + module_cache.OVERHEAD
    monkeypatch.setattr(module_cache, "TEXTS", 10 * size)
    functions = programs(40, 1)
    for k, f in enumerate(functions, 1):
        np.testing.assert_array_equal(f(V), V * np.float32(k + 0.123))
        assert len(held()) <= 12  # texts differ in length by a few characters
    texts = held()
    for k, f in enumerate(functions, 1):  # evicted modules still run
        np.testing.assert_array_equal(f(V), V * np.float32(k + 0.123))
    assert held() == texts


def test_a_large_module_stays_until_the_next_one(monkeypatch):
    monkeypatch.setattr(module_cache, "TEXTS", 100)
    for f in programs(3):
        f(V)
        assert len(held()) == 1


def test_modules_are_evicted_by_number(monkeypatch):
    monkeypatch.setattr(module_cache, "CACHE_SIZE", 4)
    functions = programs(6)
    for f in functions:
        f(V)
    assert len(held()) == 4
