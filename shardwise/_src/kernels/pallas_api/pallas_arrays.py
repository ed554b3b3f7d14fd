"""JAX's functions of arrays for kernels of TPUs, which work everywhere."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.kernels.program_frames import program_id
from shardwise._src.messages.formatting import pluralize
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.shapes import reshape, transpose
from shardwise._src.random.keys import fold_in
from shardwise._src.types.annotations import Array, ArrayLike

_GROUPS = re.compile(r"(?:\((\w*)\)|(\w))*")
_GROUP = re.compile(r"\((\w*)\)|(\w)")


def einshape(
    equation: str, x: ArrayLike, assert_is_tile_preserving: bool = False, **sizes: int
) -> Array:
    """An array, reshaped and transposed: `einshape("a(bc)->(ba)c", x, b=4)`.

    Args:
      equation: a letter for each dimension; those in parentheses are one dimension of the array.
      assert_is_tile_preserving: has no effect: all equations are allowed.
      sizes: of letters; one in each pair of parentheses may be missing.

    Raises:
      ValueError: if the equation is invalid, or does not fit the shape and sizes.
    """
    shape, what = type_of(x).shape, f"einshape {equation!r}"
    sides = equation.split("->")
    if len(sides) != 2 or not all(map(_GROUPS.fullmatch, sides)):
        raise ValueError(
            f"{what}: the equation must be two sides with '->' between, as 'a(bc)->cab'."
        )
    given, wanted = ([a or b for a, b in _GROUP.findall(side)] for side in sides)
    names = "".join(given)
    if sorted(names) != sorted("".join(wanted)) or len({*names}) < len(names):
        raise ValueError(f"{what}: each letter must occur once on each side.")
    if len(given) != len(shape):
        raise ValueError(f"{what}: the array has {pluralize(len(shape), 'dimension')}.")
    found = dict(sizes)
    for group, size in zip(given, shape, strict=True):
        left = [name for name in group if name not in found]
        known = math.prod([found[name] for name in group if name in found])
        if len(left) > 1 or (size % known if left and known else size != known):
            raise ValueError(
                f"{what}: the dimension {group!r} of size {size} cannot be split with the sizes "
                f"{sizes}. Pass sizes that divide it, of all letters but one."
            )
        found |= {name: size // known for name in left}
    x = reshape(x, [found[name] for name in names])
    x = transpose(x, [names.index(name) for name in "".join(wanted)])
    return reshape(x, [math.prod([found[name] for name in group]) for group in wanted])


def sample_block(
    sampler_fn: Callable[..., Array],
    global_key: Any,
    block_size: Sequence[int],
    tile_size: Sequence[int],
    total_size: Sequence[int],
    block_index: Sequence[Any] | None = None,
    **kwargs: Any,
) -> Array:
    """A block of an array of random numbers, whose values do not depend on the sizes of blocks.

    Each tile has its own key: `global_key` with the number of the tile, row by row.

    Args:
      sampler_fn: a function of a key and `shape`, such as `random.uniform`; kwargs: for it.
      block_size, tile_size, total_size: the shapes of the block, of tiles, which divide it, and of
        the array.
      block_index: the position of the block, in blocks; by default that of the program in its grid.
    """
    if len(block_size) != len(tile_size):
        raise ValueError(
            f"sample_block: block_size has {pluralize(len(block_size), 'dimension')}, tile_size "
            f"{len(tile_size)}; they must have equally many."
        )
    counts = [n // tile for n, tile in zip(block_size, tile_size, strict=True)]
    total = [-(-n // tile) for n, tile in zip(total_size, tile_size, strict=True)]
    index = map(program_id, range(len(counts))) if block_index is None else block_index
    first = [i * n for i, n in zip(index, counts, strict=True)]

    def tile(*position: int) -> Array:
        number: Any = 0
        for start, i, n in zip(first, position, total, strict=True):
            number = number * n + start + i
        return sampler_fn(fold_in(global_key, number), shape=tuple(tile_size), **kwargs)

    parts = [tile(*position) for position in itertools.product(*map(range, counts))]
    for axis in reversed(range(len(counts))):
        n = counts[axis]
        parts = [concatenate(parts[i : i + n], axis) for i in range(0, len(parts), n)]
    return parts[0]
