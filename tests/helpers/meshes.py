"""Meshes over the eight devices: in regular and other device orders, and over some of them."""

import numpy as np

import shardwise as sw
from shardwise.sharding import AxisType, GSPMDSharding, Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P

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


THREE = Mesh(DEVICES[[6, 1, 3]], ("t",))

# Shardings of one array, for each of the meshes.
PLACES = {
    "one": SingleDeviceSharding(DEVICES[0]),
    "another": SingleDeviceSharding(DEVICES[5]),
    "rows": NamedSharding(MESH, P("x")),
    "columns": NamedSharding(MESH, P(None, "y")),
    "both": NamedSharding(MESH, P("y", "x")),
    "all": NamedSharding(MESH, P(("y", "x"))),
    "replicated": NamedSharding(MESH, P()),
    "other": NamedSharding(OTHER, P("b", "a")),
    "reversed": NamedSharding(REVERSED, P("x", "y")),
    "shuffled": NamedSharding(SHUFFLED, P(("z", "x"), "y")),
    "half": NamedSharding(HALF, P("x", "y")),
    "back": NamedSharding(BACK, P("y")),
    "back, replicated": NamedSharding(BACK, P()),
    "three": NamedSharding(THREE, P("t")),
    "three columns": NamedSharding(THREE, P(None, "t")),
    "whole": GSPMDSharding.get_replicated(tuple(DEVICES)),
}
