"""Launches with random shapes, blocks, index functions and grids, against slices in NumPy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.kernels import VMEM, Block, Element, call, num_programs, program_id, when
from tests.helpers.everyday import everyday

NOT_READ = np.nan  # in the reference, where a block extends beyond its array


@dataclass(frozen=True)
class Blocks:
    """The blocks of one array: entries of the shape, and for each dimension the axis of the grid,
    or None, and the offset that its index is made of, modulo the number of blocks."""

    shape: tuple[int, ...]
    entries: tuple[Any, ...]
    axes: tuple[int | None, ...]
    offsets: tuple[int, ...]

    @property
    def sizes(self) -> list[int]:
        return [e.block_size if isinstance(e, Element) else e or 1 for e in self.entries]

    def index(self, *ids: Any) -> tuple[Any, ...]:
        found = []
        for axis, offset, count in zip(self.axes, self.offsets, self.counts, strict=True):
            found.append((offset + (0 if axis is None else ids[axis])) % count)
        return tuple(found)

    @property
    def counts(self) -> list[int]:
        rows = zip(self.shape, self.entries, self.sizes, strict=True)
        return [n - s + 1 if isinstance(e, Element) else -(-n // s) for n, e, s in rows]

    def starts(self, ids: tuple[int, ...]) -> list[int]:
        rows = zip(self.index(*ids), self.entries, self.sizes, strict=True)
        return [i if isinstance(e, Element) else i * s for i, e, s in rows]

    def places(self, ids: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where the block is in the array, and which part of the block this is."""
        rows = list(zip(self.starts(ids), self.sizes, self.shape, strict=True))
        inside = tuple([slice(a, min(a + s, n)) for a, s, n in rows])
        return inside, tuple([slice(0, min(s, n - a)) for a, s, n in rows])

    def read(self, x: np.ndarray, ids: tuple[int, ...]) -> np.ndarray:
        inside, part = self.places(ids)
        block = np.full(self.sizes, NOT_READ, np.float32)
        block[part] = x[inside]
        return block

    def write(self, x: np.ndarray, ids: tuple[int, ...], block: np.ndarray) -> None:
        inside, part = self.places(ids)
        x[inside] = block[part]

    @property
    def block(self) -> Block:
        return Block(self.entries, self.index)


def random_blocks(rng: np.random.Generator, grid: tuple[int, ...], sizes: list[int]) -> Blocks:
    shape, entries, axes, offsets = [], [], [], []
    for size in sizes:
        n = int(rng.integers(max(1, size - 1), size + 6))
        kind = rng.choice(["block", "element", "squeezed" if size == 1 else "block"])
        if kind == "element" and n >= size:
            entries.append(Element(size))
        else:
            entries.append(None if kind == "squeezed" else size)
        shape.append(n)
        axes.append(None if rng.random() < 0.2 else int(rng.integers(len(grid))))
        offsets.append(int(rng.integers(3)))
    return Blocks(tuple(shape), tuple(entries), tuple(axes), tuple(offsets))


def random_case(seed: int) -> tuple[tuple[int, ...], Blocks, Blocks, bool]:
    rng = np.random.default_rng(seed)
    grid = tuple(rng.integers(1, 4, rng.integers(1, 4)).tolist())
    sizes = rng.integers(1, 5, rng.integers(1, 4)).tolist()
    x, out = (random_blocks(rng, grid, sizes) for _ in range(2))
    return grid, x, out, bool(rng.integers(2))


def wanted(grid: Any, a: Blocks, b: Blocks, adds: bool, x: np.ndarray, start: Any) -> np.ndarray:
    out, total = start.copy(), 0.0
    for count, ids in enumerate(itertools.product(*map(range, grid))):
        total += count
        value = a.read(x, ids) * 2 + total
        b.write(out, ids, b.read(out, ids) + value if adds else value)
    return out


def launch(grid: Any, a: Blocks, b: Blocks, adds: bool) -> Any:
    def body(x: Any, start: Any, out: Any, total: Any) -> None:
        count: Any = 0
        for axis in range(len(grid)):
            count = count * num_programs(axis) + program_id(axis)
        when(count == 0)(lambda: total.set(jnp.float32(0)))
        total[...] += count.astype(jnp.float32)
        value = x[...].reshape(out.shape) * 2 + total[...]
        out[...] = out[...] + value if adds else value

    return call(
        body,
        sw.ShapeDtypeStruct(b.shape, np.float32),
        grid=grid,
        in_specs=[a.block, b.block],
        out_specs=b.block,
        scratch=[VMEM((), np.float32)],
        aliases={1: 0},
    )


@pytest.mark.parametrize("seed", everyday(range(240), 12))
def test_against_slices(seed: int):
    grid, a, b, adds = random_case(seed)
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, a.shape).astype(np.float32)
    start = rng.integers(-9, 9, b.shape).astype(np.float32)
    reference = wanted(grid, a, b, adds, x, start)
    found = np.asarray(launch(grid, a, b, adds)(x, start))
    known = ~np.isnan(reference)
    np.testing.assert_array_equal(found[known], reference[known])
