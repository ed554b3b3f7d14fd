"""Meshes over the eight devices: regular, in other orders, and over some of them."""

import numpy as np

import shardwise as sw
from shardwise.sharding import AxisType, Mesh

DEVICES = np.array(sw.devices()[:8])
MESH = Mesh(DEVICES.reshape(4, 2), ("x", "y"))
OTHER = Mesh(DEVICES.reshape(2, 4), ("a", "b"))
REVERSED = Mesh(DEVICES[::-1].reshape(4, 2), ("x", "y"))
SHUFFLED = Mesh(DEVICES[[3, 1, 4, 0, 5, 7, 2, 6]].reshape(2, 2, 2), ("x", "y", "z"))
HALF = Mesh(DEVICES[:4].reshape(2, 2), ("x", "y"))
BACK = Mesh(DEVICES[4:].reshape(2, 2), ("x", "y"))


def mesh_of(*sizes, names="xy", types=AxisType.Auto):
    """A mesh over the first devices; its axes are x and y."""
    return Mesh(DEVICES[: int(np.prod(sizes))].reshape(sizes), tuple(names[: len(sizes)]), types)
