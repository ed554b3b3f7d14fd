"""Products of rows with the matrix of their group, as the experts of a layer need them.

The rows are sorted by group, and a block of rows may have rows of several groups. So the programs
along an axis of the grid are visits: pairs of a group and a block of rows that has some of it, in
order, which index functions read from prefetched arrays (`visits_of`).

    products     [m, k], [g, k, n] → [m, n]     a visit multiplies its block by its group's matrix
    transposed   [m, n], [g, k, n] → [m, k]     likewise, with transposed matrices
    outer        [m, k], [m, n] → [g, k, n]     the visits of a group are added

A visit takes the rows of other groups as 0. In the first two, each visit has a block of the result,
so that all of them may run at once; a row of the result is that of the visit of its group. Each of
the three is linear in both arguments, and the others are its transposes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.core.fused import fused
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.custom.linear_call import linear_call
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import Options, inside, sizes_of, wide
from shardwise._src.kernels.library.flash_kernels import INT32, product, require
from shardwise._src.kernels.program_frames import cdiv, num_programs, program_id, when
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.lax.shape_operators import broadcasted_iota
from shardwise._src.maps.ufuncs import maximum, minimum
from shardwise._src.numpy.creation import asarray, zeros
from shardwise._src.numpy.joining import append, stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.ordering.sorting import searchsorted
from shardwise._src.numpy.statistics.scans import cumsum
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_float, is_integer


def grouped_matmul(
    x: ArrayLike,
    w: ArrayLike,
    group_sizes: ArrayLike,
    *,
    blocks: tuple[int, int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """x[i] @ w[g] for each row i of x, where g is its group.

    Args:
      x: floats (m, k): the rows of group 0, then those of group 1, and so on.
      w: (g, k, n), of the same dtype.
      group_sizes: integers (g,): the number of rows of each group. Rows beyond their sum give 0.
      blocks: (rows, columns, inner) of a block, along m, n and k; 128 by default, less for smaller
        arrays if GPUs and TPUs can do so.
      check, params: as those of `kernels.call`.

    Returns:
      (m, n), of the dtype of x. Sums are computed in float32 at least. Derivatives exist to any
      order, in both modes, and are kernels, too.

    Raises:
      ValueError: for shapes, dtypes and blocks that do not fit.
    """
    x, w, counts = asarray(x), asarray(w), asarray(group_sizes)
    is_right = x.ndim == 2 and w.ndim == 3 and x.shape[1] == w.shape[1]
    is_right = is_right and counts.shape == w.shape[:1] and is_integer(counts.dtype)
    is_right = is_right and x.dtype == w.dtype and is_float(x.dtype)
    wanted = "floats (m, k) and (g, k, n) of one dtype, and integers (g,)"
    require(is_right, "grouped_matmul", wanted, x, w, counts)
    (m, k), (groups, _, n) = x.shape, w.shape
    if 0 in (m, k, n, groups):
        return zeros((m, n), x.dtype)
    default = [min(128, power_above(m, 16)), *[x if x in (16, 32, 64) else 128 for x in (n, k)]]
    sizes = sizes_of("grouped_matmul", ("rows", "columns", "inner"), blocks, default)
    plan = Plan(m, k, n, groups, sizes, Options(sizes, check, params))
    return multiplied(plan, "products", x, w, visits_of(counts, plan=plan))


@dataclass(frozen=True)
class Plan:
    m: int
    k: int
    n: int
    groups: int
    blocks: tuple[int, ...]
    options: Options


GROUP, TILE, START, END = range(4)  # rows of the visits


@fused
def visits_of(sizes: Any, plan: Plan) -> tuple[Any, Any]:
    """The group, the block of rows, and the first and last row + 1 of each visit: int32[4, visits];
    and for each row its place among the rows of all visits, -1 beyond the last group: int32[m].

    Each group has a visit, even if it is empty. Visits at the end that are too many have no rows.
    """
    rows, tiles = plan.blocks[0], cdiv(plan.m, plan.blocks[0])
    ends = minimum(cumsum(sizes.astype(INT32)), plan.m)
    starts = append(0, ends[:-1]).astype(INT32)
    first = minimum(starts // rows, tiles - 1)
    last = maximum((ends - 1) // rows, first)
    after = cumsum(last - first + 1)  # the number of visits up to each group

    visit = np.arange(tiles + plan.groups - 1, dtype=INT32)
    group = minimum(searchsorted(after, visit, side="right"), plan.groups - 1).astype(INT32)
    tile = minimum(last[group] - (after[group] - 1 - visit), tiles - 1)
    bounds = [where(visit < after[-1], x[group], 0) for x in (starts, ends)]

    row = np.arange(plan.m, dtype=INT32)
    own = minimum(searchsorted(ends, row, side="right"), plan.groups - 1)
    place = (after[own] - 1 - (last[own] - row // rows)) * rows + row % rows
    return stack([group, tile, *bounds]), where(row < ends[-1], place, -1)


# -- kernels --


def own_rows(visits: Any, x: Any) -> Any:
    """The block x with 0 in rows that are not those of this visit."""
    s = program_id("visit")
    row = visits[TILE, s] * x.shape[0] + broadcasted_iota(INT32, x.shape, 0)
    return where((row >= visits[START, s]) & (row < visits[END, s]), x, 0)


def grouped_products(
    length: int, flip: bool, visits: Any, x: Any, w: Any, out: Any, total: Any
) -> None:
    """length: of the contracted dimension."""
    s, k = program_id("visit"), program_id("inner")

    @when(k == 0)
    def _() -> None:
        total[...] = zeros(total.shape, total.dtype)

    @when(visits[START, s] < visits[END, s])
    def _() -> None:
        own = inside(own_rows(visits, x[...]), 0, (1, k, length))
        total[...] += product(own, inside(w[...].T if flip else w[...], 0, (0, k, length)))

    @when(k == num_programs("inner") - 1)
    def _() -> None:
        out[...] = total[...].astype(out.dtype)


def grouped_outer(visits: Any, x: Any, y: Any, out: Any, total: Any) -> None:
    s, count = program_id("visit"), num_programs("visit")
    before, after = visits[GROUP, maximum(s - 1, 0)], visits[GROUP, minimum(s + 1, count - 1)]

    @when((s == 0) | (before != visits[GROUP, s]))
    def _() -> None:
        total[...] = zeros(total.shape, total.dtype)

    @when(visits[START, s] < visits[END, s])
    def _() -> None:
        total[...] += product(own_rows(visits, x[...]).T, own_rows(visits, y[...]))

    @when((s == count - 1) | (after != visits[GROUP, s]))
    def _() -> None:
        out[...] = total[...].astype(out.dtype)


def products(plan: Plan, x: Any, w: Any, visits: Any, places: Any, flip: bool = False) -> Any:
    """flip: with the transposed matrices, from (m, n) to (m, k)."""
    k, n, (rows, columns, inner) = plan.k, plan.n, plan.blocks
    matrix = Block((None, inner, columns), lambda j, s, k, visits: (visits[GROUP, s], k, j))
    if flip:
        matrix = Block((None, inner, columns), lambda j, s, k, visits: (visits[GROUP, s], j, k))
        k, n, columns, inner = n, k, inner, columns
    count = visits.shape[1]
    f = call(
        partial(grouped_products, k, flip),
        ShapeDtypeStruct((count * rows, n), x.dtype),
        grid=(("column", cdiv(n, columns)), ("visit", count), ("inner", cdiv(k, inner))),
        in_specs=[Block((rows, inner), lambda j, s, k, visits: (visits[TILE, s], k)), matrix],
        out_specs=Block((rows, columns), lambda j, s, k, visits: (s, j)),
        scratch=[VMEM((rows, columns), wide(x.dtype))],
        prefetch=1,
        parallel=["column", "visit"],
        name="grouped_matmul_transposed" if flip else "grouped_matmul",
        **plan.options.of_call,
    )
    return where(places[:, None] < 0, 0, f(visits, x, w)[places])


def outer(plan: Plan, x: Any, y: Any, visits: Any, places: Any) -> Any:
    rows, columns, inner = plan.blocks
    f = call(
        grouped_outer,
        ShapeDtypeStruct((plan.groups, plan.k, plan.n), x.dtype),
        grid=(("k", cdiv(plan.k, inner)), ("n", cdiv(plan.n, columns)), ("visit", visits.shape[1])),
        in_specs=[
            Block((rows, inner), lambda k, n, s, visits: (visits[TILE, s], k)),
            Block((rows, columns), lambda k, n, s, visits: (visits[TILE, s], n)),
        ],
        out_specs=Block((None, inner, columns), lambda k, n, s, visits: (visits[GROUP, s], k, n)),
        scratch=[VMEM((inner, columns), wide(x.dtype))],
        prefetch=1,
        parallel=["k", "n"],
        name="grouped_matmul_outer",
        **plan.options.of_call,
    )
    return f(visits, x, y)


# -- derivatives --

KINDS: dict[str, Any] = {
    "products": products,
    "transposed": partial(products, flip=True),
    "outer": outer,
}
# The products that are the cotangents of the first and the second argument, x and y.
COTANGENTS: dict[str, tuple[Any, Any]] = {
    "products": (lambda y, ct: ("transposed", ct, y), lambda x, ct: ("outer", x, ct)),
    "transposed": (lambda y, ct: ("products", ct, y), lambda x, ct: ("outer", ct, x)),
    "outer": (lambda y, ct: ("transposed", y, ct), lambda x, ct: ("products", x, ct)),
}


@partial(custom_jvp, nondiff_argnums=(0, 1))
def multiplied(plan: Plan, kind: str, x: Any, y: Any, visits: Any) -> Any:
    return KINDS[kind](plan, x, y, *visits)


@multiplied.defjvp
def _multiplied_jvp(plan: Plan, kind: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    x, y, visits = primals
    of_x, of_y = COTANGENTS[kind]
    times: Any = partial(multiplied, plan)
    from_x = linear_call(
        lambda known, t: times(kind, t, *known),
        lambda known, ct: times(*of_x(known[0], ct), known[1]),
        (y, visits),
        tangents[0],
    )
    from_y = linear_call(
        lambda known, t: times(kind, known[0], t, known[1]),
        lambda known, ct: times(*of_y(known[0], ct), known[1]),
        (x, visits),
        tangents[1],
    )
    return times(kind, x, y, visits), from_x + from_y
