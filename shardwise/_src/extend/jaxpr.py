"""Programs as data, under JAX's names: the API for writing interpreters of programs.

A `Program` is both a jaxpr and a closed jaxpr in JAX's sense: it contains its constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shardwise._src.base.context import CURRENT, current
from shardwise._src.control.call import calling, lower_call, partial_eval_call
from shardwise._src.core.infer import is_operand, type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Atom, Equation, Program, Var, eval_program
from shardwise._src.extend.linear_util import WrappedFun, wrap_init
from shardwise._src.extend.primitive import Primitive
from shardwise._src.lax.tokens import is_token
from shardwise._src.transforms.batch import Batch, with_dim, without_dim
from shardwise._src.transforms.stage import Stage, stage
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import float0, is_inexact
from shardwise._src.values.value import Value

Effect = object  # what programs do in addition to returning results: anything with a hash
Effects = frozenset
ParamDict = dict[str, Any]
no_effects: frozenset[Any] = frozenset()
array_types: set[type] = {Value, np.ndarray, np.generic, bool, int, float, complex}


class _OfPrograms(type):
    """Makes every program an instance of both classes."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Program)


class Jaxpr(Program, metaclass=_OfPrograms):
    """Builds a program from its components; every `Program` is an instance.

    Without values for `constvars` these are its first arguments: `ClosedJaxpr` sets their values.
    """

    __slots__ = ()

    def __new__(
        cls,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[Equation],
        effects: Any = no_effects,
        debug_info: Any = None,
        is_high: bool = False,
    ) -> Program:  # pyright: ignore[reportInvalidConstructorReturnType]
        name = getattr(debug_info, "func_name", "f")
        return Program([*constvars, *invars], outvars, eqns, name=name)


class ClosedJaxpr(Program, metaclass=_OfPrograms):
    """Sets the values of a program's constants; every `Program` is an instance."""

    __slots__ = ()

    def __new__(cls, jaxpr: Program, consts: Sequence[Any] = ()) -> Program:  # pyright: ignore[reportInvalidConstructorReturnType]
        return jaxpr.replace(consts=tuple(consts))


class DropVar(Var):
    """An unused result. Programs of this library have ordinary variables instead."""

    __slots__ = ()


class _TokenClass(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Value) and is_token(x)


class Token(metaclass=_TokenClass):
    """The order of effects as a value: the class of tokens, which are arrays without content."""


class AbstractToken:
    """The type of `Token`s."""

    def __repr__(self) -> str:
        return "AbstractToken()"


class TraceTag:
    """Distinguishes the interpreters of one transformed function from those of another."""


def new_jaxpr_eqn(
    invars: Sequence[Atom],
    outvars: Sequence[Var],
    primitive: Op | Primitive,
    params: dict[str, Any],
    effects: Any = no_effects,
    source_info: Any = None,
    ctx: Any = None,
) -> Equation:
    """An equation; `source_info` is that of another equation, or None."""
    op = primitive.op if isinstance(primitive, Primitive) else primitive
    site = getattr(source_info, "traceback", None)
    return Equation(op, tuple(invars), tuple(outvars), params, site)


def gensym(suffix: str = "") -> Callable[[ArrayType], Var]:
    """A function that makes new variables of given types; they have names only in print."""
    return lambda aval: Var(aval)


def jaxpr_as_fun(closed_jaxpr: Program) -> Callable[..., list[Any]]:
    """A program as a function: `(*arguments)` → list of results."""

    def run(*args: Any) -> list[Any]:
        return eval_program(closed_jaxpr, args)

    run.__name__ = closed_jaxpr.name
    return run


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Program]:
    """The programs among the parameters of an equation."""
    for value in params.values():
        held = value if isinstance(value, tuple | list) else (value,)
        yield from (x for x in held if isinstance(x, Program))


def subjaxprs(jaxpr: Program) -> Iterator[Program]:
    """The programs in the parameters of a program's equations."""
    return itertools.chain.from_iterable(jaxprs_in_params(e.params) for e in jaxpr.eqns)


def mapped_aval(size: int, axis: int | None, aval: ArrayType) -> ArrayType:
    """The type of a slice along an axis of `size` elements; unchanged if the axis is None."""
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise ValueError(
            f"mapped_aval: dimension {axis} of {aval.str_short(True)} must be of size {size}."
        )
    return without_dim(aval, axis)


def unmapped_aval(
    size: int, axis: int | None, aval: ArrayType, explicit_mesh_axis: Any = None
) -> ArrayType:
    """The type of `size` values stacked along a new axis; unchanged if the axis is None."""
    return aval if axis is None else with_dim(aval, size, axis, None)


def valid_jaxtype(x: Any) -> bool:
    """Whether functions accept this as an array."""
    try:
        return is_operand(x) and type_of(x) is not None
    except TypeError:  # of a dtype that arrays do not have
        return False


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """The dtype of tangents: float0 for integers and booleans."""
    return primal_dtype if is_inexact(primal_dtype) else float0


class _Trace:
    """Represents the state of all transforms; equal if the state is the same."""

    __slots__ = ("_context",)

    def __init__(self, context: Any):
        self._context = context

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Trace) and self._context.interpreter is other._context.interpreter

    def __hash__(self) -> int:
        return id(self._context.interpreter)


def get_opaque_trace_state(convention: str = "flax") -> _Trace:
    """An object that compares equal in two places if the same transforms are active in both.

    convention: the library that it is for; ignored.
    """
    return _Trace(current())


def find_top_trace(_: Sequence[Any]) -> Interpreter:
    """The innermost interpreter of the values; the eval context if there are only arrays."""
    owners, chain = [x.interpreter for x in _ if hasattr(x, "interpreter")], [*_chain()]
    return next((i for i in chain if any(owner is i for owner in owners)), chain[-1])


@contextmanager
def take_current_trace() -> Iterator[Interpreter]:
    """Yields the current interpreter."""
    yield current().interpreter


@contextmanager
def set_current_trace(trace: Interpreter) -> Iterator[None]:
    """Makes an interpreter current."""
    token = CURRENT.set(current().under(trace))
    try:
        yield
    finally:
        CURRENT.reset(token)


def concrete_or_error(force: Callable[[Any], Any] | None, val: Any, context: str = "") -> Any:
    """`force(val)` of a known value; for a traced value, an error that begins with `context`."""
    if isinstance(val, Tracer):
        known = val.concrete()
        if known is None:
            raise val.needed_for_shape(context or "a value")
        val = known
    return val if force is None else force(val)


def call_impl(f: WrappedFun, *args: Any, **params: Any) -> Any:
    """Runs a function with its transformations."""
    return f.call_wrapped(*args)


def nonempty_axis_env() -> bool:
    """Whether a named axis is in scope."""
    return bool(current().axes)


def axis_names() -> list[Any]:
    """The named axes in scope."""
    return [axis.name for axis in current().axes]


def under_jit() -> bool:
    """Whether a function is being staged."""
    return any(isinstance(i, Stage) for i in _chain())


def under_vmap() -> bool:
    """Whether a function is being mapped by `vmap`."""
    return any(isinstance(i, Batch) for i in _chain())


def _chain() -> Iterator[Interpreter]:
    here = current().interpreter
    while here is not None:
        yield here
        here = here.parent


class CallPrimitive(Primitive):
    """A user-defined operation that calls a function, with all the rules of nested `jit`.

        named = CallPrimitive("named")
        named.bind(fun, x, label="a")   # fun: a `WrappedFun`; runs it, or stages it as a program

    Its equations have the program as the parameter `call_jaxpr`, and the parameters of `bind`.
    """

    multiple_results = True
    call_primitive = True

    @property
    def op(self) -> Op:
        if self._op is None:
            self._op = calling(self.name, lower_call, partial_eval_call, is_call=True, foreign=self)
        return self._op

    def bind(self, *args: Any, subfuns: Sequence[WrappedFun] = (), **params: Any) -> list[Any]:
        """Calls a function: the first argument, or the only element of `subfuns`; or the program
        that is passed as `call_jaxpr`.

        Outside of every transform it runs the implementation, if there is one; otherwise it stages
        the function.
        """
        if "call_jaxpr" in params:
            subfuns = (wrap_init(jaxpr_as_fun(params.pop("call_jaxpr"))),)
        (fun,), args = (subfuns, args) if subfuns else (args[:1], args[1:])
        if current().interpreter.eager:
            impl = self.impl or (lambda fun, *args, **params: fun.call_wrapped(*args))
            return list(impl(fun, *args, **params))
        program, outer = stage(
            lambda *xs: list(fun.call_wrapped(*xs)), [type_of(x) for x in args], name=fun.__name__
        )
        return self.op(*outer, *args, program=program, **params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of `bind`: the function of an equation's program, and the rest."""
        rest = {k: v for k, v in params.items() if k != "program"}
        return {**rest, "subfuns": (wrap_init(jaxpr_as_fun(params["program"])),)}


call_p = CallPrimitive("call")
closed_call_p = CallPrimitive("closed_call")
