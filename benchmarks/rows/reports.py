"""Reports of what a program will do, compared with compiling it; and reports for absent devices.

The other library has no reports: its column contains the maximum cost that a report may have. It
has no suggestions either: the ratio of `explain.suggest` compares the estimate for the best
sharding that it finds for the demo's step with the estimate for the demo's own sharding, which is
data and tensor parallel.
"""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import gpt
from benchmarks.child import run_child
from benchmarks.libs import Lib
from benchmarks.runner import Fresh, Row

MANY = 8192  # devices, as 1,024 along data and eight along model
SECONDS, BYTES = 60.0, float(2 << 30)  # limits for a report for this many devices
BUDGET = 300.0  # seconds for a search
EXAMPLES = Path(__file__).parents[2] / "examples"


def new_step(lib: Lib) -> Any:
    """A step with a new learning rate: nothing is cached."""
    return lib.root.jit(gpt.make_step(lib, gpt.STEADY, learning=next(lib.sizes) * 1e-6))


def structs(lib: Lib, mesh: Any) -> tuple[Any, ...]:
    """Arguments of a step, the batch split over `data`, the weights over `model` by columns."""
    spec, batch = lib.sharding.PartitionSpec, gpt.batch(gpt.STEADY)

    def struct(x: Any, *names: Any) -> Any:
        fits = [n if n is None or size % mesh.shape[n] == 0 else None
                for n, size in zip(names, x.shape, strict=False)]  # fmt: skip
        sharding = lib.sharding.NamedSharding(mesh, spec(*fits))
        return lib.root.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    def weight(x: Any) -> Any:
        return struct(x, *([None, "model"] if x.ndim == 2 else []))

    state = lib.root.tree.map(weight, gpt.initial(gpt.STEADY))
    return (*state, *[struct(x, "data") for x in batch])


def report(lib: Lib) -> Fresh:
    arguments = structs(lib, lib.mesh(data=4, model=2))

    def fresh() -> Callable[[], Any]:
        step = new_step(lib)
        if lib.name == "shardwise":
            return lambda: lib.root.explain(step)(*arguments)
        return lambda: step.lower(*arguments).compile()

    return fresh


def report_for_many(lib: Lib) -> Callable[[], Any]:
    """A function that makes a report for devices that are not attached."""
    auto = (lib.sharding.AxisType.Auto,) * 2
    mesh = lib.sharding.AbstractMesh((MANY // 8, 8), ("data", "model"), axis_types=auto)
    arguments = structs(lib, mesh)
    return lambda: lib.root.explain(new_step(lib), machine="h200")(*arguments)


def seconds_for_many(lib: Lib) -> Callable[[], float]:
    if lib.name != "shardwise":
        return lambda: SECONDS
    make = report_for_many(lib)

    def measured() -> float:
        begin = time.perf_counter()
        make()
        return time.perf_counter() - begin

    return measured


def bytes_for_many(lib: Lib) -> Callable[[], float]:
    """In a new process, whose only children are those of the report."""
    if lib.name != "shardwise":
        return lambda: BYTES
    return lambda: run_child("peak_report", lib.name)


def demo(lib: Lib) -> tuple[Callable[..., Any], tuple[Any, Any], Any, Any]:
    """The demo's step with only one of its blocks, which are all equal; its arguments as shapes, a
    mesh, and the demo's own shardings."""
    sys.path[:0] = [] if str(EXAMPLES) in sys.path else [str(EXAMPLES)]
    model = importlib.import_module("gpt_model")
    config, mesh = model.Config(layers=1, width=192, heads=6), lib.mesh(data=4, model=2)
    state = lib.root.eval_shape(lambda: model.init_state(config))
    windows = lib.root.ShapeDtypeStruct((config.batch, config.context + 1), "int32")
    split = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec("data", None))
    written = (model.state_shardings(config, mesh), split)
    step = functools.partial(model.train_step, config=config, mesh=mesh)
    return step, (state, windows), mesh, written


@functools.cache
def found_by_search() -> tuple[float, float]:
    """The best estimate, and how long the search took."""
    lib = Lib("shardwise", iter(()))
    step, arguments, mesh, _ = demo(lib)
    found = lib.root.explain.suggest(step, arguments, mesh, keep=1, budget=BUDGET)
    return found[0].report.seconds.total, found.seconds


def written_by_hand() -> float:
    lib = Lib("shardwise", iter(()))
    step, arguments, _, shardings = demo(lib)
    placed = lib.root.tree.map(
        lambda t, s: lib.root.ShapeDtypeStruct(t.shape, t.dtype, sharding=s), arguments, shardings
    )
    return lib.root.explain(step)(*placed).seconds.total


def suggested(what: str) -> Callable[[Lib], Callable[[], float]]:
    """The estimate for the suggested sharding, to compare with that for the demo's; or the seconds
    of the search."""

    def setup(lib: Lib) -> Callable[[], float]:
        if lib.name == "shardwise":
            return lambda: found_by_search()[what == "seconds"]
        return written_by_hand if what == "estimate" else lambda: BUDGET

    return setup


# A report compiles a program as a call does, and reads the result.
ROWS = (
    Row("explain.gpt_step", 2.0, report, kind="fresh", rounds=5),
    Row("explain.8192_devices", 1.0, seconds_for_many, kind="value", rounds=2),
    Row("explain.8192_devices_memory", 1.0, bytes_for_many, kind="value", unit="B", rounds=1),
    Row("explain.suggest", 1.0, suggested("estimate"), kind="value", rounds=1),
    Row("explain.suggest_seconds", 1.1, suggested("seconds"), kind="value", rounds=1),
)
