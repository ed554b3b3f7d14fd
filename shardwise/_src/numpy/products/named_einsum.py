"""`einsum` over dimensions and named axes: `einsum("ab{i,j},b{j}->a{i}", x, y)`.

The names of axes follow the letters of an operand, in braces; operands are summed or kept along
these. A name that the result lacks is summed: if only one operand has it, first; if several do,
together with their product, as one `pdot`. Along axes that no term names, values stay separate, as
along every named axis. Terms without names are as in `numpy.einsum`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardwise._src.base.caches import cached
from shardwise._src.core.infer import type_of
from shardwise._src.messages.formatting import join, pluralize
from shardwise._src.numpy.statistics.named_reductions import (
    NamedAxes,
    across,
    called_name,
    named_axes,
)
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.precision import canonical_precision
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.sharded.pdot import sum_of_products
from shardwise._src.types.dtypes import is_bool
from shardwise._src.values.convert import broadcast_to, cast

Product = Callable[..., Any]  # einsum over dimensions: (subscripts, *operands)


class Term(NamedTuple):
    """An operand or the result: labels of dimensions, and names."""

    letters: str
    names: tuple[str, ...]


def has_names(subscripts: Any) -> bool:
    return isinstance(subscripts, str) and ("{" in subscripts or "}" in subscripts)


def _error(text: str, what: str) -> ValueError:
    return ValueError(f"{called_name() or 'einsum'}: {what}, in {text!r}.")


# -- subscripts to terms --


@cached(1024)
def terms_of(text: str) -> tuple[tuple[Term, ...], Term]:
    """The terms of the operands, and the term of the result."""
    left, arrow, right = text.partition("->")
    ins = tuple([_term(text, part) for part in _parts(text, left)])
    every = [name for term in ins for name in term.names]
    if not arrow:
        letters = "".join([c for term in ins for c in term.letters])
        once = sorted({c for c in letters if c != "." and letters.count(c) == 1})
        dots = "..." if "..." in letters else ""
        names = tuple([n for n in dict.fromkeys(every) if every.count(n) == 1])
        return ins, Term(dots + "".join(once), names)
    outs = _parts(text, right)
    if len(outs) != 1:
        raise _error(text, f"exactly one term must follow '->'; got {len(outs)}")
    out = _term(text, outs[0])
    if missing := [n for n in out.names if n not in every]:
        raise _error(text, f"the result has the axis {join(missing)}, which no operand has")
    return ins, out


def _parts(text: str, terms: str) -> list[str]:
    """Splits at the commas outside braces."""
    parts, depth = [""], 0
    for c in terms.replace(" ", ""):
        depth += (c == "{") - (c == "}")
        if depth not in (0, 1):
            raise _error(text, "braces do not match")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    if depth:
        raise _error(text, "a brace is not closed")
    return parts


def _term(text: str, part: str) -> Term:
    letters, brace, rest = part.partition("{")
    if not brace:
        return Term(letters, ())
    inner, _, after = rest.partition("}")
    names = tuple([n for n in inner.split(",") if n])
    if after or (inner and len(names) != inner.count(",") + 1):
        raise _error(text, f"axis names must come last, separated by commas; got {part!r}")
    if len(set(names)) != len(names):
        raise _error(text, f"a term names an axis twice: {part!r}")
    return Term(letters, names)


# -- running --


class _Value(NamedTuple):
    letters: str
    names: tuple[str, ...]
    x: Any


def named_einsum(
    product: Product,
    text: str,
    operands: Sequence[Any],
    optimize: Any,
    precision: Any,
    preferred: Any,
) -> Any:
    """The operands must have one dtype."""
    ins, out = terms_of(text)
    if len(ins) != len(operands):
        raise _error(
            text, f"{pluralize(len(ins), 'term')} for {pluralize(len(operands), 'operand')}"
        )
    every = tuple(dict.fromkeys([n for term in ins for n in term.names]))
    axes = named_axes(None, every)
    held, wanted = _lettered(text, ins, out, operands)
    run = _Run(product, axes, wanted, canonical_precision(precision), preferred)
    for chosen in run.path(held, optimize):
        taken = [held.pop(i) for i in sorted(chosen, reverse=True)][::-1]
        while len(taken) > 2:
            later = [*taken[2:], *held]
            taken = [run.joined(taken[0], taken[1], later), *taken[2:]]
        held.append(run.joined(taken[0], taken[1], held) if len(taken) == 2 else taken[0])
    (last,) = held
    last = run.alone(last, [])
    return product(f"{last.letters}->{wanted.letters}", last.x)


def _lettered(
    text: str, ins: Sequence[Term], out: Term, operands: Sequence[Any]
) -> tuple[list[_Value], Term]:
    """The operands with a letter for each dimension, including the dimensions of `...`."""
    used = {c for term in (*ins, out) for c in term.letters}
    fresh = [c for c in map(chr, range(ord("a"), ord("a") + 2000)) if c.isalpha() and c not in used]
    hidden = 0
    held: list[_Value] = []
    for i, (term, x) in enumerate(zip(ins, operands, strict=True)):
        rank = type_of(x).ndim
        more = rank - len(term.letters.replace("...", ""))
        if more < 0 or (more and "..." not in term.letters):
            raise _error(
                text,
                f"operand {i} has {pluralize(rank, 'dimension')}, but its term "
                f"{term.letters!r} has {len(term.letters)}",
            )
        hidden = max(hidden, more)
        letters = term.letters.replace("...", "".join(reversed(fresh[:more])))
        held.append(_Value(letters, term.names, x))
    letters = out.letters.replace("...", "".join(reversed(fresh[:hidden])))
    if hidden and "..." not in out.letters:
        raise _error(text, "the result lacks the '...' of the operands")
    if missing := [c for c in letters if all(c not in v.letters for v in held)]:
        raise _error(text, f"the result has {join(missing)}, which no operand has")
    if len(set(letters)) != len(letters):
        raise _error(text, "the result repeats a label")
    return held, Term(letters, out.names)


class _Run(NamedTuple):
    """The state that all steps share. out: the result's term."""

    product: Product
    axes: NamedAxes
    out: Term
    precision: Any
    preferred: Any

    def path(self, held: Sequence[_Value], optimize: Any) -> list[tuple[int, ...]]:
        """The operands to multiply in each step."""
        if len(held) < 3:
            return [tuple(range(len(held)))]
        import opt_einsum  # not needed before the first product of three

        sizes = dict(zip(self.axes.names, self.axes.sizes, strict=True))
        wide = self.extents(held)
        free = [
            s
            for s in map(opt_einsum.get_symbol, range(len(wide) + len(sizes) + 52))
            if s not in wide
        ]
        labels = dict(zip(self.axes.names, free, strict=False))
        terms = ["".join([v.letters, *[labels[n] for n in v.names]]) for v in held]
        result = "".join([self.out.letters, *[labels[n] for n in self.out.names]])
        shapes = [(*[wide[c] for c in v.letters], *[sizes[n] for n in v.names]) for v in held]
        how = list(optimize) if isinstance(optimize, tuple) else optimize
        text = f"{','.join(terms)}->{result}"
        path, _ = opt_einsum.contract_path(text, *shapes, shapes=True, optimize=how)
        return [tuple(p) for p in path if not isinstance(p, str)]

    def extents(self, held: Sequence[_Value]) -> dict[str, int]:
        """The size of each letter; size 1 matches every size."""
        found: dict[str, int] = {}
        for v in held:
            for c, n in zip(v.letters, type_of(v.x).shape, strict=True):
                found[c] = n if found.get(c, 1) == 1 else found[c]
        return found

    def alone(self, v: _Value, others: Sequence[_Value]) -> _Value:
        """An operand, summed along the names and letters that no other term has."""
        needed = {*self.out.names, *[n for o in others for n in o.names]}
        gone = tuple([n for n in v.names if n not in needed])
        letters = {*self.out.letters, *[c for o in others for c in o.letters]}
        kept = "".join([c for c in dict.fromkeys(v.letters) if c in letters])
        if not gone:
            return v
        x = v.x if kept == v.letters else self.product(f"{v.letters}->{kept}", v.x)
        of_bools = is_bool(type_of(x).dtype)
        x = across(reduce_or if of_bools else reduce_sum, x, named_axes(None, gone))
        return _Value(kept, tuple([n for n in v.names if n in needed]), x)

    def joined(self, a: _Value, b: _Value, later: Sequence[_Value]) -> _Value:
        """The product of two operands. later: the operands that are multiplied afterwards."""
        a, b = self.alone(a, [b, *later]), self.alone(b, [a, *later])
        letters = {*self.out.letters, *[c for o in later for c in o.letters]}
        names = {*self.out.names, *[n for o in later for n in o.names]}
        every = tuple(dict.fromkeys((*a.names, *b.names)))
        summed = tuple([n for n in every if n not in names])
        left = tuple([n for n in every if n in names])
        kept = "".join([c for c in dict.fromkeys(a.letters + b.letters) if c in letters])
        if not summed:
            return _Value(kept, left, self.product(f"{a.letters},{b.letters}->{kept}", a.x, b.x))
        sizes = self.extents([a, b])
        a, b = [self.plain(v, letters.union(o.letters), sizes) for v, o in ((a, b), (b, a))]
        shared = [c for c in a.letters if c in b.letters]
        pairs = [
            tuple([tuple([v.letters.index(c) for c in group]) for v in (a, b)])
            for group in (
                [c for c in shared if c not in letters],
                [c for c in shared if c in letters],
            )
        ]
        batch = [c for c in shared if c in letters]
        free = [c for v in (a, b) for c in v.letters if c not in shared]
        axes = named_axes(None, summed)
        x = sum_of_products(
            axes.varied(a.x),
            axes.varied(b.x),
            tuple(pairs),
            self.precision,
            self.preferred,
            **axes.params,
        )
        return _Value("".join([*batch, *free]), left, x)

    def plain(self, v: _Value, needed: set[str], sizes: dict[str, int]) -> _Value:
        """With each letter once and at its full size, and no letter that only it has."""
        kept = "".join([c for c in dict.fromkeys(v.letters) if c in needed])
        x = v.x if kept == v.letters else self.product(f"{v.letters}->{kept}", v.x)
        if self.preferred is not None:
            x = cast(x, self.preferred, type_of(x).weak_type)
        return _Value(kept, v.names, broadcast_to(x, tuple([sizes[c] for c in kept])))
