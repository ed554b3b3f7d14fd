"""`Interned`: one object for each key, for as long as anything references it."""

import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardwise._src.base.caches import Interned, clear_registered


class Thing:
    def __init__(self, key):
        self.key = key


def thing(table, key):
    found = table.recent.get(key) or table.find(key)
    return table.keep(key, Thing(key)) if found is None else found


def test_equal_keys_give_the_same_object():
    table = Interned("test", "objects", 4)
    first = thing(table, "a")
    assert thing(table, "a") is first is table.find("a")
    assert table.keep("a", Thing("a")) is first  # it is there already
    assert table.find("b") is None and table.values() == [first] and len(table) == 1


def test_what_is_held_is_found_though_it_is_not_recent():
    table = Interned("test", "objects", 4)
    held = {k: thing(table, k) for k in range(50)}
    assert len(table.recent) <= 4 and len(table) == 50
    assert all(thing(table, k) is x for k, x in held.items())
    table.recent.clear()
    assert all(thing(table, k) is x for k, x in held.items())


def test_what_nothing_holds_goes():
    table = Interned("test", "objects", 4)
    seen = [weakref.ref(thing(table, k)) for k in range(50)]
    gc.collect()
    assert len(table) <= 4 and sum(s() is not None for s in seen) <= 4
    clear_registered()
    gc.collect()
    assert len(table) == 0 and not any(s() for s in seen)


def test_two_keys_may_lead_to_one_object():
    table = Interned("test", "objects", 4)
    one = thing(table, ("x", None))
    assert table.keep(("x",), one) is one is thing(table, ("x",))
    del one
    clear_registered()
    gc.collect()
    assert len(table) == 0


def test_a_key_that_cannot_be_hashed():
    with pytest.raises(TypeError):
        Interned("test", "objects", 4).find(["x"])


def test_threads_agree_while_objects_come_and_go():
    """A referenced object remains the only one, while other threads release theirs all the time."""
    table, threads, keys = Interned("test", "objects", 2), 8, 6
    gate, before = threading.Barrier(threads), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(i):
        gate.wait(timeout=30)
        for step in range(3_000):
            key = (step + i) % keys
            mine = thing(table, key)
            if step % 50 == 0:
                gc.collect(0)
            if step % 7 == 0:
                table.recent.clear()
            assert mine.key == key and thing(table, key) is mine
        return True

    try:
        with ThreadPoolExecutor(threads) as pool:
            assert all(pool.map(work, range(threads), timeout=120))
    finally:
        sys.setswitchinterval(before)
    gc.collect()
    assert len(table) <= 2
