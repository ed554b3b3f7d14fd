"""Transforms run eagerly, outside jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from benchmarks.libs import Lib
from benchmarks.rows.arrays import matrix, vector
from benchmarks.runner import Fresh, Row


def three_ops(lib: Lib) -> Callable[[Any], Any]:
    sin, total = lib.np.sin, lib.np.sum
    return lambda x: total(sin(x * x))


def grad(lib: Lib) -> Callable[[], Any]:
    g, x = lib.root.grad(three_ops(lib)), vector(lib)
    return lambda: g(x)


def vmap(lib: Lib) -> Callable[[], Any]:
    sin, x = lib.np.sin, matrix(lib)
    f = lib.root.vmap(lambda row: sin(row) * 2)
    return lambda: f(x)


def scan(lib: Lib) -> Callable[[], Any]:
    run, xs, start = lib.lax.scan, vector(lib), lib.root.device_put(numpy.float32(0))

    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        return carry + x, carry * x

    return lambda: run(body, start, xs)


def cond(lib: Lib) -> Callable[[], Any]:
    choose, x = lib.lax.cond, vector(lib)
    pred = lib.root.device_put(numpy.asarray(True))

    def one(x: Any) -> Any:
        return x * 2

    def other(x: Any) -> Any:
        return x - 1

    return lambda: choose(pred, one, other, x)


def while_loop(lib: Lib) -> Callable[[], Any]:
    run, state = lib.lax.while_loop, (lib.root.device_put(numpy.int32(0)), vector(lib))

    def small(state: Any) -> Any:
        return state[0] < 5

    def turn(state: Any) -> Any:
        return state[0] + 1, state[1] * 2

    return lambda: run(small, turn, state)


def fori_loop(lib: Lib) -> Callable[[], Any]:
    run, x = lib.lax.fori_loop, vector(lib)

    def turn(i: Any, x: Any) -> Any:
        return x * 2

    return lambda: run(0, 5, turn, x)


def first_grad(lib: Lib) -> Fresh:
    g, block = lib.root.grad(three_ops(lib)), lib.root.block_until_ready

    def fresh() -> Callable[[], Any]:
        # a new size: every op of the gradient has to be compiled again
        x = lib.root.device_put(numpy.ones(next(lib.sizes), "float32"))
        return lambda: block(g(x))

    return fresh


ROWS = (
    Row("transform.grad", 0.05, grad),
    Row("transform.vmap", 0.1, vmap),
    Row("transform.scan", 0.06, scan),
    Row("transform.cond", 0.25, cond),
    Row("transform.while", 0.25, while_loop),
    Row("transform.fori", 0.25, fori_loop),
    Row("transform.first_grad", 0.25, first_grad, kind="fresh"),
)
