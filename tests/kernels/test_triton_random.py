"""Random kernels for GPUs: grids, axes, blocks and accesses of many kinds, compared with CPU."""

import random

import numpy as np
import pytest

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.kernels import VMEM, Block, atomic_add, call, ds, program_id, when
from tests.helpers.everyday import everyday
from tests.helpers.triton_numpy import triton_values
from tests.kernels.kernels import like


def _add_part(out, value, sizes):
    out[1:, ds(program_id(len(sizes) - 1) % 2, 2)] = value[1:, :2]


def _add_in_last_turn(out, value, sizes):
    @when(program_id(0) == sizes[0] - 1)
    def _():
        out[...] = value + out[...]


def _add_rows(out, value, sizes):
    def step(i, row):
        out[ds(i, 1)] = out[ds(i, 1)] + row[i][None]
        return row + 1

    lax.fori_loop(0, 2, step, value)


WRITES = [
    lambda out, value, sizes: out.set(value),
    lambda out, value, sizes: out.set(out[...] + value),
    lambda out, value, sizes: atomic_add(out, ..., value),
    lambda out, value, sizes: out.at[0, :3].set(out[1, :3] * 2 + value[0, :3]),
    _add_part,
    _add_in_last_turn,
    _add_rows,
]


class Kernel:
    """A kernel of two arguments, three results, and scratch memory that its iterations add to."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        axes = self.draw.choice([1, 2, 2, 3])
        self.sizes = [self.draw.choice([1, 2, 3]) for _ in range(axes)]
        self.block = self.draw.choice([2, 3, 4]), self.draw.choice([4, 5, 8])
        self.parallel = [*range(self.draw.choice([0, 0, 1, min(2, axes)]))]
        self.loops = [d for d in range(axes) if d not in self.parallel]
        self.has_scratch = self.draw.random() < 0.6
        self.ins = [self._map() for _ in range(2)]
        self.outs = [self._map(self.parallel) for _ in range(3)]
        self.writes = [self.draw.choice(WRITES) for _ in self.outs]
        shapes = [self._shape(axes) for axes in (*self.ins, *self.outs)]
        self.args = [np.random.default_rng(seed).normal(size=s).astype("f4") for s in shapes[:2]]
        self.launch = call(
            self._body,
            [like(*s) for s in shapes[2:]],
            grid=tuple(self.sizes),
            in_specs=[self._spec(axes) for axes in self.ins],
            out_specs=[self._spec(axes) for axes in self.outs],
            scratch=[VMEM(self.block, np.float32)] * self.has_scratch,
            parallel=self.parallel,
        )

    def _map(self, needed=()):
        """The axis of the grid along which each dimension of a block moves, or None."""
        rest = [d for d in range(len(self.sizes)) if d not in needed]
        found = [*needed, *self.draw.sample([None, None, *rest], 2)][:2]
        self.draw.shuffle(found)
        return found

    def _shape(self, axes):
        sizes = [1 if d is None else self.sizes[d] for d in axes]
        return [n * b - self.draw.choice([0, 0, 1]) for n, b in zip(sizes, self.block, strict=True)]

    def _spec(self, axes):
        return Block(self.block, lambda *ids: [0 if d is None else ids[d] for d in axes])

    def _first(self, axes, f):
        """Runs a function in the first of the iterations that differ along these axes."""
        flags = [program_id(d) == 0 for d in self.loops if d not in axes]
        when(jnp.all(jnp.stack(flags)) if flags else True)(f)

    def _body(self, x, y, *refs):
        value = x[...] + y[...] * 2
        if self.has_scratch:
            *refs, total = refs
            self._first((), lambda: total.set(jnp.zeros(self.block)))
            total[...] += x[...] / 2
            value += total[...]
        for out, axes, write in zip(refs, self.outs, self.writes, strict=True):
            self._first(axes, lambda out=out: out.set(jnp.zeros(self.block)))
            write(out, value, self.sizes)


@pytest.mark.parametrize("seed", everyday(range(200), 8))
def test_random_kernels(seed):
    kernel = Kernel(seed)
    found = triton_values(kernel.launch, *kernel.args)
    for a, b in zip(found, kernel.launch(*kernel.args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
