"""Further derivatives: `linear_transpose`, `closure_convert`, `fwd_and_bwd`, `custom_gradient`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from shardwise._src.arguments.signatures import as_argnums, check_argnums, check_function
from shardwise._src.arguments.values import as_value
from shardwise._src.autodiff.closure_convert import Closure
from shardwise._src.autodiff.grad import vjp
from shardwise._src.autodiff.tangents import as_tangent
from shardwise._src.base.marks import merge, partition, spread
from shardwise._src.base.positions import taking_only
from shardwise._src.control.bodies import staged
from shardwise._src.control.call import call
from shardwise._src.core.infer import is_array, is_operand, type_of
from shardwise._src.core.program import Program, Var
from shardwise._src.core.structure import shared
from shardwise._src.custom.custom_calls import filled, pair_of
from shardwise._src.custom.custom_vjp import CustomVJPPrimal, custom_vjp
from shardwise._src.jit.jit import jit
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, tree_difference
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.transforms.transpose import transpose_program
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType, in_row
from shardwise._src.types.dtypes import is_inexact
from shardwise._src.values.convert import cast


@hides_frames
def linear_transpose(
    fun: Callable[..., Any], *primals: Any, reduce_axes: Sequence[Any] = ()
) -> Callable[..., Any]:
    """The transpose of a linear function.

    Args:
      fun: a linear function of pytrees of arrays. Captured values are constants.
      primals: arguments of `fun`, or `ShapeDtypeStruct`s or types instead; only types matter.
      reduce_axes: must be empty; JAX has removed its purpose.

    Returns:
      A function from a cotangent of the result, in its pytree, to a tuple with one per primal.

    Raises:
      TypeError: if `fun` has both integers and other numbers among its arguments and results, or
        multiplies arguments with each other.
      NotImplementedError: if `fun` uses a function that is not linear.
    """
    check_function("linear_transpose", fun)
    if reduce_axes:
        raise NotImplementedError(
            f"linear_transpose: reduce_axes is not supported; got {short_repr(reduce_axes)}. Sum "
            "the cotangents by `shardwise.lax.psum` over these axes."
        )
    name = name_of(fun)
    leaves, tree = flatten(primals)
    types = [
        x if isinstance(x, ArrayType) else x.aval if is_array(x) else type_of(as_value(x))
        for x in leaves
    ]
    body = staged(lambda *xs: fun(*tree.unflatten(xs)), types, "linear_transpose", name)
    _check_kinds(name, [*types, *body.out_types])
    known, out_tree = len(body.outside), body.tree
    _check_linear(name, body.program, set(body.program.invars[known:]))
    program = shared(body.program)

    def transposed(outside: Sequence[Any], ct: Any) -> tuple:
        cts, ct_tree = flatten(ct)
        if ct_tree != out_tree:
            where = tree_difference("the result", out_tree, "the cotangent", ct_tree, "ct")
            raise TypeError(
                f"linear_transpose of {name}: the cotangent must have the pytree structure of the "
                f"result; {where}."
            )
        pairs = enumerate(zip(cts, program.out_types, strict=True))
        given = [*outside, *[_checked(name, ct_tree, i, x, t) for i, (x, t) in pairs]]
        back, marks = transpose_program(program, known, (True,) * len(cts))
        found = call(*map(reshard_like, given, back.in_types), program=back)
        return tree.unflatten(map(as_tangent, spread(found, marks), types))

    return Closure(transposed, body.outside)


def _check_kinds(name: str, types: Sequence[ArrayType]) -> None:
    kinds = {is_inexact(t.dtype) for t in types}
    if len(kinds) > 1:
        kinds = in_row(types)
        raise TypeError(
            f"linear_transpose of {name}: arguments and results must all be real or complex "
            f"numbers, or all integers; got {kinds}."
        )


def _check_linear(name: str, program: Program, linear: set[Any]) -> None:
    """Raises if an equation multiplies values that depend on the arguments."""
    for eqn in program.eqns:
        places = [i for i, a in enumerate(eqn.invars) if isinstance(a, Var) and a in linear]
        if not places:
            continue
        linear.update(eqn.outvars)
        held = eqn.called
        if held is not None:
            _check_linear(name, held, {held.invars[i] for i in places})
        elif eqn.op.dims is not None:
            types = [a.aval for a in eqn.invars]
            groups = eqn.op.dims(eqn.op, *types, **eqn.params).linear
            if groups and not any({*places} <= {*group} for group in groups):
                raise TypeError(
                    f"linear_transpose of {name}: the function is not linear, as [{eqn.op.name}] "
                    "is not linear in its operands that depend on the arguments: "
                    f"{in_row(types[i] for i in places)}."
                )


def _checked(name: str, tree: Any, i: int, ct: Any, t: ArrayType) -> Any:
    ct = as_value(ct)
    given = type_of(ct)
    if (given.shape, given.dtype) != (t.shape, t.dtype):
        raise TypeError(
            f"linear_transpose of {name}: a cotangent must have its result's shape and dtype, "
            f"{t.str_short(True)}; got {given.str_short(True)} for {path_in('ct', tree, i)}."
        )
    return ct


@hides_frames
def closure_convert(
    fun: Callable[..., Any], *example_args: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` with its captured values that may be differentiated as explicit arguments.

    For the rules of functions that take functions: these cannot differentiate with respect to
    captured values.

    Args:
      fun: a function of pytrees of arrays.
      example_args: arguments of `fun`; only their types matter.

    Returns:
      `converted`, to be called as `converted(*args, *values)`, and the list of these values.

    Raises:
      TypeError: when the function is called with arguments of another pytree.
    """
    check_function("closure_convert", fun)
    name = name_of(fun)
    leaves, tree = flatten(example_args)
    types = [type_of(x) for x in leaves]
    body = staged(lambda *xs: fun(*tree.unflatten(xs)), types, "closure_convert", name)
    moving = [isinstance(x, Tracer) and is_inexact(x.aval.dtype) for x in body.outside]
    still, hoisted = partition(body.outside, moving)
    program = shared(body.program)

    @functools.wraps(fun)
    @hides_frames
    def converted(*args: Any) -> Any:
        count = len(args) - len(hoisted)
        given, found = flatten(args[: max(count, 0)])
        if count < 0 or found != tree:
            where = tree_difference("the examples", tree, "these", found, "args")
            raise TypeError(
                f"closure_convert of {name}: call the converted function with arguments like the "
                f"examples, followed by the {len(hoisted)} hoisted values; {where}."
            )
        outside = merge(moving, args[count:], still)
        given = [x if is_operand(x) else as_value(x) for x in given]
        pairs = zip([*outside, *given], program.in_types, strict=True)
        return body.tree.unflatten(program(*[_as_staged(x, t) for x, t in pairs]))

    return converted, hoisted


def _as_staged(x: Any, t: ArrayType) -> Any:
    """A value with the weak type of its example, if their types are otherwise equal."""
    given = type_of(x)
    if given.shape != t.shape or not (given.dtype == t.dtype or given.weak_type):
        return x
    return cast(x, t.dtype, t.weak_type)


def fwd_and_bwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    jitted: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The forward and the backward pass of `fun`, as two functions that are compiled once.

        forward, back = fwd_and_bwd(loss, argnums=0)
        value, residuals = forward(w, x)
        gradient = back(residuals, ct)

    Args:
      fun: a function of pytrees of arrays; with `has_aux` it returns a pair of its value and
        anything else.
      argnums: which positional arguments to differentiate by.
      jitted: whether both functions are under `jit`.

    Returns:
      `forward(*args) → (value, residuals)`, with `has_aux` also aux; and
      `back(residuals, ct) → cotangents`: of the argument, or a tuple for several argnums.
    """
    what = f"fwd_and_bwd of {name_of(fun)}"
    check_function("fwd_and_bwd", fun)
    nums = as_argnums(argnums, what)

    @functools.wraps(fun)
    @hides_frames
    def forward(*args: Any) -> Any:
        check_argnums(argnums, len(args), what)
        places = [n % len(args) for n in nums]
        of_picked = taking_only(fun, name_of(fun), args, places)
        return vjp(of_picked, *[args[n] for n in places], has_aux=has_aux)

    def back(residuals: Callable, ct: Any) -> Any:
        found = residuals(ct)
        return found if isinstance(argnums, Iterable) else found[0]

    return (jit(forward), jit(back)) if jitted else (forward, back)


# -- gradients --


@overload
def custom_gradient(
    fun: Callable[P, tuple[T, Callable[..., Any]]], *, with_logs: bool = False
) -> Callable[P, T]: ...
@overload
def custom_gradient(
    fun: None = None, *, with_logs: bool = False
) -> Callable[[Callable[P, tuple[T, Callable[..., Any]]]], Callable[P, T]]: ...
def custom_gradient(fun: Any = None, *, with_logs: bool = False) -> Any:
    """A function that returns its own rule for cotangents with its value.

        @custom_gradient
        def f(x):
            return x**2, lambda ct: (ct * x,)

    Args:
      fun: returns a pair of its value and a function, which takes a cotangent of the value and
        returns a tuple with one of each argument, or, for a single argument, just its cotangent.
      with_logs: whether that function returns a pair `(cotangents, logs)`; see
        `custom_vjp.defvjp_with_logs`. Without `fun`, the result is a decorator.

    Returns:
      A function of the same arguments that returns the value. It is a `custom_vjp` function.
    """

    if fun is None:
        return functools.partial(custom_gradient, with_logs=with_logs)
    check_function("custom_gradient", fun)

    @custom_vjp
    @functools.wraps(fun)
    @hides_frames
    def valued(*args: Any, **kwargs: Any) -> Any:
        return _pair(fun, fun(*args, **kwargs))[0]

    def fwd(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, rule = _pair(fun, fun(*args, **kwargs))
        leaves, tree = flatten(value)
        types = [type_of(x).strong() for x in leaves]
        body = staged(lambda *cts: rule(tree.unflatten(cts)), types, "custom_gradient")
        program, ct_tree = shared(body.program), body.tree

        def pull_back(outside: Sequence[Any], ct: Any) -> Any:
            return ct_tree.unflatten(call(*outside, *flatten(ct)[0], program=program))

        return value, Closure(pull_back, body.outside)

    def bwd(pull_back: Callable, ct: Any) -> tuple:
        cts, logs = pull_back(ct), None
        if with_logs:
            cts, logs = pair_of(f"the rule of {name_of(fun)}", cts, "(cotangents, logs)")
        cts = tuple(cts) if isinstance(cts, tuple | list) else (cts,)
        return (cts, logs) if with_logs else cts

    fwd.__name__ = bwd.__name__ = name_of(fun)
    (valued.defvjp_with_logs if with_logs else valued.defvjp)(fwd, bwd)
    return valued


def _pair(fun: Callable, result: Any) -> tuple[Any, Callable]:
    if isinstance(result, tuple) and len(result) == 2 and callable(result[1]):
        return result
    raise TypeError(
        f"custom_gradient: {name_of(fun)} must return a pair of its value and a function of "
        f"cotangents; it returned {result!r}."
    )


# -- helpers for rules --


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangents of the values in a pytree: zeros of their dtypes, `float0` for integers.

    symbolic_zeros: `SymbolicZero`s instead.
    """
    leaves, structure = flatten(val)
    return structure.unflatten([filled(None, type_of(x), symbolic_zeros) for x in leaves])


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The arguments of a `fwd` rule with `symbolic_zeros=True`, as plain values."""
    leaves, structure = flatten(tree)
    return structure.unflatten([x.value if isinstance(x, CustomVJPPrimal) else x for x in leaves])
