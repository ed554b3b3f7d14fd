"""Forward mode and linearization of functions, with the API that JAX's interpreters use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.extend.linear_util import WrappedFun
from shardwise._src.extend.rule_tables import Zero, instantiate_zeros
from shardwise._src.ops.sharded.sharding_ops import cotangent_type
from shardwise._src.runtime.pytree import PyTreeDef, flatten
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.transforms.linearize import linearize as linearize_flat
from shardwise._src.types.dtypes import float0, is_inexact


class _OfLeaves:
    """A function of pytrees as a function from leaves to leaves.

    tree: the structure of the results, set once it ran; aux: the auxiliary output.
    """

    def __init__(self, fun: Any, in_tree: PyTreeDef, has_aux: bool):
        self._fun = fun.call_wrapped if isinstance(fun, WrappedFun) else fun
        self._in_tree, self._has_aux = in_tree, has_aux
        self.count = 0

    def __call__(self, *leaves: Any) -> list[Any]:
        result = self._fun(*self._in_tree.unflatten(leaves))
        aux: Any = None
        if self._has_aux:
            if not isinstance(result, tuple | list) or len(result) != 2:
                raise TypeError(
                    "with has_aux=True the function must return a pair (result, "
                    f"aux); got a {type(result).__name__}."
                )
            result, aux = result
        outs, self._tree = flatten(result)
        besides, self._aux_tree = flatten(aux)
        self.count = len(outs)
        return [*outs, *besides]

    def result(self, leaves: Sequence[Any]) -> Any:
        return self._tree.unflatten(leaves[: self.count])

    def aux(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        return (self._aux_tree.unflatten(leaves[self.count :]),) if self._has_aux else ()


def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
    instantiate: bool | Sequence[bool] = True,
    transform_stack: bool = True,
) -> tuple[Any, ...]:
    """The results of a function and their tangents.

    Args:
      fun: takes pytrees and returns a pytree; may be a `WrappedFun`.
      primals, tangents: its arguments, and a tangent for each, of equal structure. A tangent may
        be a `Zero`.
      has_aux: whether it returns a pair, whose second element is not differentiated.
      instantiate: whether tangents known to be zero are arrays instead of `Zero`s: for all
        results, or for each.
      transform_stack: ignored; equations do not record names of transforms.

    Returns:
      The results; their tangents, in the same structure; with `has_aux`, the auxiliary output.
    """
    leaves, tree = flatten(tuple(primals))
    given = flatten(tuple(tangents))[0]
    if len(given) != len(leaves):
        raise ValueError(
            f"jvp: tangents must have the structure of primals: {len(leaves)} leaves; got "
            f"{len(given)}."
        )
    flat = _OfLeaves(fun, tree, has_aux)
    outs, moved = push_forward(
        flat, leaves, [None if _is_zero(t) else t for t in given], current().interpreter
    )
    moved = moved[: flat.count]
    forced = [instantiate] * flat.count if isinstance(instantiate, bool) else list(instantiate)
    zeros = [Zero(cotangent_type(type_of(x))) for x in outs[: flat.count]]
    found = [z if t is None else t for t, z in zip(moved, zeros, strict=True)]
    found = [_array(t) if f else t for t, f in zip(found, forced, strict=True)]
    return flat.result(outs), flat.result(found), *flat.aux(outs)


def _array(t: Any) -> Any:
    if isinstance(t, Zero) and not is_inexact(t.aval.dtype):
        return np.zeros(t.aval.shape, float0)
    return instantiate_zeros(t)


def _is_zero(t: Any) -> bool:
    return isinstance(t, Zero) or (isinstance(t, np.ndarray) and t.dtype == float0)


def linearize(
    traceable: Callable[..., Any],
    primals_ft: Sequence[Any],
    has_aux: bool = False,
    is_vjp: bool = False,
) -> tuple[Any, ...]:
    """The results of a function, and the program of its linear part at these arguments.

    Args:
      traceable: takes pytrees and returns a pytree; may be a `WrappedFun`.
      primals_ft: its arguments. The program takes a tangent for each of their leaves that is a
        real or complex number.
      has_aux: as in `jvp`.
      is_vjp: ignored; the program is the same if it is transposed afterwards.

    Returns:
      The results; for each of their leaves, whether its tangent is zero (then it is not a result
      of the program); the program; the values of its first arguments; with `has_aux`, the
      auxiliary output.
    """
    leaves, tree = flatten(tuple(primals_ft))
    flat = _OfLeaves(traceable, tree, has_aux)
    outs, linear = linearize_flat(flat, leaves, "linearize", differentiated=lambda: flat.count)
    program: Program = linear.program
    consts = [*program.consts, *linear.captured]
    zeros = [not active for active in linear.active_out]
    return flat.result(outs), zeros, program, consts, *flat.aux(outs)
