"""Jacobians: `jacfwd`, `jacrev`, `hessian`, as a derivative mapped over a standard basis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shardwise._src.arguments.signatures import as_argnums, called, check_argnums, check_function
from shardwise._src.autodiff.grad import argument_path, linear_parts
from shardwise._src.autodiff.ref_gradients import as_moving, places
from shardwise._src.autodiff.tangents import as_tangent, pull_back, zeros
from shardwise._src.base.positions import taking_only
from shardwise._src.maps.vmap import vmap
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.shapes import moveaxis, reshape
from shardwise._src.numpy.triangles import eye
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.targets import explicit_mesh, in_mesh
from shardwise._src.transforms.linearize import LinearFunction
from shardwise._src.types.annotations import P
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_complex, is_float, is_inexact


def jacfwd(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """The Jacobian of `fun`, column by column: for functions with few inputs.

    Args:
      fun: returns a pytree of arrays; with `has_aux` a pair (result, aux).
      argnums: which positional arguments to differentiate with respect to.
      holomorphic: whether `fun` is a holomorphic function of complex arguments.

    Returns:
      A function of the same arguments. Its result has the pytree of `fun`, and at each leaf of
      shape `s` the pytree of the argument (a tuple for several argnums) with leaves of shape
      `s + shape of the argument's leaf`; with `has_aux` a pair of this and aux.

    Raises:
      TypeError: if an input is not real (complex with `holomorphic`).
    """
    return _jacobian(fun, argnums, has_aux, holomorphic, False, "jacfwd", _columns)


def jacrev(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]:
    """The Jacobian of `fun`, row by row: for functions with few outputs.

    See `jacfwd` for arguments, result and errors; with `allow_int`, integer arguments are allowed
    and have Jacobians of dtype `float0`.
    """
    return _jacobian(fun, argnums, has_aux, holomorphic, allow_int, "jacrev", _rows)


jacobian = jacrev


def hessian(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """The second derivatives of `fun`, as the Jacobian of its Jacobian."""
    check_function("hessian", fun)
    inner = jacrev(fun, argnums, has_aux, holomorphic)
    return jacfwd(inner, argnums, has_aux, holomorphic)


def _jacobian(
    fun: Callable,
    argnums: Any,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
    transform: str,
    parts_of: Callable,
) -> Callable:
    check_function(transform, fun)
    what = f"{transform} of {name_of(fun)}"
    nums = as_argnums(argnums, what)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        check_argnums(argnums, len(args), what, kwargs)
        nums_at = tuple(n % len(args) for n in nums)

        def call(*full: Any) -> Any:
            return called(what, fun, full, kwargs)

        of_picked = taking_only(call, name_of(fun), args, nums_at)
        picked = [args[n] for n in nums_at]
        path = functools.partial(argument_path, fun, nums_at)
        leaves, at = flatten(tuple(picked))
        for i in places(leaves):
            as_moving(leaves[i], what, lambda i=i: path(at, i))
        result, linear, tree, out_tree, aux = linear_parts(
            of_picked, picked, has_aux, transform, path
        )
        reverse = parts_of is _rows
        path = functools.partial(path, tree)
        _check_inputs(what, path, linear.in_types, holomorphic, allow_int, reverse)
        _check_outputs(what, linear.out_types, holomorphic, reverse)
        mesh = explicit_mesh(leaves, flatten(result)[0], linear.captured)
        with in_mesh(mesh):
            rows = [tree.unflatten(row) for row in parts_of(linear)]
        several = isinstance(argnums, Iterable)
        result = out_tree.unflatten(rows if several else [r[0] for r in rows])
        return (result, aux) if has_aux else result

    return wrapped


# Both return a table of blocks, [leaf of the result][leaf of the input].


def _columns(linear: LinearFunction) -> list[list[Any]]:
    """The derivative along each element of the inputs, all together."""
    basis = _standard_basis(linear.in_types)
    active = [i for i, moves in enumerate(linear.active_out) if moves]

    def along(*tangents: Any) -> list[Any]:
        outs = linear(list(tangents))
        return [as_tangent(outs[i], linear.out_types[i]) for i in active]

    found = dict(zip(active, vmap(along)(*basis), strict=True)) if active else {}
    table = []
    for i, t in enumerate(linear.out_types):
        if i not in found:
            table.append([zeros(t.update(shape=t.shape + u.shape)) for u in linear.in_types])
            continue
        pieces = _pieces(found[i], linear.in_types)
        table.append(
            [
                reshape(moveaxis(x, 0, -1), t.shape + u.shape)
                for x, u in zip(pieces, linear.in_types, strict=True)
            ]
        )
    return table


def _rows(linear: LinearFunction) -> list[list[Any]]:
    """The gradient of each element of the outputs, all together."""
    outs = linear.out_types
    basis = _standard_basis(outs)
    depends = [i for i, active in enumerate(linear.active_in) if active]

    def from_output(*cotangents: Any) -> list[Any]:
        grads = pull_back(linear, cotangents)
        return [grads[i] for i in depends]

    found = dict(zip(depends, vmap(from_output)(*basis), strict=True)) if depends else {}
    table = [[_no_gradient(t, u) for u in linear.in_types] for t in outs]
    for i, grads in found.items():
        shape = linear.in_types[i].shape
        for row, piece, t in zip(table, _pieces(grads, outs), outs, strict=True):
            row[i] = reshape(piece, t.shape + shape)
    return table


def _no_gradient(out: ArrayType, into: ArrayType) -> Any:
    return zeros(into.update(shape=out.shape + into.shape))


def _standard_basis(types: Sequence[ArrayType]) -> list[Any]:
    """For each type an array of shape (n, *shape): row k is 1 at the k-th of all elements."""
    total = sum(t.size for t in types)
    basis, first = [], 0
    for t in types:
        if is_inexact(t.dtype):
            ones = eye(total, t.size, -first, t.dtype)
            basis.append(reshape(ones, (total, *t.shape)))
        else:
            basis.append(zeros(t.update(shape=(total, *t.shape))))
        first += t.size
    return basis


def _pieces(x: Any, types: Sequence[ArrayType]) -> list[Any]:
    """The rows of `x` that belong to each type."""
    pieces, first = [], 0
    for t in types:
        pieces.append(slice_in_dim(x, first, first + t.size, 0))
        first += t.size
    return pieces


# Columns are derivatives with respect to real numbers, rows are derivatives of real numbers.


def _check_inputs(
    what: str,
    path: Callable[[int], str],
    types: Sequence[ArrayType],
    holomorphic: bool,
    allow_int: bool,
    reverse: bool,
) -> None:
    for i, t in enumerate(types):
        if is_complex(t.dtype) and (holomorphic or reverse):
            continue
        if not holomorphic and (is_float(t.dtype) or (allow_int and not is_inexact(t.dtype))):
            continue
        kind = "complex inputs with holomorphic=True" if holomorphic else "real inputs"
        raise TypeError(
            f"{what} takes {kind}; {path(i)} is of type {t.str_short(True)}. Use jvp or vjp "
            "for other derivatives."
        )


def _check_outputs(what: str, types: Sequence[ArrayType], holomorphic: bool, reverse: bool) -> None:
    for t in types:
        wanted = is_complex(t.dtype) if holomorphic else is_float(t.dtype) or not reverse
        if not wanted:
            kind = "complex results with holomorphic=True" if holomorphic else "real results"
            raise TypeError(
                f"{what} takes a function with {kind}; it returned {t.str_short(True)}. Use jvp or "
                "vjp for other derivatives."
            )
