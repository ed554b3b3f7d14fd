"""`ffi_call`: a foreign function as an op.

    y = ffi_call("rms_norm", ShapeDtypeStruct(x.shape, x.dtype))(x, eps=np.float32(1e-5))

Attributes are stored as their program text, so that calls with equal attributes hit the cache.
The function's computation is opaque, so it has no derivative, and its results are replicated. Only
batch dimensions stay sharded, if the function accepts shards of a batch
(`register_ffi_target_as_batch_partitionable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from shardwise._src.control.scan_api import scan
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.debug.host_callbacks import operands, result_types
from shardwise._src.effects.callback import METHODS
from shardwise._src.ffi.call_description import (
    LayoutOption,
    Order,
    attributes_of,
    config_text,
    orders_of,
)
from shardwise._src.lowering.text import quoted
from shardwise._src.messages.formatting import pluralize
from shardwise._src.ops.basis import move_axis
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.runtime.compiler.ffi import is_batch_partitionable
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import to_dim, with_dim, without_dim
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters

FFI = "ffi"  # the effect of a foreign function that has side effects
Values = Sequence[Any]


# -- rules; shared with buffer_callback --


def _dims(op: Op, *types: ArrayType, result_avals: Any, num_batch_dims: int, **p: Any) -> Dims:
    """Only batch dimensions are related; results are replicated along the others."""
    both = (*types, *result_avals)
    names = iter(letters(num_batch_dims + sum([t.ndim - num_batch_dims for t in both])))
    shared = tuple([next(names) for _ in range(num_batch_dims)])
    rows = [(*shared, *[next(names) for _ in t.shape[num_batch_dims:]]) for t in both]
    return Dims(tuple(rows[: len(types)]), tuple(rows[len(types) :]))


def _title(target_name: str, **p: Any) -> str:
    return f"ffi_call of {target_name!r}"


def _lower(
    op: Op,
    e: Any,
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    *xs: str,
    target_name: str,
    result_avals: Any,
    attributes: Any,
    vmap_method: str | None,
    input_layouts: Sequence[Order],
    output_layouts: Sequence[Order],
    input_output_aliases: Sequence[tuple[int, int]],
    custom_call_api_version: int,
    legacy_backend_config: str | None,
    num_batch_dims: int,
) -> list[str]:
    if custom_call_api_version >= 4:
        config = config_text(_title(target_name), attributes)
    else:
        config = quoted(legacy_backend_config or "")
    batch = 0
    if e.devices > 1 and num_batch_dims and is_batch_partitionable(target_name):
        batch = num_batch_dims  # equal shards only: a function gets no padding
        kept = [[d for d, n in enumerate(t.shape) if d >= batch or not e.divides(n)] for t in ins]
        xs = tuple([e.replicate_dims(*row) for row in zip(xs, ins, kept, strict=True)])
    return e.custom_call(
        target_name,
        xs,
        ins,
        outs,
        config=config,
        version=custom_call_api_version,
        orders=(input_layouts, output_layouts),
        aliases=dict(input_output_aliases),
        effect=bool(op.effects),
        batch=batch,
    )


def _batched(op: Op, mapped: Any, args: Values, dims: Any, p: Any) -> tuple[list[Any], list[int]]:
    """Adds a batch dimension by the requested method: in sequential calls, or in one call."""
    method, size = p["vmap_method"], mapped.size
    if method.startswith("sequential"):
        return _as_mapped(_one_by_one(op, args, dims, p, size), mapped)
    taken = {x for x, _ in p["input_output_aliases"]}  # results reuse memory of the same size
    moved, deeper = [], []
    for i, (x, d) in enumerate(zip(args, dims, strict=True)):
        every = d is not None or method == "broadcast_all" or i in taken
        if every:
            x = to_dim(x, d, 0, size, mapped.batch_sharding)
        elif method == "expand_dims":
            x = to_dim(x, None, 0, 1)
        moved.append(x)
        deeper.append(every or method == "expand_dims")
    shared = all(
        [type_of(x).shape[:1] == (size,) and more for x, more in zip(moved, deeper, strict=True)]
    )
    changed = {
        "result_avals": tuple([t.update(shape=(size, *t.shape)) for t in p["result_avals"]]),
        "num_batch_dims": p["num_batch_dims"] + 1 if shared else 0,
        "input_layouts": tuple(
            [_deeper(x) if more else x for x, more in zip(p["input_layouts"], deeper, strict=True)]
        ),
        "output_layouts": tuple([_deeper(x) for x in p["output_layouts"]]),
    }
    return _as_mapped(op(*moved, **p | changed), mapped)


def _as_mapped(outs: list[Any], mapped: Any) -> tuple[list[Any], list[int]]:
    """The results, sharded along their batch dimension like those of other ops."""
    if mapped.batch_sharding is not None:
        types = [without_dim(type_of(x), 0) for x in outs]
        wanted = [with_dim(t, mapped.size, 0, mapped.batch_sharding) for t in types]
        outs = [reshard_like(x, t) for x, t in zip(outs, wanted, strict=True)]
    return outs, [0] * len(outs)


def _one_by_one(op: Op, args: Values, dims: Any, p: dict[str, Any], size: int) -> list[Any]:
    rows = [_whole(move_axis(x, d, 0)) for x, d in zip(args, dims, strict=True) if d is not None]

    def body(nothing: Any, row: Any) -> Any:
        parts = iter(row)
        return nothing, op(
            *[x if d is None else next(parts) for x, d in zip(args, dims, strict=True)], **p
        )

    return scan(body, None, rows, size, unroll=p["vmap_method"] == "sequential_unrolled")[1]


def _whole(rows: Any) -> Any:
    """Rows that a loop iterates over: not sharded over explicit mesh axes."""
    t = type_of(rows)
    return reshard_like(rows, with_dim(without_dim(t, 0), t.shape[0], 0, None))


def _deeper(order: Order) -> Order:
    return None if order is None else (0, *[d + 1 for d in order])


def records(
    name: str, effect: str, title: Callable[..., str], lower: Callable[..., Any], **more: Any
) -> tuple[Op, Op]:
    """The ops of calls of foreign functions without and with side effects.

    title: returns the subject of messages, from the parameters of a call.
    """

    def derivative(op: Op, *args: Any, **p: Any) -> NoReturn:
        raise ValueError(
            f"{title(**p)}: it has no derivative, because the function is opaque. "
            "Define one: wrap the call in a function with `shardwise.custom_vjp` or "
            "`shardwise.custom_jvp`. Or use `shardwise.lax.stop_gradient` on its arguments."
        )

    def batch(op: Op, mapped: Any, args: Values, dims: Any, **p: Any) -> Any:
        if p["vmap_method"] is None:
            raise NotImplementedError(
                f"{title(**p)}: it cannot be used under vmap, as vmap_method is None. Pass one of "
                f"{', '.join(map(repr, METHODS))} to `{name}`: 'sequential' calls the function for "
                "each element; with the others it gets full batches."
            )
        return _batched(op, mapped, args, dims, p)

    plain = Op(
        name,
        type_rule=lambda op, *types, result_avals, **p: result_avals,
        dims=_dims,
        lower=lower,
        jvp=derivative,
        transpose=derivative,
        batch=batch,
        multiple=True,
        is_expensive=True,
        **more,
    )
    return plain, replace(plain, name=f"effectful_{name}", effects=frozenset([effect]))


foreign, effectful = records("ffi_call", FFI, _title, _lower)


# -- the function --


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[LayoutOption] | None = None,
    output_layouts: LayoutOption | Sequence[LayoutOption] = None,
    input_output_aliases: dict[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
    num_batch_dims: int = 0,
) -> Callable[..., Any]:
    """A function that calls a foreign function, eagerly and in compiled programs.

    It has no derivative; `custom_vjp` or `custom_jvp` define one. On several devices the operands
    are gathered and each device does all the work, except in `shard_map` and along batch
    dimensions (see `num_batch_dims`).

    Args:
      target_name: the name under which `register_ffi_target` registered it.
      result_shape_dtypes: an object with the shape and dtype of the result, such as
        `ShapeDtypeStruct`, or a pytree of these. 64-bit dtypes are accepted also if they are
        disabled otherwise.
      has_side_effect: whether it is called even if its results are unused.
      vmap_method: what `vmap` does: "sequential" (or "sequential_unrolled") calls the function for
        each element; with the other methods it gets and returns an additional leading dimension.
        For an unmapped argument this dimension has size 1 ("expand_dims"), has the full size
        ("broadcast_all"), or is absent ("legacy_vectorized"). None raises an error.
      input_layouts: for each operand None (the last dimension varies fastest in memory), a
        `Layout`, or its dimensions from slowest to fastest varying. XLA ensures the layout.
      output_layouts: the same for the result, or for each result.
      input_output_aliases: {operand: result}, by index: results that reuse the memory of operands
        of the same shape, dtype and layout; operands that are still needed are copied.
      custom_call_api_version: 4 for handlers of XLA's typed interface.
      legacy_backend_config: a string for the function, if the version is below 4.
      num_batch_dims: how many leading dimensions of all operands and results are a batch, which a
        function registered as batch partitionable may get in shards. `vmap` adds its own. Batch
        dimensions not divisible by the number of devices are gathered: there is no padding.

    Returns:
      `f(*operands, **attributes)`: arrays as in `result_shape_dtypes`. Attributes are booleans,
      integers (as int64), floats (as float64), strings, NumPy scalars and arrays, and lists, tuples
      and dictionaries of them.

    Raises:
      ValueError: if a result, method, layout, alias or version is invalid.
      TypeError: if an operand or attribute has an unsupported type.
      JaxRuntimeError: if nothing is registered under the name; also the function's own errors,
        raised by the call or when a result is fetched.
    """
    title = _title(target_name)
    check_method(title, vmap_method)
    if custom_call_api_version >= 4 and legacy_backend_config is not None:
        raise ValueError(
            f"{title}: legacy_backend_config is for custom_call_api_version below 4; got "
            f"{custom_call_api_version}. Pass attributes as keyword arguments of the call."
        )
    _check_results(title, result_shape_dtypes)
    results, tree = result_types(title, result_shape_dtypes, wide=True)
    single = tree == flatten(0)[1]
    given = (output_layouts,) if single and output_layouts is not None else output_layouts
    outs = orders_of(title, "result", results, given)
    op = effectful if has_side_effect else foreign

    def call(*args: Any, **attributes: Any) -> Any:
        leaves = flatten(args)[0]
        if len(leaves) != len(args) or any([a is not b for a, b in zip(leaves, args, strict=True)]):
            raise TypeError(f"{title}: each operand must be an array; got a pytree.")
        values, _ = operands(title, args, {})
        types = [type_of(x) for x in values]
        if attributes and custom_call_api_version < 4:
            raise ValueError(
                f"{title}: attributes need custom_call_api_version=4; got "
                f"{custom_call_api_version} with {', '.join(attributes)}. Pass a string "
                "as legacy_backend_config."
            )
        _check_batch(title, num_batch_dims, (*types, *results))
        ins = orders_of(title, "operand", types, input_layouts)
        return tree.unflatten(
            op(
                *values,
                target_name=target_name,
                result_avals=tuple(results),
                attributes=attributes_of(title, attributes),
                vmap_method=vmap_method,
                input_layouts=ins,
                output_layouts=outs,
                num_batch_dims=num_batch_dims,
                input_output_aliases=aliases_of(
                    title, input_output_aliases, types, results, ins, outs
                ),
                custom_call_api_version=custom_call_api_version,
                legacy_backend_config=legacy_backend_config,
            )
        )

    return call


def _check_results(title: str, wanted: Any) -> None:
    for i, x in enumerate(wanted if isinstance(wanted, tuple | list) else [wanted]):
        leaves = flatten(x)[0]
        if not leaves or not all(hasattr(t, "shape") and hasattr(t, "dtype") for t in leaves):
            raise ValueError(
                f"{title}: result_shape_dtypes must be objects with a shape and a dtype, such as "
                f"`ShapeDtypeStruct`; got {x!r} at position {i}."
            )


def check_method(title: str, method: str | None) -> None:
    if method is not None and method not in METHODS:
        raise ValueError(
            f"{title}: vmap_method must be None or one of {', '.join(map(repr, METHODS))}; got "
            f"{method!r}."
        )


def _check_batch(title: str, count: int, types: Sequence[ArrayType]) -> None:
    leading = {t.shape[:count] for t in types}
    if len(leading) > 1 or any([len(sizes) < count for sizes in leading]):
        raise ValueError(
            f"{title}: num_batch_dims={count} leading dimensions must be the same for all "
            f"operands and results; got {', '.join([t.str_short(True) for t in types])}."
        )


def aliases_of(
    title: str,
    aliases: dict[int, int] | None,
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    in_orders: Sequence[Order],
    out_orders: Sequence[Order],
) -> tuple[tuple[int, int], ...]:
    """Validated pairs of operands and results that share memory."""
    found = sorted((int(x), int(out)) for x, out in (aliases or {}).items())
    for x, out in found:
        where = f"{title}: input_output_aliases has {x}: {out}"
        for number, types, what in ((x, ins, "operand"), (out, outs, "result")):
            if not 0 <= number < len(types):
                raise ValueError(f"{where}, but the call has {pluralize(len(types), what)}.")
        a, b = ins[x], outs[out]
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(
                f"{where}: the operand is {a.str_short(True)}, the result {b.str_short(True)}; "
                "only equal types can share memory."
            )
        if in_orders[x] != out_orders[out]:
            raise ValueError(
                f"{where}, but their layouts differ; only equal layouts can share memory."
            )
    return tuple(found)
