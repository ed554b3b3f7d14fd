"""`core_map`, and `shard_map` over the cores of a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.state import run_state
from shardwise.kernels import CoreMesh, SemaphoreType, core_map, ds, program_id, run_scoped
from shardwise.kernels import sync_copy as copied

CORES = CoreMesh("core", 2)


def on_cores(body: Any) -> Any:
    def f(x: Any) -> Any:
        @run_state
        def run(refs: Any) -> None:
            body(*refs)

        return run((x, jnp.zeros_like(x)))[1]

    return f


def by_core_map(x: Any, out: Any) -> None:
    @core_map(CORES)
    def _() -> None:
        half = ds(program_id("core") * 8, 8)
        out[half] = 2 * x[half] + lax.axis_index("core")


def by_shard_map(x: Any, out: Any) -> None:
    def half(x: Any, out: Any) -> None:
        own = ds(lax.axis_index("core") * 8, 8)
        copied(x.at[own], out.at[own])
        out[own] = 2 * out[own] + program_id(0)

    sw.shard_map(half, mesh=CORES, in_specs=None, out_specs=None)(x, out)


@pytest.mark.parametrize("body", [by_core_map, by_shard_map])
def test_values_and_derivatives(body: Any):
    f = on_cores(body)
    x = np.arange(16, dtype=np.float32)
    wanted = 2 * x + np.repeat([0, 1], 8)
    for g in (f, sw.jit(f)):
        np.testing.assert_array_equal(g(x), wanted)
    np.testing.assert_allclose(sw.grad(lambda x: (f(x) ** 2).sum())(x), 4 * wanted)
    np.testing.assert_array_equal(sw.vmap(f)(np.stack([x, x + 1]))[1], wanted + 2)


def test_it_is_one_launch():
    program = sw.jit(on_cores(by_shard_map)).trace(jnp.zeros(16)).jaxpr
    launches = [e for e in program.eqns if e.op.name == "kernel_call"]
    assert [e.params["launch"].grid for e in launches] == [(2,)]


def test_mistakes():
    def returns() -> None:
        core_map(CORES)(lambda: 3)  # type: ignore[arg-type,return-value]

    for f, kind, text in (
        (
            returns,
            TypeError,
            "core_map: <lambda> returned 3 of type int. It writes its results to refs, and returns "
            "None.",
        ),
        (
            lambda: core_map(sw.make_mesh((2,), ("x",))),  # type: ignore[arg-type]
            TypeError,
            "core_map: expected a CoreMesh; got Mesh('x': 2, axis_types=(Explicit,)) of type Mesh.",
        ),
        (
            lambda: sw.shard_map(lambda x: None, mesh=CORES, in_specs=None, out_specs=None)(
                jnp.zeros(2)
            ),
            TypeError,
            "shard_map over cores: the arguments are refs, which the function writes its results "
            "to; got Array([0., 0.], dtype=float32) of type Array.",
        ),
    ):
        with pytest.raises(kind) as caught:
            f()
        assert str(caught.value) == text
    with pytest.raises(TypeError, match="run_scoped: scratch memory is made by"):
        run_scoped(lambda a, b: None, SemaphoreType.DMA, 3)
