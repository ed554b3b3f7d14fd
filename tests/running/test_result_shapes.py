"""The shapes that XLA compiled are compared with the program's types before the program runs."""

import re

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise._src.lowering.xla_workarounds import WithWorkarounds
from shardwise._src.runtime import backend
from shardwise._src.runtime.compiler.modules import _result_shapes
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:3]), ("x",))


def test_results_of_other_shapes_are_refused_before_they_run(monkeypatch):
    whole = NamedSharding(MESH, P())
    monkeypatch.setattr(WithWorkarounds, "barrier", lambda self, x, t: x)  # without the workaround

    def whole_and_part(x):
        return x, lax.with_sharding_constraint(x[:2], whole)

    x = sw.device_put(np.arange(3, dtype=np.int16), NamedSharding(MESH, P("x")))
    f = sw.jit(whole_and_part, out_shardings=(whole, whole))
    message = (
        "XLA compiled whole_and_part wrongly: on each device its result 0 of type i16[3] under "
        f"{whole} is of shape (2,) instead of (3,). Nothing was run. This is a bug of the "
        f"partitioner of jaxlib {backend.JAXLIB_VERSION}: other shardings of the arguments and "
        "results may avoid it. `jit(f).lower(...).as_text()` shows the program."
    )
    for _ in range(2):  # the program is not cached
        with pytest.raises(sw.errors.JaxRuntimeError, match=f"^{re.escape(message)}$"):
            f(x)
    monkeypatch.undo()
    parts = sw.jit(lambda x: whole_and_part(x), out_shardings=(whole, whole))(x)
    assert [p.tolist() for p in parts] == [[0, 1, 2], [0, 1]]


def test_shapes_are_read_from_the_header():
    header = "HloModule f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->%s}, n=2\n"
    assert _result_shapes(header % "f32[2,4]{1,0}") == [(2, 4)]
    assert _result_shapes(header % "(f32[2]{0}, pred[], /*index=2*/bf16[3,1]{0,1})") == [
        (2,), (), (3, 1),
    ]  # fmt: skip
    assert _result_shapes(header % "()") == []
    assert _result_shapes(header % "(f32[2]{0:T(256)S(5)}, f32[3]{0})") == [(2,), (3,)]


def test_an_empty_result_in_uneven_parts_is_no_error():
    split = NamedSharding(Mesh(np.array(sw.devices()[:4]), ("x",)), P("x"))
    x = sw.device_put(np.zeros((5, 2), np.float32), split)
    found = sw.jit(lambda x: x[:, :0] + 1, out_shardings=split)(x)
    assert [s.data.shape for s in found.addressable_shards] == [(2, 0), (2, 0), (1, 0), (0, 0)]
