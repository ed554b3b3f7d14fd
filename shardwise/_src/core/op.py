"""`Op`: one primitive operation, with everything the system knows about it in one frozen record.

    sin = unary("sin", FLOATING, hlo="sine", jvp=lambda t, x, out: mul(t, cos(x)))

Calling an op binds it: the current interpreter receives it. Arrays are positional; static metadata
is keyword-only and hashable. A missing rule raises an error that names op, transform and field.

Rules are functions that receive the op as first argument, like methods, so that similar ops share
their rules. They are called as follows (`**p` are the op's parameters):

    type_rule(op, *types, **p)            → ArrayType, or a tuple of them when `multiple`
    dims(op, *types, **p)                 → Dims: how dimensions correspond (types/dims.py)
    manual_axes(op, axes, **p)            → the `ManualAxisType` of results, from the one that
                                            follows from the operands; for ops that change it.
    lower(op, e, ins, outs, *xs, **p)     → SSA values. `e` is the emitter, `ins`, `outs` the types.
    jvp(op, primals, tangents, **p)       → (result, tangent). A tangent of None is a symbolic zero.
    transpose(op, ct, *args, **p)         → one cotangent (or None) per argument; linear arguments
                                            arrive as `Linear(type)`, other arguments as values.
    batch(op, mapped, args, dims, **p)    → (result, dim). `mapped` is the axis, of size
                                            `mapped.size`. A dim of None is an unbatched operand.
    partial_eval(op, interpreter, args, p) → results; for ops that contain programs.
    stage(op, interpreter, args, p)       → (args, p), with the functions that the op contains
                                            staged to programs.
    eager(op, args, p)                    → results; for ops that run user functions when eager.
    enter(op, inside, state, args, **p)   → (results, state); for ops that contain programs: the op
                                            with a state passed through them, by which a transform
                                            enters them: `inside` (transforms/entering.py) is what
                                            it does there. Ops with ordered effects take the token
                                            (effects/ordering.py) themselves.
    windows(op, args, **p)                → (x, indices, dims, sizes): for ops that read or write at
                                            positions in `x`: the starts of windows of these sizes,
                                            vectors along the last dimension of `indices`, whose
                                            components are along `dims`. None for no places.
    host(op, **p)                         → the host function that the compiled op calls.
    expand(op, types, p, platform)        → the program equivalent to the op on a platform, which is
                                            lowered instead of it (control/expand.py); or None.
    cost(op, types, p)                    → flops, transcendentals and bytes of one run, for ops
                                            that compilers do not see into (jit/costs.py).
    excess(op, types, p, target)          → why the op needs more memory than a core of a machine
                                            (a `target_machines.Target`) has; "" if it may fit.
    prune(op, eqn, used)                  → the equation without what only unused results need; or
                                            None.

With `multiple`, results, tangents, cotangents and dims are lists.

What concerns only ops that contain programs is in their `contains`, a `Programs`.

The other fields are facts. Code that depends on a property of an op reads one of these fields,
never the op's name or the names of its parameters; so code written earlier treats a new op
correctly. The defaults hold for plain arithmetic.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Concatenate

from shardwise._src.base.caches import register
from shardwise._src.base.context import CURRENT, current
from shardwise._src.base.interrupts import import_module
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.abstract import ManualAxisType
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims

INFERENCE_CACHE_SIZE = 8192

Types = Sequence[ArrayType]
Values = Sequence[Any]
Entered = tuple[list[Any], list[Any]]  # results, and the state
# The rules. Operands and parameters that follow (`...`) differ by op.
TypeRule = Callable[Concatenate["Op", ...], ArrayType | Types]
DimsRule = Callable[Concatenate["Op", ...], Dims]
ManualAxesRule = Callable[Concatenate["Op", ManualAxisType, ...], ManualAxisType]
LowerRule = Callable[Concatenate["Op", Any, Types, Types, ...], str | Sequence[str]]
JvpRule = Callable[Concatenate["Op", Values, Values, ...], tuple[Any, Any]]
TransposeRule = Callable[Concatenate["Op", Any, ...], Values]
BatchRule = Callable[Concatenate["Op", Any, Values, Sequence[int | None], ...], tuple[Any, Any]]
ProcessRule = Callable[["Op", Any, Values, dict[str, Any]], Any]
EagerRule = Callable[["Op", Sequence[Any], dict[str, Any]], Any]
EnterRule = Callable[Concatenate["Op", Any, list[Any], list[Any], ...], Entered]
WindowsRule = Callable[Concatenate["Op", Values, ...], tuple[Any, Any, Any, Any] | None]
HostRule = Callable[Concatenate["Op", ...], Any]
ExpandRule = Callable[["Op", Types, dict[str, Any], Platform], Any]
CostRule = Callable[["Op", Types, dict[str, Any]], tuple[int, int, int]]
ExcessRule = Callable[["Op", Types, dict[str, Any], Any], str]
PruneRule = Callable[["Op", Any, list[bool]], Any]
EvalRule = Callable[Concatenate["Op", Callable[..., Any], list[Any], ...], Any]
KeyReuseRule = Callable[Concatenate["Op", Any, Values, ...], Any]
RematRule = Callable[["Op", Callable[[Any], Any], Any], tuple[Any, Any, Any]]


class Elements(enum.Enum):
    """What an op does with the elements of its operands: numbers, or keys (types/extended.py)."""

    COMPUTED = enum.auto()  # numbers from numbers, possibly NaN; keys are rejected
    CONVERTED = enum.auto()  # each converted, NaN stays NaN; keys are rejected
    MOVED = enum.auto()  # unchanged, to other positions; also keys, uninspected
    EQUAL = enum.auto()  # compared: keys are equal if all of their integers are
    UNEQUAL = enum.auto()  # compared: keys are unequal if one of their integers is
    KNOWN = enum.auto()  # keys as keys: it reads them, or passes them to its programs


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs that an op contains, and the rules for them.

    params:     the parameters that are programs, or tuples of them, once the op is staged.
    is_call:    whether the op only calls the one program it contains, which may replace it.
    binds:      the parameter with the named axes that only its programs see; or None.
    eval:       eval(op, run, args, **p) runs the programs as the op does, with `run(program, args)
                → results`; for `debug_nans`. It may return an equation that `run` cannot run by
                itself.
    key_reuse:  key_reuse(op, flow, args, **p) → which keys the results are, for loops and branches;
                for `debug_key_reuse` (running/key_reuse.py).
    remat:      remat(op, inside, eqn) → (first, saved, again): the equation that also returns the
                values saved inside the programs, these values, and the equation that computes the
                results from them. `inside(program)` returns the same for a program
                (autodiff/recompute.py).
    """

    params: tuple[str, ...]
    _: KW_ONLY
    is_call: bool = False
    binds: str | None = None
    eval: EvalRule | None = None
    key_reuse: KeyReuseRule | None = None
    remat: RematRule | None = None


_NO_PROGRAMS = Programs(())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """One primitive operation. See the module docstring for the rules.

    effects:     its side effects; an op with effects is retained even if its results are unused.
    multiple:    whether it returns a list of results.
    contains:    the programs that it contains once it is staged, and their rules; see `Programs`.
    shardings:   the parameters that are shardings; its type rule determines the results' sharding.
    named_axes:  the parameters with the named axes it is over, and with their sizes; or None.
    user_code:   whether parameters contain user functions, which rules run.
    transposes_zero: whether its transpose may return something for cotangents that are zero.
    elements:    what becomes of the operands' elements; see `Elements`.
    pointwise:   whether an element of a result depends only on the operands' elements at the same
                 position; scalars are compatible with every shape.
    instruction: the equivalent StableHLO instruction, where operands and result are of one type.
    contraction: whether it sums products over dimensions that two operands share.
    consumes_key: whether it consumes keys, which must not be used again.
    is_expensive: whether its work per element grows with their number, or it has loops, or waits
                 for something: then optimization pays off for small arrays, too.
    needs_fusion: whether its module needs XLA's fusion passes, also in a small program: XLA cannot
                 compile scatters on CPU without them.
    own_values:  whether results contain values that its rule derives from the dtype, such as the
                 identity of a reduction. For a platform that lacks the dtype, the rule itself then
                 computes the rest in a wider one (`e.widened`).
    divisor:     the number of the operand by which it divides; or None.
    has_partitioner_callback: whether the compiler calls user functions for it: its executable is
                 valid in this process only, and for its devices.
    foreign:     the user's primitive that it represents (extend/primitive.py); or None.
    aliases:     JAX's names of its parameters → their names, where these differ; a function of the
                 parameters for values that the op does not have itself.
    programs:    the parameters that contain programs: those of `contains`.
    inferred:    cached result types, by operand types and parameters. None for ops that contain
                 programs or user functions, which the cache would keep alive.
    """

    name: str
    _: KW_ONLY
    type_rule: TypeRule
    dims: DimsRule | None = None
    manual_axes: ManualAxesRule | None = None
    lower: LowerRule | None = None
    jvp: JvpRule | None = None
    transpose: TransposeRule | None = None
    batch: BatchRule | None = None
    partial_eval: ProcessRule | None = None
    stage: ProcessRule | None = None
    eager: EagerRule | None = None
    enter: EnterRule | None = None
    windows: WindowsRule | None = None
    host: HostRule | None = None
    expand: ExpandRule | None = None
    cost: CostRule | None = None
    excess: ExcessRule | None = None
    prune: PruneRule | None = None
    effects: frozenset[Any] = frozenset()
    multiple: bool = False
    contains: Programs = _NO_PROGRAMS
    shardings: tuple[str, ...] = ()
    named_axes: tuple[str, str] | None = None
    user_code: bool = False
    transposes_zero: bool = False
    elements: Elements = Elements.COMPUTED
    pointwise: bool = False
    instruction: str | None = None
    contraction: bool = False
    consumes_key: bool = False
    is_expensive: bool = False
    needs_fusion: bool = False
    own_values: bool = False
    divisor: int | None = None
    has_partitioner_callback: bool = False
    foreign: Any = None
    aliases: dict[str, str | Callable[[Any], Any]] | None = None
    programs: tuple[str, ...] = field(default=(), init=False)
    inferred: dict[tuple[Any, ...], Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.foreign is None and self.name in OPS:
            raise ValueError(f"an op named {self.name!r} already exists")
        object.__setattr__(self, "programs", self.contains.params)
        if self.programs and self.elements is Elements.COMPUTED:  # by these, which know keys
            object.__setattr__(self, "elements", Elements.KNOWN)
        if not (self.programs or self.user_code):
            object.__setattr__(self, "inferred", {})
        if self.foreign is None:
            OPS[self.name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        try:
            return current().interpreter.process(self, args, params)
        except Exception as error:
            pass_on(error)
            raise

    # JAX's names, for interpreters of programs. No op takes functions before its operands.

    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False

    def bind(self, *args: Any, **params: Any) -> Any:
        return self(*args, **own_names(self, params))

    def bind_with_trace(self, trace: Any, args: Any, avals: Any, params: dict[str, Any]) -> Any:
        """The same with another interpreter current; the types of operands are known."""
        token = CURRENT.set(current().under(trace))
        try:
            return self.bind(*args, **params)
        finally:
            CURRENT.reset(token)

    @property
    def multiple_results(self) -> bool:
        return self.multiple

    @property
    def impl(self) -> Callable[..., Any]:
        """The function that runs it eagerly: `impl(*arrays, **params)`."""
        rule = self.eager
        return rule.impl if isinstance(rule, _Replaced) else _OwnImpl(self, rule)

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces `impl`, to observe or change how it runs when it is called eagerly, by itself.

        Programs, of `jit` and of functions that run as one, do not call it. This is for debugging:
        it is the only field of a record that changes.
        """
        rule: Any = _Replaced(impl)
        if isinstance(impl, _OwnImpl) and impl.op is self:
            rule = impl.rule
        object.__setattr__(self, "eager", rule)
        return impl

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of `bind`: the parameters of an equation."""
        return params

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        if self.foreign is not None:
            raise TypeError(
                f"{self.name}: a primitive of `shardwise.extend.core.Primitive` has rules that are "
                "functions of this process, so a program with it cannot be pickled."
            )
        return reduced("op", self.name)

    def is_staged(self, params: dict[str, Any]) -> bool:
        """Whether the functions that the op contains are already programs."""
        return all([name in params for name in self.programs])

    def missing(self, field: str, transform: str) -> NotImplementedError:
        """The error for a rule that this op does not define."""
        return NotImplementedError(
            f"[{self.name}] cannot be used under {transform}: its record has no `{field}` rule."
        )


class _OwnImpl:
    """An op as a function of arrays, as its own rules run it eagerly."""

    __slots__ = ("op", "rule")

    def __init__(self, op: Op, rule: EagerRule | None):
        self.op, self.rule = op, rule

    def __call__(self, *args: Any, **params: Any) -> Any:
        params = own_names(self.op, params)
        if self.rule is not None:
            return self.rule(self.op, args, params)
        return eval_trace().run_op(self.op, args, params)


class _Replaced:
    """The eager rule by a function of the user."""

    __slots__ = ("impl",)

    def __init__(self, impl: Callable[..., Any]):
        self.impl = impl

    def __call__(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        result = self.impl(*args, **params)
        return list(result) if op.multiple else result


class Params(dict[str, Any]):
    """Parameters that can also be looked up by JAX's names."""

    __slots__ = ("aliases",)

    def __init__(self, params: dict[str, Any], aliases: dict[str, Any]):
        super().__init__(params)
        self.aliases = aliases

    def __missing__(self, name: str) -> Any:
        own = self.aliases[name]
        return self[own] if isinstance(own, str) else own(self)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self or name in self.aliases else default

    def copy(self) -> Params:
        return Params(self, self.aliases)

    def pop(self, name: str, *default: Any) -> Any:
        """Removes and returns the value under a name, or under the op's own name for it."""
        own = name if name in self else self.aliases.get(name, name)
        return super().pop(own, *default) if isinstance(own, str) else own(self)


def own_names(op: Op, params: dict[str, Any]) -> dict[str, Any]:
    """Parameters by the op's own names; values under JAX's names take precedence."""
    aliases = op.aliases
    if aliases is None or not any(name in aliases for name in params):
        return params
    found = {n: v for n, v in params.items() if n not in aliases}
    named = [(aliases[n], v) for n, v in params.items() if n in aliases]
    return found | {n: v for n, v in named if isinstance(n, str)}


OPS: dict[str, Op] = {}


class BoundOp:
    """An op with its parameters, for repeated calls.

    runs: the functions that run it eagerly, by context and signatures.
    """

    __slots__ = ("op", "params", "runs")

    def __init__(self, op: Op, params: dict[str, Any]):
        self.op = op
        self.params = params
        self.runs: dict[tuple[Any, ...], Callable[[Any], Any]] = {}

    def __call__(self, *args: Any) -> Any:
        try:
            return current().interpreter.process_ready(self, args)
        except Exception as error:
            pass_on(error)
            raise


def _named(name: str) -> Op:
    return OPS[name] if name in OPS else every_op()[name]


def every_op() -> dict[str, Op]:
    """The ops of the library by name, once every module that makes some is imported."""
    import pkgutil  # few programs need it

    for module in pkgutil.walk_packages(sys.modules["shardwise._src"].__path__, "shardwise._src."):
        if not module.name.startswith("shardwise._src.testing."):
            import_module(module.name)
    return OPS


read_by("op", _named)


def _clear_inferred() -> None:
    for op in list(OPS.values()):
        if op.inferred is not None:
            op.inferred.clear()


register(
    __name__, "inferred types",
    lambda: sum([len(op.inferred) for op in list(OPS.values()) if op.inferred]), _clear_inferred,
)  # fmt: skip


class Linear:
    """Represents, in a transpose rule, an argument that the result is linear in."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Linear({self.aval.str_short(True)})"


def is_linear(x: Any) -> bool:
    return x.__class__ is Linear
