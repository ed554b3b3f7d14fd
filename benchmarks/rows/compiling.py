"""From a Python function to an executable: trace, lower, first call.

Each sample must do the work again. A new function object is not enough, since a library may treat
two functions with the same code as equal; so each closes over a new number, or takes arrays of a
new size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from benchmarks import gpt
from benchmarks.libs import Lib
from benchmarks.rows.arrays import vector
from benchmarks.runner import Fresh, Row

CHAIN = 1000


def trace_chain(lib: Lib) -> Fresh:
    sin, x = lib.np.sin, vector(lib)

    def fresh() -> Callable[[], Any]:
        scale = 1.0 + next(lib.sizes) * 1e-6  # differs each time: no cached trace

        def chain(x: Any) -> Any:
            for _ in range(CHAIN // 2):
                x = sin(x) * scale
            return x

        return lambda: lib.root.jit(chain).trace(x)

    return fresh


def gpt_arguments(lib: Lib, config: gpt.Config) -> tuple[Any, ...]:
    return lib.root.device_put((*gpt.initial(config), *gpt.batch(config)))


def new_step(lib: Lib) -> Callable[..., Any]:
    """A step with a new learning rate: no cached trace or lowering."""
    return gpt.make_step(lib, gpt.TRACE, learning=next(lib.sizes) * 1e-6)


def trace_gpt(lib: Lib) -> Fresh:
    arguments = gpt_arguments(lib, gpt.TRACE)

    def fresh() -> Callable[[], Any]:
        step = lib.root.jit(new_step(lib))
        return lambda: step.trace(*arguments)

    return fresh


def lower_gpt(lib: Lib) -> Fresh:
    arguments = gpt_arguments(lib, gpt.TRACE)
    return lambda: lib.root.jit(new_step(lib)).trace(*arguments).lower


def first_call(lib: Lib) -> Fresh:
    sin, block = lib.np.sin, lib.root.block_until_ready

    def fresh() -> Callable[[], Any]:
        # a new size, so that no executable and no trace is cached
        x = lib.root.device_put(numpy.ones(next(lib.sizes), "float32"))
        return lambda: block(lib.root.jit(lambda x: sin(x))(x))

    return fresh


def same_code(lib: Lib) -> Fresh:
    """The same lambda evaluated again, as in a function that jits a helper on every call."""
    sin, x, block = lib.np.sin, vector(lib), lib.root.block_until_ready
    return lambda: lambda: block(lib.root.jit(lambda x: sin(x) * 2)(x))


def same_program(lib: Lib) -> Fresh:
    """A function that must be traced again, and whose program equals an earlier one."""
    sin, x, block = lib.np.sin, vector(lib), lib.root.block_until_ready

    def fresh() -> Callable[[], Any]:
        closed_over = object()  # not equal to any other object

        def function(x: Any) -> Any:
            return sin(x) * (3 if closed_over else 4)

        return lambda: block(lib.root.jit(function)(x))

    return fresh


def rolls(lib: Lib) -> Fresh:
    """Eight shifts of one axis that are known only when the program runs."""
    roll, block = lib.np.roll, lib.root.block_until_ready
    shifts = lib.root.device_put(numpy.arange(8, dtype="int32"))

    def fresh() -> Callable[[], Any]:
        x = lib.root.device_put(numpy.ones(next(lib.sizes), "float32"))
        return lambda: block(lib.root.jit(lambda x: roll(x, shifts, 0))(x))

    return fresh


ROWS = (
    Row("trace.chain_per_op", 0.09, trace_chain, kind="fresh", per=CHAIN),
    Row("trace.gpt", 0.12, trace_gpt, kind="fresh"),
    Row("lower.gpt", 0.1, lower_gpt, kind="fresh"),
    Row("compile.first_call", 0.85, first_call, kind="fresh"),
    Row("compile.rolls", 0.7, rolls, kind="fresh"),
    Row("compile.same_code", 0.2, same_code, kind="fresh"),
    Row("compile.same_program", 0.2, same_program, kind="fresh"),
)
