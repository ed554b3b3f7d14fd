"""`einsum`: subscripts are parsed and planned once for each combination of shapes.

    einsum("bqhd,bkhd->bhqk", q, k)

A plan is a list of steps; each removes one or two labeled operands from the list and appends their
product. A step consists of at most: diagonals, sums over labels that no other operand has, one
`dot_general` (or one multiplication if nothing is contracted), one transpose. With more than two
operands, opt_einsum chooses the order. Under a trace, a repeated call costs a lookup and its ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.core.fused import body_of, fused
from shardwise._src.core.infer import type_of
from shardwise._src.messages.formatting import pluralize
from shardwise._src.numpy.products.named_einsum import has_names, named_einsum
from shardwise._src.numpy.statistics.reductions import accumulated_dtype, checked_dtype
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape, transpose
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.create import iota
from shardwise._src.ops.precision import canonical_precision
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, PrecisionLike
from shardwise._src.values.convert import cast, joined, reject_out

Label = str | int
Labels = tuple[Label, ...]
Shape = tuple[int, ...]
INT32 = np.dtype(np.int32)

# -- subscripts to labels --


def _error(subscripts: Any, what: str) -> ValueError:
    return ValueError(f"einsum: {what}, in {subscripts!r}.")


def _terms_of_text(text: str, ranks: tuple[int, ...]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result; `...` has labels -1, -2, … from the right."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        given = pluralize(len(ranks), "operand")
        raise _error(text, f"the subscripts have {pluralize(len(terms), 'term')} for {given}")
    ins = [_labels(text, t, rank, i) for i, (t, rank) in enumerate(zip(terms, ranks, strict=True))]
    hidden = max([sum(isinstance(x, int) for x in labels) for labels in ins], default=0)
    if not arrow:
        return ins, _implicit(ins, hidden)
    if "..." not in right and hidden:
        raise _error(text, "the result lacks the '...' of the operands")
    visible = len(right.replace("...", ""))
    out = _labels(text, right, visible + hidden, None)
    _check_output(text, ins, out)
    return ins, out


def _labels(text: str, term: str, rank: int, position: int | None) -> Labels:
    before, dots, after = term.partition("...")
    letters = before + after
    if not all(c.isalpha() for c in letters):
        bad = next(c for c in letters if not c.isalpha())
        raise _error(text, f"unexpected {bad!r}")
    hidden = rank - len(letters)
    if hidden < 0 or (hidden and not dots):
        raise _error(
            text,
            f"operand {position} has {rank} dimensions, but its term {term!r} has {len(letters)}",
        )
    return (*before, *range(-hidden, 0), *after)


def _terms_of_lists(args: tuple, ranks: tuple[int, ...]) -> tuple[list[Labels], Labels]:
    """Parses `einsum(a, [0, 1], b, [1, 2], [0, 2])`: labels from 0, and Ellipsis."""
    rows, result = args
    ins = []
    for i, (row, rank) in enumerate(zip(rows, ranks, strict=True)):
        hidden = rank - len([x for x in row if x is not Ellipsis])
        if hidden < 0 or (hidden and Ellipsis not in row):
            raise _error(
                list(row), f"operand {i} has {rank} dimensions, which its labels do not match"
            )
        ins.append(_filled(row, hidden))
    hidden = max([sum(isinstance(x, int) and x < 0 for x in labels) for labels in ins], default=0)
    if result is None:
        return ins, _implicit(ins, hidden)
    out = _filled(result, hidden)
    _check_output(list(result), ins, out)
    return ins, out


def _filled(row: tuple, hidden: int) -> Labels:
    out: list[Label] = []
    for x in row:
        out += range(-hidden, 0) if x is Ellipsis else [int(x)]
    return tuple(out)


def _implicit(ins: list[Labels], hidden: int) -> Labels:
    """NumPy's rule: the dimensions of `...`, then the labels that occur once, in order."""
    every = [x for labels in ins for x in labels if not (isinstance(x, int) and x < 0)]
    once = sorted({x for x in every if every.count(x) == 1})
    return (*range(-hidden, 0), *once)


def _check_output(text: Any, ins: list[Labels], out: Labels) -> None:
    known = {x for labels in ins for x in labels}
    for x in out:
        if x not in known:
            raise _error(text, f"the result has {x!r}, which no operand has")
    if len(set(out)) != len(out):
        raise _error(text, "the result repeats a label")


# -- labels to a plan --


@dataclass(frozen=True, slots=True)
class Prepared:
    """The preparation of one operand.

    diagonals: (kept, dropped) dimensions with equal labels, in order.
    squeezed:  the shape without the dimensions of size 1 that only broadcast, or None.
    summed:    dimensions that neither another operand nor the result has.
    """

    diagonals: tuple[tuple[int, int], ...]
    squeezed: Shape | None
    summed: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.diagonals or self.squeezed is not None or self.summed)


@dataclass(frozen=True, slots=True)
class Step:
    """The operations on one or two operands; None if no such operations exist.

    positions: the positions of the operands, descending.
    order:     which of these is the first factor, and which the second.
    prepared:  the preparation of each factor.
    numbers:   the dimension numbers of the dot_general.
    spreads:   for a multiplication: the transpose of each factor, and its dimensions in the result.
    shape:     the shape of the result.
    perm:      the final transpose.
    """

    positions: tuple[int, ...]
    order: tuple[int, ...]
    prepared: tuple[Prepared, ...]
    numbers: Any
    spreads: Any
    shape: Shape
    perm: tuple[int, ...] | None


@cached(4096)
def plan(subscripts: Any, shapes: tuple[Shape, ...], optimize: Any) -> tuple[Step, ...]:
    """The steps of an einsum over operands with these shapes."""
    ranks = tuple([len(s) for s in shapes])
    if isinstance(subscripts, str):
        terms, out = _terms_of_text(subscripts, ranks)
    else:
        terms, out = _terms_of_lists(subscripts, ranks)
    sizes = _sizes(subscripts, terms, shapes)
    path = _path(terms, out, sizes, optimize)
    held: list[tuple[Labels, Shape]] = list(zip(terms, shapes, strict=True))
    steps: list[Step] = []
    for number, chosen in enumerate(path):
        last = number == len(path) - 1
        steps += _steps(held, sorted(chosen, reverse=True), out, last, sizes)
    return tuple(steps)


def _sizes(subscripts: Any, terms: list[Labels], shapes: tuple[Shape, ...]) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    found: dict[Label, int] = {}  # the operand that determines the size
    for k, (labels, shape) in enumerate(zip(terms, shapes, strict=True)):
        for label, n in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            if known not in (1, n) and n != 1:
                one = f"{known} in operand {found[label]}, of shape {shapes[found[label]]}"
                raise _error(
                    subscripts,
                    f"{_named(label)} is {one}, but {n} in operand {k}, of "
                    f"shape {shape}; they must be equal",
                )
            if known == 1:
                sizes[label], found[label] = n, k
    return sizes


def _named(label: Label) -> str:
    is_hidden = isinstance(label, int) and label < 0
    return f"dimension {label} of '...'" if is_hidden else repr(label)


def _path(terms: list[Labels], out: Labels, sizes: dict, optimize: Any) -> list[tuple[int, ...]]:
    if len(terms) <= 2:
        return [tuple(range(len(terms)))]
    import opt_einsum  # not needed before the first product of three

    symbols = {label: opt_einsum.get_symbol(i) for i, label in enumerate(sizes)}
    # An operand that only broadcasts along a label is planned as if it had the full size.
    texts = ["".join(symbols[x] for x in labels) for labels in terms]
    text = ",".join(texts) + "->" + "".join(symbols[x] for x in out)
    wide = [tuple(sizes[x] for x in labels) for labels in terms]
    chosen = list(optimize) if isinstance(optimize, tuple) else optimize
    path, _ = opt_einsum.contract_path(text, *wide, shapes=True, optimize=chosen)
    return [p for p in path if not isinstance(p, str)]


def _steps(
    held: list[tuple[Labels, Shape]], chosen: list[int], out: Labels, last: bool, sizes: dict
) -> list[Step]:
    """The steps for one entry of the path; several if it has more than two operands."""
    steps = []
    while True:
        positions = chosen[:2] if len(chosen) > 2 else chosen
        operands = [held.pop(i) for i in positions]
        final = last and not held
        needed = set(out).union(*[labels for labels, _ in held])
        wanted = out if final else tuple(x for x in _ordered(operands) if x in needed)
        step = _step(tuple(positions), operands, wanted, final, sizes)
        steps.append(step[0])
        held.append(step[1])
        if len(chosen) <= 2:
            return steps
        moved = [i - sum(p < i for p in positions) for i in chosen[2:]]
        chosen = sorted([*moved, len(held) - 1], reverse=True)


def _ordered(operands: list[tuple[Labels, Shape]]) -> list[Label]:
    return list(dict.fromkeys(x for labels, _ in operands for x in labels))


def _step(
    positions: tuple[int, ...], operands: list, wanted: Labels, final: bool, sizes: dict
) -> tuple[Step, tuple[Labels, Shape]]:
    """One step, and the labels and shape of its result; the last returns exactly `wanted`."""
    pairs = []
    for i, (labels, shape) in enumerate(operands):
        beside = operands[:i] + operands[i + 1 :]
        others = set(wanted).union(*[_real(x, s, sizes) for x, s in beside])
        pairs.append(_prepare(labels, shape, others, sizes))
    terms = [labels for _, labels in pairs]
    order = tuple(reversed(range(len(terms))))  # positions descend, operands do not
    shared = [x for x in terms[order[0]] if x in terms[order[-1]]]
    contracted = [x for x in shared if x not in wanted]
    present = tuple(x for x in wanted if x in {*terms[0], *terms[-1]})
    numbers = spreads = perm = None
    if len(terms) == 1:
        found = terms[0]
    elif contracted:
        batch = [x for x in wanted if x in shared]
        found = _product_labels([terms[i] for i in order], contracted, batch)
        turned = _product_labels([terms[i] for i in reversed(order)], contracted, batch)
        if found != present == turned:
            found, order = turned, order[::-1]
        numbers = tuple(
            [
                tuple([tuple([terms[i].index(x) for x in group]) for i in order])
                for group in (contracted, batch)
            ]
        )
    else:
        found = present
        spreads = tuple([_places(terms[i], found) for i in order])
    if final and found != present:
        perm = tuple([found.index(x) for x in present])
        found = present
    shape = tuple([sizes[x] for x in found])
    prepared = tuple([pairs[i][0] for i in order])
    return Step(positions, order, prepared, numbers, spreads, shape, perm), (found, shape)


def _real(labels: Labels, shape: Shape, sizes: dict) -> list[Label]:
    """The labels of the dimensions that do not merely broadcast."""
    return [x for x, n in zip(labels, shape, strict=True) if n == sizes[x]]


def _product_labels(terms: list[Labels], contracted: list, batch: list) -> Labels:
    """The labels of a dot_general, in its order."""
    gone = {*contracted, *batch}
    return (*batch, *[x for labels in terms for x in labels if x not in gone])


def _places(labels: Labels, found: Labels) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The transpose of a factor to the result's order, and its dimensions there."""
    perm = tuple(sorted(range(len(labels)), key=lambda d: found.index(labels[d])))
    return perm, tuple([found.index(labels[d]) for d in perm])


def _prepare(labels: Labels, shape: Shape, others: set, sizes: dict) -> tuple[Prepared, Labels]:
    """The preparation of an operand, and its labels afterwards."""
    diagonals = []
    names, dims = list(labels), list(shape)
    for label in dict.fromkeys(labels):
        while names.count(label) > 1:
            kept = names.index(label)
            dropped = names.index(label, kept + 1)
            diagonals.append((kept, dropped))
            del names[dropped], dims[dropped]
    broadcast = [i for i, x in enumerate(names) if dims[i] == 1 and sizes[x] != 1]
    squeezed = None
    if broadcast:
        names = [x for i, x in enumerate(names) if i not in broadcast]
        dims = [n for i, n in enumerate(dims) if i not in broadcast]
        squeezed = tuple(dims)
    summed = tuple(i for i, x in enumerate(names) if x not in others)
    left = tuple(x for i, x in enumerate(names) if i not in summed)
    return Prepared(tuple(diagonals), squeezed, summed), left


# -- running a plan --


def _applied(x: Any, prepared: Prepared) -> Any:
    for kept, dropped in prepared.diagonals:
        x = diagonal_sum(x, kept, dropped)
    if prepared.squeezed is not None:
        x = reshape(x, shape=prepared.squeezed)
    return summed(x, prepared.summed) if prepared.summed else x


def summed(x: Any, axes: tuple) -> Any:
    dtype = type_of(x).dtype
    return cast(reduce_sum(cast(x, accumulated_dtype(dtype)), axes=axes), dtype)


def diagonal_sum(x: Any, kept: int, dropped: int) -> Any:
    """The diagonal of two dimensions, at `kept`. Uses a mask, which shards along either of them."""
    t = type_of(x)
    if t.shape[kept] != t.shape[dropped]:
        raise ValueError(
            f"einsum: a repeated label needs equal sizes; got {t.shape[kept]} and "
            f"{t.shape[dropped]} of {t.str_short(True)}."
        )
    rows = iota(dtype=INT32, shape=t.shape, dimension=kept)
    columns = iota(dtype=INT32, shape=t.shape, dimension=dropped)
    zero = np.zeros((), t.dtype)[()]
    return reduce_sum(ew.where(ew.eq(rows, columns), x, zero), axes=(dropped,))


def run(
    steps: tuple[Step, ...],
    operands: list[Any],
    precision: Any,
    preferred: Any,
    multiply: Any = None,
) -> Any:
    """Runs a plan; consumes `operands`. multiply: replaces `dot_general`."""
    for step in steps:
        taken = [operands.pop(i) for i in step.positions]
        xs = [
            _applied(cast_to(taken[i], preferred), p) if p else taken[i]
            for i, p in zip(step.order, step.prepared, strict=True)
        ]
        if step.numbers is not None and multiply is not None:
            wanted = type_of(xs[0]).dtype if preferred is None else preferred
            out = multiply(*xs, step.numbers, precision, preferred_element_type=wanted)
        elif step.numbers is not None:
            out = dot_general(
                *xs,
                dimension_numbers=step.numbers,
                precision=precision,
                preferred_element_type=preferred,
            )
        elif step.spreads is not None:
            out = ew.mul(
                *[
                    _spread(cast_to(x, preferred), s, step.shape)
                    for x, s in zip(xs, step.spreads, strict=True)
                ]
            )
        else:
            out = xs[0]
        operands.append(out if step.perm is None else transpose(out, perm=step.perm))
    return operands[0]


def cast_to(x: Any, dtype: Any) -> Any:
    return x if dtype is None else cast(x, dtype, type_of(x).weak_type)


def _spread(x: Any, how: Any, shape: Shape) -> Any:
    perm, places = how
    if perm != tuple(range(len(perm))):
        x = transpose(x, perm=perm)
    if not perm or len(places) == len(shape):
        return x
    return broadcast_in_dim(x, shape=shape, dims=places)


@fused
def _einsum(
    *operands: Any,
    subscripts: Any,
    optimize: Any,
    precision: Any,
    preferred: Any,
    multiply: Any = None,
) -> Any:
    xs: Sequence[Any] = operands
    if preferred is None:
        dtype, weak = joined(*operands)
        xs = [x if type_of(x).dtype is dtype else cast(x, dtype, weak) for x in operands]
    else:
        dtype, weak = preferred, False

    def product(text: Any, *xs: Any) -> Any:
        steps = plan(text, tuple([type_of(x).shape for x in xs]), optimize)
        return run(steps, list(xs), canonical_precision(precision), preferred, multiply)

    if has_names(subscripts):
        out = named_einsum(product, subscripts, xs, optimize, precision, preferred)
    else:
        out = product(subscripts, *xs)
    return cast(out, dtype, weak)


def einsum(
    subscripts: str | ArrayLike,
    /,
    *operands: Any,
    out: None = None,
    optimize: str | bool | Sequence[Any] = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Sums of products, specified by labels of dimensions (see `numpy.einsum`).

    Args:
      subscripts: such as "ij,jk->ik", with `...` for any further dimensions, and names of axes in
        scope in braces, "a{i},a{j}->{i,j}"; or, as in NumPy, alternating operands and lists of
        labels, optionally followed by the labels of the result.
      optimize: how to choose the contraction order for more than two operands; an opt_einsum name
        or path.
      precision: of products, on devices that support several.
      preferred_element_type: the dtype of the accumulator and the result.
      out_sharding: how the result is sharded over explicit mesh axes, where that is ambiguous.
      _dot_general: replaces `shardwise.lax.dot_general`.

    Raises:
      ValueError: if the subscripts and operands do not match.
    """
    reject_out("einsum", out)
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    if isinstance(optimize, list):
        optimize = tuple(optimize)
    how = {
        "subscripts": subscripts,
        "optimize": "auto" if optimize is True else optimize,
        "precision": precision,
        "preferred": checked_dtype(preferred_element_type, "einsum"),
    }
    if out_sharding is not None:
        return placed(_einsum, out_sharding, *operands, **how, multiply=_dot_general)
    if _dot_general is not None:
        return body_of(_einsum)(*operands, **how, multiply=_dot_general)
    return _einsum(*operands, **how)


def _from_lists(args: tuple) -> tuple[Any, tuple]:
    """`(a, [0, 1], b, [1, 2], [0, 2])` as (labels, labels of the result) and operands."""
    count = len(args) // 2
    rows = tuple([tuple(args[2 * i + 1]) for i in range(count)])
    result = tuple(args[-1]) if len(args) % 2 else None
    return (rows, result), args[: 2 * count : 2]


def einsum_path(
    subscripts: str | ArrayLike, /, *operands: Any, optimize: str | bool | Sequence[Any] = "auto"
) -> tuple[list[Any], Any]:
    """The contraction order that `einsum` would use: the path, and a description of it."""
    import opt_einsum

    labels = str if isinstance(subscripts, str) else (list, tuple)
    args = [x if isinstance(x, labels) else type_of(x).shape for x in (subscripts, *operands)]
    found = opt_einsum.contract_path(*args, shapes=True, optimize=optimize)
    return list(found[0]), found[1]
