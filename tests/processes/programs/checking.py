"""Check functions for programs in several processes: compare a process's shards with NumPy.

Each program runs in 1, 2 and 4 processes with 4 devices in all, prints the same lines in each of
them, and fails with a list of all errors.
"""

import hashlib
import sys
import traceback
import warnings
from contextlib import contextmanager

import numpy as np

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

warnings.simplefilter("error")
P = PartitionSpec
ALL = "all" in sys.argv
PART, PARTS = [int(a.partition("=")[2]) for a in sys.argv[1:] if "part" in a] or (0, 1)
FAILED: list[str] = []
SEEN = []  # checks
HERE = sw.process_index()
COUNT = sw.process_count()
DEVICES = sw.devices()
PER = len(DEVICES) // COUNT


def check(function):
    """Runs a function if it belongs to this part; `finish` reports what it raises."""
    SEEN.append(function)
    if len(SEEN) % PARTS != PART:
        return function
    try:
        function()
    except Exception:
        FAILED.append(f"{function.__name__}:\n{traceback.format_exc()}")
        if COUNT > 1:  # the other processes wait for this one
            finish()
    return function


def check_jax():
    """Checks that jaxlib did not import jax."""
    if "jax" in sys.modules:
        FAILED.append("jax was imported")


def finish():
    """Ends the program, with failure if any check failed."""
    sys.stdout.flush()
    if FAILED:
        sys.exit("\n".join(FAILED))


# Device orders: by process, reversed, interleaved, mixed.
ORDERS = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [2, 0, 3, 1]]


def meshes():
    """Meshes over all devices, in several orders; in a short run, in one order."""
    for order in ORDERS if ALL else ORDERS[-1:]:
        yield Mesh(np.array([DEVICES[i] for i in order]), ("x",))
        yield Mesh(np.array([DEVICES[i] for i in order]).reshape(2, 2), ("x", "y"))


def some(cases):
    """All cases; in a short run, every third."""
    found = list(cases)
    return found if ALL else found[::3]


def over(*spec, mesh=None, order=None, shape=(4,), names=("x",)):
    """A sharding over all devices in some order."""
    if mesh is None:
        devices = [DEVICES[i] for i in order or range(4)]
        mesh = Mesh(np.array(devices).reshape(shape), names)
    return NamedSharding(mesh, P(*spec))


def numbers(*shape, dtype=np.float32, seed=0):
    """Distinct numbers of a dtype."""
    n = int(np.prod(shape))
    return np.random.default_rng(seed).permutation(n).reshape(shape).astype(dtype)


def same(x, expected, *, close=False):
    """Checks that the local shards of an array equal those of a NumPy array, with NaN and zeros."""
    expected = np.asarray(expected)
    assert x.shape == expected.shape, (x.shape, expected.shape)
    assert x.dtype == expected.dtype, (x.dtype, expected.dtype)
    for shard in x.addressable_shards:
        equal(np.asarray(shard.data), expected[shard.index], close=close)


def equal(value, expected, *, close=False):
    assert value.shape == expected.shape, (value.shape, expected.shape)
    assert value.dtype == expected.dtype, (value.dtype, expected.dtype)
    if close:
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-5)
    elif not np.array_equal(value, expected):
        np.testing.assert_array_equal(value, expected)


def digest(x):
    """A short digest of an array's value, which every process reads in full."""
    if not (x.is_fully_addressable or x.is_fully_replicated):
        x = sw.device_put(x, NamedSharding(x.sharding.mesh, P()))
    value = np.asarray(x)
    return f"{value.dtype}{list(value.shape)} {hashlib.sha1(value.tobytes()).hexdigest()[:12]}"


@contextmanager
def raises(kind, text):
    """Checks that the block raises this error with exactly this message."""
    try:
        yield
    except kind as error:
        assert str(error) == text, f"{error}\n--- expected\n{text}"
        return
    raise AssertionError(f"nothing was raised; expected: {text}")
