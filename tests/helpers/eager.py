"""Arrays, sums and derivatives without the NumPy API."""

import numpy as np

from shardwise._src.ops.basis import reduce_sum
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.linearize import linearize
from shardwise._src.transforms.transpose import transpose


def array(x, dtype=np.float32):
    return EAGER.array(np.asarray(x, dtype))


def total(x):
    return reduce_sum(x, axes=tuple(range(x.ndim)))


def pulled_back(fun, args, ct):
    """The value of `fun(*args)`, and the cotangents of its arguments for one of the value."""
    outs, linear = linearize(lambda *xs: [fun(*xs)], [EAGER.array(a) for a in args])
    return np.asarray(outs[0]), transpose(linear.program, linear.captured, [EAGER.array(ct)])
