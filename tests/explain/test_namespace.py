"""The names of `shardwise.explain` and `shardwise.debug`, some of which are loaded on first use."""

import inspect

import numpy as np
import pytest

import shardwise as sw
from shardwise import explain
from shardwise._src.planner import callable_module

PICTURE = """\
     0:4     4:8
    ┌───────┬───────┐
0:2 │ CPU 0 │ CPU 1 │
    └───────┴───────┘
"""


def sharding():
    mesh = sw.sharding.Mesh(np.array(sw.devices("cpu")[:2]), ("x",))
    return sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec(None, "x"))


@pytest.mark.parametrize("name", [n for n in dir(explain) if not n.startswith("_")])
def test_every_name_is_there(name):
    assert callable(getattr(explain, name)) or name == "machines"


def test_other_names_are_not():
    with pytest.raises(AttributeError) as caught:
        explain.guess  # type: ignore[attr-defined]
    assert str(caught.value) == "module 'shardwise.explain' has no attribute 'guess'."


@pytest.mark.parametrize("namespace", [explain, sw.debug], ids=["explain", "debug"])
def test_pictures_of_arrays_and_shardings(namespace, capsys):
    x = sw.device_put(np.ones((2, 8), np.float32), sharding())
    namespace.visualize_array_sharding(x, use_color=False)
    namespace.visualize_sharding((2, 8), sharding(), use_color=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == PICTURE.splitlines() * 2


def test_collectives_of_a_compiled_function():
    x = sw.device_put(np.ones((2, 8), np.float32), sharding())
    compiled = sw.jit(lambda x: x.sum()).lower(x).compile()
    assert [str(c) for c in explain.collectives(compiled.as_text())] == [
        "all-reduce(f32[]) over 2 devices"
    ]


def test_inspecting_shardings():
    x = sw.device_put(np.ones((2, 8), np.float32), sharding())
    seen = []
    assert sw.debug.inspect_array_sharding({"a": x, "b": [x[0]]}, callback=seen.append) is None
    assert seen == [x.sharding, x[0].sharding]


def test_type_checkers_see_all_names():
    seen = {n: x for n, x in vars(callable_module.explain).items() if not n.startswith("_")}
    there = {n: getattr(explain, n) for n in dir(explain) if not n.startswith("_")}
    assert {n: getattr(callable_module.explain, n) for n in seen} == there
    asked = inspect.signature(callable_module.explain).parameters.values()
    given = inspect.signature(explain.explain).parameters.values()
    assert [(p.name, p.kind, p.default) for p in asked] == [
        (p.name, p.kind, p.default) for p in given
    ]
