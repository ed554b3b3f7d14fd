"""Calls of a jitted function that is already in the cache: the cost of dispatch only.

In some rows the function is jitted again for each call, or re-created: a cache hit, without a
trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from benchmarks.libs import DEVICES, Lib
from benchmarks.runner import Row


def one_array(lib: Lib) -> Callable[[], Any]:
    f = lib.root.jit(lambda x: x + 1)
    x = lib.root.device_put(numpy.ones(8, "float32"))
    return lambda: f(x)


def leaves(count: int) -> Callable[[Lib], Callable[[], Any]]:
    def setup(lib: Lib) -> Callable[[], Any]:
        f = lib.root.jit(lambda tree: {key: leaf + 1 for key, leaf in tree.items()})
        host = {f"leaf_{i:03}": numpy.ones(8, "float32") for i in range(count)}
        tree = lib.root.device_put(host)
        return lambda: f(tree)

    return setup


def eight_devices(lib: Lib) -> Callable[[], Any]:
    f = lib.root.jit(lambda x: x + 1)
    x = lib.root.device_put(
        numpy.ones((DEVICES, 8), "float32"), lib.named(lib.mesh(d=DEVICES), "d", None)
    )
    return lambda: f(x)


def static_argument(lib: Lib) -> Callable[[], Any]:
    f = lib.root.jit(lambda x, n: x + n, static_argnums=1)
    x = lib.root.device_put(numpy.ones(8, "float32"))
    return lambda: f(x, 2)


def jitted_again(lib: Lib) -> Callable[[], Any]:
    jit, x = lib.root.jit, lib.root.device_put(numpy.ones(8, "float32"))

    def function(x: Any) -> Any:
        return x + 1

    return lambda: jit(function)(x)


def jitted_again_with_options(lib: Lib) -> Callable[[], Any]:
    jit, x = lib.root.jit, lib.root.device_put(numpy.ones(8, "float32"))

    def function(x: Any, n: int) -> Any:
        return x + n

    return lambda: jit(function, static_argnums=1)(x, 2)


def grad_again(lib: Lib) -> Callable[[], Any]:
    jit, grad, sin = lib.root.jit, lib.root.grad, lib.np.sin
    x = lib.root.device_put(numpy.ones(8, "float32"))

    def loss(x: Any) -> Any:
        return sin(x).sum()

    return lambda: jit(grad(loss))(x)


ROWS = (
    Row("jit.1_array", 1.3, one_array),
    Row("jit.10_leaves", 1.2, leaves(10)),
    Row("jit.200_leaves", 1.2, leaves(200)),
    Row("jit.8_devices", 1.3, eight_devices),
    Row("jit.static", 1.3, static_argument),
    Row("jit.again", 0.25, jitted_again),
    Row("jit.again_static", 0.5, jitted_again_with_options),
    Row("jit.grad_again", 0.02, grad_again, rounds=7),
)
