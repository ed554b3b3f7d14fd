"""Calls of a jitted function that is already in the cache: the cost of dispatch only.

Each kind of call has two rows: `jit.x`, which queues many calls and blocks on the last one, and
`jit.x.blocked`, which blocks on each. In the last rows the function is jitted again for each call,
or re-created: a cache hit, without a trace.

Rows with NumPy arguments (`jit.numpy_*`) compare different work: jax's CPU arrays may use the memory
of the NumPy array, so that a program that has not run yet sees what is written to it later; this
library copies it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

from benchmarks.libs import DEVICES, Lib
from benchmarks.runner import Row

Setup = Callable[[Lib], Callable[[], Any]]


def vector(lib: Lib) -> Any:
    return lib.root.device_put(numpy.ones(8, "float32"))


def host_tree(count: int, length: int = 8) -> dict[str, Any]:
    return {f"leaf_{i:03}": numpy.ones(length, "float32") for i in range(count)}


def plus_one(tree: Any) -> Any:
    return {key: leaf + 1 for key, leaf in tree.items()}


def first_of(tree: Any) -> Any:
    return tree["leaf_000"] + 1


def over_devices(lib: Lib, host: Any) -> Any:
    sharding = lib.named(lib.mesh(d=DEVICES), "d")
    return lib.root.device_put(host, sharding)


def one_array(lib: Lib) -> Callable[[], Any]:
    f, x = lib.root.jit(lambda x: x + 1), vector(lib)
    return lambda: f(x)


def leaves(count: int, function: Callable[[Any], Any] = plus_one) -> Setup:
    def setup(lib: Lib) -> Callable[[], Any]:
        f, tree = lib.root.jit(function), lib.root.device_put(host_tree(count))
        return lambda: f(tree)

    return setup


def numpy_leaves(count: int) -> Setup:
    def setup(lib: Lib) -> Callable[[], Any]:
        f, tree = lib.root.jit(plus_one), host_tree(count)
        return lambda: f(tree)

    return setup


def numpy_array(lib: Lib) -> Callable[[], Any]:
    f, x = lib.root.jit(lambda x: x + 1), numpy.ones(8, "float32")
    return lambda: f(x)


def numpy_batch(lib: Lib) -> Callable[[], Any]:
    """Ten parameters on the device, two arrays of a batch from NumPy."""
    f = lib.root.jit(lambda tree, x, y: first_of(tree) + x + y)
    tree, x = lib.root.device_put(host_tree(10)), numpy.ones(8, "float32")
    return lambda: f(tree, x, x)


def donated_array(lib: Lib) -> Callable[[], Any]:
    f, state = lib.root.jit(lambda x: x + 1, donate_argnums=0), vector(lib)

    def call() -> Any:
        nonlocal state
        state = f(state)
        return state

    return call


def donated(count: int, devices: bool = False) -> Setup:
    def setup(lib: Lib) -> Callable[[], Any]:
        f, host = lib.root.jit(plus_one, donate_argnums=0), host_tree(count)
        state = over_devices(lib, host) if devices else lib.root.device_put(host)

        def call() -> Any:
            nonlocal state
            state = f(state)
            return state

        return call

    return setup


def compiled_array(lib: Lib) -> Callable[[], Any]:
    x = vector(lib)
    f = lib.root.jit(lambda x: x + 1).lower(x).compile()
    return lambda: f(x)


def compiled(count: int) -> Setup:
    def setup(lib: Lib) -> Callable[[], Any]:
        tree = lib.root.device_put(host_tree(count))
        f = lib.root.jit(plus_one).lower(tree).compile()
        return lambda: f(tree)

    return setup


def keyword_arguments(lib: Lib) -> Callable[[], Any]:
    f, x = lib.root.jit(lambda x, *, scale, shift: x * scale + shift), vector(lib)
    return lambda: f(x, scale=x, shift=x)


def static_argument(lib: Lib) -> Callable[[], Any]:
    f, x = lib.root.jit(lambda x, n: x + n, static_argnums=1), vector(lib)
    return lambda: f(x, 2)


def method(lib: Lib) -> Callable[[], Any]:
    class Model:
        @partial(lib.root.jit, static_argnums=0)
        def step(self, x: Any) -> Any:
            return x + 1

    model, x = Model(), vector(lib)
    return lambda: model.step(x)


def prng_key(lib: Lib) -> Callable[[], Any]:
    f = lib.root.jit(lambda key, x: x + 1)
    key, x = lib.random.key(0), vector(lib)
    return lambda: f(key, x)


def scalar(lib: Lib) -> Callable[[], Any]:
    f, x = lib.root.jit(lambda x, rate: x * rate), vector(lib)
    return lambda: f(x, 0.5)


def numbers(kind: Callable[[int], Any]) -> Setup:
    """A number that differs at each call, such as that of the step."""

    def setup(lib: Lib) -> Callable[[], Any]:
        f, x, steps = lib.root.jit(lambda x, n: x * n), vector(lib), itertools.count()
        return lambda: f(x, kind(next(steps)))

    return setup


def static_next_to_tree(lib: Lib) -> Callable[[], Any]:
    f, tree = lib.root.jit(lambda t, n: first_of(t) + n, static_argnums=1), host_tree(10)
    tree = lib.root.device_put(tree)
    return lambda: f(tree, 2)


def compiled_numpy(lib: Lib) -> Callable[[], Any]:
    x = numpy.ones(8, "float32")
    f = lib.root.jit(lambda x: x + 1).lower(x).compile()
    return lambda: f(x)


def read(value: Callable[[Any], Any], reduce: bool) -> Setup:
    def setup(lib: Lib) -> Callable[[], Any]:
        f, x = lib.root.jit(lambda x: x.sum() if reduce else x + 1), vector(lib)
        return lambda: value(f(x))

    return setup


def eight_devices(lib: Lib) -> Callable[[], Any]:
    f = lib.root.jit(lambda x: x + 1)
    x = over_devices(lib, numpy.ones((DEVICES, 8), "float32"))
    return lambda: f(x)


def eight_devices_tree(lib: Lib) -> Callable[[], Any]:
    f, tree = lib.root.jit(plus_one), over_devices(lib, host_tree(10))
    return lambda: f(tree)


def jitted_again(lib: Lib) -> Callable[[], Any]:
    jit, x = lib.root.jit, vector(lib)

    def function(x: Any) -> Any:
        return x + 1

    return lambda: jit(function)(x)


def jitted_again_with_options(lib: Lib) -> Callable[[], Any]:
    jit, x = lib.root.jit, vector(lib)

    def function(x: Any, n: int) -> Any:
        return x + n

    return lambda: jit(function, static_argnums=1)(x, 2)


def grad_again(lib: Lib) -> Callable[[], Any]:
    jit, grad, sin = lib.root.jit, lib.root.grad, lib.np.sin
    x = vector(lib)

    def loss(x: Any) -> Any:
        return sin(x).sum()

    return lambda: jit(grad(loss))(x)


CALLS: dict[str, Setup] = {
    "1_array": one_array,
    "10_leaves": leaves(10),
    "200_leaves": leaves(200),
    "200_in": leaves(200, first_of),
    "numpy": numpy_array,
    "numpy_10": numpy_leaves(10),
    "numpy_100": numpy_leaves(100),
    "numpy_batch": numpy_batch,
    "donated": donated_array,
    "donated_200": donated(200),
    "donated_200_8_devices": donated(200, devices=True),
    "compiled": compiled_array,
    "compiled_10": compiled(10),
    "keyword": keyword_arguments,
    "static": static_argument,
    "method": method,
    "key": prng_key,
    "scalar": scalar,
    "int": numbers(int),
    "numpy_float32": numbers(numpy.float32),
    "static_tree": static_next_to_tree,
    "numpy_compiled": compiled_numpy,
    "8_devices": eight_devices,
    "8_devices_10": eight_devices_tree,
}
READS: dict[str, Setup] = {
    "asarray": read(numpy.asarray, reduce=False),
    "float": read(float, reduce=True),
    "item": read(lambda x: x.item(), reduce=True),
}


def goal(name: str, blocked: bool) -> float:
    return 1.4 if name.startswith("numpy") else 1.0 if blocked else 1.1


ROWS = (
    *[
        Row(f"jit.{name}{'.blocked' * blocked}", goal(name, blocked), setup, blocked=blocked)
        for name, setup in CALLS.items()
        for blocked in (False, True)
    ],
    *[Row(f"jit.read_{name}", 1.0, setup) for name, setup in READS.items()],
    Row("jit.again", 0.25, jitted_again),
    Row("jit.again_static", 0.5, jitted_again_with_options),
    Row("jit.grad_again", 0.02, grad_again, rounds=7),
)
