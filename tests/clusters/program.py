"""The program that the tests here start by Slurm and MPI: each process reports its setting."""

import sys

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.distributed import start

sw.distributed.initialize(cluster_detection_method=sys.argv[1] if sys.argv[1:] else None)
here = start.here()
assert here is not None
x = jnp.arange(8.0, device=sw.NamedSharding(sw.make_mesh((sw.device_count(),), ("x",)), sw.P("x")))
total = float(jnp.sum(x**2))
print(f"{here.cluster}: {sw.process_index()} of {sw.process_count()}: {total}", flush=True)
