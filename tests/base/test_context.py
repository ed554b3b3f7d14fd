"""The context: deriving, entering, keys, threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shardwise._src.base.config import enable_x64
from shardwise._src.base.context import CURRENT, ROOT, Context, NamedAxis, TraceKey, current
from tests.helpers.errors import message


def test_the_root_is_current_without_another():
    assert current() is ROOT
    assert ROOT.interpreter.eager  # installed when the package is imported
    assert CURRENT.get() is ROOT


def test_entering_and_leaving():
    mesh = object()
    with ROOT.replace(mesh=mesh).entered() as inner:
        assert current() is inner and inner.mesh is mesh
        with inner.replace(mesh=None).entered():
            assert current().mesh is None
        assert current() is inner
    assert current() is ROOT


def test_leaving_by_an_exception():
    with pytest.raises(KeyError), ROOT.replace(mesh=1).entered():
        raise KeyError
    assert current() is ROOT


def test_replace_leaves_the_original_alone():
    new = ROOT.replace(axes=(("i", 2),))
    assert new.axes == (("i", 2),) and ROOT.axes == ()
    assert new.interpreter is ROOT.interpreter
    with pytest.raises(TypeError):
        ROOT.replace(colour="blue")


def test_keys_are_interned():
    a, b = (ROOT.replace(axes=(("i", 2),)) for _ in range(2))
    assert a is not b and a.key is b.key
    assert a.key is not ROOT.key
    assert ROOT.replace(axes=(("i", 3),)).key is not a.key
    assert TraceKey((1,)) is TraceKey((1,))
    assert repr(TraceKey((1,))) == "TraceKey(1,)"


def test_the_interpreter_is_not_part_of_the_key():
    other = ROOT.under(object())
    assert other.key is ROOT.key
    assert Context(object(), None, (), {}).key is Context(None, None, (), {}).key


def test_only_flags_that_change_a_trace_are_part_of_the_key():
    plain = Context(None, None, (), {})
    assert Context(None, None, (), {"log_compiles": True}).key is plain.key
    assert Context(None, None, (), {"enable_x64": True}).key is not plain.key


def test_axis_sizes():
    axes = NamedAxis("i", 2), NamedAxis("j", 3), NamedAxis("i", 5)
    context = ROOT.replace(axes=axes)
    assert context.axis("j") == axes[1]
    assert context.axis("i").size == 5  # the innermost
    assert message(NameError, context.axis, "k") == (
        "unbound axis name: k. The axes in scope are: 'i' and 'j'. To bind an axis name, wrap the "
        "call in a map: `shardwise.vmap(f, axis_name='k')` or `shardwise.shard_map`."
    )
    assert message(NameError, ROOT.axis, "k") == (
        "unbound axis name: k. The axes in scope are: none. To bind an axis name, wrap the call in "
        "a map: `shardwise.vmap(f, axis_name='k')` or `shardwise.shard_map`."
    )


def test_a_new_thread_starts_at_the_root():
    seen = []
    with ROOT.replace(mesh=1).entered():
        worker = threading.Thread(target=lambda: seen.append(current()))
        worker.start()
        worker.join()
    assert seen == [ROOT]


def test_tasks_have_their_own_context():
    async def task(value: bool) -> bool:
        with enable_x64(value):
            await asyncio.sleep(0)
            return enable_x64.value

    async def both() -> list:
        return await asyncio.gather(task(True), task(False), task(True))

    assert asyncio.run(both()) == [True, False, True]
