"""JAX primitives that are functions in this library: `bind` records one equation, which is lowered,
batched and differentiated like the function that it represents.

The library's own functions do not use them: their programs contain the underlying ops.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.autodiff.grad import jvp
from shardwise._src.autodiff.jvp_vjp import linear_transpose
from shardwise._src.base.positions import put, taking_only
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import eval_jaxpr
from shardwise._src.distributed.host_local import (
    global_array_to_host_local_array,
    host_local_array_to_global_array,
)
from shardwise._src.extend import rule_tables
from shardwise._src.extend.primitive import Primitive
from shardwise._src.lax import elementwise_operators, nearest, shape_operators, tokens
from shardwise._src.lax.ragged import ragged_all_to_all
from shardwise._src.linalg import lax_linalg, triangular_solves
from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.creation import zeros
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.cast import bitcast_convert_type
from shardwise._src.ops.families import lit
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.shape import pad, slice_
from shardwise._src.types.annotations import Array
from shardwise._src.types.dtypes import float0, is_complex, is_inexact

Function = Callable[..., Any]


def composed(name: str, fun: Function, multiple: bool = False) -> Primitive:
    """A primitive for `fun(*operands, **params)`. multiple: whether `fun` returns a sequence."""
    made = Primitive(name)
    made.multiple_results = multiple
    made.def_impl(fun)
    lowered = rule_tables.lower_fun(fun, multiple)
    rule_tables.register_lowering(made, lowered)

    def types(*ins: Any, **params: Any) -> Any:
        found = lowered.staged(ins, params).out_types
        return found if multiple else found[0]

    def moved(primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> tuple[Any, Any]:
        places = [i for i, t in enumerate(tangents) if not isinstance(t, rule_tables.Zero)]
        of_moving = taking_only(functools.partial(fun, **params), name, primals, places)
        given, steps = ([row[i] for i in places] for row in (primals, tangents))
        outs, moved = jvp(of_moving, given, steps)
        return outs, [*map(_moving, moved)] if multiple else _moving(moved)

    def transposed(ct: Any, /, *args: Any, **params: Any) -> list[Any]:
        places = [i for i, x in enumerate(args) if rule_tables.is_undefined_primal(x)]

        def listed(*args: Any) -> Any:
            out = fun(*args, **params)
            return [*out] if multiple else out

        of_linear = taking_only(listed, name, args, places)
        cts = [rule_tables.instantiate_zeros(c) for c in ct] if multiple else ct
        types_of = [ShapeDtypeStruct(args[i].aval.shape, args[i].aval.dtype) for i in places]
        back = linear_transpose(of_linear, *types_of)(cts)
        return put([None] * len(args), places, back)

    def mapped(axis: Any, args: Sequence[Any], dims: Sequence[Any], /, **params: Any) -> Any:
        one = functools.partial(fun, **params)
        names = {} if axis.name is None else {"axis_name": axis.name}
        out = vmap(one, in_axes=tuple(dims), axis_size=axis.size, **names)(*args)
        return out, [0] * len(out) if multiple else 0

    made.def_abstract_eval(types)
    rule_tables.primitive_jvps[made] = moved
    rule_tables.primitive_transposes[made] = transposed
    rule_tables.fancy_primitive_batchers[made] = mapped
    return made


def _moving(tangent: Any) -> Any:
    """A tangent as rules expect it: a `Zero` for a value without a tangent."""
    t = type_of(tangent)
    return rule_tables.Zero(t) if t.dtype == float0 else tangent


class Inlined(Primitive):
    """A primitive that immediately records the function's own equations: the function needs named
    axes in scope, or it is an op of this library with other parameters."""

    def __init__(self, name: str, fun: Function):
        super().__init__(name)
        self.impl = self.bind = fun


# -- per-process arrays --


def host_local_array_to_global_array_impl(arr: Any, *, global_mesh: Any, pspec: Any) -> Array:
    """`host_local_array_to_global_array` for a single array."""
    return host_local_array_to_global_array(arr, global_mesh, pspec)


def global_array_to_host_local_array_impl(arr: Any, *, global_mesh: Any, pspec: Any) -> Array:
    """`global_array_to_host_local_array` for a single array."""
    return global_array_to_host_local_array(arr, global_mesh, pspec)


# -- comparisons in the total order, as in sorting: -NaN < -inf < -0 < 0 < inf < NaN --


def _ranked(x: Any) -> Any:
    """Integers in the same order as the floating-point numbers."""
    t = type_of(x)
    if not is_inexact(t.dtype):
        return x
    signed = np.dtype(f"int{8 * t.dtype.itemsize}")
    bits = bitcast_convert_type(x, dtype=signed)
    turned = ew.bitwise_xor(bits, lit(np.iinfo(signed).max, bits))
    return select_n(ew.lt(bits, lit(0, bits)), bits, turned)


def _eq_to(x: Any, y: Any) -> Any:
    if is_complex(type_of(x).dtype):
        parts = [_eq_to(part(x), part(y)) for part in (ew.real, ew.imag)]
        return ew.bitwise_and(*parts)
    return ew.eq(_ranked(x), _ranked(y))


# -- window reductions --


def _select_and_scatter(
    operand: Any,
    source: Any,
    init_value: Any,
    *,
    select_jaxpr: Any,
    select_consts: Any,
    scatter_jaxpr: Any,
    scatter_consts: Any,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[Sequence[int]],
) -> Array:
    """In each window of `operand`, scatters an element of `source` to the element that `select`
    chooses; each position combines its contributions and `init_value` by `scatter`."""

    def scalars(program: Any, consts: Any, x: Any, y: Any) -> Any:
        flat = [reshape(v, shape=(type_of(v).size,)) for v in (x, y)]
        (out,) = vmap(lambda a, b: eval_jaxpr(program, consts, a, b))(*flat)
        return reshape(out, shape=type_of(x).shape)

    shape, counts = type_of(operand).shape, type_of(source).shape
    config = tuple([(low, high, 0) for low, high in padding])
    inside = pad(broadcast_in_dim(np.True_, shape=shape, dims=()), np.False_, padding_config=config)
    x = pad(operand, lit(0, operand), padding_config=config)
    wide = type_of(x).shape
    best = found = None
    rows: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for starts in itertools.product(*map(range, window_dimensions)):
        ends = zip(starts, counts, window_strides, strict=True)
        stops = tuple([a + (n - 1) * s + 1 for a, n, s in ends])
        rows.append((starts, stops))
        part, real = (
            slice_(z, start_indices=starts, limit_indices=stops, strides=tuple(window_strides))
            for z in (x, inside)
        )
        number = broadcast_in_dim(np.int32(len(rows)), shape=counts, dims=())
        if best is None or found is None:
            best, found = part, select_n(real, lit(0, number), number)
            continue
        stays = ew.bitwise_and(
            scalars(select_jaxpr, select_consts, best, part), ew.ne(found, lit(0, found))
        )
        wins = ew.bitwise_and(real, ew.bitwise_not(stays))
        best, found = select_n(wins, best, part), select_n(wins, found, number)
    total = broadcast_in_dim(init_value, shape=wide, dims=())
    for k, (starts, stops) in enumerate(rows, 1):
        ends = zip(starts, stops, wide, window_strides, strict=True)
        back = tuple([(a, n - b, s - 1) for a, b, n, s in ends])
        share = pad(source, lit(0, source), padding_config=back)
        hit = pad(ew.eq(found, lit(k, found)), np.False_, padding_config=back)
        total = select_n(hit, total, scalars(scatter_jaxpr, scatter_consts, total, share))
    return pad(total, lit(0, total), padding_config=tuple([(-a, -b, 0) for a, b, _ in config]))


def _approx_top_k(operand: Any, *, is_max_k: bool, **params: Any) -> Any:
    return (nearest.approx_max_k if is_max_k else nearest.approx_min_k)(operand, **params)


squeeze_p = composed("squeeze", lambda x, *, dimensions: shape_operators.squeeze(x, dimensions))
stack_p = composed("stack", lambda *xs, axis: shape_operators.stack(xs, axis))
unstack_p = composed("unstack", lambda x, *, axis: shape_operators.unstack(x, axis), True)
tile_p = composed("tile", lambda x, *, reps: shape_operators.tile(x, reps))
stage_p = composed("stage", shape_operators.stage)
empty2_p = composed("empty2", lambda *, dtype, memory_space=None: zeros((), dtype))
mulhi_p = composed("mulhi", elementwise_operators.mulhi)
eq_to_p = composed("eq_to", _eq_to)
lt_to_p = composed("lt_to", lambda x, y: ew.lt(_ranked(x), _ranked(y)))
le_to_p = composed("le_to", lambda x, y: ew.le(_ranked(x), _ranked(y)))
approx_top_k_p = composed("approx_top_k", _approx_top_k, True)
select_and_scatter_p = composed("select_and_scatter", _select_and_scatter)
cholesky_update_p = composed("cholesky_update", lax_linalg.cholesky_update)
symmetric_product_p = composed("symmetric_product", triangular_solves.symmetric_product)
create_token_p = composed("create_token", tokens.create_token)
after_all_p = composed("after_all", tokens.after_all)
ragged_all_to_all_p = Inlined("ragged_all_to_all", ragged_all_to_all)
host_local_array_to_global_array_p = Inlined(
    "host_local_array_to_global_array", host_local_array_to_global_array_impl
)
global_array_to_host_local_array_p = Inlined(
    "global_array_to_host_local_array", global_array_to_host_local_array_impl
)
