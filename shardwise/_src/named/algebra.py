"""Array operations by axis names: `einsum`, `rearrange`, `reduce`, `rename`.

    einsum("batch seq embed, embed mlp -> batch seq mlp", x, up)
    rearrange("batch seq (heads head) -> batch heads seq head", x, heads=8)
    reduce("batch seq embed -> batch seq 1", x, by=snp.mean)

Patterns come first, as in `numpy.einsum`. Logical axes must have the same sizes as elsewhere in the
enclosing function (`checked`), and results are sharded by the rules.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.arguments.values import as_value
from shardwise._src.core.infer import type_of
from shardwise._src.messages.formatting import join, pluralize, short_repr
from shardwise._src.named.declarations import (
    bound,
    declare_axes,
    explicit_part,
    placed,
    record_axes,
    scope,
    sharding_for,
    with_logical_axes,
)
from shardwise._src.named.logical_axes import ANY, Part, flat, parse, sides
from shardwise._src.numpy.products.einsum import einsum as plain_einsum
from shardwise._src.numpy.shapes import reshape, transpose
from shardwise._src.types.annotations import Array, ArrayLike, PrecisionLike


@with_logical_axes
def einsum(pattern: str, *operands: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Sums of products over all logical axes that the result does not have.

    Args:
      pattern: such as "batch seq embed, embed mlp -> batch seq mlp", with a term for each operand.
      precision: of products, on devices that support several.

    Raises:
      ValueError: if the pattern does not fit the operands, or a logical axis has two sizes.
    """
    left, right = sides(pattern, "einsum")
    rows = [_plain(text, "einsum") for text in left.split(",")]
    out = _plain(right, "einsum")
    if len(rows) != len(operands):
        raise ValueError(
            f"einsum: {pattern!r} is for {pluralize(len(rows), 'operand')}; got {len(operands)}."
        )
    known = list(dict.fromkeys(w for row in rows for w in row))
    _all_known(out, known, pattern, "einsum")
    if len(known) > len(string.ascii_letters):
        raise ValueError(f"einsum: a pattern has 52 axes at most; got {len(known)}.")
    values = [as_value(x) for x in operands]
    values = [
        declare_axes(x, text, "einsum", f"operand {i}")
        for i, (x, text) in enumerate(zip(values, left.split(","), strict=True))
    ]
    letter = dict(zip(known, string.ascii_letters, strict=False))
    subscripts = ",".join("".join(letter[w] for w in row) for row in rows)
    subscripts += "->" + "".join(letter[w] for w in out)
    sharding = sharding_for(out, "einsum")
    explicit = None if sharding is None else explicit_part(sharding)
    found = plain_einsum(subscripts, *values, precision=precision, out_sharding=explicit)
    return declare_axes(found, right, "einsum", "result")


@with_logical_axes
def rearrange(pattern: str, x: ArrayLike, **sizes: int) -> Array:
    """Reorders, merges and splits dimensions.

    Args:
      pattern: such as "batch seq (heads head) -> batch heads seq head". Both sides have the same
        logical axes; `1` is a dimension of size 1 on either side.
      sizes: for each group on the left side, the sizes of all its logical axes but one.

    Raises:
      ValueError: if the pattern does not fit.
    """
    who = "rearrange"
    left, right = sides(pattern, who)
    before, after = (parse(text, who, patterned=True) for text in (left, right))
    words, wanted = flat(before), flat(after)
    _all_known(wanted, words, pattern, who)
    _all_known(words, wanted, pattern, who)
    if other := [word for word in sizes if word not in words]:
        raise ValueError(f"{who}: got a size for {join(other)}, which is not in {pattern!r}.")
    x = as_value(x)
    shape = _taken_apart(before, x, left, sizes)
    x = record_axes(x, before, before, f"{who}: operand")
    bound_to = dict(zip(words, shape, strict=True))
    scope().bind(words, shape, who, f"operand, {type_of(x).str_short(True)} as {left!r}")
    x = transpose(reshape(x, shape), [words.index(w) for w in wanted])
    x = reshape(x, tuple([math.prod([bound_to[w] for w in flat([p])]) for p in after]))
    return placed(record_axes(x, after, after, f"{who}: result"), after, who)


@with_logical_axes
def rename(pattern: str, x: ArrayLike) -> Array:
    """The same value with another name for an axis.

    If an axis has two roles, such as queries and keys of a sequence, this declares the second role:
    to the rules, which may shard the two differently, and to `check`.

    Args:
      pattern: such as "batch seq head -> batch key head", with as many names on both sides.

    Raises:
      ValueError: if the pattern does not fit.
    """
    left, right = sides(pattern, "rename")
    before, after = _plain(left, "rename"), _plain(right, "rename")
    if len(before) != len(after):
        raise ValueError(f"rename: the two sides of {pattern!r} must have the same number of axes.")
    x = declare_axes(x, left, "rename", "operand")
    bound(x, after, "rename", "result")
    return placed(record_axes(x, before, after, "rename"), after, "rename")


@with_logical_axes
def reduce(pattern: str, x: ArrayLike, by: Callable[..., Array]) -> Array:
    """Reduces over the logical axes that the result does not have.

    Args:
      pattern: such as "batch seq embed -> batch seq"; `1` in the result keeps a dimension.
      by: the reduction: `shardwise.numpy.sum`, `mean`, `max` or any function of an array and
        `axis`, a tuple.

    Raises:
      ValueError: if the pattern does not fit.
      TypeError: if `by` is not a function.
    """
    if not callable(by):
        raise TypeError(
            "reduce: by must be a function of an array and `axis`, such as "
            f"`shardwise.numpy.mean`; got {short_repr(by)}."
        )
    left, right = sides(pattern, "reduce")
    words, wanted = _plain(left, "reduce"), flat(parse(right, "reduce", patterned=True))
    _all_known(wanted, words, pattern, "reduce")
    x = as_value(x)
    x = declare_axes(x, left, "reduce", "operand")
    gone = tuple([d for d, word in enumerate(words) if word not in wanted])
    rest = " ".join(word for word in words if word in wanted)
    return rearrange(f"{rest} -> {right}", by(x, axis=gone))


def _plain(text: str, who: str) -> tuple[str, ...]:
    """The logical axes of a pattern, none of which may be anonymous."""
    words = parse(text, who)
    if ANY in words:
        raise ValueError(f"{who}: `_` in {text.strip()!r}: in a pattern, each axis needs a name.")
    return words


def _all_known(words: Sequence[str], known: Sequence[str], pattern: str, who: str) -> None:
    other = [word for word in words if word not in known or word == ANY]
    if other:
        raise ValueError(
            f"{who}: {join(other)} of {pattern!r} is on one side only. Both sides of the arrow "
            "must have the same axes."
            if who == "rearrange"
            else f"{who}: {join(other)} of {pattern!r} is in the result only."
        )


def _taken_apart(before: Sequence[Part], x: Any, left: str, sizes: dict[str, int]) -> tuple:
    """The sizes of all logical axes of a pattern's left side, for this array."""
    t = type_of(x)
    if t.ndim != len(before):
        raise ValueError(
            f"rearrange: {left!r} has {len(before)} dimensions; got {t.str_short(True)}."
        )
    found: list[int] = []
    for part, size in zip(before, t.shape, strict=True):
        words = flat([part])
        given = {w: sizes[w] for w in words if w in sizes} if len(words) != 1 else {words[0]: size}
        unknown = [w for w in words if w not in given]
        rest = math.prod(given.values())
        if len(unknown) == 1 and rest and size % rest == 0:
            given[unknown[0]] = size // rest
        elif len(unknown) > 1:
            raise ValueError(
                f"rearrange: the sizes of {join(unknown)} in {left!r} are unknown. Pass all "
                f"but one: rearrange(pattern, x, {unknown[0]}=...)."
            )
        if math.prod(given.values()) != size or len(given) != len(words):
            shown = ", ".join(f"{w}={n}" for w, n in given.items()) or "1"
            raise ValueError(
                f"rearrange: a dimension of {t.str_short(True)}, of size {size}, cannot be split "
                f"into ({' '.join(words)}) with {shown}."
            )
        if len(words) == 1 and sizes.get(words[0], size) != size:
            raise ValueError(
                f"rearrange: {words[0]!r} is {size} in {t.str_short(True)} as {left!r}, but "
                f"{sizes[words[0]]} was given."
            )
        found += [given[w] for w in words]
    return tuple(found)
