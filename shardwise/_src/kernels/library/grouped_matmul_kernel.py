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

from functools import partial
from typing import NamedTuple

import numpy as np

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import is_float, is_integer, require
from shardwise._src.kernels.library.block_choices import Options, options_of
from shardwise._src.kernels.library.block_values import inside, product, wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise.typing import ArrayLike


def grouped_matmul(
    x: ArrayLike,
    w: ArrayLike,
    group_sizes: ArrayLike,
    *,
    blocks: tuple[int, int, int] | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
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
    x, w, counts = [snp.asarray(a) for a in (x, w, group_sizes)]
    is_right = x.ndim == 2 and w.ndim == 3 and x.shape[1] == w.shape[1] and x.dtype == w.dtype
    is_right = is_right and counts.shape == w.shape[:1] and is_integer(counts) and is_float(x)
    text = (
        "the arguments must be floats (m, k) and (g, k, n) of one dtype, and integers (g,); got "
        "{}, {}, {}."
    )
    require(is_right, "grouped_matmul", text, x, w, counts)
    (m, k), (groups, _, n) = x.shape, w.shape
    if 0 in (m, k, n, groups):
        return snp.zeros((m, n), x.dtype)
    usual = [
        min(128, power_above(m, 16)),
        *[size if size in (16, 32, 64) else 128 for size in (n, k)],
    ]
    names = "rows, columns, inner"
    options = options_of("grouped_matmul", names, usual, blocks, check, params)
    plan = Plan(m, k, n, groups, options)
    return multiplied((plan, "products"), x, w, visits_of(plan, counts))


class Plan(NamedTuple):
    m: int
    k: int
    n: int
    groups: int
    options: Options


GROUP, TILE, START, END = range(4)  # rows of the visits


@partial(sw.jit, static_argnums=0)
def visits_of(plan: Plan, sizes):
    """The group, the block of rows, and the first and last row + 1 of each visit: int32[4, visits];
    and for each row its place among the rows of all visits, -1 beyond the last group: int32[m].

    Each group has a visit, even if it is empty. Visits at the end that are too many have no rows.
    """
    rows = plan.options.blocks[0]
    tiles = kernels.cdiv(plan.m, rows)
    ends = snp.minimum(snp.cumsum(sizes.astype("int32")), plan.m)
    starts = snp.append(0, ends[:-1]).astype("int32")
    first = snp.minimum(starts // rows, tiles - 1)
    last = snp.maximum((ends - 1) // rows, first)
    after = snp.cumsum(last - first + 1)  # the number of visits up to each group

    visit = np.arange(tiles + plan.groups - 1, dtype=np.int32)
    group = snp.searchsorted(after, visit, side="right")
    group = snp.minimum(group, plan.groups - 1).astype("int32")
    tile = snp.minimum(last[group] - (after[group] - 1 - visit), tiles - 1)
    bounds = [snp.where(visit < after[-1], x[group], 0) for x in (starts, ends)]

    row = np.arange(plan.m, dtype=np.int32)
    own = snp.minimum(snp.searchsorted(ends, row, side="right"), plan.groups - 1)
    place = (after[own] - 1 - (last[own] - row // rows)) * rows + row % rows
    return snp.stack([group, tile, *bounds]), snp.where(row < ends[-1], place, -1)


# -- the launch --

# The axes of the grid, and the dimensions of x, y, and the result: k, n, visits s, and for a visit
# its group g and its tile t, the block of rows.
KINDS = {
    "products": ("nsk", "tk", "gkn", "sn"),
    "transposed": ("ksn", "tn", "gkn", "sk"),
    "outer": ("kns", "tk", "tn", "gkn"),
}


def launched(how: tuple[Plan, str], x, y, visits_and_places):
    """how: with the kind of product."""
    (plan, kind), (visits, places) = how, visits_and_places
    (_, k, n, groups, options), count = plan, visits.shape[1]
    axes, *operands, result = KINDS[kind]
    rows, columns, inner = options.blocks
    sizes = {"k": inner, "n": columns, "s": rows, "t": rows, "g": None}
    lengths = {"k": k, "n": n, "s": count * rows, "g": groups}

    def block(letters: str) -> kernels.Block:
        def index(*place):
            *ids, visits = place
            at = dict(zip(axes, ids, strict=True))
            of_visit = {"g": GROUP, "t": TILE}
            return tuple(visits[of_visit[c], at["s"]] if c in of_visit else at[c] for c in letters)

        return kernels.Block(tuple(sizes[c] for c in letters), index)

    out = kernels.call(
        partial(body, kind, n if kind == "transposed" else k),
        sw.ShapeDtypeStruct(tuple(lengths[c] for c in result), x.dtype),
        grid=tuple((c, kernels.cdiv(lengths[c], sizes[c])) for c in axes),
        in_specs=[block(letters) for letters in operands],
        out_specs=block(result),
        scratch=[kernels.VMEM(tuple(sizes[c] for c in result if c != "g"), wide(x.dtype))],
        prefetch=1,
        parallel=list(axes[:2]),
        name="grouped_matmul" if kind == "products" else f"grouped_matmul_{kind}",
        **options.of_call,
    )(visits, x, y)
    return out if kind == "outer" else snp.where(places[:, None] < 0, 0, out[places])


# -- the kernel --


def body(kind: str, length: int, visits, x, y, out, total):
    """length: of the contracted dimension; outer products are summed over the visits of a group."""
    s, step, last = kernels.program_id("s"), kernels.program_id(2), kernels.num_programs(2) - 1
    is_first, is_last = step == 0, step == last
    if kind == "outer":
        group = visits[GROUP, s]
        is_first = is_first | (visits[GROUP, snp.maximum(s - 1, 0)] != group)
        is_last = is_last | (visits[GROUP, snp.minimum(s + 1, last)] != group)

    @kernels.when(is_first)
    def _():
        total[...] = 0

    @kernels.when(visits[START, s] < visits[END, s])
    def _():
        left = own_rows(visits, x[...])
        if kind == "outer":
            total[...] += product(left.T, own_rows(visits, y[...]))
        else:
            right = y[...].T if kind == "transposed" else y[...]
            left, right = inside(left, 0, (1, step, length)), inside(right, 0, (0, step, length))
            total[...] += product(left, right)

    @kernels.when(is_last)
    def _():
        out[...] = total[...].astype(out.dtype)


def own_rows(visits, x):
    """The block x with 0 in rows that are not those of this visit."""
    s = kernels.program_id("s")
    row = visits[TILE, s] * x.shape[0] + lax.broadcasted_iota("int32", x.shape, 0)
    return snp.where((row >= visits[START, s]) & (row < visits[END, s]), x, 0)


# -- derivatives --

# The products that are the cotangents of x and y: their kinds and factors.
COTANGENTS = {
    "products": (("transposed", "ct", "y"), ("outer", "x", "ct")),
    "transposed": (("products", "ct", "y"), ("outer", "ct", "x")),
    "outer": (("transposed", "y", "ct"), ("products", "x", "ct")),
}


def cotangents(how: tuple[Plan, str], args, ct):
    x, y, visits = args
    factors = {"x": x, "y": y, "ct": ct}
    return [
        multiplied((how[0], kind), factors[a], factors[b], visits)
        for kind, a, b in COTANGENTS[how[1]]
    ]


multiplied = with_cotangents(launched, cotangents, is_multilinear=True)
