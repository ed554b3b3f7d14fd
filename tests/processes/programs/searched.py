"""Random arrays under random shardings, moved and computed with, for a range of seeds."""

import random
import sys

import numpy as np
from checking import ALL, DEVICES, P, check, digest, finish, numbers, same

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding

SHAPES = [(8, 4), (5, 7), (3, 1), (12,), (1, 6), (4, 2, 3), (0, 4)]
GRIDS = [((4,), ("x",)), ((2, 2), ("x", "y")), ((4, 1), ("x", "y"))]
OPS = {
    "negative": lambda x: -x,
    "sum": lambda x: x.sum(0),
    "flip": lambda x: x[::-1],
    "transpose": lambda x: x.T,
    "ravel": lambda x: x.reshape(-1),
    "double": lambda x: x + x,
    "second": lambda x: x[-1:],
    "mask": lambda x: x * (x > 3),
}
SEEDS = [int(a.partition("=")[2]) for a in sys.argv if a.startswith("seed=")] or [0]


def placed(rng, rank):
    """A sharding for arrays of this rank, over all devices in some order."""
    shape, names = rng.choice(GRIDS)
    order = rng.sample(range(4), 4)
    mesh = Mesh(np.array([DEVICES[i] for i in order]).reshape(shape), names)
    dims = [[] for _ in range(rank)]
    for name in rng.sample(names, len(names)):
        if dims and rng.random() < 0.8:
            rng.choice(dims).append(name)
    return NamedSharding(mesh, P(*[tuple(d) or None for d in dims]))


def run(seed):
    rng = random.Random(seed)
    x = numbers(*rng.choice(SHAPES), seed=seed)
    source, target = placed(rng, x.ndim), placed(rng, x.ndim)
    there = sw.device_put(x, source)
    moved = sw.device_put(there, target)
    assert moved.sharding == target
    same(moved, x)
    name = rng.choice(sorted(OPS))
    f = OPS[name] if rng.random() < 0.5 else sw.jit(OPS[name])
    same(f(moved), OPS[name](x))
    same(jnp.concatenate([moved, there]), np.concatenate([x, x]))
    print(seed, name, digest(moved))


for number in range(40 if ALL else 8):
    check(lambda seed=1000 * SEEDS[0] + number: run(seed))
finish()
