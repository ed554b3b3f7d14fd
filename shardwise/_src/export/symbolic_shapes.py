"""Parses shapes with symbolic dimensions, and their constraints."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.base.errors import InconclusiveDimensionOperation
from shardwise._src.export.symbolic_dims import OPERATIONS, Dim, bounds, of_factor
from shardwise._src.tree.functions import broadcast, map


class SymbolicScope:
    """The constraints on the variables of symbolic dimensions that may be combined.

    constraints: comparisons as strings: "a >= b", "mod(a, 8) == 0", "a <= 100".
    """

    def __init__(self, constraints: str | Sequence[str] = ()):
        texts = (constraints,) if isinstance(constraints, str) else tuple(constraints)
        self._texts = texts
        self.positive: list[Dim] = []  # each at least 0
        self.equal: dict[Any, Any] = {}  # factor of a dimension → its replacement
        self.multiples: dict[tuple, tuple[int, Any]] = {}  # term → multiple, and its replacement
        self.equations: list[tuple[Dim, Any]] = []  # both sides of equalities
        for text in texts:
            self._add(text)
        for c in self.positive:
            if bounds(c)[1] < 0:
                raise ValueError(f"constraints: {', '.join(texts)} cannot hold for any sizes.")

    def __repr__(self) -> str:
        return f"SymbolicScope({', '.join(self._texts)})"

    def _add(self, text: str) -> None:
        for sign in (">=", "<=", "=="):
            left, found, right = text.partition(sign)
            if found:
                break
        else:
            raise ValueError(
                f"constraints: {text!r} is not a constraint: it must be two dimensions with "
                "'>=', '<=' or '==' between them."
            )
        one, two = (_parsed(side, self, f"the constraint {text!r}") for side in (left, right))
        if sign == "==":
            self._equate(text, one, two)
            return
        difference = one - two if sign == ">=" else two - one
        if isinstance(difference, Dim):
            self.positive.append(difference)
        elif difference < 0:
            raise ValueError(f"constraints: {text!r} cannot hold for any sizes.")

    def _equate(self, text: str, one: Any, two: Any) -> None:
        """The right side replaces the left one in all dimensions."""
        difference = one - two
        if not isinstance(difference, Dim):
            if difference:
                raise ValueError(f"constraints: {text!r} cannot hold for any sizes.")
            return
        if not isinstance(one, Dim) or len(one.terms) != 1:
            raise ValueError(
                f"constraints: the left side of {text!r} must be one term, such as a variable, a "
                "floordiv, mod, max or min, or a multiple of one, which the right side replaces."
            )
        self.equations.append((one, two))
        factor: Any = one.alone
        if factor is None:
            ((factors, count),) = one.terms
            self.multiples[factors] = count, two
            return
        self.equal[factor] = two
        if factor[0] == "mod" and isinstance(factor[2], int) and two == 0:  # an even division
            _, left, right = factor
            self.multiples[(("floordiv", left, right), 1),] = right, left


def _parsed(text: str, scope: SymbolicScope, what: str) -> Any:
    """Parses a dimension."""
    try:
        return _value(ast.parse(text.strip().replace("^", "**"), mode="eval").body, scope)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, InconclusiveDimensionOperation):
            raise
        raise ValueError(
            f"{what}: {text.strip()!r} is not a dimension: it may contain variable names, "
            "integers, +, -, *, ^, and floordiv, mod, max and min of two dimensions."
        ) from None


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _value(node: Any, scope: SymbolicScope) -> Any:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return of_factor(name, scope)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -_value(x, scope)
        case ast.BinOp(left=x, op=ast.Pow(), right=ast.Constant(value=int(power))) if power < 64:
            return _value(x, scope) ** power
        case ast.BinOp(left=x, op=op, right=y) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(x, scope), _value(y, scope))
        case ast.Call(func=ast.Name(id=name), args=[x, y], keywords=[]) if name in OPERATIONS:
            return OPERATIONS[name](_value(x, scope), _value(y, scope))
    raise ValueError


def _entries(text: str) -> list[str]:
    """Splits a shape string at commas outside parentheses."""
    inner = text.strip()
    if re.fullmatch(r"\([^()]*(\([^()]*\)[^()]*)*,[^()]*\)|\(\w*\)", inner):
        inner = inner[1:-1]
    parts, depth = [""], 0
    for c in inner:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    if not parts[-1].strip():
        parts.pop()
    return parts


def _scope(what: str, constraints: Sequence[str], scope: SymbolicScope | None) -> SymbolicScope:
    if scope is not None and constraints:
        raise ValueError(
            f"{what}: constraints are for a new scope; pass either constraints or scope."
        )
    return SymbolicScope(constraints) if scope is None else scope


def symbolic_shape(
    shape_spec: str,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """Parses a shape with symbolic dimensions: `symbolic_shape("a, 2*b, 8")`.

    Args:
      shape_spec: comma-separated dimensions: sums of products of variables and integers, with
        `floordiv`, `mod`, `max`, `min`; `_` and `...` are replaced by sizes of `like`.
      constraints: comparisons that callers guarantee, for a new scope: `["a >= 3", "b <= a"]`.
      scope: of other dimensions that these are combined with.

    Raises:
      ValueError: for an invalid shape string, or if both `constraints` and `scope` are given.
    """
    scope = _scope("symbolic_shape", constraints, scope)
    entries = [e.strip() for e in _entries(shape_spec)]
    sizes = None if like is None else tuple(like)
    if "..." in entries:
        if sizes is None or entries.count("...") > 1 or entries[-1] != "...":
            raise ValueError(
                f"symbolic_shape: '...' in {shape_spec!r} may occur only once, at the end; it "
                "represents the remaining sizes of `like`."
            )
        entries = [*entries[:-1], *["_"] * (len(sizes) - len(entries) + 1)]
    found = []
    for i, entry in enumerate(entries):
        if entry == "_":
            if sizes is None or i >= len(sizes):
                raise ValueError(
                    f"symbolic_shape: '_' in {shape_spec!r} stands for a size of `like`, which "
                    f"has no dimension {i}."
                )
            found.append(sizes[i])
        else:
            found.append(_parsed(entry, scope, f"symbolic_shape: {shape_spec!r}"))
    if sizes is not None and len(found) != len(sizes):
        raise ValueError(
            f"symbolic_shape: {shape_spec!r} has {len(found)} dimensions; like has {len(sizes)}."
        )
    return tuple(found)


def is_symbolic_dim(p: Any) -> bool:
    """Whether a dimension is symbolic."""
    return isinstance(p, Dim)


def symbolic_args_specs(
    args: Any,
    shapes_specs: Any,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """The types of a pytree of arguments, with shapes from strings.

    Args:
      args: arrays, or `ShapeDtypeStruct`s, which provide dtypes, and sizes for `_` and `...`.
      shapes_specs: a string as for `symbolic_shape`: one for all, or a pytree of them that is a
        prefix of `args` (also a list for a tuple); None for the shapes of `args`.
      constraints, scope: see `symbolic_shape`.

    Returns:
      A pytree of `ShapeDtypeStruct`s.
    """
    one = _scope("symbolic_args_specs", constraints, scope)

    def spec(text: str | None, arg: Any) -> ShapeDtypeStruct:
        like = ShapeDtypeStruct.like(arg)
        shape = symbolic_shape("..." if text is None else text, scope=one, like=like.shape)
        return ShapeDtypeStruct(shape, like.dtype, weak_type=like.weak_type)

    if isinstance(args, tuple) and isinstance(shapes_specs, list):
        shapes_specs = tuple(shapes_specs)
    none = lambda x: x is None  # noqa: E731
    return map(spec, broadcast(shapes_specs, args, none), args, is_leaf=none)
