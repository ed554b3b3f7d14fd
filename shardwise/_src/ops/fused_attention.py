"""Attention by cuDNN: scores, softmax and weighted sum in one kernel, which stores no scores.

    out, sums = fused_attention(q, k, v, form=FusedForm(scale=0.125, is_causal=True))
    dq, dk, dv = fused_attention_gradients(q, k, v, sums, ct, out, form=...)

q, out: (B, T, N, H); k, v: (B, S, K, H); of dtype bfloat16 or float16. `sums`, f32[B, N, T], are
the logarithms of the sums of exponentials. A bias may follow, which broadcasts to (B, N, T, S), and
the lengths of queries and keys, i32[B] each. Only platforms with cuDNN compile these ops.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops.basis import batch_first, broadcast_in_dim, ints, reshape
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims

FLOAT32, BYTE = np.dtype(np.float32), np.dtype(np.uint8)
HEADS_INSIDE = (0, 2, 1, 3)  # the order in memory of (B, N, T, H), whose heads are inside of rows


class FusedForm(NamedTuple):
    """Static facts of a call.

    scale:         of the scores.
    is_causal:     whether query t attends only to keys up to t.
    window:        how many keys a query attends to, its own included; 0 for all.
    is_biased:     whether there is a bias.
    bias_gradient: whether derivatives include that of the bias.
    is_padded:     whether there are lengths.
    has_sums:      whether `sums` is a result; derivatives need it.
    """

    scale: float
    is_causal: bool = False
    window: int = 0
    is_biased: bool = False
    bias_gradient: bool = False
    is_padded: bool = False
    has_sums: bool = True

    def target(self, suffix: str = "") -> str:
        """The name of XLA's custom call."""
        return f"__cudnn$fmha{'ScaleBias' if self.is_biased else ''}Softmax{suffix}"

    def mask(self) -> str:
        names = [n for n, f in (("PADDING", self.is_padded), ("CAUSAL", self.is_causal)) if f]
        return "_".join(names) or "NO_MASK"


def _product(
    contracted: tuple[int, int], left: Sequence[int], right: Sequence[int]
) -> dict[str, list[str]]:
    rows = zip(("lhs", "rhs"), contracted, (left, right), strict=True)
    found: dict[str, list[str]] = {}
    for side, dim, batch in rows:
        found[f"{side}_contracting_dimensions"] = [str(dim)]
        found[f"{side}_batch_dimensions"] = [*map(str, batch)]
    return found


# The products of the kernels, in which scores are (B, N, T, S).
_FORWARD = {
    "bmm1_dot_dimension_numbers": _product((3, 3), (0, 2), (0, 2)),
    "bmm2_dot_dimension_numbers": _product((3, 1), (0, 1), (0, 2)),
}
_BACKWARD = {
    "bmm1_grad_gemm1_dot_dimension_numbers": _product((2, 1), (0, 1), (0, 2)),
    "bmm1_grad_gemm2_dot_dimension_numbers": _product((3, 1), (0, 1), (0, 2)),
    "bmm2_grad_gemm1_dot_dimension_numbers": _product((2, 1), (0, 1), (0, 2)),
    "bmm2_grad_gemm2_dot_dimension_numbers": _product((3, 3), (0, 2), (0, 2)),
}


def _config(q: ArrayType, k: ArrayType, form: FusedForm, products: dict[str, Any]) -> str:
    """The attributes of a call, in the JSON form of XLA's `GpuBackendConfig`, as a string."""
    b, t, n, _ = q.shape
    scores = {
        "element_type": {"bfloat16": "BF16", "float16": "F16"}[q.dtype.name],
        "dimensions": [str(size) for size in (b, n, t, k.shape[1])],
        "layout": {"minor_to_major": ["3", "2", "1", "0"]},
        "is_dynamic_dimension": [False] * 4,
    }
    algorithm = {
        "algo_id": "0",
        "math_type": "TENSOR_OP_MATH",
        "tuning_knobs": {"17": "1", "24": "0"},
        "is_cudnn_frontend": True,
        "workspace_size": "0",
    }
    own = {
        "algorithm": algorithm,
        "fmha_scale": form.scale,
        "intermediate_tensor_shape": scores,
        "is_flash_attention": True,
        "mask_type": form.mask(),
        "dropout_rate": 0.0,
        "seed": 42,
        "sliding_window_length": form.window,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
        **products,
    }
    return json.dumps(json.dumps({"cudnn_fmha_backend_config": own}))


def _check_platform(e: Any) -> None:
    if not e.platform.has_cudnn:
        raise ValueError(
            "dot_product_attention: implementation='cudnn' needs an NVIDIA GPU; this program is "
            f"for the platform {e.platform.name!r}. Use implementation='xla', or None."
        )


def _inside(t: ArrayType) -> ArrayType:
    """(B, T, N, H) as (B, N, T, H)."""
    b, rows, n, h = t.shape
    return t.update(shape=(b, n, rows, h))


def _outside(e: Any, x: str, t: ArrayType) -> str:
    """(B, N, T, H) as (B, T, N, H), of type `t`: the same order in memory."""
    return e.let(
        f"stablehlo.transpose {x}, dims = {ints(HEADS_INSIDE)} : ({e.ty(_inside(t))}) -> {e.ty(t)}"
    )


def _forward_type(op: Op, q: ArrayType, k: ArrayType, *rest: ArrayType, form: FusedForm) -> Any:
    b, t, n, _ = q.shape
    types = array_type(q.shape, q.dtype), array_type((b, n, t), FLOAT32)
    return types[: 1 + form.has_sums]


def _forward_lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str, form: FusedForm) -> Sequence[str]:
    _check_platform(e)
    raw = [_inside(outs[0]), *outs[1:], array_type((0,), BYTE)]
    out, *sums, _ = e.custom_call(
        form.target(),
        xs,
        ins,
        raw,
        config=_config(ins[0], ins[1], form, _FORWARD),
        version=2,
        orders=[[None] * len(ins), [HEADS_INSIDE, *[None] * len(outs)]],
    )
    return [_outside(e, out, outs[0]), *sums]


def _backward_type(op: Op, q: ArrayType, k: ArrayType, *rest: ArrayType, form: FusedForm) -> Any:
    types = [q, k, k, *[rest[3] for _ in range(form.bias_gradient)]]
    return tuple([array_type(t.shape, t.dtype) for t in types])


def _backward_lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, form: FusedForm
) -> Sequence[str]:
    _check_platform(e)
    raw = [*map(_inside, outs[:3]), *outs[3:], array_type((0,), BYTE)]
    orders = [*[HEADS_INSIDE] * 3, *[None] * (len(raw) - 3)]
    *found, _ = e.custom_call(
        form.target("Backward"),
        xs,
        ins,
        raw,
        config=_config(ins[0], ins[1], form, _BACKWARD),
        version=2,
        orders=[[None] * len(ins), orders],
    )
    return [*[_outside(e, x, t) for x, t in zip(found, outs[:3], strict=False)], *found[3:]]


def _batch(op: Op, mapped: Any, args: Any, dims: Any, *, form: FusedForm) -> tuple[Any, Any]:
    """The mapped axis becomes a part of the batch."""
    if form.bias_gradient:
        raise NotImplementedError(
            "dot_product_attention: implementation='cudnn' has no derivative with respect to "
            "`bias` under vmap. Use implementation='xla', or None."
        )
    wide = [batch_first(mapped.size, x, d) for x, d in zip(args, dims, strict=True)]
    size = type_of(wide[0]).shape[1]
    outs = op(*[_merged(x, size) for x in wide], form=form)
    split = [reshape(y, shape=(mapped.size, size, *type_of(y).shape[1:])) for y in outs]
    return split, [0] * len(split)


def _merged(x: Any, size: int) -> Any:
    """The first two dimensions merged; the second one is broadcast to a size first."""
    count, b, *rest = type_of(x).shape
    if b != size:
        full = (count, size, *rest)
        x = reshape(x, shape=(count, *rest))
        x = broadcast_in_dim(x, shape=full, dims=(0, *range(2, len(full))))
    return reshape(x, shape=(count * size, *rest))


def _dims(op: Op, *types: ArrayType, form: FusedForm) -> Dims:
    """Only the batch is split."""
    size = types[0].shape[0]

    def row(t: ArrayType, is_split: bool) -> tuple[str | None, ...]:
        return ("b" if is_split else None, *[None] * (t.ndim - 1))

    ins = tuple([row(t, t.shape[0] == size) for t in types])
    outs: Any = op.type_rule(op, *types, form=form)
    return Dims(ins, tuple([row(t, i < 3) for i, t in enumerate(outs)]))


fused_attention = Op(
    "fused_attention",
    type_rule=_forward_type,
    dims=_dims,
    lower=_forward_lower,
    batch=_batch,
    multiple=True,
    is_expensive=True,
)
# Operands: q, k, v, sums, ct, then the bias if there is one, out, and the lengths.
fused_attention_gradients = Op(
    "fused_attention_gradients",
    type_rule=_backward_type,
    dims=_dims,
    lower=_backward_lower,
    batch=_batch,
    multiple=True,
    is_expensive=True,
)
