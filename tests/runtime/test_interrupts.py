"""Ctrl-C raises KeyboardInterrupt wherever it arrives, and later operations are right.

Everyday tests send the signal at exact places; the sweep at 300 random moments (`interrupted.py`).
"""

import ctypes
import functools
import gc
import operator
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import checkpoints, explain
from shardwise._src.runtime import host_memory
from shardwise.experimental.custom_partitioning import custom_partitioning
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.helpers.flags import xla_flags
from tests.runtime import interrupted

ROOT = Path(__file__).resolve().parents[2]
interrupt = functools.partial(signal.raise_signal, signal.SIGINT)


def in_child(*arguments, code=None):
    env = {**os.environ, "XLA_FLAGS": xla_flags(8)}
    program = ["-c", code] if code else [interrupted.__file__]
    return subprocess.run(
        [sys.executable, *program, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=env,
        timeout=600,
    )


# -------------------------------------------------------------------------------- exact places

IMPORTS = """
import signal, sys

class Interrupts:
    def __init__(self, *names):
        self.names = [*names]

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            self.names.remove(name)
            signal.raise_signal(signal.SIGINT)

import shardwise as sw, shardwise.numpy as jnp

def first():
    return float((jnp.arange(8.0) * 2).sum())

def second():
    return round(float(jnp.linalg.cholesky(jnp.eye(3) * 4)[0, 0]), 3)

for f, name in zip((first, second), sys.argv[1:]):
    sys.meta_path.insert(0, Interrupts(name))
    try:
        f()
    except KeyboardInterrupt:
        print("interrupted", f())
"""


@pytest.mark.parametrize("names", [
    # Imports that numpy._core._multiarray_umath makes when it is initialized; jaxlib.cpu._lapack.
    ("numpy.dtypes", "scipy.linalg"),
    # jaxlib._jax; scipy._lib._ccallback_c, which jaxlib.cpu._lapack imports.
    ("jaxlib._hlo", "scipy._cyutility"),
])  # fmt: skip
def test_imports_that_extension_modules_make(names):
    done = in_child(*names, code=IMPORTS)
    assert (done.returncode, done.stdout) == (0, "interrupted 56.0\ninterrupted 2.0\n"), done.stderr


def test_an_interrupt_that_is_not_caught_ends_the_process_as_by_the_signal():
    """Importing a module with a dataclass at exit makes Python forget that it must end this way."""
    done = in_child(
        code="import signal, sys, shardwise.numpy as jnp; jnp.arange(3) + 1\n"
        "signal.raise_signal(signal.SIGINT)"
    )
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
    assert done.stderr.endswith("\nKeyboardInterrupt\n")


class Interrupting(weakref.ref):
    """Raises SIGINT when its object is freed, without a Python function: the handler runs later."""

    send = staticmethod(functools.partial(getattr(ctypes.CDLL(None), "raise"), signal.SIGINT))


class Cycle:
    def __init__(self):
        self.itself = self


def test_an_interrupt_during_a_collection_is_not_lost(monkeypatch):
    kind = host_memory._Collection
    ours = [f for f in gc.callbacks if isinstance(getattr(f, "args", [0])[0], kind)]
    assert len(ours) == host_memory._LEVELS
    monkeypatch.setattr(gc, "callbacks", gc.callbacks)
    others = [f for f in gc.callbacks if f not in ours]  # callbacks of test tools, which lose it
    gc.collect()
    for f in others:
        gc.callbacks.remove(f)
    try:
        held = Interrupting(Cycle(), operator.methodcaller("send"))
        with pytest.raises(KeyboardInterrupt):
            gc.collect()
        assert held() is None
    finally:
        gc.callbacks[:] = [*others, *ours]


def test_collections_release_memory_of_the_runtime(monkeypatch):
    calls = []
    monkeypatch.setattr(host_memory._Collection, "release", staticmethod(lambda: calls.append(1)))
    gc.collect()
    assert calls == [1] * host_memory._LEVELS


def at_call(which, f):
    """Calls f, and sends SIGINT at the call of the Python function for which `which(code)` holds.

    Returns whether the call was interrupted.
    """

    def hook(frame, event, _):
        if event == "call" and which(frame.f_code):
            sys.setprofile(before)
            interrupt()

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        f()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


def sharded():
    mesh = Mesh(np.array(sw.devices()[:2]), ("x",))
    value = np.arange(16, dtype=np.float32).reshape(4, 4)
    return sw.device_put(value, NamedSharding(mesh, PartitionSpec("x")))


@pytest.mark.parametrize("name", ["visit", "_attribute", "_context"])
def test_functions_that_mlir_calls(name):
    x = sharded()

    def report():
        return str(explain(lambda x: (x @ x.T).sum())(x))

    expected = report()
    if name == "_context":
        sw._src.runtime.compiler.shardy._context.cache_clear()
    file = sw._src.runtime.compiler.shardy.__file__
    assert at_call(lambda code: (code.co_name, code.co_filename) == (name, file), report)
    assert report() == expected


def test_functions_that_the_partitioner_calls():
    seen = []

    @custom_partitioning
    def double(x):
        return x * 2

    def partition(mesh, arg_shapes, result_shape):
        seen.append(1)
        if len(seen) == 1:
            interrupt()
        shardings = [s.sharding for s in arg_shapes]
        return mesh, lambda x: x * 2, shardings[0], tuple(shardings)

    double.def_partition(
        partition=partition,
        infer_sharding_from_operands=lambda mesh, args, out: args[0].sharding,
        sharding_rule="i j -> i j",
    )
    x = sharded()
    f = sw.jit(double)
    with pytest.raises(KeyboardInterrupt):
        f(x)
    np.testing.assert_array_equal(f(x), 2 * np.asarray(x))


def test_host_functions_of_compiled_programs():
    waiting = [1]

    def host(value):
        if waiting:
            waiting.pop()
            interrupt()
        return value + 1

    f = sw.jit(lambda x: sw.pure_callback(host, x, x))
    x = jnp.arange(3.0)
    with pytest.raises(KeyboardInterrupt):
        f(x)
    sw.effects_barrier()
    np.testing.assert_array_equal(f(x), [1, 2, 3])


# ------------------------------------------------------- evenly over the calls that Python makes


def calls_of(f):
    count = [0]

    def hook(frame, event, _):
        count[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        f()
    finally:
        sys.setprofile(before)
    return count[0]


def interrupted_at(part, f):
    """Interrupts f after this fraction of the calls that it makes."""
    left = [int(part * min(calls_of(f), calls_of(f)))]

    def reached(code):
        left[0] -= 1
        return left[0] < 0

    return at_call(reached, f)


PARTS = (0.0, 0.11, 0.23, 0.35, 0.52, 0.61, 0.77, 0.9)


@pytest.mark.parametrize("part", PARTS)
def test_compiling(part):
    x, number = sharded(), iter(range(10, 100))

    def f():
        n = next(number) + 100 * PARTS.index(part)
        y = sw.jit(lambda x: jnp.sort(x @ x, axis=0) + n)(x)
        np.testing.assert_array_equal(y, np.sort(np.asarray(x) @ np.asarray(x), axis=0) + n)

    f()
    assert interrupted_at(part, f)
    f()


@pytest.mark.parametrize("part", PARTS)
def test_running(part):
    x = sharded()
    f = sw.jit(lambda x: jnp.sin(x) * 2)

    def g():
        np.testing.assert_allclose(f(x) + x, np.sin(np.asarray(x)) * 2 + x, rtol=1e-5)

    g()
    g()
    assert interrupted_at(part, g)
    g()


@pytest.mark.filterwarnings("ignore:coroutine '[a-z_.<>]*' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("part", PARTS)
def test_saving(part, tmp_path):
    path, step = tmp_path / "state", [0]

    def save():
        step[0] += 1
        checkpoints.save(path, {"a": jnp.full(100, step[0]), "b": step[0]}, overwrite=True)

    def check(*steps):
        found = checkpoints.restore(path)
        assert found["b"] in steps
        np.testing.assert_array_equal(found["a"], np.full(100, found["b"]))

    save()
    save()
    assert interrupted_at(part, save)
    check(step[0] - 1, step[0])
    save()
    check(step[0])


# ------------------------------------------------------------------------------- random moments


def once(name, count):
    """The wrong outcomes of interrupts of a part that runs once per process."""
    measured = in_child(name, "measure")
    assert measured.returncode == 0, measured.stderr
    wrong = []
    for number in range(count):
        done = in_child(name, number, number + 1, measured.stdout.strip())
        if number % interrupted.UNCAUGHT == interrupted.UNCAUGHT - 1:
            right = (done.returncode, done.stdout) == (-signal.SIGINT, "")
            right = right and done.stderr.endswith("\nKeyboardInterrupt\n")
        else:
            right = (done.returncode, done.stdout, done.stderr) == (0, "'ok'\n", "")
        if not right:
            wrong.append((number, done.returncode, done.stdout, done.stderr))
    return wrong


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="timers of CPU time are Linux's")
@pytest.mark.parametrize("name", interrupted.ONCE)
def test_at_random_moments_of_a_new_process(name):
    assert once(name, 60) == []


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="timers of CPU time are Linux's")
@pytest.mark.parametrize("first", range(0, 60, 15))
@pytest.mark.parametrize("name", interrupted.OFTEN)
def test_at_random_moments(name, first):
    done = in_child(name, first, first + 15)
    assert (done.returncode, done.stdout, done.stderr) == (0, "'ok'\n" * 15, "")
