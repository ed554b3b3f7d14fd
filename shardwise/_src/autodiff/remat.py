"""`checkpoint` and related functions: the public functions around `recompute`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shardwise._src.arguments.values import as_value
from shardwise._src.autodiff.recompute import checkpoint as checkpoint_op
from shardwise._src.autodiff.recompute import named
from shardwise._src.base.caches import exact
from shardwise._src.base.context import CURRENT
from shardwise._src.base.positions import join, split
from shardwise._src.control.bodies import body_cache_of, check_function, leaf, staged
from shardwise._src.core.infer import as_arraylike, is_array, is_operand, type_of
from shardwise._src.core.program import Literal, Program, Var
from shardwise._src.core.structure import shared
from shardwise._src.messages.argument_names import (
    Parameters,
    argument_names,
    name_of,
    parameters_of,
)
from shardwise._src.messages.formatting import pluralize, short_repr, to_register
from shardwise._src.messages.source import describe
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.refs.passing import with_refs_outside
from shardwise._src.refs.refs import is_ref, values_of, write_back
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.linearize import linearize
from shardwise._src.transforms.stage import stage
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType

WHO = "checkpoint"


def checkpoint(
    fun: Callable[P, T],
    *,
    prevent_cse: Any = True,
    policy: Callable[..., Any] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: bool = False,
) -> Callable[P, T]:
    """`fun`, with intermediate values that reverse mode recomputes instead of storing them.

    Trades time for memory. Under `grad`, only the arguments of `fun` and the values that `policy`
    saves (`checkpoint_policies`) are stored between the forward and the backward pass. Values and
    derivatives are those of `fun`.

    Args:
      fun: a function of pytrees of arrays.
      prevent_cse: prevents the compiler from reusing values of the forward pass. In the body
        of a `scan` it is not needed, and False is faster. A tuple with a value for each argument,
        or for parts of its pytree, is True if any of them is.
      policy: `policy(op, *types, **params)` decides for each equation whether to save its results.
      static_argnums, static_argnames: arguments that are not traced: they may have any type, and
        `fun` can branch on them.
      concrete: False; True was the older JAX option for `static_argnums`.

    Returns:
      A function of the same arguments.

    Raises:
      TypeError: if an argument that is not static, or a result, is not a pytree of arrays.
    """
    check_function(WHO, "fun", fun)
    if concrete:
        raise NotImplementedError(
            f"{WHO}: concrete=True is not supported, as in JAX. Name the arguments that the "
            "function branches on in static_argnums or static_argnames."
        )
    _check_options(prevent_cse, policy)
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    barrier = any(flatten(prevent_cse)[0])
    params = {"prevent_cse": barrier, "policy": policy, "differentiated": False}

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        fixed = _Fixed(fun, nums, names, args, kwargs)
        leaves, tree = flatten((fixed.args, fixed.kwargs))
        if CURRENT.get().interpreter.eager:
            return _run(fixed, leaves, tree)
        body, values = _staged(fixed, leaves, tree)
        values = [*body.outside, *values, *values_of(body.refs)]
        outs = checkpoint_op(*values, program=body.program, **params)
        count = len(outs) - len(body.refs)
        write_back(body.refs, outs[count:])
        return body.tree.unflatten(outs[:count])

    return wrapped


remat = checkpoint


def _check_options(prevent_cse: Any, policy: Any) -> None:
    marks = flatten(prevent_cse)[0]
    if not marks or not all(isinstance(x, bool) for x in marks):
        raise TypeError(
            "checkpoint: prevent_cse must be True or False, or a tuple with pytrees of them; got "
            f"{prevent_cse!r}."
        )
    if policy is None:
        return
    check_function(WHO, "policy", policy)
    try:
        hash(policy)
    except TypeError:
        raise TypeError(f"checkpoint: policy must be hashable; got {policy!r}.") from None


class _Fixed:
    """The static arguments of a call, and the others."""

    def __init__(
        self, fun: Callable, nums: Sequence[int], names: Sequence[str], args: tuple, kwargs: dict
    ):
        for n in nums:
            if not -len(args) <= n < len(args):
                raise ValueError(
                    f"checkpoint of {name_of(fun)}: static_argnums={n} refers to argument {n}, but "
                    f"the function was called with {pluralize(len(args), 'positional argument')}."
                )
        self.fun = fun
        self.places = sorted({n % len(args) for n in nums})
        self.static, rest = split(args, self.places)
        self.args = tuple(rest)
        self.named = {n: kwargs[n] for n in names if n in kwargs}
        self.kwargs = {n: x for n, x in kwargs.items() if n not in self.named}

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.fun(*join(self.places, self.static, args), **kwargs, **self.named)

    def parameters(self) -> Parameters:
        """The parameters, for calls without static arguments."""
        return parameters_of(self.fun).without(self.places)

    def key(self) -> tuple:
        values = (*self.static, *self.named.values())
        return (*self.places, *self.named, *values, exact(values))


def _run(fixed: _Fixed, leaves: Sequence[Any], tree: Any) -> Any:
    """Runs the function without staging: from arrays to arrays, in the same form as when staged."""
    values = [x if is_ref(x) else as_value(_value(fixed, x, i)) for i, x in enumerate(leaves)]
    outs, out_tree = flatten(fixed.call(*tree.unflatten(values)))
    what = f"the result of {name_of(fixed.fun)}"
    return out_tree.unflatten(
        [as_value(leaf(x, WHO, what, out_tree, i)) for i, x in enumerate(outs)]
    )


def _value(fixed: _Fixed, x: Any, i: int) -> Any:
    """A leaf of the arguments as something with a type."""
    x = as_arraylike(x)
    if is_operand(x):
        return x
    name = argument_names(fixed.args, fixed.kwargs, fixed.parameters())[i]
    raise TypeError(
        f"checkpoint of {name_of(fixed.fun)}: {name} is {short_repr(x)}, which is not an array. "
        f"Name arguments that are constants in static_argnums or static_argnames.{to_register(x)}"
    )


def _staged(fixed: _Fixed, leaves: Sequence[Any], tree: Any) -> tuple[Any, list[Any]]:
    """The function's body, cached for its types and static arguments; and the leaves as values.

    Refs among the leaves are used unchanged, as if captured.
    """
    refs = any(map(is_ref, leaves))
    values = [_value(fixed, x, i) for i, x in enumerate(leaves) if not is_ref(x)]
    types = [type_of(x) for x in values]
    key: tuple | None = (WHO, CURRENT.get().key, tree, *types, *fixed.key())
    cache, key = body_cache_of((fixed.fun,), key)
    try:
        body = None if refs else cache.bodies.get(key)
    except TypeError:  # an unhashable static argument
        body = key = None
    if body is None:
        names = argument_names(fixed.args, fixed.kwargs, fixed.parameters())
        names = [n for n, x in zip(names, leaves, strict=True) if not is_ref(x)]
        flat = with_refs_outside(lambda *xs: fixed.call(*tree.unflatten(xs)), leaves)
        body = staged(flat, types, WHO, name_of(fixed.fun), names, with_refs=True)
        body.program = shared(body.program)
        if key is not None and not refs and not body.captures:
            cache.keep(key, body)
    return body, values


def checkpoint_name(x: T, name: str) -> T:
    """`x`, a pytree of arrays, under a name that policies of `checkpoint` refer to."""
    leaves, tree = flatten(x)
    if CURRENT.get().interpreter.eager and all(map(is_array, leaves)):
        return x
    return tree.unflatten(
        [named(leaf(x, "checkpoint_name", "x", tree, i), name=name) for i, x in enumerate(leaves)]
    )


def saved_residuals(fun: Callable, *args: Any, **kwargs: Any) -> list[tuple[ArrayType, str]]:
    """The values that `vjp` of `fun` stores between the forward and the backward pass.

    Returns the type of each value, and its origin: which argument, or which source line.
    """
    leaves, tree = flatten((args, kwargs))
    values = [leaf(x, "saved_residuals", "args", tree, i) for i, x in enumerate(leaves)]

    def flat(*xs: Any) -> list[Any]:
        given, by_name = tree.unflatten(xs)
        return flatten(fun(*given, **by_name))[0]

    def residuals(*xs: Any) -> list[Any]:
        return [*linearize(flat, xs, "linearize", name_of(fun))[1].captured]

    program, _ = stage(residuals, [type_of(x) for x in values], name=name_of(fun))
    names = argument_names(args, kwargs, parameters_of(fun))
    return _sources(program, names)


def _sources(program: Program, names: Sequence[str]) -> list[tuple[ArrayType, str]]:
    wanted = {a for a in program.outvars if isinstance(a, Var)}
    found = [(a.aval, "from a literal") for a in program.outvars if isinstance(a, Literal)]
    found += [(v.aval, "from a constant") for v in program.constvars if v in wanted]
    for v, name in zip(program.invars, names, strict=True):
        if v in wanted:
            found.append((v.aval, f"from the argument {name}"))
    for eqn in program.eqns:
        found += [(v.aval, _made_by(program, v)) for v in eqn.outvars if v in wanted]
    return found


def _made_by(program: Program, var: Any) -> str:
    """The equation that a value comes from, looked up in called programs too."""
    for eqn in program.eqns:
        if eqn.op is named and var in eqn.invars:
            return f"named {eqn.params['name']!r} from {describe(eqn.site)}"
    eqn = next((e for e in program.eqns if var in e.outvars), None)
    if eqn is None:
        return "from an argument of a call"
    held = eqn.called
    if held is not None:
        return _made_by(held, held.outvars[eqn.outvars.index(var)])
    if eqn.op is named:
        return f"named {eqn.params['name']!r} from {describe(eqn.site)}"
    return f"output of {eqn.op.name} from {describe(eqn.site)}"


def print_saved_residuals(fun: Callable, *args: Any, **kwargs: Any) -> None:
    """Prints the values that `vjp` of `fun` stores for the backward pass, a line for each."""
    for t, source in saved_residuals(fun, *args, **kwargs):
        print(t.str_short(True), source)
