"""`Op`: one primitive operation, with everything the system knows about it in one record.

    sin = unary("sin", FLOATING, hlo="sine", jvp=lambda t, x, out: mul(t, cos(x)))

Calling an op binds it: the current interpreter receives it. Arrays are positional, static metadata
is keyword and hashable. A rule that is missing raises an error that names op, transform and field.

The fields, and how they are called (`**p` are the op's parameters):

    type_rule(*types, **p)            → ArrayType, or a tuple of them when `multiple`
    dims(*types, **p)                 → Dims: how dimensions belong together (types/dims.py)
    lower(e, ins, outs, *xs, **p)     → SSA values. `e` is the emitter, `ins` and `outs` the types.
    jvp(primals, tangents, **p)       → (result, tangent). A tangent of None is a symbolic zero.
    transpose(ct, *args, **p)         → one cotangent (or None) per argument; linear arguments
                                        arrive as `Linear(type)`, the others as values.
    batch(size, args, dims, **p)      → (result, dim). A dim of None is an unbatched operand.
    split(interpreter, op, args, p)   → results; for ops that hold programs: partial evaluation.
    stage(interpreter, args, p)       → (args, p), with the functions it holds staged to programs.
    eager(args, p)                    → results; for ops that run user functions when eager.
    sequence(p, with_token)           → (params, at, out): the op with a token of ordered effects
                                        (core/ordering.py) as operand `at` and result `out`.

The `batch` rules of ops that hold programs, and of the families "custom" and "collective", also get
`mapped`, the axis (transforms/batch.py).
With `multiple`, results, tangents, cotangents and dims are lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.types.array_type import ArrayType

INFERENCE_CACHE_SIZE = 8192


class Op:
    """One primitive operation. See the module's text for the fields."""

    __slots__ = (
        "name", "type_rule", "dims", "lower", "jvp", "transpose", "batch", "split", "stage",
        "eager", "sequence", "effects", "multiple", "programs", "family", "inferred",
    )

    def __init__(
        self,
        name: str,
        *,
        type_rule: Callable[..., Any],
        lower: Callable[..., Any] | None = None,
        dims: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
        transpose: Callable[..., Any] | None = None,
        batch: Callable[..., Any] | None = None,
        split: Callable[..., Any] | None = None,
        stage: Callable[..., Any] | None = None,
        eager: Callable[..., Any] | None = None,
        sequence: Callable[..., Any] | None = None,
        effects: frozenset[Any] = frozenset(),
        multiple: bool = False,
        programs: tuple[str, ...] = (),
        family: str = "",
    ):
        if name in OPS:
            raise ValueError(f"there is an op named {name!r} already")
        self.name = name
        self.type_rule = type_rule
        self.dims = dims
        self.lower = lower
        self.jvp = jvp
        self.transpose = transpose
        self.batch = batch
        self.split = split
        self.stage = stage
        self.eager = eager
        self.sequence = sequence
        self.effects = effects
        self.multiple = multiple
        self.programs = programs
        self.family = family
        self.inferred: dict[tuple[Any, ...], Any] = {}
        OPS[name] = self

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


class ForgetfulCache(dict[Any, Any]):
    """Keeps nothing: for `Op.inferred` of ops whose parameters hold user functions."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


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
