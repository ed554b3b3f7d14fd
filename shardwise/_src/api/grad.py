"""Differentiation: `grad`, `value_and_grad`, `jvp`, `vjp`, `linearize`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

import numpy as np

from shardwise._src.api.backward import backward
from shardwise._src.api.closures import VJP, Closure, vjp_of
from shardwise._src.api.signatures import as_argnums, called, check_argnums, check_function
from shardwise._src.api.values import as_input, checked_results
from shardwise._src.arrays.array import Array, wrap
from shardwise._src.arrays.signature import signature
from shardwise._src.base.context import current
from shardwise._src.base.positions import put
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.messages.arguments import leaf_name, name_of, names_at
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.trees import path_in, tree_difference, tree_text
from shardwise._src.messages.words import counted
from shardwise._src.moving.targets import explicit_mesh, in_mesh
from shardwise._src.numpy.value import Value
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import full
from shardwise._src.ops.sharding import settle
from shardwise._src.running.eager import EAGER
from shardwise._src.running.watch import watching
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.jvp import JVP, push_forward
from shardwise._src.transforms.linearize import LinearFunction
from shardwise._src.transforms.linearize import linearize as _linearize
from shardwise._src.transforms.tape import Tape
from shardwise._src.types.annotations import Aux, P, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import float0, is_complex, is_float, is_inexact


def argument_path(fun: Callable, places: Sequence[int], tree: Any, i: int) -> str:
    """The path of leaf `i` of the tree of the arguments at these places: `params['w']`."""
    return leaf_name(tree, i, names_at(fun, places))


def zeros(t: ArrayType) -> Any:
    """Zeros of a type; of an integer type, the trivial tangents (NumPy's `float0`)."""
    if not is_inexact(t.dtype):
        return np.zeros(t.shape, float0)
    return settle(full(0, t.shape, t.dtype, t.weak_type), t)


def _flat_function(
    fun: Callable, trees: list[Any], rebuild: Callable, has_aux: bool, what: str,
    kwargs: dict[str, Any] | None = None,
) -> Callable:
    """`fun` on flat leaves. `trees` receives the trees of the result and of the aux value."""

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
    """Leaves and tree of the differentiated arguments, and how to put them back."""
    picked = tuple(args[n] for n in argnums)
    leaves, tree = flatten(picked)

    return leaves, tree, lambda new: put(args, argnums, tree.unflatten(new))


def value_and_grad(
    fun: Callable[P, T], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False,
) -> Callable[P, tuple[T, Any]]:
    """A function that gives `fun`'s value and its gradient.

    Args:
      fun: gives a real scalar (complex with `holomorphic`), or with `has_aux` a pair of it and
        anything else.
      argnums: which positional arguments to differentiate by.
      holomorphic: whether `fun` is a holomorphic function of complex arguments.
      allow_int: integer arguments are allowed; their gradients are zeros of dtype `float0`.

    Returns:
      A function of the same arguments. It gives (value, gradient), or ((value, aux), gradient);
      the gradient has the tree of the argument, or is a tuple for several argnums.

    Raises:
      TypeError: if the value is not a scalar, or an argument is of integer type.
    """
    check_function("grad", fun)
    name = name_of(fun)
    what = f"grad of {name}"
    nums = as_argnums(argnums, what)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        check_argnums(argnums, len(args), what, kwargs)
        places = tuple(n % len(args) for n in nums)
        leaves, tree, rebuild = _picked(args, places)
        path = functools.partial(argument_path, fun, places, tree)
        values = [
            x._itself() if x.__class__ is Array else as_input(x, what, lambda i=i: path(i))
            for i, x in enumerate(leaves)
        ]
        _check_inputs(name, path, values, holomorphic, allow_int)
        trees: list[Any] = []
        flat = _flat_function(fun, trees, rebuild, has_aux, what, kwargs)
        outs, linear = _linearize(
            flat, values, "grad", name, differentiated=lambda: trees[0].num_leaves,
            forward=_forward(),
        )
        out_tree, aux_tree = trees
        count = out_tree.num_leaves
        _check_output(name, out_tree, outs[:count], holomorphic)
        one = type_of(outs[0]).dtype.type(1)
        with in_mesh(explicit_mesh(values)):
            grads = tree.unflatten(pull_back(linear, [one], places_of(values)))
        value = out_tree.unflatten(outs[:count])
        gradient = grads if isinstance(argnums, Iterable) else grads[0]
        if has_aux:
            return (value, aux_tree.unflatten(outs[count:])), gradient
        return value, gradient

    return wrapped


def grad(
    fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False,
) -> Callable[P, Any]:
    """The gradient of a scalar function; with `has_aux`, the pair (gradient, aux).

    See `value_and_grad` for the arguments and errors.
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def pull_back(
    linear: LinearFunction, cotangents: Sequence[Any], places: Sequence[Any] = ()
) -> list[Any]:
    """Cotangents of all inputs; zeros where the result does not depend on one.

    places: of the inputs. What no input has a part in, such as zeros, is split as these are.
    """
    given = [ct for ct, on in zip(cotangents, linear.active_out, strict=False) if on]
    found = iter(backward(linear, given))
    grads = []
    for t, active in zip(linear.in_types, linear.active_in, strict=True):
        ct = next(found) if active else None
        grads.append(as_tangent(ct, t))
    return [*map(_split_as, grads, places)] if any(places) else grads


def places_of(values: Sequence[Any]) -> list[Any]:
    """The shardings of arrays over several devices; None for other values."""
    found = [x._sig.sharding if x.__class__ is Array else None for x in values]
    return [s if s is not None and len(s.devices) > 1 else None for s in found]


def _split_as(ct: Any, place: Any) -> Any:
    """A cotangent that was put nowhere, or is whole on every device, in the place of its primal."""
    if place is None or ct.__class__ is not Array or ct._sig.sharding is place:
        return ct
    if ct._sig.committed and not ct._sig.sharding.is_fully_replicated:
        return ct
    return EAGER.place(ct, place)


def as_tangent(x: Any, t: ArrayType) -> Any:
    """A tangent or cotangent of a value of type `t`, in its dtype and as weak; None for zero."""
    if x is None:
        return zeros(t)
    found = type_of(x)
    if found.dtype == t.dtype and x.__class__ is Array:
        if found.weak_type == t.weak_type:
            return x
        aval, layout = found.update(weak_type=t.weak_type), x._sig.layout
        weak = signature(aval, x.sharding, x.committed, layout)
        return wrap(x._live(), weak)
    if not is_array(x) or (found.dtype, found.weak_type) != (t.dtype, t.weak_type):
        return convert_element_type(x, dtype=t.dtype, weak=t.weak_type)
    return x


def _check_inputs(
    name: str, path: Callable[[int], str], values: Sequence[Any], holomorphic: bool,
    allow_int: bool,
) -> None:
    for i, value in enumerate(values):
        t = type_of(value)
        if holomorphic and not is_complex(t.dtype):
            raise TypeError(
                f"grad of {name} with holomorphic=True takes complex inputs; {path(i)} is of type "
                f"{t.str_short(True)}."
            )
        if not (is_inexact(t.dtype) or allow_int):
            raise TypeError(
                f"grad of {name} takes real or complex inputs; {path(i)} is of type "
                f"{t.str_short(True)}. Convert it to a floating type, or pass allow_int=True for "
                "a trivial gradient."
            )


def _check_output(name: str, tree: Any, outs: Sequence[Any], holomorphic: bool) -> None:
    if tree.num_nodes != 1 or len(outs) != 1:
        raise TypeError(
            f"grad of {name} takes a function that returns a scalar; it returned the tree "
            f"{tree_text(tree)}. For further results use has_aux=True."
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
    advice = "Convert it to a floating type."
    if is_complex(t.dtype):
        advice = "For a holomorphic function pass holomorphic=True, for others use vjp."
    raise TypeError(
        f"grad of {name} takes a function that returns a {kind} scalar; it returned "
        f"{t.str_short(True)}. {advice}"
    )


@overload
def jvp(
    fun: Callable[..., T], primals: Sequence[Any], tangents: Sequence[Any],
    has_aux: Literal[False] = False,
) -> tuple[T, T]: ...
@overload
def jvp(
    fun: Callable[..., tuple[T, Aux]], primals: Sequence[Any], tangents: Sequence[Any],
    has_aux: Literal[True],
) -> tuple[T, T, Aux]: ...
@hides_frames
def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """`fun(*primals)` and its directional derivative along `tangents`.

    Args:
      primals, tangents: sequences of equal trees; a tangent has its primal's shape and dtype
        (`float0` for integers).

    Returns:
      (result, tangent of the result), with `has_aux` also aux.
    """
    check_function("jvp", fun)
    name = name_of(fun)
    for what, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple | list):
            raise TypeError(f"jvp of {name}: {what} must be a tuple or list; got {value!r}.")
    leaves, tree = flatten(tuple(primals))
    tangent_leaves, tangent_tree = flatten(tuple(tangents))
    if tree != tangent_tree:
        raise TypeError(
            f"jvp of {name}: primals and tangents must have the same tree; "
            f"{tree_difference('the primals', tree, 'the tangents', tangent_tree, 'args')}."
        )
    what = f"jvp of {name}"
    path = functools.partial(argument_path, fun, range(len(primals)), tree)
    values = [as_input(x, what, lambda i=i: path(i)) for i, x in enumerate(leaves)]
    pairs = enumerate(zip(values, tangent_leaves, strict=True))
    flat_tangents = [_checked_tangent(what, type_of(x), t, lambda i=i: path(i))
                     for i, (x, t) in pairs]
    trees: list[Any] = []
    flat = _flat_function(fun, trees, tree.unflatten, has_aux, what)
    outs, out_tangents = push_forward(
        flat, values, flat_tangents, current().interpreter, "jvp", name
    )
    count = trees[0].num_leaves
    pairs = zip(outs[:count], out_tangents[:count], strict=True)
    with in_mesh(explicit_mesh(values)):
        given = [as_tangent(t, type_of(o)) for o, t in pairs]
    result = (trees[0].unflatten(outs[:count]), trees[0].unflatten(given))
    return (*result, trees[1].unflatten(outs[count:])) if has_aux else result


def _checked_tangent(what: str, t: ArrayType, tangent: Any, path: Callable[[], str]) -> Any:
    """A tangent of a primal of type `t`; None (zero) where that is of integer type."""
    if getattr(tangent, "dtype", None) == float0:
        if is_inexact(t.dtype):
            raise TypeError(
                f"{what}: a tangent of dtype float0 is for integers; {path()} is of type "
                f"{t.str_short(True)}."
            )
        if tangent.shape != t.shape:
            raise ValueError(
                f"{what}: a tangent must have its primal's shape; got one of shape "
                f"{tangent.shape} for {path()} of type {t.str_short(True)}."
            )
        return None
    tangent = as_input(tangent, what, lambda: f"the tangent of {path()}")
    given = type_of(tangent)
    if not is_inexact(t.dtype):
        raise TypeError(
            f"{what}: the tangent of {path()}, which is of type {t.str_short(True)}, must be of "
            f"dtype float0; got {given.str_short(True)}. Make it with NumPy: np.zeros(shape, "
            "shardwise.float0)."
        )
    if (given.shape, given.dtype) != (t.shape, t.dtype):
        raise (TypeError if given.dtype != t.dtype else ValueError)(
            f"{what}: a tangent must have its primal's shape and dtype; got "
            f"{given.str_short(True)} for {path()} of type {t.str_short(True)}."
        )
    return tangent


def linear_parts(
    fun: Callable, primals: Sequence[Any], has_aux: bool, transform: str,
    path: Callable[[Any, int], str] | None = None,
) -> tuple:
    """path: of a leaf of the tree of primals, for messages."""
    what = f"{transform} of {name_of(fun)}"
    check_function(transform, fun)
    leaves, tree = flatten(tuple(primals))
    named = path or functools.partial(argument_path, fun, range(len(primals)))
    values = [as_input(x, what, lambda i=i: named(tree, i)) for i, x in enumerate(leaves)]
    trees: list[Any] = []
    flat = _flat_function(fun, trees, tree.unflatten, has_aux, what)
    outs, linear = _linearize(
        flat, values, transform, name_of(fun), differentiated=lambda: trees[0].num_leaves,
        forward=_forward(),
    )
    count = trees[0].num_leaves
    result = trees[0].unflatten(outs[:count])
    aux = trees[1].unflatten(outs[count:]) if has_aux else None
    return result, linear, tree, trees[0], aux


@overload
def vjp(
    fun: Callable[..., T], *primals: Any, has_aux: Literal[False] = False
) -> tuple[T, VJP]: ...
@overload
def vjp(
    fun: Callable[..., tuple[T, Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[T, VJP, Aux]: ...
@hides_frames
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`fun(*primals)` and the function that pulls cotangents back.

    Returns:
      (result, pull_back), with `has_aux` also aux. `pull_back(ct)` takes a cotangent of the
      result's tree and gives a tuple with one of each primal. It is a container of the arrays
      that it keeps, and can be an argument or a result of `jit`; `pull_back.with_refs(*refs)(ct)`
      adds cotangents to refs.
    """
    result, found, tree, out_tree, aux = linear_parts(fun, primals, has_aux, "vjp")
    leaves = flatten(primals)[0]
    name, mesh, places = name_of(fun), explicit_mesh(leaves), places_of(leaves)
    linear = found.at(())

    def backwards(residuals: Sequence[Any], *given_cts: Any) -> tuple:
        if len(given_cts) != 1:
            raise TypeError(
                f"vjp of {name}: the function that pulls back takes one cotangent, of the result's "
                f"tree {tree_text(out_tree)}; got {counted(len(given_cts), 'argument')}. If the "
                "result is a tuple, pass one tuple."
            )
        cts, ct_tree = flatten(given_cts[0])
        if ct_tree != out_tree:
            where = tree_difference("the result", out_tree, "the cotangent", ct_tree, "ct")
            raise ValueError(
                f"vjp of {name}: the cotangent must have the tree of the result; {where}."
            )
        types = linear.out_types[: len(cts)]
        pairs = enumerate(zip(cts, types, strict=True))
        given = [_checked_cotangent(name, x, t, lambda i=i: path_in("ct", out_tree, i))
                 for i, (x, t) in pairs]
        with in_mesh(mesh):
            return tree.unflatten(pull_back(linear.at(residuals), given, places))

    backwards.__name__ = f"vjp of {name}"
    back = vjp_of(backwards, tree, out_tree, leaves, found.captured)
    return (result, back, aux) if has_aux else (result, back)


def _checked_cotangent(name: str, ct: Any, t: ArrayType, path: Callable[[], str]) -> Any:
    if getattr(ct, "dtype", None) == float0:
        if is_inexact(t.dtype):
            raise TypeError(
                f"vjp of {name}: a cotangent of dtype float0 is for integers; {path()} is for a "
                f"result of type {t.str_short(True)}."
            )
        if ct.shape != t.shape:
            raise ValueError(
                f"vjp of {name}: a cotangent must have its result's shape; {path()}, for a result "
                f"of type {t.str_short(True)}, is of shape {ct.shape}."
            )
        return None
    ct = as_input(ct, f"vjp of {name}", path)
    given = type_of(ct)
    if not is_inexact(t.dtype):
        raise TypeError(
            f"vjp of {name}: {path()}, for a result of type {t.str_short(True)}, must be of dtype "
            f"float0; got {given.str_short(True)}. Make it with NumPy: np.zeros(shape, "
            "shardwise.float0)."
        )
    if (given.shape, given.dtype) != (t.shape, t.dtype):
        raise ValueError(
            f"vjp of {name}: a cotangent must have its result's shape and dtype, "
            f"{t.str_short(True)}; {path()} is of type {given.str_short(True)}."
        )
    return ct


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

    The derivative is staged: calling it many times costs no new trace. It is a container of the
    arrays that it keeps, as that of `vjp`.
    """
    result, found, tree, out_tree, aux = linear_parts(fun, primals, has_aux, "linearize")
    name, mesh = name_of(fun), explicit_mesh(flatten(primals)[0])
    types = [type_of(x) for x in flatten(result)[0]]
    linear = found.at(())

    def derivative(residuals: Sequence[Any], *tangents: Any) -> Any:
        given, given_tree = flatten(tuple(tangents))
        if given_tree != tree:
            where = tree_difference("the primals", tree, "the tangents", given_tree, "args")
            raise TypeError(
                f"linearize of {name}: tangents must have the tree of the primals; {where}."
            )
        pairs = enumerate(zip(linear.in_types, given, strict=True))
        path = functools.partial(argument_path, fun, range(len(primals)), tree)
        values = [_checked_tangent(f"linearize of {name}", t, x, lambda i=i: path(i))
                  for i, (t, x) in pairs]
        with in_mesh(mesh):
            outs = linear.at(residuals)(values)[: len(types)]
            outs = [as_tangent(o, t) for o, t in zip(outs, types, strict=True)]
        return out_tree.unflatten(outs)

    along = Closure(derivative, found.captured)
    return (result, along, aux) if has_aux else (result, along)
