"""Ops on arrays of an extended dtype (typed keys), lowered on the underlying integers.

A buffer of `key<fry>[8]` is a `uint32[8,2]`: the logical dimensions, then those of one element. An
op that only moves elements does not depend on what they are, so on buffers it is the same op,
batched over the dimensions of the element. The `vmap` batching rule of every op does this; no
further rule per op is needed. docs/design/0007-typed-keys.md has the full design.
"""

from __future__ import annotations

import functools
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.reduce import reduce_and, reduce_or
from shardwise._src.transforms.batch import batch, to_dim
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.extended import ExtendedDType


def on_buffers(*buffers: Any, op: Op, types: tuple[ArrayType, ...], params: tuple) -> list[Any]:
    """Applies the op to the buffers of its operands, which have the given types."""
    keyed = [isinstance(t.dtype, ExtendedDType) for t in types]
    element = types[keyed.index(True)].dtype.physical_shape

    def bind(*args: Any) -> list[Any]:
        result = op(*args, **dict(params))
        return list(result) if op.multiple else [result]

    def over(sizes: tuple[int, ...], *args: Any) -> list[Any]:
        if not sizes:
            return bind(*args)
        last = [type_of(a).ndim - 1 if k else None for a, k in zip(args, keyed, strict=True)]
        inner = functools.partial(over, sizes[:-1])
        outs, dims = batch(inner, args, last, sizes[-1], transform="lowering", name=op.name)
        return [
            to_dim(x, d, type_of(x).ndim - (d is not None), sizes[-1])
            for x, d in zip(outs, dims, strict=True)
        ]

    outs = over(element, *buffers)
    together = {Elements.EQUAL: reduce_and, Elements.UNEQUAL: reduce_or}.get(op.elements)
    return outs if together is None else [_over_last(together, x, len(element)) for x in outs]


def _over_last(reduce: Op, x: Any, count: int) -> Any:
    """A reduction over the last dimensions."""
    ndim = type_of(x).ndim
    return reduce(x, axes=tuple(range(ndim - count, ndim)))
