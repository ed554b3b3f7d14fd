"""Maps: cached calls, eager calls, tracing and lowering.

The GPT step with explicit collectives is data-parallel: a device has rows of the batch and all
parameters; losses and gradients are averaged by `pmean`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from benchmarks import gpt
from benchmarks.libs import DEVICES, Lib
from benchmarks.rows.compiling import gpt_arguments
from benchmarks.rows.steps import continuing
from benchmarks.runner import Case, Fresh, Row

ROUNDS = 10  # of eight collectives


def over_devices(lib: Lib) -> tuple[Callable[[Any], Any], Any]:
    """A mapped function of one op, and an argument with a row on each device."""
    mesh, spec = lib.mesh(d=DEVICES), lib.sharding.PartitionSpec("d")
    f = lib.root.shard_map(lambda x: x + 1, mesh=mesh, in_specs=spec, out_specs=spec)
    return f, lib.root.device_put(numpy.ones((DEVICES, 8), "float32"), lib.named(mesh, "d", None))


def shard_map_cached(lib: Lib) -> Callable[[], Any]:
    f, x = over_devices(lib)
    run = lib.root.jit(f)
    return lambda: run(x)


def shard_map_eager(lib: Lib) -> Callable[[], Any]:
    f, x = over_devices(lib)
    return lambda: f(x)


def pmap_cached(lib: Lib) -> Callable[[], Any]:
    run = lib.root.pmap(lambda x: x + 1)
    x = run(numpy.ones((DEVICES, 8), "float32"))
    return lambda: run(x)


def mapped_step(lib: Lib, config: gpt.Config, learning: float) -> Any:
    """A jitted step with explicit collectives: `step(params, moments, tokens, targets)`."""
    mesh, spec = lib.mesh(d=DEVICES), lib.sharding.PartitionSpec
    rows, whole = spec("d"), spec()
    step = gpt.make_step(lib, config, learning, axis="d")
    return lib.root.jit(lib.root.shard_map(
        step, mesh=mesh, in_specs=(whole, whole, rows, rows), out_specs=whole
    ))  # fmt: skip


def lower_step(lib: Lib) -> Fresh:
    arguments = gpt_arguments(lib, gpt.TRACE)

    def fresh() -> Callable[[], Any]:
        step = mapped_step(lib, gpt.TRACE, learning=next(lib.sizes) * 1e-6)
        return lambda: step.trace(*arguments).lower()

    return fresh


def step_by_hand(lib: Lib, config: gpt.Config = gpt.STEADY) -> Case:
    """The compiled step, with its collectives; each call continues from the state of the last."""
    mesh = lib.mesh(d=DEVICES)
    whole, rows = lib.named(mesh), lib.named(mesh, "d", None)
    state = lib.root.device_put(gpt.initial(config), whole)
    batch = lib.root.device_put(gpt.batch(config), rows)
    return continuing(lib, mapped_step(lib, config, gpt.RATES["learning"]), (*state, *batch))


def trace_collectives(lib: Lib) -> Fresh:
    lax, x = lib.lax, lib.root.device_put(numpy.ones((8, 16), "float32"))
    ring = [(i, (i + 1) % 8) for i in range(8)]

    def fresh() -> Callable[[], Any]:
        scale = 1.0 + next(lib.sizes) * 1e-6  # differs each time: no cached trace

        def row(x: Any) -> Any:
            for _ in range(ROUNDS):  # x: f32[16]
                x = x / lax.psum(x * scale, "i") + lax.pmax(x, "i")
                x = lax.ppermute(x, "i", ring) * lax.axis_index("i")
                x = lax.all_to_all(x.reshape(8, 2), "i", 0, 0)
                x = lax.all_gather(x, "i") - lax.pmean(x, "i")  # f32[8, 8, 2]
                x = lax.psum_scatter(x, "i").reshape(16)
            return x

        return lambda: lib.root.jit(lib.root.vmap(row, axis_name="i")).trace(x)

    return fresh


ROWS = (
    Row("maps.shard_map_cached", 1.1, shard_map_cached),
    Row("maps.shard_map_eager", 0.5, shard_map_eager),
    Row("maps.shard_map_lower", 0.3, lower_step, kind="fresh"),
    Row("maps.shard_map_step", 1.0, step_by_hand, clock="wall"),
    Row("maps.pmap_cached", 1.2, pmap_cached),
    Row("maps.vmap_collectives", 0.25, trace_collectives, kind="fresh", per=8 * ROUNDS),
)
