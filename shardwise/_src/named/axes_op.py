"""The op `axes`: the identity, which records the logical axes of its operand.

It computes nothing, and only exists in programs that `check` stages, to record the declarations of
functions; also in derivatives, and in `vmap`, whose batch dimension gets the mapped name.

words: the logical axes of the operand's dimensions.
to:    those of the result's dimensions; a different name makes it another axis for `check`.
call:  the number of the function call that the names belong to.
who:   the place of their declaration, for messages.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.named.logical_axes import ANY
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters


def _dims(op: Op, x: ArrayType, **p: Any) -> Dims:
    return Dims((letters(x.ndim),), (letters(x.ndim),), linear=((0,),))


def _jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    return op(primals[0], **p), op(tangents[0], **p)


def _batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, words: Any, to: Any, **p: Any
) -> tuple[Any, int]:
    name = mapped.axis.name
    hidden = name if isinstance(name, str) and name not in (*words, *to) else ANY
    words, to = ((*row[: dims[0]], hidden, *row[dims[0] :]) for row in (words, to))
    return op(args[0], words=words, to=to, **p), dims[0]


def _transpose(op: Op, ct: Any, x: Any, *, words: Any, to: Any, **p: Any) -> list[Any]:
    return [op(ct, words=to, to=words, **p)]


axes_op = Op(
    "axes",
    type_rule=lambda op, x, **p: x,
    dims=_dims,
    lower=lambda op, e, ins, outs, x, **p: x,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    elements=Elements.MOVED,
    pointwise=True,
)
