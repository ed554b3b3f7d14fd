"""Listeners receive events, durations, spans and scalars, including the library's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import monitoring
from shardwise._src.base.config import config
from tests.helpers.errors import message


@pytest.fixture(autouse=True)
def silence():
    yield
    monitoring.clear_event_listeners()


def heard(register: Any) -> list[tuple]:
    found: list[tuple] = []
    register(lambda *args, **kwargs: found.append((*args, kwargs)))
    return found


def test_each_kind_has_listeners_of_its_own():
    events = heard(monitoring.register_event_listener)
    durations = heard(monitoring.register_event_duration_secs_listener)
    spans = heard(monitoring.register_event_time_span_listener)
    scalars = heard(monitoring.register_scalar_listener)
    monitoring.record_event("/a", kind="x")
    monitoring.record_event_duration_secs("/b", 0.5, step=1)
    monitoring.record_event_time_span("/c", 1.0, 2.0)
    monitoring.record_scalar("/d", 3)
    assert events == [("/a", {"kind": "x"})]
    assert durations == [("/b", 0.5, {"step": 1})]
    assert spans == [("/c", 1.0, 2.0, {})]
    assert scalars == [("/d", 3, {})]
    monitoring.clear_event_listeners()
    monitoring.record_event("/a")
    assert len(events) == 1


@pytest.mark.parametrize(
    ("register", "unregister", "record"),
    [
        (
            "register_event_listener",
            "unregister_event_listener",
            lambda: monitoring.record_event("/a"),
        ),
        (
            "register_event_duration_secs_listener",
            "unregister_event_duration_listener",
            lambda: monitoring.record_event_duration_secs("/a", 1.0),
        ),
        (
            "register_event_time_span_listener",
            "unregister_event_time_span_listener",
            lambda: monitoring.record_event_time_span("/a", 1.0, 2.0),
        ),
        (
            "register_scalar_listener",
            "unregister_scalar_listener",
            lambda: monitoring.record_scalar("/a", 1.0),
        ),
    ],
)
def test_a_listener_is_removed_once(register: str, unregister: str, record: Any):
    calls = []

    def listener(*args: Any, **kwargs: Any) -> None:
        calls.append(args)

    getattr(monitoring, register)(listener)
    record()
    getattr(monitoring, unregister)(listener)
    record()
    assert len(calls) == 1
    assert message(ValueError, lambda: getattr(monitoring, unregister)(listener)) == (
        f"{listener!r} is not registered: it was never passed to shardwise.monitoring.{register}, "
        "or was removed."
    )


def test_a_listener_is_a_function():
    with pytest.raises(TypeError) as error:
        monitoring.register_event_listener(3)  # pyright: ignore[reportArgumentType]
    assert str(error.value) == (
        "shardwise.monitoring.register_event_listener expects a function; got 3 of type int."
    )


def test_stages_of_a_jitted_function_are_told_under_the_names_that_jax_has():
    durations = heard(monitoring.register_event_duration_secs_listener)
    spans = heard(monitoring.register_event_time_span_listener)

    @sw.jit
    def told(x):
        return snp.sin(x) * 41.25

    told(snp.ones(3))
    mine = [(event, more) for event, _, more in durations if more == {"fun_name": "told"}]
    assert {event for event, _ in mine} == {
        "/jax/core/compile/jaxpr_trace_duration",
        "/jax/core/compile/jaxpr_to_mlir_module_duration",
        "/jax/core/compile/backend_compile_duration",
    }
    assert all(0 < secs < 60 for _, secs, _ in durations)
    assert all(start < end for _, start, end, _ in spans)
    before = len(durations)
    told(snp.ones(3))
    assert len(durations) == before  # a cached call


def test_finds_and_misses_on_disk_are_events(tmp_path: Path):
    events = heard(monitoring.register_event_listener)
    new = {
        "enable_compilation_cache": True,
        "compilation_cache_dir": str(tmp_path),
        "persistent_cache_min_compile_time_secs": 0.0,
    }
    old = {name: config.read(name) for name in new}
    try:
        for name, value in new.items():
            config.update(name, value)
        for _ in range(2):
            sw.clear_caches()
            sw.jit(lambda x: snp.cos(x) * 17.5)(snp.ones(3))
    finally:
        for name, value in old.items():
            config.update(name, value)
    found = [event.rpartition("/")[2] for event, _ in events]
    assert found.count("cache_hits") >= 1
    assert found.count("cache_misses") >= 1
    assert found.count("compile_requests_use_cache") >= 2
