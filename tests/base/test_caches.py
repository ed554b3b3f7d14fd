"""Caches register themselves: what is listed, counted and cleared."""

import functools
import importlib
import pkgutil

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base import caches
from shardwise._src.base.caches import CacheInfo, Table, cached, clear_registered, register


@pytest.fixture
def registered(monkeypatch):
    """An empty list of caches."""
    monkeypatch.setattr(caches, "_registered", [])


@pytest.mark.usefixtures("registered")
def test_a_function_with_cached_results():
    @cached(2)
    def double(x):
        return 2 * x

    assert [double(x) for x in (1, 1, 2, 3, 1)] == [2, 2, 4, 6, 2]
    name = f"{__name__}: {double.__qualname__}"
    assert caches.registered_caches() == [CacheInfo(name, 2, 2, 1, 4)]
    clear_registered()
    assert caches.registered_caches() == [CacheInfo(name, 0, 2, 0, 0)]


@pytest.mark.usefixtures("registered")
def test_a_table_evicts_the_oldest():
    table = Table("shardwise._src.jit.jit", "programs", 2)
    for key in "aba":
        if table.find(key) is None:
            table.put(key, key.upper())
    table.put("c", "C")
    assert table.entries == {"b": "B", "c": "C"} and len(table) == 2
    assert caches.registered_caches() == [CacheInfo("jit.jit: programs", 2, 2, 1, 3)]
    clear_registered()
    assert caches.registered_caches() == [CacheInfo("jit.jit: programs", 0, 2, None, 0)]


@pytest.mark.usefixtures("registered")
def test_a_cache_of_other_objects():
    entries = [1, 2, 3]
    register("shardwise._src.core.op", "types", lambda: len(entries), entries.clear)
    assert caches.registered_caches() == [CacheInfo("core.op: types", 3)]
    clear_registered()
    assert entries == []


def test_every_bounded_cache_of_a_module_is_registered():
    """`functools.lru_cache` is used by `cached`, and by objects for their own results."""
    found_names = []
    for found in pkgutil.walk_packages(sw._src.__path__, "shardwise._src."):
        if found.name.startswith("shardwise._src.coordination"):
            continue  # also runs as a script that imports nothing else of the library
        module = importlib.import_module(found.name)
        for name, x in vars(module).items():
            is_own = getattr(x, "__module__", None) == module.__name__
            bounded = isinstance(x, functools._lru_cache_wrapper) and is_own
            if bounded and x.cache_info().maxsize is not None:
                found_names.append(f"{found.name.removeprefix('shardwise._src.')}: {name}")
    names = {row.name for row in caches.registered_caches()}
    renamed = {"linalg.special_matrices: _kept": "linalg.special_matrices: _made"}
    assert {renamed.get(m, m) for m in found_names} <= names


def test_the_table_of_a_process():
    sw.clear_caches()
    f = sw.jit(lambda x: jnp.sin(x) + 1)
    f(np.ones(3, np.float32))
    rows = {row.name: row for row in sw.debug.caches()}
    assert rows["jit.trace_cache: staged programs"].entries == 1
    assert rows["compiling.module_cache: loaded modules"].entries >= 1
    head, *lines = str(sw.debug.caches()).splitlines()
    assert head.split() == ["cache", "entries", "limit", "hits", "misses"]
    assert len(lines) == len(sw.debug.caches()) and len({len(line) for line in lines}) == 1
    assert repr(sw.debug.caches()).startswith("cache ")
    sw.clear_caches()
    assert "jit.trace_cache: staged programs" not in {row.name for row in sw.debug.caches()}
