"""Values, functions and comparisons for tests of jitted functions."""

from __future__ import annotations

import functools

import numpy as np

import shardwise as sw
from shardwise.sharding import SingleDeviceSharding

V = np.arange(4, dtype=np.float32)
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
W = np.linspace(-1, 2, 32, dtype=np.float32).reshape(4, 8)
ONE = SingleDeviceSharding(sw.devices()[0])


class Called:
    def __init__(self, k):
        self.k = k

    def __call__(self, x):
        return x * self.k

    def method(self, x):
        return x * self.k


def counted(fun):
    """The function, and a list with one entry per trace."""
    traces = []

    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        traces.append((args, kwargs))
        return fun(*args, **kwargs)

    return wrapped, traces


def same(found, wanted):
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted, np.float32))
