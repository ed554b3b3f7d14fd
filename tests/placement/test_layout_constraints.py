"""`with_layout_constraint`, and instruction ordering: `control_dep`, `schedule`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise.experimental.control_deps import control_dep, schedule
from shardwise.experimental.layout import Layout, with_layout_constraint
from tests.helpers.meshes import mesh_of

X = np.arange(24, dtype=np.float32).reshape(4, 6)
TURNED = Layout((1, 0))


def test_the_compiler_keeps_a_layout():
    f = sw.jit(lambda x: with_layout_constraint(x * 1, TURNED) * 2)
    assert "@LayoutConstraint(" in f.lower(X).as_text()
    assert "f32[4,6]{0,1}" in f.lower(X).compile().as_text()
    np.testing.assert_array_equal(f(X), X * 2)


def test_trees_eager_arrays_and_transforms():
    y = with_layout_constraint(snp.asarray(X), TURNED)
    assert y.format.layout == TURNED
    np.testing.assert_array_equal(y, X)
    pair = sw.jit(lambda p: with_layout_constraint(p, {"a": TURNED, "b": Layout((0,))}))(
        {"a": X, "b": X[0]}
    )
    np.testing.assert_array_equal(pair["a"], X)
    slope = sw.jit(sw.grad(lambda x: (with_layout_constraint(x, TURNED) ** 2).sum()))(X)
    np.testing.assert_array_equal(slope, 2 * X)
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for d in range(3):
        mapped = sw.vmap(lambda x: with_layout_constraint(x, TURNED), in_axes=d, out_axes=d)
        np.testing.assert_array_equal(sw.jit(mapped)(cube), cube)
        np.testing.assert_array_equal(mapped(cube), cube)


@pytest.mark.parametrize("rows", [8, 7])
def test_layouts_over_devices(rows: int):
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    placed = sw.device_put(x, sw.NamedSharding(mesh_of(4, 2), sw.P("x")))
    f = sw.jit(lambda x: with_layout_constraint(x + 1, TURNED) * 2)
    np.testing.assert_array_equal(f(placed), (x + 1) * 2)


def test_instructions_in_order():
    def f(x: Any) -> Any:
        parts = [snp.sin(x), snp.cos(x), snp.tan(x)]
        schedule(parts)
        return sum(parts)

    assert sw.jit(f).lower(X).as_text().count("@control_dep") == 2
    wanted = np.sin(X) + np.cos(X) + np.tan(X)
    for run in (f, sw.jit(f), sw.vmap(f), sw.jit(sw.vmap(f))):
        np.testing.assert_allclose(run(X), wanted, rtol=1e-4, atol=1e-5)
    slope = sw.jit(sw.grad(lambda x: f(x).sum()))(X)
    np.testing.assert_allclose(slope, np.cos(X) - np.sin(X) + 1 / np.cos(X) ** 2, rtol=1e-3)
    g = sw.jit(sw.shard_map(f, mesh=mesh_of(4), in_specs=sw.P("x"), out_specs=sw.P("x")))
    np.testing.assert_allclose(g(X), wanted, rtol=1e-4, atol=1e-5)


def test_mistakes():
    with pytest.raises(
        TypeError,
        match=re.escape(
            "with_layout_constraint: layouts must have a `shardwise.experimental.layout.Layout` for "
            "each array, or for pytrees of them; got 'rows'."
        ),
    ):
        sw.jit(lambda x: with_layout_constraint([x], "rows"))(X)
    with pytest.raises(ValueError, match=r"is for 2 dimensions, but the array has 1"):
        sw.jit(lambda x: with_layout_constraint(x, TURNED))(X[0])
    placed = sw.device_put(X, sw.NamedSharding(mesh_of(4), sw.P("x")))
    with pytest.raises(
        NotImplementedError,
        match=re.escape(
            "control_dep: XLA orders instructions in single-device code only. Call it inside "
            "of `shardwise.shard_map`."
        ),
    ):
        sw.jit(lambda x: control_dep(x + 1, x + 2))(placed)
