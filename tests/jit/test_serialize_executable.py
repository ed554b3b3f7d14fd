"""Compiled programs as bytes: loaded here and in other processes; what is rejected."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise.experimental.serialize_executable import deserialize_and_load, serialize
from tests.helpers.errors import message
from tests.helpers.processes import python

X = np.arange(16, dtype=np.float32)


def f(x: Any, y: Any) -> dict[str, Any]:
    return {"a": snp.sin(x["u"]) * 2, "b": (x["u"] * y).sum()}


def again(compiled: Any, **options: Any) -> Any:
    return deserialize_and_load(*serialize(compiled), **options)


def test_a_program_runs_again():
    compiled = sw.jit(f).lower({"u": X, "unused": X}, 3).compile()
    found = again(compiled, backend="cpu")
    out = found({"u": X, "unused": X}, 3)
    np.testing.assert_allclose(out["a"], np.sin(X) * 2, rtol=1e-6)
    np.testing.assert_allclose(out["b"], X.sum() * 3, rtol=1e-6)
    assert found.as_text() == compiled.as_text()
    assert found.in_avals == compiled.in_avals
    with pytest.raises(TypeError, match="takes arguments with the pytree structure"):
        found(X)


def test_shardings_layouts_and_donation():
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    place = sw.NamedSharding(mesh, sw.P("x"))
    given = sw.device_put(X.reshape(8, 2), place)
    jitted = sw.jit(lambda x: (x + 1, x.sum()), donate_argnums=0)
    found = again(jitted.lower(given).compile(), execution_devices=mesh.devices.flat)
    up, total = found(given)
    assert up.sharding.is_equivalent_to(place, 2)
    assert given.is_deleted()
    np.testing.assert_array_equal(up, X.reshape(8, 2) + 1)
    assert total == X.sum()


def test_another_process_reads_it(tmp_path: Path):
    data = serialize(sw.jit(lambda x, y: x @ y).lower(X, X).compile())
    (tmp_path / "program").write_bytes(pickle.dumps(data))
    code = (
        "import pickle, numpy as np\n"
        "from shardwise.experimental.serialize_executable import deserialize_and_load\n"
        f"data = pickle.loads(open({str(tmp_path / 'program')!r}, 'rb').read())\n"
        "print(deserialize_and_load(*data)(np.ones(16, np.float32), np.ones(16, np.float32)))\n"
    )
    run = python(code)
    assert run.stdout == "16.0\n", run.stderr


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data[:40],
        lambda data: b"",
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
        lambda data: pickle.dumps(1),
    ],
)
def test_other_bytes_are_refused(spoil: Any):
    data, *trees = serialize(sw.jit(lambda x: x + 1).lower(X).compile())
    spoiled = spoil(data)
    assert message(ValueError, deserialize_and_load, spoiled, *trees) == (
        "deserialize_and_load takes the bytes that shardwise.experimental.serialize_executable."
        f"serialize returned; these {len(spoiled)} are truncated, corrupted or something else."
    )


def test_what_is_not_bytes_is_refused():
    _, *trees = serialize(sw.jit(lambda x: x + 1).lower(X).compile())
    assert message(TypeError, deserialize_and_load, "hello", *trees) == (
        "deserialize_and_load takes bytes; got 'hello' of type str. Pass the "
        "first result of shardwise.experimental.serialize_executable.serialize."
    )


def test_other_devices_are_refused():
    def g(x: Any) -> Any:
        return x + 1

    data = serialize(sw.jit(g).lower(X).compile())
    assert message(
        ValueError, deserialize_and_load, *data, execution_devices=[sw.devices()[1]]
    ) == (
        "deserialize_and_load: g was compiled for devices [0] of platform 'cpu'; available are [1] "
        "of 'cpu'. Compile it for these."
    )


def test_what_is_of_this_process_only_is_refused():
    held = snp.asarray(X)

    def g(x: Any) -> Any:
        return x + held

    assert message(ValueError, serialize, sw.jit(g).lower(X).compile()) == (
        "serialize: the program of g captures arrays from outside. Pass them as arguments."
    )

    def h(x: Any) -> Any:
        sw.debug.print("{}", x)
        return x

    assert message(ValueError, serialize, sw.jit(h).lower(X).compile()) == (
        "serialize: the program of h calls host functions. They exist in this process only."
    )


def test_other_objects_are_rejected():
    lowered = sw.jit(snp.sin).lower(np.ones(3, np.float32))
    for x in (lowered, sw.jit(snp.sin)):
        assert message(TypeError, serialize, x).startswith(
            "serialize takes a compiled program, the result of `jit(f).lower(...).compile()`; got "
        )
