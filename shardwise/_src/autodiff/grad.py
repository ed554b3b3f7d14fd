"""Differentiation: `grad`, `value_and_grad`, `jvp`, `vjp`, `linearize`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

from shardwise._src.arguments.partial_container import Partial
from shardwise._src.arguments.signatures import as_argnums, called, check_argnums, check_function
from shardwise._src.arguments.values import as_input, checked_results
from shardwise._src.arrays.array import Array
from shardwise._src.autodiff.closure_convert import VJP, vjp_of
from shardwise._src.autodiff.reduce_axes import sharing, sharing_axes
from shardwise._src.autodiff.ref_gradients import (
    as_moving,
    check_tangents,
    held,
    of_values,
    places,
    write_moved,
)
from shardwise._src.autodiff.tangents import (
    as_tangent,
    checked_cotangent,
    checked_tangent,
    one,
    places_of,
    pull_back,
    zeros,
)
from shardwise._src.base.context import current
from shardwise._src.base.positions import put
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.messages.argument_names import leaf_name, name_of, names_at
from shardwise._src.messages.formatting import pluralize
from shardwise._src.messages.source import transforming
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, tree_difference, tree_text
from shardwise._src.refs.refs import is_ref, value_of, write_back
from shardwise._src.running.eager import EAGER
from shardwise._src.running.nan_checks import watching
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.targets import explicit_mesh, in_mesh
from shardwise._src.transforms.jvp import JVP, push_forward
from shardwise._src.transforms.linearize import linearize as _linearize
from shardwise._src.transforms.tape import Tape
from shardwise._src.types.annotations import Aux, P, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_complex, is_float, is_inexact
from shardwise._src.values.value import Value


def argument_path(fun: Callable, places: Sequence[int], tree: Any, i: int) -> str:
    """The path of leaf `i` in the pytree of the arguments at these positions: `params['w']`."""
    return leaf_name(tree, i, names_at(fun, places))


def _flat_function(
    fun: Callable,
    trees: list[Any],
    rebuild: Callable,
    has_aux: bool,
    what: str,
    kwargs: dict[str, Any] | None = None,
) -> Callable:
    """`fun` on flat leaves. `trees` receives the pytrees of the result and of the aux value."""

    def flat(*leaves: Any) -> list[Any]:
        result = called(what, fun, rebuild(leaves), kwargs or {})
        if has_aux:
            if not (isinstance(result, tuple | list) and len(result) == 2):
                raise TypeError(
                    f"{name_of(fun)} must return a pair (value, aux) with has_aux=True; it "
                    f"returned {_kind(result)}."
                )
            result, aux = result
            aux_leaves, aux_tree = flatten(aux)
        else:
            aux_leaves, aux_tree = [], None
        outs, tree = flatten(result)
        trees[:] = [tree, aux_tree]
        return checked_results(outs, tree, what) + aux_leaves

    return flat


def _kind(result: Any) -> str:
    if isinstance(result, Value):
        return f"an array of type {result.aval.str_short(True)}"
    name = type(result).__name__
    return f"a {name} of {len(result)}" if isinstance(result, tuple | list) else f"a {name}"


def _forward() -> type[JVP]:
    """The interpreter of forward mode under `linearize`."""
    return Tape if current().interpreter is EAGER and not watching() else JVP


def _picked(args: Sequence[Any], argnums: tuple[int, ...]) -> tuple[list[Any], Any, Callable]:
    """Leaves and pytree of the differentiated arguments, and a function to restore them."""
    picked = tuple(args[n] for n in argnums)
    leaves, tree = flatten(picked)

    return leaves, tree, lambda new: put(args, argnums, tree.unflatten(new))


def value_and_grad(
    fun: Callable[P, T],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
    axis_name: Any = None,
) -> Callable[P, tuple[T, Any]]:
    """A function that returns the value of `fun` and its gradient.

    Args:
      fun: returns a real scalar (complex with `holomorphic`), or with `has_aux` a pair (scalar,
        aux), where aux can be anything.
      argnums: which positional arguments to differentiate with respect to.
      holomorphic: whether `fun` is a holomorphic function of complex arguments.
      allow_int: integer arguments are allowed; their gradients are zeros of dtype `float0`.
      axis_name: the name of an axis in scope, or a tuple of several, along which each index has a
        loss: the gradient with respect to an argument that all indices share is the sum over them.
        Without it, each index has the derivatives of its own loss. `reduce_axes`: same, as a tuple.

    Returns:
      A function of the same arguments. It returns (value, gradient), or ((value, aux), gradient);
      the gradient has the pytree of the argument, or is a tuple for several argnums.

    Raises:
      TypeError: if the value is not a scalar, or an argument is of integer type.
    """
    check_function("grad", fun)
    name = name_of(fun)
    what = f"grad of {name}"
    nums = as_argnums(argnums, what)
    shared_over = sharing_axes(axis_name, reduce_axes)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        check_argnums(argnums, len(args), what, kwargs)
        nums_at = tuple(n % len(args) for n in nums)
        leaves, tree, rebuild = _picked(args, nums_at)
        path = functools.partial(argument_path, fun, nums_at, tree)
        values = [
            x._itself() if x.__class__ is Array else as_moving(x, what, lambda i=i: path(i))
            for i, x in enumerate(leaves)
        ]
        _check_inputs(name, path, values, holomorphic, allow_int)
        trees: list[Any] = []
        flat = _flat_function(fun, trees, rebuild, has_aux, what, kwargs)
        if shared_over:
            flat = sharing(flat, "grad", shared_over)
        outs, linear = _linearize(
            flat,
            values,
            "grad",
            name,
            differentiated=lambda: trees[0].num_leaves,
            forward=_forward(),
        )
        out_tree, aux_tree = trees
        count = out_tree.num_leaves
        _check_output(name, out_tree, outs[:count], holomorphic)
        with in_mesh(explicit_mesh(values, outs, linear.captured)):
            grads = tree.unflatten(pull_back(linear, [one(type_of(outs[0]))], places_of(values)))
        value = out_tree.unflatten(outs[:count])
        gradient = grads if isinstance(argnums, Iterable) else grads[0]
        if has_aux:
            return (value, aux_tree.unflatten(outs[count:])), gradient
        return value, gradient

    return wrapped


def grad(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
    axis_name: Any = None,
) -> Callable[P, Any]:
    """A function that returns the gradient of a scalar function; with `has_aux`, (gradient, aux).

    See `value_and_grad` for the arguments and errors.
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes, axis_name)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def _check_inputs(
    name: str, path: Callable[[int], str], values: Sequence[Any], holomorphic: bool, allow_int: bool
) -> None:
    for i, value in enumerate(values):
        t = type_of(value)
        if holomorphic and not is_complex(t.dtype):
            raise TypeError(
                f"grad of {name} with holomorphic=True takes complex inputs; {path(i)} is of type "
                f"{t.str_short(True)}. Convert it to a complex type, or leave out holomorphic."
            )
        if not (is_inexact(t.dtype) or allow_int):
            raise TypeError(
                f"grad of {name} takes real or complex inputs; {path(i)} is of type "
                f"{t.str_short(True)}. Convert it to a floating type, or pass allow_int=True for "
                "a trivial (float0) gradient."
            )


def _check_output(name: str, tree: Any, outs: Sequence[Any], holomorphic: bool) -> None:
    if tree.num_nodes != 1 or len(outs) != 1:
        raise TypeError(
            f"grad of {name} takes a function that returns a scalar; it returned the pytree "
            f"{tree_text(tree)}. For additional results use has_aux=True."
        )
    t = type_of(outs[0])
    if t.shape != ():
        raise TypeError(
            f"grad of {name} takes a function that returns a scalar; it returned "
            f"{t.str_short(True)}. Sum it, or use jacrev or vjp."
        )
    if is_complex(t.dtype) if holomorphic else is_float(t.dtype):
        return
    kind = "complex" if holomorphic else "real"
    advice = f"Convert it to a {'complex' if holomorphic else 'floating'} type."
    if holomorphic and is_float(t.dtype):
        advice = "Without holomorphic=True, grad differentiates real results."
    if is_complex(t.dtype):
        advice = "For a holomorphic function pass holomorphic=True, for others use vjp."
    raise TypeError(
        f"grad of {name} takes a function that returns a {kind} scalar; it returned "
        f"{t.str_short(True)}. {advice}"
    )


@overload
def jvp(
    fun: Callable[..., T],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: Literal[False] = False,
) -> tuple[T, T]: ...
@overload
def jvp(
    fun: Callable[..., tuple[T, Aux]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: Literal[True],
) -> tuple[T, T, Aux]: ...
@hides_frames
def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """`fun(*primals)` and its directional derivative along `tangents`.

    Args:
      primals, tangents: sequences of equal pytrees; a tangent has its primal's shape and dtype
        (`float0` for integers).

    Returns:
      (result, tangent of the result), with `has_aux` also aux.
    """
    check_function("jvp", fun)
    name = name_of(fun)
    for what, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple | list):
            raise TypeError(f"jvp of {name}: {what} must be a tuple or list; got {value!r}.")
    if isinstance(primals, tuple) != isinstance(tangents, tuple):
        kinds = f"{type(primals).__name__} and {type(tangents).__name__}"
        raise TypeError(
            f"jvp of {name}: primals and tangents must be both tuples or both lists; got {kinds}."
        )
    leaves, tree = flatten(tuple(primals))
    tangent_leaves, tangent_tree = flatten(tuple(tangents))
    if tree != tangent_tree:
        raise TypeError(
            f"jvp of {name}: primals and tangents must have the same pytree structure; "
            f"{tree_difference('the primals', tree, 'the tangents', tangent_tree, 'args')}."
        )
    what = f"jvp of {name}"
    path = functools.partial(argument_path, fun, range(len(primals)), tree)
    at, n = places(leaves), len(leaves)
    if at or places(tangent_leaves):
        types = [x.type if i in at else type_of(x) for i, x in enumerate(leaves)]
        check_tangents(what, at, types, tangent_leaves, path)
    trees: list[Any] = []
    flat = of_values(_flat_function(fun, trees, tree.unflatten, has_aux, what), at, trees)

    def name_at(i: int) -> str:
        return path(i) if i < n else f"the tangent of {path(i - n)}"

    with held([*leaves, *tangent_leaves], what, name_at) as given:
        values = [as_input(x, what, lambda i=i: path(i)) for i, x in enumerate(given[:n])]
        pairs = enumerate(zip(values, given[n:], strict=True))
        tangents = [
            checked_tangent(what, type_of(x), t, lambda i=i: path(i)) for i, (x, t) in pairs
        ]
        with transforming("jvp"):
            outs, moved = push_forward(flat, values, tangents, current().interpreter, "jvp", name)
    count = trees[0].num_leaves
    last = count + len(at)
    pairs = zip(outs[:last], moved[:last], strict=True)
    with in_mesh(explicit_mesh(values, outs)):
        along = [as_tangent(t, type_of(o)) for o, t in pairs]
    if at:
        write_back([leaves[i] for i in at], outs[count:last])
        write_moved([tangent_leaves[i] for i in at], along[count:])
    result = (trees[0].unflatten(outs[:count]), trees[0].unflatten(along[:count]))
    return (*result, trees[1].unflatten(outs[last:])) if has_aux else result


def linear_parts(
    fun: Callable,
    primals: Sequence[Any],
    has_aux: bool,
    transform: str,
    path: Callable[[Any, int], str] | None = None,
) -> tuple:
    """path: of a leaf of the pytree of primals, for messages. The results of the linear part are
    the results of the function, and then the last values of the refs among the primals.
    """
    what = f"{transform} of {name_of(fun)}"
    check_function(transform, fun)
    leaves, tree = flatten(tuple(primals))
    named = path or functools.partial(argument_path, fun, range(len(primals)))
    trees: list[Any] = []
    at = places(leaves)
    flat = of_values(_flat_function(fun, trees, tree.unflatten, has_aux, what), at, trees)
    with held(leaves, what, lambda i: named(tree, i)) as given:
        values = [as_input(x, what, lambda i=i: named(tree, i)) for i, x in enumerate(given)]
        outs, linear = _linearize(
            flat,
            values,
            transform,
            name_of(fun),
            differentiated=lambda: trees[0].num_leaves + len(at),
            forward=_forward(),
        )
    count = trees[0].num_leaves
    last = count + len(at)
    if at:
        write_back([leaves[i] for i in at], outs[count:last])
    result = trees[0].unflatten(outs[:count])
    aux = trees[1].unflatten(outs[last:]) if has_aux else None
    return result, linear, tree, trees[0], aux


@overload
def vjp(
    fun: Callable[..., T],
    *primals: Any,
    has_aux: Literal[False] = False,
    reduce_axes: Sequence[Any] = (),
    axis_name: Any = None,
) -> tuple[T, VJP]: ...
@overload
def vjp(
    fun: Callable[..., tuple[T, Aux]],
    *primals: Any,
    has_aux: Literal[True],
    reduce_axes: Sequence[Any] = (),
    axis_name: Any = None,
) -> tuple[T, VJP, Aux]: ...
@hides_frames
def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Sequence[Any] = (),
    axis_name: Any = None,
) -> tuple[Any, ...]:
    """`fun(*primals)` and its vjp function, which pulls cotangents back.

    Args:
      axis_name, reduce_axes: named axes over which cotangents are summed for primals that all
        indices share; see `value_and_grad`.

    Returns:
      (result, pull_back), with `has_aux` also aux. `pull_back(ct)` takes a cotangent in the
      result's pytree and returns a tuple with one per primal. It is a container of its residual
      arrays, and can be an argument or a result of `jit`; `pull_back.with_refs(*refs)(ct)`
      adds cotangents to refs, and is required for primals that are refs.
    """
    if shared_over := sharing_axes(axis_name, reduce_axes):
        fun = sharing(fun, "vjp", shared_over)
    result, found, tree, out_tree, aux = linear_parts(fun, primals, has_aux, "vjp")
    leaves = flatten(primals)[0]
    values = [value_of(x) if is_ref(x) else x for x in leaves]
    name, split = name_of(fun), places_of(values)
    mesh = explicit_mesh(values, flatten(result)[0], found.captured)
    linear = found.at(())

    def backwards(
        types: Sequence[ArrayType],
        program: Program,
        residuals: Sequence[Any],
        *given_cts: Any,
        last: Sequence[Any] = (),
        wanted: Sequence[bool] | None = None,
    ) -> tuple:
        if len(given_cts) != 1:
            raise TypeError(
                f"vjp of {name}: the vjp function takes one cotangent, with the pytree structure "
                f"of the result, {tree_text(out_tree)}; got "
                f"{pluralize(len(given_cts), 'argument')}. If the result is a tuple, pass one "
                "tuple."
            )
        cts, ct_tree = flatten(given_cts[0])
        if ct_tree != out_tree:
            where = tree_difference("the result", out_tree, "the cotangent", ct_tree, "ct")
            raise ValueError(
                f"vjp of {name}: the cotangent must have the pytree structure of the result; "
                f"{where}."
            )
        pairs = enumerate(zip(cts, types, strict=False))
        given = [
            checked_cotangent(name, x, t, lambda i=i: path_in("ct", out_tree, i))
            for i, (x, t) in pairs
        ]
        with in_mesh(mesh):
            given += [
                zeros(t) if x is None else x for x, t in zip(last, types[len(cts) :], strict=False)
            ]
            there = replace(linear, program=program, captured=residuals)
            return tree.unflatten(pull_back(there, given, split, wanted))

    backwards.__name__ = f"vjp of {name}"
    names = range(len(primals))
    refs = tuple(
        [(i, argument_path(fun, names, tree, i), linear.in_types[i]) for i in places(leaves)]
    )
    pulls = functools.partial(backwards, linear.out_types, linear.program)
    back = vjp_of(pulls, tree, out_tree, leaves, found, refs)
    return (result, back, aux) if has_aux else (result, back)


@overload
def linearize(
    fun: Callable[..., T], *primals: Any, has_aux: Literal[False] = False
) -> tuple[T, Callable[..., T]]: ...
@overload
def linearize(
    fun: Callable[..., tuple[T, Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[T, Callable[..., T], Aux]: ...
@hides_frames
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`fun(*primals)` and its derivative there, as a function of tangents.

    The derivative is staged: repeated calls cost no new trace. It is a container of its residual
    arrays, a `tree_util.Partial`.
    """
    result, found, tree, out_tree, aux = linear_parts(fun, primals, has_aux, "linearize")
    what = f"linearize of {name_of(fun)}"
    leaves = flatten(primals)[0]
    values = [value_of(x) if is_ref(x) else x for x in leaves]
    mesh = explicit_mesh(values, flatten(result)[0], found.captured)
    count, at = out_tree.num_leaves, places(leaves)
    linear = found.at(())
    types = linear.out_types[: count + len(at)]

    def derivative(program: Program, residuals: Sequence[Any], *tangents: Any) -> Any:
        given, given_tree = flatten(tuple(tangents))
        if given_tree != tree:
            where = tree_difference("the primals", tree, "the tangents", given_tree, "args")
            raise TypeError(
                f"{what}: tangents must have the pytree structure of the primals; {where}."
            )
        path = functools.partial(argument_path, fun, range(len(primals)), tree)
        if at or places(given):
            check_tangents(what, at, linear.in_types, given, path)
        with held(given, what, lambda i: f"the tangent of {path(i)}") as held_now, in_mesh(mesh):
            pairs = enumerate(zip(linear.in_types, held_now, strict=True))
            values = [checked_tangent(what, t, x, lambda i=i: path(i)) for i, (t, x) in pairs]
            outs = replace(linear, program=program, captured=residuals)(values)[: len(types)]
            outs = [as_tangent(o, t) for o, t in zip(outs, types, strict=True)]
        write_moved([given[i] for i in at], outs[count:])
        return out_tree.unflatten(outs[:count])

    along = Partial(functools.partial(derivative, linear.program), tuple(found.captured))
    return (result, along, aux) if has_aux else (result, along)
