"""`buffer_callback`: a Python function that writes its results into buffers of the program.

Like a foreign function, and unlike other callbacks, it is called on each device with full operands.
Buffers only exist in compiled programs, so an eager call is a program of one equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.debug.host_callbacks import operands, result_types
from shardwise._src.effects.callback import CALLBACK, Callback
from shardwise._src.ffi.ffi_call import aliases_of, check_method, records
from shardwise._src.messages.argument_names import name_of
from shardwise._src.types.array_type import ArrayType


@dataclass(frozen=True, slots=True)
class BufferFunction:
    """Called by a compiled program with the buffers of its operands and results, in this order."""

    callback: Callback

    title = property(lambda self: self.callback.title)
    results = ()

    def __call__(self, ctx: Any, *buffers: Any) -> tuple[()]:
        own = self.callback
        count = own.in_tree.num_leaves
        with own.context.entered():
            args, kwargs = own.in_tree.unflatten(buffers[:count])
            found = own.fun(ctx, own.out_tree.unflatten(buffers[count:]), *args, **kwargs)
        if found is not None:
            raise ValueError(
                f"{self.title}: the function returned {found!r}; it must write its results into "
                "the buffers that it gets, and return None."
            )
        return ()

    def blank(self, turn: int) -> tuple[()]:
        return ()


def _host(op: Op, *, callback: Callback, **p: Any) -> BufferFunction:
    return BufferFunction(callback)


def _lower(
    op: Op,
    e: Any,
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    *xs: str,
    callback: Callback,
    command_buffer: bool,
    input_output_aliases: Any,
    **p: Any,
) -> list[str]:
    kind = e.platform.callbacks
    if not kind:
        raise NotImplementedError(
            f"{callback.title}: buffers are supported on CPU and GPU only, not on {e.platform}."
        )
    after = "_cmd_buffer" if command_buffer and not e.platform.shares_memory else ""
    return e.custom_call(
        f"xla_buffer_python_{kind}_callback{after}",
        xs,
        ins,
        outs,
        config=f"{{index = {e.host_numbers[BufferFunction(callback)]} : ui64}}",
        aliases=dict(input_output_aliases),
        effect=bool(op.effects),
    )


def _title(*, callback: Callback, **p: Any) -> str:
    return callback.title


foreign, effectful = records(
    "buffer_callback", CALLBACK, _title, _lower, host=_host, user_code=True
)


def buffer_callback(
    callback: Callable[..., None],
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_output_aliases: dict[int, int] | None = None,
    command_buffer_compatible: bool = False,
) -> Callable[..., Any]:
    """A function that calls a host function, which writes its results in place.

        def add_one(ctx, out, x):
            np.asarray(out)[...] = np.asarray(x) + 1

        y = buffer_callback(add_one, x)(x)

    Args:
      callback: `callback(ctx, out, *args, **kwargs)`, with a `Buffer` for each array of the
        arguments; `out` is the pytree of `result_shape_dtypes` with writable buffers; it returns
        None. On CPU, NumPy accepts buffers; on GPU, libraries that support
        `__cuda_array_interface__` do; both support DLPack.
        `ctx` is an `ExecutionContext` with the `stage`, and on GPU the `stream`.
      result_shape_dtypes: a pytree of objects with the shape and dtype of a result.
      has_side_effect: whether it is called even if its results are unused.
      vmap_method: as for `shardwise.ffi.ffi_call`.
      input_output_aliases: {operand: result}, by leaf index: results that reuse the memory of
        operands and initially contain their values.
      command_buffer_compatible: on GPU, whether its launches may be recorded once and replayed.

    Returns:
      `f(*args, **kwargs)` of pytrees of arrays, which returns the results as arrays.

    Raises:
      ValueError: if a method or alias is invalid.
      CallbackError: the function's exception, raised by the call or when a result is fetched.
    """
    title = f"buffer_callback of {name_of(callback)}"
    if not callable(callback):
        raise TypeError(
            f"buffer_callback takes a function as its first argument; got {callback!r}."
        )
    check_method(title, vmap_method)
    results, out_tree = result_types(title, result_shape_dtypes)
    op = effectful if has_side_effect else foreign

    def call(*args: Any, **kwargs: Any) -> Any:
        values, in_tree = operands(title, args, kwargs)
        ins, outs = (None,) * len(values), (None,) * len(results)
        types = [type_of(x) for x in values]
        record = Callback(callback, "buffer_callback", in_tree, {}, out_tree, vmap_method)
        return out_tree.unflatten(
            op(
                *values,
                callback=record,
                result_avals=tuple(results),
                vmap_method=vmap_method,
                input_layouts=ins,
                output_layouts=outs,
                num_batch_dims=0,
                input_output_aliases=aliases_of(
                    title, input_output_aliases, types, results, ins, outs
                ),
                command_buffer=bool(command_buffer_compatible),
            )
        )

    return call
