"""A program for a cluster: it is the same for one process and for many.

For example:

    srun python train.py          # slurm.sh
    mpirun -n 4 python train.py   # mpirun.md
"""

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P


def loss(w, x, y):
    return jnp.mean((x @ w - y) ** 2)


def main(steps=100):
    mesh = sw.make_mesh((sw.device_count(),), ("data",))
    rows = NamedSharding(mesh, P("data"))
    rng = np.random.default_rng(0)  # the same in all processes; each passes its part
    x = rng.normal(size=(64 * sw.device_count(), 8)).astype(np.float32)
    y = x @ np.arange(8, dtype=np.float32)
    x, y = [sw.make_array_from_callback(a.shape, rows, lambda i, a=a: a[i]) for a in (x, y)]
    w = jnp.zeros(8, device=NamedSharding(mesh, P()))
    step = sw.jit(lambda w, x, y: w - 0.1 * sw.grad(loss)(w, x, y))
    for _ in range(steps):
        w = step(w, x, y)
    learned = [round(value) for value in w.tolist()]  # replicated: every process can read it
    if sw.process_index() == 0:
        print(f"{sw.process_count()} processes, {sw.device_count()} devices: {learned}", flush=True)


if __name__ == "__main__":
    sw.distributed.initialize()
    main()
