"""Common code of functions with custom rules: arguments, calls, zeros, messages.

A call of such a function is one op, whose parameters contain a `Rule`: the user's functions between
flat values. Eagerly, the function is called; under a transform that the rule is for, the rule is
called instead; under tracing, the function becomes a program, and the rule waits for the transform.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic

import numpy as np

from shardwise._src.base.context import CURRENT
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.base.positions import join, split
from shardwise._src.control.bodies import reject_own_effects
from shardwise._src.control.call import call, opaque_call
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import HOST, is_array, is_operand, type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import consts_to_args
from shardwise._src.core.structure import shared
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr, to_register
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, tree_difference
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.elementwise import copy
from shardwise._src.refs.refs import reject_returned
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import (
    MappedAxis,
    batch_program,
    moved_into,
    run_batched,
    to_dim,
)
from shardwise._src.transforms.stage import stage
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import float0, is_inexact
from shardwise._src.values.convert import cast


def by_position(
    signature: inspect.Signature, called: str, rule: str, args: tuple, kwargs: dict
) -> tuple:
    """The arguments of a call by position, with defaults for missing ones.

    called: the function being called; rule: the function that takes positional arguments.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{called}{signature} cannot be called with these arguments: {error}."
        ) from None
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"{called}: {rule} takes arguments by position, so {', '.join(bound.kwargs)} cannot be "
            "keyword-only."
        )
    return bound.args


class SymbolicZero:
    """A tangent or cotangent that is known to be zero, for rules with `symbolic_zeros=True`."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType):
        self.aval = aval

    @staticmethod
    def from_primal_value(value: Any) -> SymbolicZero:
        return SymbolicZero(type_of(value).strong())

    def __getattr__(self, name: str) -> Any:
        """`shape`, `dtype` and other attributes of the type."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.aval, name)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.str_short(True)})"


class CustomFunction(Generic[P, T]):
    """A function with a rule. Base of `custom_jvp`, `custom_vjp` and `custom_vmap`.

    nondiff_argnums: positions of arguments that are passed to the rules unchanged.

    kind:  the name of the decorator.
    fixed: what the names of its options for these arguments begin with.
    lacks: the message for a function whose rule has not been set yet.
    op:    the op for calls.
    ready: whether the rule has been set.
    """

    kind = ""
    fixed = "nondiff_arg"
    lacks = ""
    op: Any = None

    def __init__(
        self,
        fun: Callable[P, T],
        nondiff_argnums: Sequence[int] | int = (),
        nondiff_argnames: Sequence[str] | str = (),
    ):
        if not callable(fun):
            raise TypeError(f"{self.kind} takes a function; got {fun!r}.")
        functools.update_wrapper(self, fun)
        self.ready = False
        self.fun = fun
        self.name = name_of(fun)
        self.plain = _takes_positions_only(fun)
        nums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        names = nondiff_argnames
        names = (names,) if isinstance(names, str) else tuple(names)
        self.nondiff = self._places(nums, names) if nums or names else ()

    def _places(self, nums: tuple[int, ...], names: tuple[str, ...]) -> tuple[int, ...]:
        """Positions of the arguments that are not differentiated."""
        parameters = self.signature.parameters
        more = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        count, listed = len(parameters), list(parameters)
        strange = [n for n in nums if n < -count or (n >= count and not more)]
        if strange or not {*names} <= {*listed}:
            what, given = ("nums", nums) if strange else ("names", names)
            raise ValueError(
                f"{self.kind} function {self.name}: {self.fixed}{what}={given} must name its "
                f"arguments, which are {self.signature}."
            )
        return tuple(
            sorted({n + count if n < 0 else n for n in nums} | {listed.index(n) for n in names})
        )

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.fun)

    @hides_frames
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; differentiated (or batched) by the rule."""
        if not self.ready:
            raise AttributeError(
                f"{self.kind} function {self.name} has no {self.lacks.format(self.name)}."
            )
        if CURRENT.get().interpreter.eager:
            fun: Callable[..., Any] = self.fun
            if kwargs or not all(map(is_array, args)):
                given, named = self._with_arrays(args, kwargs)
                result = fun(*given, **named)
            else:
                result = fun(*args)
            if not is_array(result):
                leaves, tree = flatten(result)
                reject_returned(f"{self.kind} function {self.name}", leaves)
                result = tree.unflatten(list(map(as_array, leaves)))
            return result  # pyright: ignore[reportReturnType] (the result of `fun`)
        fixed, rest = self.separated(self.positional(args, kwargs))
        leaves, tree = flatten(tuple(rest))
        return self.called(fixed, leaves, tree)

    def _with_arrays(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments with NumPy arrays converted; non-differentiable ones unchanged."""
        if not self.nondiff:
            return without_numpy(args), without_numpy(kwargs)
        names = list(self.signature.parameters)
        fixed = {names[i] for i in self.nondiff if i < len(names)}
        given = [x if i in self.nondiff else without_numpy(x) for i, x in enumerate(args)]
        return tuple(given), {k: x if k in fixed else without_numpy(x) for k, x in kwargs.items()}

    def called(self, fixed: tuple, leaves: Sequence[Any], tree: Any) -> Any:
        """The result of a traced call, from its arguments."""
        rule = self.rule(fixed, tree)
        outs = self.op(*self.checked_leaves(leaves, tree), rule=rule)
        return rule.tree.unflatten(outs)

    def rule(self, fixed: tuple, tree: Any) -> Rule:
        """The rule for a call with these fixed arguments and this pytree of the others."""
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        """The method that sets a rule of the function inside, if that is a custom function."""
        inner = self.__dict__.get("fun")
        if name in _SETTERS and isinstance(inner, CustomFunction):
            return getattr(inner, name)
        raise AttributeError(f"{self.kind} functions have no attribute {name!r}.")

    def __repr__(self) -> str:
        return f"<{self.kind} function {self.name}>"

    def positional(self, args: tuple, kwargs: dict) -> tuple:
        """The arguments by position, with defaults for missing ones."""
        if not kwargs and self.plain:
            return args
        return by_position(
            self.signature, f"{self.kind} function {self.name}", "the derivative rule", args, kwargs
        )

    def separated(self, args: tuple) -> tuple[tuple, list[Any]]:
        """Non-differentiable arguments, and the others."""
        return split(args, self.nondiff)

    def merged(self, fixed: tuple, rest: Sequence[Any]) -> list[Any]:
        """All arguments in order."""
        return join(self.nondiff, fixed, rest)

    def checked_leaves(self, leaves: Sequence[Any], tree: Any) -> list[Any]:
        for i, x in enumerate(leaves):
            if not is_operand(x):
                raise TypeError(
                    f"{self.kind} function {self.name}: {path_in('args', tree, i)} is {x!r} of "
                    f"type {type(x).__name__}, which is not an array. Name its position in "
                    f"{self.fixed}nums if it is a constant.{to_register(x)}"
                )
        return list(leaves)


_SETTERS = ("defjvp", "defjvps", "defvjp", "defvjp_with_logs", "def_vmap")


def _takes_positions_only(fun: Callable) -> bool:
    """Whether a call without keyword arguments does not need the signature."""
    if isinstance(fun, functools.partial):  # its own keyword arguments are none of the call's
        return True
    code = getattr(fun, "__code__", None)
    if code is None:
        return False
    return not getattr(fun, "__defaults__", None) and not getattr(fun, "__kwdefaults__", None)


class Rule:
    """User functions of one call, on flat values. Equal for calls with equal functions and trees.

    key:    what determines equality: the user's function object, trees, fixed arguments.
    tree:   the pytree of the function's result, once the function or its rule has run.
    kind:   the name of the decorator.
    """

    kind: Any = ""
    __slots__ = ("name", "key", "tree")

    def __init__(self, name: str, key: tuple):
        self.name = name
        self.key = key
        self.tree: Any = None

    def __eq__(self, other: Any) -> bool:
        return other.__class__ is self.__class__ and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.name

    def fun(self, *values: Any) -> list[Any]:
        """The function, between flat values."""
        raise NotImplementedError


class CallRule(Rule):
    """The rule for a call of a custom function."""

    __slots__ = ("function", "fixed", "in_tree")

    def __init__(self, function: Any, fixed: tuple, in_tree: Any):
        super().__init__(function.name, (function, fixed, in_tree))
        self.function, self.fixed, self.in_tree = function, fixed, in_tree

    @property
    def kind(self) -> str:
        return self.function.kind

    def arguments(self, leaves: Sequence[Any]) -> list[Any]:
        """The arguments for the user's function."""
        return self.function.merged(self.fixed, self.in_tree.unflatten(leaves))

    def fun(self, *values: Any) -> list[Any]:
        given = self.arguments(list(map(as_array, values)))
        outs, self.tree = flatten(self.function.fun(*given))
        reject_returned(f"{self.kind} function {self.name}", outs)
        return outs


class BatchedRule(Rule):
    """A rule over values with batch dimensions; all results have one, the first."""

    __slots__ = ("inner", "mapped", "dims")

    def __init__(self, inner: Any, mapped: MappedAxis, dims: tuple):
        super().__init__(inner.name, (inner, mapped, dims))
        self.inner, self.mapped, self.dims = inner, mapped, dims

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def function(self) -> Any:
        return self.inner.function

    def fun(self, *values: Any) -> list[Any]:
        return map_flat(self.mapped, self.inner.fun, values, self.dims)


def as_array(x: Any) -> Any:
    """Converts numbers and NumPy arrays to arrays, for user functions; other values unchanged."""
    if not isinstance(x, HOST) or getattr(x, "dtype", None) == float0:
        return x
    # An op, so that a number in a program being traced does not become an argument of it.
    return copy(x) if np.ndim(x) == 0 else eval_trace().new_array(x)


def as_arrays(tree: Any) -> Any:
    """A pytree with numbers and NumPy arrays converted to arrays, as passed to users."""
    leaves, found = flatten(tree)
    return found.unflatten(list(map(as_array, leaves)))


def without_numpy(tree: Any) -> Any:
    """A pytree with NumPy arrays converted to arrays."""
    leaves, found = flatten(tree)
    if not any(isinstance(x, np.ndarray | np.generic) for x in leaves):
        return tree
    return found.unflatten(
        [as_array(x) if isinstance(x, np.ndarray | np.generic) else x for x in leaves]
    )


def pair_of(rule: str, result: Any, names: str) -> tuple[Any, Any]:
    """The result of a user's rule, which must be a pair. names: names of its elements."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TypeError(f"{rule} must return a pair {names}; it returned {short_repr(result)}.")
    return result[0], result[1]


def check_own_tree(rule: str, tree: Any, expected: Any, error: type[Exception] = TypeError) -> None:
    """Rejects a rule's result whose pytree differs from the function's; None: not known yet."""
    if expected is not None and tree != expected:
        where = tree_difference("that of the function", expected, "its own", tree, "out")
        raise error(
            f"{rule} must return a result with the function's own pytree structure; {where}."
        )


def filled(tangent: Any, aval: ArrayType, symbolic: bool) -> Any:
    """A tangent as passed to users: explicit zeros, `float0` for integers."""
    if symbolic and tangent is None:
        return SymbolicZero(aval.strong())
    if not is_inexact(aval.dtype):
        return np.zeros(aval.shape, float0)
    return zeros(aval.strong()) if tangent is None else tangent


def checked_tangent(tangent: Any, aval: ArrayType, wrong: Callable[[str], Exception]) -> Any:
    """A user's tangent for a value of type `aval`, checked; None if it is zero.

    wrong: makes the error from a description of the value received.
    """
    if tangent is None or not is_inexact(aval.dtype):
        return None
    if isinstance(tangent, SymbolicZero):
        if (tangent.shape, tangent.dtype) == (aval.shape, aval.dtype):
            return None
        raise wrong(f"{tangent!r}, where None would do,")
    if getattr(tangent, "dtype", None) == float0:
        if tangent.shape == aval.shape:
            return None
        raise wrong(f"float0{list(tangent.shape)}")
    if not is_operand(tangent):
        raise wrong(f"{tangent!r} of type {type(tangent).__name__}")
    t = type_of(tangent)
    if t.shape != aval.shape or (t.dtype != aval.dtype and not t.weak_type):
        raise wrong(t.str_short(True))
    return cast(tangent, aval.dtype)


def as_function_gives(
    values: list[Any], types: Sequence[ArrayType] | None, rule: Rule
) -> list[Any]:
    """A rule's results in exactly the types of the traced function; None: it is not traced."""
    if types is None:
        return values
    pairs = enumerate(zip(values, types, strict=True))
    return [_as_type(x, t, i, rule) for i, (x, t) in pairs]


def _as_type(x: Any, t: ArrayType, i: int, rule: Rule) -> Any:
    given = type_of(x)
    if given.shape == t.shape and (given.dtype == t.dtype or given.weak_type):
        return cast(x, t.dtype, t.weak_type)
    while rule.tree is None and isinstance(rule.key[0], Rule):  # the rule of a mapped function
        rule = rule.key[0]
    where = "out" if rule.tree is None else path_in("out", rule.tree, i)
    raise TypeError(
        f"the rule of {rule.kind} function {rule.name} must return a result with the types of the "
        f"function's result; {where} is of type {given.str_short(True)} and not "
        f"{t.str_short(True)}."
    )


# -- the ops' common rules --


def stage_rule(op: Op, interpreter: Interpreter, args: tuple, params: dict) -> tuple:
    """Traces the function; captured values become leading arguments."""
    if op.is_staged(params):
        return args, params
    rule = params["rule"]
    types = [type_of(a) for a in args]
    program, captured = stage(
        lambda *xs: rule.fun(*xs),
        types,
        transform=op.name.removesuffix("_call"),
        name=rule.name,
        parent=interpreter,
    )
    reject_own_effects(op.name.removesuffix("_call"), program)
    program, constants = consts_to_args(program)
    outside = (*constants, *captured)
    new = {"rule": rule, "program": shared(program), "num_consts": len(outside)}
    return (*outside, *args), new


def run_eagerly(op: Op, args: tuple, params: dict) -> list[Any]:
    if not op.is_staged(params):
        return params["rule"].fun(*args)
    return call(*args, program=params["program"])


def _jvp_rule(
    differentiated: Callable[..., tuple[list, list]],
    op: Op,
    primals: Any,
    tangents: Any,
    *,
    rule: Rule,
    program: Program | None = None,
    num_consts: int = 0,
) -> tuple[list, list]:
    """The user's rule, for the arguments after the captured values."""
    _reject_outside(rule, tangents[:num_consts])

    def typed(outs: list[Any]) -> list[Any]:
        return as_function_gives(outs, None if program is None else program.out_types, rule)

    with explained(rule, num_consts):
        return differentiated(rule, primals[num_consts:], tangents[num_consts:], typed)


def _batch_rule(
    batched: type[BatchedRule],
    op: Op,
    mapped: MappedAxis,
    args: Any,
    dims: Any,
    *,
    rule: Rule,
    program: Program | None = None,
    num_consts: int = 0,
) -> tuple[list, list]:
    """The call over a mapped axis, with `batched` as its rule."""
    if program is None:
        outs = op(*args, rule=batched(rule, mapped, tuple(dims)))
        return outs, [0] * len(outs)
    marks = tuple([d is not None for d in dims])
    wide, _ = batch_program(program, mapped.axis, marks, (True,) * len(program.outvars))
    moved = moved_into(wide, args, dims)
    new = batched(rule, mapped, tuple([0 if m else None for m in marks[num_consts:]]))
    outs = op(*moved, rule=new, program=wide, num_consts=num_consts)
    return outs, [0] * len(outs)


def op_of_calls(name: str, differentiated: Callable, batched: type[BatchedRule]) -> Op:
    """The op for calls of functions with a derivative rule.

    differentiated: `(rule, primals, tangents, typed) → (results, tangents)`; `typed` returns
        results in the types of the function's. batched: the class of the rules of batches.
    """
    return opaque_call(
        name,
        user_code=True,
        jvp=functools.partial(_jvp_rule, differentiated),
        batch=functools.partial(_batch_rule, batched),
        stage=stage_rule,
        eager=run_eagerly,
        aliases={"call_jaxpr": "program", "fun_jaxpr": "program"},
    )


@contextmanager
def explained(rule: Rule, num_consts: int) -> Iterator[None]:
    """Explains errors if the rule of a traced function uses a tracer that is no longer valid."""
    try:
        yield
    except UnexpectedTracerError as error:
        if not num_consts:
            raise
        raise UnexpectedTracerError(
            f"the derivative rule of {rule.kind} function {rule.name} uses a traced value from "
            f"outside. {rule.name} was staged (by jit or scan) within the function that the value "
            "belongs to, and the rule runs after that function has ended. Pass the value to "
            f"{rule.name} as an argument."
        ) from error


def _reject_outside(rule: Rule, tangents: Sequence[Any]) -> None:
    """Rejects derivatives with respect to captured values."""
    if any(t is not None for t in tangents):
        raise TypeError(
            f"{rule.kind} function {rule.name} uses a value from outside with respect to which it "
            "is differentiated. Its rule only gives derivatives with respect to arguments: pass "
            f"the value to {rule.name} as an argument."
        )


def map_flat(
    mapped: MappedAxis, fun: Callable, args: Sequence[Any], dims: Sequence[int | None]
) -> list[Any]:
    """`fun(*args) → list` over a mapped axis; each result has its batch dimension first."""
    outs, out_dims = run_batched(mapped.over_current(), fun, args, dims)
    rows = zip(outs, out_dims, strict=True)
    return [to_dim(o, d, 0, mapped.size, mapped.batch_sharding) for o, d in rows]
