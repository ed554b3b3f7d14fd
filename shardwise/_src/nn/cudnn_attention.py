"""`dot_product_attention` by cuDNN: its derivative, and how it is split over devices.

    out, sums = attend(q, k, v, bias, mask, lengths, window, is_causal, scale, has_sums=True)

Batch and heads may be split, without communication; the other dimensions are replicated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_vjp import custom_vjp
from shardwise._src.lax.parallel import psum
from shardwise._src.ops.create import full
from shardwise._src.ops.elementwise import where
from shardwise._src.ops.fused_attention import FusedForm, fused_attention, fused_attention_gradients
from shardwise._src.partitioning.custom_partitioning import custom_partitioning
from shardwise._src.types.array_type import ArrayType, in_row
from shardwise._src.types.dtypes import bfloat16
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.values.convert import broadcast_to, cast

WHO = "dot_product_attention: implementation='cudnn'"
INT32 = np.dtype(np.int32)
MAX_HEAD = 256  # 128 before Hopper
# A score that is left out, by dtype. cuDNN subtracts such numbers, which must not give an infinity.
LOW = {np.dtype(bfloat16): -(2.0**41), np.dtype(np.float16): -(2.0**15)}
ELSE = "Use implementation='xla', or None."


def attend(
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    mask: Any,
    lengths: tuple[Any, Any],
    window: tuple[int, int] | None,
    is_causal: bool,
    scale: float | None,
    has_sums: bool,
) -> tuple[Any, ...]:
    """The result (B, T, N, H); with `has_sums` also the logarithms of the sums of exponentials,
    f32[B, N, T].

    q, k, v have 4 dimensions; lengths: of queries and keys, None for all.
    """
    t, s = type_of(q), type_of(k)
    if is_causal and window is not None:  # keys to the right are left out already
        window = (window[0], 0)
    _check(t, s, bias is not None or mask is not None, window)
    extra = []
    combined = _bias(t, s, bias, mask)
    if combined is not None:
        extra.append(combined)
    if is_padded := any(x is not None for x in lengths):
        for x, size in zip(lengths, (t.shape[1], s.shape[1]), strict=True):
            one = full(size, t.shape[:1], INT32) if x is None else cast(x, INT32)
            extra.append(one)
    form = FusedForm(
        scale=float(1 / np.sqrt(t.shape[-1]) if scale is None else scale),
        is_causal=is_causal or window is not None,
        window=0 if window is None else window[0] + 1,
        is_biased=combined is not None,
        is_padded=is_padded,
        has_sums=has_sums,
    )
    return _attention(form, (q, k, v, *extra))


def _check(q: ArrayType, k: ArrayType, is_biased: bool, window: Any) -> None:
    if q.dtype not in LOW:
        raise ValueError(
            f"{WHO} takes arrays of bfloat16 or float16; got {in_row((q, k))}. Convert them. {ELSE}"
        )
    head = q.shape[-1]
    if head % 8 or head > MAX_HEAD:
        raise ValueError(
            f"{WHO} takes heads whose size is a multiple of 8 and at most {MAX_HEAD}; got "
            f"{in_row((q, k))}. {ELSE}"
        )
    if is_biased and (q.shape[1] % 2 or k.shape[1] % 2):
        raise ValueError(
            f"{WHO} with a bias or mask takes even numbers of queries and keys; got "
            f"{in_row((q, k))}. {ELSE}"
        )
    if window is not None and window[1] != 0:
        raise ValueError(
            f"{WHO} supports a local window to the left only, such as ({window[0]}, 0); got "
            f"{window}. {ELSE}"
        )


def _bias(q: ArrayType, k: ArrayType, bias: Any, mask: Any) -> Any:
    """The bias, and a low number where a score is left out; with all queries and keys. Or None."""
    if bias is not None:
        bias = cast(_with_rows(bias, q, k), q.dtype)
    if mask is None:
        return bias
    mask = _with_rows(mask, q, k)
    kind = full(0, (), q.dtype) if bias is None else bias
    shape = np.broadcast_shapes(type_of(mask).shape, type_of(kind).shape)
    kept = broadcast_to(kind, shape)
    low = broadcast_to(full(LOW[q.dtype], (), q.dtype), shape)
    return where(broadcast_to(mask, shape), kept, low)


def _with_rows(x: Any, q: ArrayType, k: ArrayType) -> Any:
    """A bias or mask with 4 dimensions, whose last two are complete."""
    shape = type_of(x).shape
    leading = (1, 1, *shape[:-2])[-2:]
    return broadcast_to(x, (*leading, q.shape[1], k.shape[1]))


# -- the derivative --


def _run(form: FusedForm, operands: Sequence[Any]) -> tuple[Any, ...]:
    return _split(form, False, *operands)


def _fwd(form: FusedForm, operands: Sequence[Any]) -> tuple[Any, Any]:
    needs_bias = form.is_biased and operands[3].perturbed
    values = [x.value for x in operands]
    found = out, sums = _split(form._replace(has_sums=True), False, *values)
    return found[: 1 + form.has_sums], (values, out, sums, needs_bias)


def _bwd(form: FusedForm, residuals: Any, cts: Any) -> tuple[Any]:
    (q, k, v, *extra), out, sums, needs_bias = residuals
    bias, lengths = extra[: form.is_biased], extra[form.is_biased :]
    ct = cts[0]
    if not hasattr(ct, "ndim"):  # a symbolic zero
        return ((*[None] * (3 + len(extra)),),)
    if needs_bias:
        t, b = type_of(q), type_of(bias[0])
        if b.shape[:2] != (1, t.shape[2]):
            raise NotImplementedError(
                f"{WHO} has derivatives with respect to `bias` only if it is of shape "
                f"{(1, t.shape[2], *b.shape[2:])}, for all of the batch; got {b.str_short(True)}. "
                f"{ELSE}"
            )
    form = form._replace(bias_gradient=bool(needs_bias))
    found = list(_split(form, True, q, k, v, sums, ct, *bias, out, *lengths))
    rest = [None] * (3 + len(extra) - len(found))
    return ((*found, *rest),)


_attention = custom_vjp(_run, nondiff_argnums=(0,))
_attention.defvjp(_fwd, _bwd, symbolic_zeros=True)

# -- the split over devices --


def _letters(q: Any, k: Any, bias: Any) -> tuple[str, str, str, str]:
    """The factors of q, of k and v, of the bias and of a vector of lengths."""
    heads = "n" if q.shape[2] == k.shape[2] else "m"
    wide = (1, 1) if bias is None else bias.shape[:2]
    leading = f"{'b' if wide[0] > 1 else 'x'} {'n' if wide[1] > 1 else 'y'}"
    return "b t n h", f"b s {heads} h", f"{leading} t s", "b"


def _rule(form: FusedForm, is_backward: bool, types: Sequence[Any]) -> Any:
    """How dimensions of operands and results correspond. types: of the operands."""
    bias = types[5 if is_backward else 3] if form.is_biased else None
    q, k, biases, lengths = _letters(types[0], types[1], bias)
    ins, outs = [q, k, k], [q, "b n t"][: 1 + form.has_sums]
    if is_backward:
        ins, outs = [*ins, "b n t", q], [q, k, k, *[biases] * form.bias_gradient]
    ins += [biases] * form.is_biased + [q] * is_backward + [lengths] * (2 * form.is_padded)
    return f"{', '.join(ins)} -> {', '.join(outs)}", {"need_replication_factors": ("t", "s", "h")}


def _axes(q: Any, k: Any) -> tuple[Any, Any]:
    """The mesh axes that split the batch, and the heads."""
    b, _, n, _ = (*q.sharding.spec, None, None, None, None)[:4]
    names = (n,) if isinstance(n, str) else tuple(n or ())
    count = math.prod([q.sharding.mesh.shape[name] for name in names])
    is_even = q.shape[2] % count == 0 and k.shape[2] % count == 0
    return b, n if is_even or q.shape[2] == k.shape[2] else None


def _specs(text: str, b: Any, n: Any) -> list[PartitionSpec]:
    """The specs for factors. Heads of keys are split as those of queries."""
    axes = {"b": b, "n": n, "m": n}
    return [PartitionSpec(*[axes.get(d) for d in part.split()]) for part in text.split(", ")]


def _partition(form: FusedForm, is_backward: bool, mesh: Any, shapes: Any, result: Any) -> Any:
    b, n = _axes(*shapes[:2])
    sides = _rule(form, is_backward, shapes)[0].split(" -> ")
    ins, outs = [
        tuple([NamedSharding(mesh, spec) for spec in _specs(side, b, n)]) for side in sides
    ]

    def run(*operands: Any) -> tuple[Any, ...]:
        found = _kernel(form, is_backward, *operands)
        if form.bias_gradient and is_backward and b:
            found = (*found[:3], psum(found[3], b))
        return found

    return mesh, run, outs, ins


def _kernel(form: FusedForm, is_backward: bool, *operands: Any) -> tuple[Any, ...]:
    op = fused_attention_gradients if is_backward else fused_attention
    return tuple(op(*operands, form=form))


def _factors(form: FusedForm, is_backward: bool, mesh: Any, ins: Any, outs: Any) -> Any:
    return _rule(form, is_backward, ins)


_split = custom_partitioning(_kernel, static_argnums=(0, 1))
_split.def_partition(_partition, sharding_rule=_factors)
