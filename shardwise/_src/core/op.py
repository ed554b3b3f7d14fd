"""`Op`: one primitive operation, with everything the system knows about it in one frozen record.

    sin = unary("sin", FLOATING, hlo="sine", jvp=lambda t, x, out: mul(t, cos(x)))

Calling an op binds it: the current interpreter receives it. Arrays are positional, static metadata
is keyword and hashable. A rule that is missing raises an error that names op, transform and field.

Rules are functions that get the op first, as methods get their object, so that ops of a kind share
theirs. How they are called (`**p` are the op's parameters):

    type_rule(op, *types, **p)            → ArrayType, or a tuple of them when `multiple`
    dims(op, *types, **p)                 → Dims: how dimensions belong together (types/dims.py)
    lower(op, e, ins, outs, *xs, **p)     → SSA values. `e` is the emitter, `ins`, `outs` the types.
    jvp(op, primals, tangents, **p)       → (result, tangent). A tangent of None is a symbolic zero.
    transpose(op, ct, *args, **p)         → one cotangent (or None) per argument; linear arguments
                                            arrive as `Linear(type)`, the others as values.
    batch(op, mapped, args, dims, **p)    → (result, dim). `mapped` is the axis, of size
                                            `mapped.size`. A dim of None is an unbatched operand.
    split(op, interpreter, args, p)       → results; for ops that hold programs: partial evaluation.
    stage(op, interpreter, args, p)       → (args, p), with the functions it holds staged to
                                            programs.
    eager(op, args, p)                    → results; for ops that run user functions when eager.
    sequence(op, p, with_token)           → (params, at, out): the op with a token of ordered
                                            effects (core/ordering.py) as operand `at` and result
                                            `out`.

With `multiple`, results, tangents, cotangents and dims are lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.types.array_type import ArrayType

INFERENCE_CACHE_SIZE = 8192
Rule = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """One primitive operation. See the module's text for the rules."""

    name: str
    _: KW_ONLY
    type_rule: Rule
    dims: Rule | None = None
    lower: Rule | None = None
    jvp: Rule | None = None
    transpose: Rule | None = None
    batch: Rule | None = None
    split: Rule | None = None
    stage: Rule | None = None
    eager: Rule | None = None
    sequence: Rule | None = None
    effects: frozenset[Any] = frozenset()
    multiple: bool = False
    programs: tuple[str, ...] = ()
    family: str = ""
    cached: bool = True
    inferred: dict[tuple[Any, ...], Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.name in OPS:
            raise ValueError(f"there is an op named {self.name!r} already")
        if self.cached and not self.programs:
            object.__setattr__(self, "inferred", {})
        OPS[self.name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        return current().interpreter.process(self, args, params)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _op_named, (self.name,)

    def missing(self, field: str, transform: str) -> NotImplementedError:
        """The error for a rule that this op does not have."""
        return NotImplementedError(
            f"[{self.name}] cannot be used under {transform}: its record has no `{field}` rule."
        )


OPS: dict[str, Op] = {}


def _op_named(name: str) -> Op:
    return OPS[name]


class Linear:
    """Stands, in a transpose rule, for an argument that the result is linear in."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Linear({self.aval.str_short(True)})"


def is_linear(x: Any) -> bool:
    return x.__class__ is Linear
