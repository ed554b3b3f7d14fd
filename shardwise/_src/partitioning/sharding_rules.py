"""Sharding rules: how dimensions of operands and results of a function correspond.

    "b i, i o -> b o"       # reduction_factors=("i",)
    "... (h d) -> ... h d"  # h=4

Each dimension has a factor, or several of them, major first, in parentheses. Dimensions with the
same factor are sharded alike. A leading ellipsis represents any number of dimensions; ellipses for
different dimensions are numbered (`...1`). `SdyShardingRule` is a rule as an object; `Factors` is
a rule fitted to the types of a call, with names for all dimensions and the size of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise._src.messages.formatting import pluralize
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims

BATCHING: str = "…"
_WORD = re.compile(r"\s+|->|[(),]|\.\.\.\d*|\w+|.")
_KINDS = ("reduction_factors", "need_replication_factors", "permutation_factors")


def _is_batching(factor: str) -> bool:
    return factor[:1] == BATCHING and (len(factor) == 1 or factor[1:].isdigit())


def _check_factor(factor: Any, where: str) -> None:
    if not isinstance(factor, str):
        raise ValueError(
            f"{where}: a factor must be a string; got {factor!r} of type {type(factor).__name__}."
        )
    if not factor[:1].isalpha() or not all(c.isalnum() or c == "_" for c in factor):
        raise ValueError(
            f"{where}: {factor!r} is not a factor name: a letter followed by letters, digits "
            "and underscores."
        )


class CompoundFactor(tuple[str, ...]):
    """The factors of a dimension with several: `CompoundFactor("h", "d")`, major first."""

    __slots__ = ()

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ValueError(
                "CompoundFactor takes two factors or more; got "
                f"{pluralize(len(factors), 'factor')}. Write a single factor on its own."
            )
        for factor in factors:
            _check_factor(factor, "CompoundFactor")
        return super().__new__(cls, factors)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class ArrayMapping(tuple[Any, ...]):
    """The factors of an operand or result: `ArrayMapping(BATCHING, "i", CompoundFactor("h", "d"))`.

    Each is a name or a `CompoundFactor`; the first may be `BATCHING`, followed by a number if there
    are several kinds of leading dimensions.
    """

    __slots__ = ()

    def __new__(cls, *factors: str | CompoundFactor) -> ArrayMapping:
        for i, factor in enumerate(factors):
            if isinstance(factor, CompoundFactor) or (
                isinstance(factor, str) and _is_batching(factor) and not i
            ):
                continue
            if isinstance(factor, str) and _is_batching(factor):
                raise ValueError(
                    f"ArrayMapping{tuple(factors)}: an ellipsis may only be the first entry."
                )
            _check_factor(factor, "ArrayMapping")
        return super().__new__(cls, factors)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class SdyShardingRule:
    """A sharding rule.

    Args:
      operand_mappings, result_mappings: an `ArrayMapping` for each operand and each result.
      reduction_factors: factors that are summed over, or reduced otherwise: if they are sharded,
        the function has to communicate.
      need_replication_factors: factors that must be replicated.
      permutation_factors: factors along which shards are exchanged, if they are sharded.
      **factor_sizes: the sizes of factors that are never a full dimension.

    Raises:
      ValueError: for factors missing from the mappings, missing or superfluous sizes, and factors
        of two kinds.
    """

    def __init__(
        self,
        operand_mappings: tuple[ArrayMapping, ...],
        result_mappings: tuple[ArrayMapping, ...],
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ):
        self.operand_mappings = tuple([ArrayMapping(*m) for m in operand_mappings])
        self.result_mappings = tuple([ArrayMapping(*m) for m in result_mappings])
        self.reduction_factors = reduction_factors
        self.need_replication_factors = need_replication_factors
        self.permutation_factors = permutation_factors
        self.factor_sizes = factor_sizes
        self._check_sizes()
        self._check_kinds()

    def _factors(self) -> tuple[set[str], set[str]]:
        """The factors that are a full dimension, and those that are a part of one."""
        entries = [f for m in (*self.operand_mappings, *self.result_mappings) for f in m]
        whole = {f for f in entries if isinstance(f, str)}
        return whole, {f for c in entries if not isinstance(c, str) for f in c}

    def _check_sizes(self) -> None:
        whole, parts = self._factors()
        given = set(self.factor_sizes)
        for factor in sorted(given | (parts - whole)):
            size = self.factor_sizes.get(factor, 1)
            if factor not in whole | parts:
                wrong = "has a size, but is in no mapping"
            elif factor in whole and factor in given:
                wrong = "has a size, but is a full dimension, whose size is known"
            elif factor not in given:
                wrong = f"is only used within compound factors: pass its size, {factor}=…"
            elif not isinstance(size, int) or size < 1:
                wrong = f"has the size {size!r}, which is not a positive integer"
            else:
                continue
            raise ValueError(f"{self}: the factor {factor!r} {wrong}.")

    def _check_kinds(self) -> None:
        known, seen = set().union(*self._factors()), dict[str, str]()
        for kind in _KINDS:
            factors = getattr(self, kind)
            if not isinstance(factors, tuple):
                raise ValueError(
                    f"{self}: {kind} must be a tuple of names; got {factors!r} of type "
                    f"{type(factors).__name__}."
                )
            for factor in factors:
                if factor not in known:
                    raise ValueError(f"{self}: {factor!r} of {kind} is in no mapping.")
                if factor in seen:
                    where = "twice" if seen[factor] == kind else f"and of {seen[factor]}"
                    raise ValueError(
                        f"{self}: {factor!r} is of {kind} {where}; a factor may be listed only "
                        "once."
                    )
                seen[factor] = kind

    def _key(self) -> tuple[Any, ...]:
        kinds = tuple([getattr(self, kind) for kind in _KINDS])
        sizes = tuple(sorted(self.factor_sizes.items()))
        return (self.operand_mappings, self.result_mappings, *kinds, sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SdyShardingRule) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"SdyShardingRule({self.notation()!r})"

    def notation(self) -> str:
        """The rule in string notation."""
        sides = [
            ", ".join(map(_mapping_text, m)) for m in (self.operand_mappings, self.result_mappings)
        ]
        return " -> ".join(sides)


def _mapping_text(mapping: ArrayMapping) -> str:
    texts = [f if isinstance(f, str) else f"({' '.join(f)})" for f in mapping]
    return " ".join([t.replace(BATCHING, "...") for t in texts])


def rule_of(text: str, **rest: Any) -> SdyShardingRule:
    """Parses the string notation of a rule. rest: as for `SdyShardingRule`."""
    sides = text.split("->")
    if len(sides) != 2:
        raise ValueError(
            f"sharding_rule {text!r} must have one -> between operands and results, as in "
            "'b i, i o -> b o'."
        )
    return SdyShardingRule(*[_mappings(side, text) for side in sides], **rest)


def _mappings(side: str, rule: str) -> tuple[ArrayMapping, ...]:
    """One side of a rule."""
    found: list[list[Any]] = [[]]
    inner: list[str] | None = None  # factors in open parentheses
    where = f"sharding_rule {rule!r}"
    for word in _WORD.findall(side):
        if word == "," and inner is None:
            found.append([])
        elif word == "(" and inner is None:
            inner = []
        elif word == ")" and inner is not None:
            if len(inner) < 2:
                raise ValueError(f"{where}: parentheses must have two factors or more in them.")
            found[-1].append(CompoundFactor(*inner))
            inner = None
        elif word in "(),":
            raise ValueError(f"{where}: parentheses are not balanced, or are within others.")
        elif word.startswith("..."):
            if found[-1] or inner is not None:
                raise ValueError(f"{where}: an ellipsis may only be the first of an array.")
            found[-1].append(f"{BATCHING}{int(word[3:] or 0) or ''}")
        elif not word.isspace():
            _check_factor(word, where)
            (found[-1] if inner is None else inner).append(word)
    if inner is not None:
        raise ValueError(f"{where}: parentheses are not balanced, or are within others.")
    return tuple([ArrayMapping(*m) for m in found])


# -- rules fitted to types --


@dataclass(frozen=True)
class Factors:
    """The names of factors of each dimension of operands and results, with their sizes."""

    operands: tuple[tuple[tuple[str, ...], ...], ...]
    results: tuple[tuple[tuple[str, ...], ...], ...]
    sizes: dict[str, int]
    reduction: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    permutation: tuple[str, ...] = ()

    def attribute(self) -> str:
        """Shardy's form: factors are letters, in order of appearance."""
        letters = {name: _letter(i) for i, name in enumerate(self.sizes)}

        def side(rows: Sequence[Any]) -> str:
            texts = [", ".join(["".join(map(letters.__getitem__, d)) for d in r]) for r in rows]
            return ", ".join([f"[{text}]" for text in texts])

        sizes = ", ".join([f"{letters[name]}={n}" for name, n in self.sizes.items()])
        sizes = sizes and f" {{{sizes}}}"
        kinds = "".join(
            [
                f" {kind}={{{', '.join(sorted([letters[f] for f in factors], key=_order))}}}"
                for kind, factors in (
                    ("reduction", self.reduction),
                    ("need_replication", self.whole),
                    ("permutation", self.permutation),
                )
                if factors
            ]
        )
        return (
            f"#sdy.op_sharding_rule<({side(self.operands)})->({side(self.results)})"
            f"{sizes}{kinds}, custom>"
        )

    def dims(self) -> Dims:
        """The rule for types: dimensions that must be replicated have no factor."""

        def row(dims: Any) -> tuple[Any, ...]:
            return tuple(
                [None if set(d) & {*self.whole} else d[0] if len(d) == 1 else d for d in dims]
            )

        return Dims(tuple(map(row, self.operands)), tuple(map(row, self.results)))

    def batched(self, size: int, marks: Sequence[bool]) -> Factors:
        """The rule with an additional factor: the first of all results, and of marked operands."""
        name = f"{BATCHING}mapped{len(self.sizes)}"
        pairs = zip(self.operands, marks, strict=True)
        operands = tuple([((name,), *row) if m else row for row, m in pairs])
        results = tuple([((name,), *row) for row in self.results])
        sizes = {name: size, **self.sizes}
        order = dict.fromkeys([f for r in (*operands, *results) for d in r for f in d])
        sizes = {f: sizes[f] for f in order}
        return replace(self, operands=operands, results=results, sizes=sizes)


def _letter(i: int) -> str:
    return chr(ord("i") + i) if i < 18 else f"z_{i - 17}"


def _order(letter: str) -> tuple[int, str]:
    return int(letter[2:] or 0), letter[0]


def fitted(
    rule: SdyShardingRule, ins: Sequence[ArrayType], outs: Sequence[ArrayType], name: str
) -> Factors:
    """The rule for operands and results of these types. name: the function's, for messages."""
    who = f"custom_partitioning function {name}: sharding_rule {rule.notation()!r}"
    groups: dict[str, int] = {}  # dimensions of each ellipsis
    sizes: dict[str, int] = {}
    sides: list[Any] = []
    for what, mappings, types in (
        ("operand", rule.operand_mappings, ins),
        ("result", rule.result_mappings, outs),
    ):
        if len(mappings) != len(types):
            raise ValueError(
                f"{who} is for {pluralize(len(mappings), what)}, but there "
                f"{'is' if len(types) == 1 else 'are'} {len(types)}."
            )
        rows = zip(mappings, types, strict=True)
        sides.append(
            tuple(
                [
                    _fitted_row(
                        m, t, groups, sizes, rule, f"{who}: {what} {i} of type {t.str_short(True)}"
                    )
                    for i, (m, t) in enumerate(rows)
                ]
            )
        )
    _check_compound(sides, [*ins, *outs], sizes, who)
    kinds = [getattr(rule, kind) for kind in _KINDS]
    expanded = [tuple([n for f in k for n in _expanded(f, groups)]) for k in kinds]
    return Factors(sides[0], sides[1], sizes, *expanded)


def _expanded(factor: str, groups: dict[str, int]) -> list[str]:
    if not _is_batching(factor):
        return [factor]
    group = factor[1:] or "0"
    return [f"{BATCHING}{group}_{k}" for k in range(groups[group])]


def _fitted_row(
    mapping: ArrayMapping,
    t: ArrayType,
    groups: dict[str, int],
    sizes: dict[str, int],
    rule: SdyShardingRule,
    who: str,
) -> tuple[tuple[str, ...], ...]:
    """The factors of each dimension of one array; their sizes are added to `sizes`."""
    dims = [(f,) if isinstance(f, str) else tuple(f) for f in mapping]
    if mapping and isinstance(mapping[0], str) and _is_batching(mapping[0]):
        group, count = mapping[0][1:] or "0", t.ndim - len(dims) + 1
        if count >= 0 and groups.setdefault(group, count) != count:
            raise ValueError(
                f"{who} has {pluralize(count, 'dimension')} for the ellipsis, which represents "
                f"{groups[group]} elsewhere."
            )
        dims = [*[(n,) for n in _expanded(mapping[0], groups)], *dims[1:]] if count >= 0 else dims
    if len(dims) != t.ndim:
        raise ValueError(
            f"{who} has {pluralize(t.ndim, 'dimension')}, and its mapping "
            f"{_mapping_text(mapping)!r} {pluralize(len(dims), 'entry', 'entries')}."
        )
    for d, factors in enumerate(dims):
        for factor in factors:
            size = rule.factor_sizes.get(factor, t.shape[d] if len(factors) == 1 else None)
            held = sizes.get(factor)
            if factor[0] == BATCHING and held not in (None, size):
                raise ValueError(
                    f"{who} has {size} elements along dimension {d}, of the ellipsis, which has "
                    f"{held} elsewhere."
                )
            known = [n for n in (held, size) if n]
            sizes[factor] = min(known, default=0)  # 0: unknown until another dimension
    return tuple(dims)


def _check_compound(
    sides: Sequence[Any], types: Sequence[ArrayType], sizes: dict[str, int], who: str
) -> None:
    rows = [row for side in sides for row in side]
    for row, t in zip(rows, types, strict=True):
        for factors, n in zip(row, t.shape, strict=True):
            product = 1
            for factor in factors:
                product *= sizes[factor]
            if len(factors) > 1 and product != n:
                terms = " × ".join([f"{f}={sizes[f]}" for f in factors])
                raise ValueError(
                    f"{who}: a dimension of {n} elements of {t.str_short(True)} is factored as "
                    f"({' '.join(factors)}), but {terms} is {product}."
                )


def probed(
    kept: Sequence[tuple[int, int, Sequence[tuple[int, int]]]],
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
) -> Factors:
    """The rule of a function, from the result dimensions that follow operand dimensions.

    kept: (operand, dimension, [(result, dimension), …]).
    """
    names = {
        (s, i, d): f"d{s}_{i}_{d}"
        for s, types in enumerate((ins, outs))
        for i, t in enumerate(types)
        for d in range(t.ndim)
    }
    for i, d, places in kept:
        for j, k in places:
            old, new = names[1, j, k], names[0, i, d]
            row = [names[1, j, e] for e in range(outs[j].ndim) if e != k]
            if new not in row and outs[j].shape[k] == ins[i].shape[d]:
                _join(names, old, new, ins)
    sides = [
        tuple([tuple([(names[s, i, d],) for d in range(t.ndim)]) for i, t in enumerate(types)])
        for s, types in enumerate((ins, outs))
    ]
    sizes = {
        names[s, i, d]: n
        for s, types in enumerate((ins, outs))
        for i, t in enumerate(types)
        for d, n in enumerate(t.shape)
    }
    return Factors(sides[0], sides[1], sizes)


def _join(
    names: dict[tuple[int, int, int], str], old: str, new: str, ins: Sequence[ArrayType]
) -> None:
    """Merges two factors, unless an array would then have one twice."""
    merged = {k: new if name == old else name for k, name in names.items()}
    rows: dict[tuple[int, int], list[str]] = {}
    for (s, i, _), name in merged.items():
        rows.setdefault((s, i), []).append(name)
    if all(len(row) == len(set(row)) for row in rows.values()):
        names.update(merged)
