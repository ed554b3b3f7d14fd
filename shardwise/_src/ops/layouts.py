"""`layout_constraint`: its operand, in a layout that the compiler must not change."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.rules import elementwise_dims, linear_jvp
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.layout import Layout


def _type(op: Op, x: ArrayType, *, layout: Layout) -> ArrayType:
    layout.for_rank(x.ndim)  # raises if it does not fit
    return x


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, layout: Layout) -> str:
    ty, ndim = e.ty(ins[0]), ins[0].ndim
    orders = [*range(ndim)][::-1], [*layout.major_to_minor][::-1]
    given, wanted = (
        f"dense<{order if ndim else '[]'}> : tensor<{ndim}xindex>".replace("<[]>", "<>")
        for order in orders
    )
    return e.let(
        f'stablehlo.custom_call @LayoutConstraint({x}) {{backend_config = "", operand_layouts = '
        f"[{given}], result_layouts = [{wanted}]}} : ({ty}) -> {ty}"
    )


def _batch(op: Op, mapped: Any, args: Any, dims: Any, *, layout: Layout) -> tuple[Any, int]:
    """The batch dimension is the major-most."""
    (x,), (d,) = args, dims
    order = (d, *[a + (a >= d) for a in layout.major_to_minor])
    return op(x, layout=Layout(order, layout.tiling)), d


layout_constraint = Op(
    "layout_constraint",
    type_rule=_type,
    dims=elementwise_dims,
    lower=_lower,
    jvp=linear_jvp,
    transpose=lambda op, ct, x, **p: [op(ct, **p)],
    batch=_batch,
    eager=lambda op, args, params: args[0],
    elements=Elements.MOVED,
)
