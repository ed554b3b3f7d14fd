"""Products of low-precision matrices with a scale for each block: `scaled_matmul`, and
`scaled_dot_general`, which quantizes its operands first.

Values are as in the formats' specifications; the compiler chooses the instructions that compute
them.

Source: OCP Microscaling Formats (MX) Specification 1.0, 2023; NVFP4 has e4m3 scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.base.warn import warn
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import infer, type_of
from shardwise._src.custom.custom_vjp import custom_vjp
from shardwise._src.ops.barrier import optimization_barrier
from shardwise._src.ops.basis import broadcast_in_dim, reshape, transpose
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.contract import dot, dot_general
from shardwise._src.ops.elementwise import abs, add, bitwise_and, div, gt, le, mul, ne, round, where
from shardwise._src.ops.families import lit
from shardwise._src.ops.logical import bitwise_not, eq, shift_left, shift_right_logical
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.array_type import in_row
from shardwise._src.types.dtypes import check_user_dtype, finfo
from shardwise._src.values.binary import clip
from shardwise._src.values.convert import cast, promote

FLOAT32, U8, U32 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.uint32)
ROWS = (((2,), (2,)), ((0,), (0,)))  # for (b, m, k) and (b, n, k)


@public("shardwise.nn")
@dataclass(slots=True)
class BlockScaleConfig:
    """How to quantize an operand; made by `get_scaled_dot_general_config`."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


_MODES = {
    "nvfp4": (16, "float4_e2m1fn", "float8_e4m3fn"),
    "mxfp8": (32, "float8_e4m3fn", "float8_e8m0fnu"),
    "mxfp4": (32, "float4_e2m1fn", "float8_e8m0fnu"),
}


def get_scaled_dot_general_config(
    mode: str, global_scale: ArrayLike | None = None
) -> BlockScaleConfig:
    """The configuration for an operand of `scaled_dot_general`.

    mode: "nvfp4", "mxfp8" or "mxfp4".
    global_scale: float32, (1,), the divisor of an operand of "nvfp4"; 1 by default.
    """
    if mode not in _MODES:
        raise ValueError(
            "get_scaled_dot_general_config: mode must be 'nvfp4', 'mxfp8' or 'mxfp4'; got "
            f"{mode!r}."
        )
    if mode != "nvfp4" and global_scale is not None:
        raise ValueError(
            f"get_scaled_dot_general_config: {mode} has no global_scale; the scales of its blocks "
            "are all powers of two."
        )
    if mode == "nvfp4" and global_scale is None:
        global_scale = np.ones(1, np.float32)
    size, data, scales = _MODES[mode]
    return BlockScaleConfig(
        mode, size, check_user_dtype(data, ""), check_user_dtype(scales, ""), global_scale, False
    )


# -- products --


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = np.float32,
) -> Array:
    """Batched lhs · rhsᵀ, where blocks of the last dimension have scales.

    lhs, rhs: (b, m, k) and (b, n, k), of any floating-point type.
    lhs_scales, rhs_scales: (b, m, s) and (b, n, s), where s divides k: one for each k / s elements.
    Returns (b, m, n), of the preferred type, which is also used for products and sums.
    """
    dtype = check_user_dtype(preferred_element_type, "scaled_matmul")
    return _scaled_matmul(lhs, rhs, lhs_scales, rhs_scales, dtype)


@fused(arrays=4)
def _scaled_matmul(lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, dtype: Any) -> Any:
    types = [type_of(x) for x in (lhs, rhs, lhs_scales, rhs_scales)]
    a, b, s, t = [x.shape for x in types]
    problem = None
    if not all(x.ndim == 3 for x in types):
        problem = "must have three dimensions"
    elif (a[0], a[2]) != (b[0], b[2]):
        problem = "must have equal batch and last dimensions"
    elif (s[:2], t[:2]) != (a[:2], b[:2]) or s[2] != t[2]:
        problem = "must have scales for each row, the same number for both operands"
    elif a[2] % max(s[2], 1) or (s[2] == 0 and a[2]):
        problem = "must have a last dimension that is a multiple of that of the scales"
    if problem:
        raise ValueError(f"scaled_matmul: the operands {problem}; got {in_row(types)}.")
    x, y = _unscaled(lhs, lhs_scales, dtype), _unscaled(rhs, rhs_scales, dtype)
    return dot(x, y, ROWS, preferred=dtype)


def _unscaled(x: Any, scales: Any, dtype: Any) -> Any:
    """Each block multiplied by its scale."""
    shape, count = type_of(x).shape, type_of(scales).shape[-1]
    full = (*shape[:2], count, shape[2] // max(count, 1))
    wide = broadcast_in_dim(cast(scales, dtype), shape=full, dims=(0, 1, 2))
    return reshape(mul(reshape(cast(x, dtype), shape=full), wide), shape=shape)


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Any,
    preferred_element_type: DTypeLike = np.float32,
    configs: list[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Array:
    """`lax.dot_general` with operands that are quantized in blocks along the contracted dimensions.

    dimension_numbers: ((contracted of lhs, of rhs), (batch of lhs, of rhs)).
    preferred_element_type: float32, bfloat16 or float16.
    configs: for lhs, rhs and cotangents, which are also quantized, except for "nvfp4"; made by
      `get_scaled_dot_general_config`. None: `lax.dot_general` itself.
    implementation: deprecated; ignored with a warning.

    Contracted sizes must be multiples of the block size, and for derivatives, free sizes too.
    """
    if implementation is not None:
        warn(
            "scaled_dot_general: `implementation` is not used: the compiler chooses. It is removed "
            "in 0.4.0.",
            DeprecationWarning,
        )
    (left, right), (left_batch, right_batch) = dimension_numbers
    numbers = ((tuple(left), tuple(right)), (tuple(left_batch), tuple(right_batch)))
    dtype = preferred_element_type
    dtype = None if dtype is None else check_user_dtype(dtype, "scaled_dot_general")
    if configs is None:
        return dot(lhs, rhs, numbers, preferred=dtype)
    if dtype is None or dtype.name not in ("float32", "bfloat16", "float16"):
        raise TypeError(
            "scaled_dot_general: preferred_element_type must be float32, bfloat16 or float16; got "
            f"{dtype}."
        )
    if len(configs) != 3:
        raise ValueError(
            "scaled_dot_general: configs must be three, for lhs, rhs and the cotangents; got "
            f"{len(configs)}."
        )
    how = {"dimension_numbers": numbers, "precision": None, "preferred_element_type": None}
    infer(dot_general, (type_of(lhs), type_of(rhs)), how)  # raises for dimensions that do not fit
    modes = tuple([c.mode for c in configs])
    return _scaled_dot(lhs, rhs, tuple([c.global_scale for c in configs]), numbers, dtype, modes)


# -- quantizing --


def _quantized(x: Any, mode: str, scale: Any) -> tuple[Any, Any]:
    """(b, m, k) at low precision, and its scales (b, m, k / size)."""
    size, data, kind = _MODES[mode]
    data, kind = check_user_dtype(data, ""), check_user_dtype(kind, "")
    shape = type_of(x).shape
    if shape[2] % size:
        raise ValueError(
            f"scaled_dot_general: {mode} has blocks of {size} elements, and the {shape[2]} "
            "contracted elements are not a multiple of that."
        )
    full = (*shape[:2], shape[2] // size, size)
    top = float(finfo(data).max)
    x = reshape(x, shape=full)
    if mode == "nvfp4":
        x, scale = promote(x, reshape(scale, shape=()))
        x = div(x, scale)
    most = cast(reduce_max(abs(x), axes=(3,)), FLOAT32)
    scales = div(most, lit(top, most))
    if mode == "nvfp4":
        scales = clip(scales, 0, float(finfo(kind).max))
        (scales,) = optimization_barrier(convert_element_type(scales, dtype=kind))
        by = cast(scales, FLOAT32)
    else:
        exponents = _rounded_up(scales)
        scales = bitcast_convert_type(convert_element_type(exponents, dtype=U8), dtype=kind)
        by = bitcast_convert_type(shift_left(exponents, lit(23, exponents)), dtype=FLOAT32)
        by = where(eq(by, lit(0, by)), lit(2.0**-127, by), by)
    by = broadcast_in_dim(by, shape=full, dims=(0, 1, 2))
    small = clip(div(*promote(x, by)), -top, top)
    small = _of_two_bits(small) if top == 6 else small
    small = reshape(convert_element_type(small, dtype=data), shape=shape)
    return tuple(optimization_barrier(small, scales))  # keeps the casts from being elided


def _of_two_bits(x: Any) -> Any:
    """Numbers up to 6, rounded to the nearest float4_e2m1fn: XLA rounds twice, through another
    type."""
    step = where(gt(lit(2, x), abs(x)), lit(0.5, x), lit(1, x))
    step = where(gt(lit(4, x), abs(x)), step, lit(2, x))
    return mul(round(div(x, step), rounding_method=1), step)


def _rounded_up(scales: Any) -> Any:
    """The biased exponents of the next powers of two."""
    bits = bitcast_convert_type(scales, dtype=U32)
    exponent = shift_right_logical(bits, lit(23, bits))
    rest = bitwise_and(bits, lit(0x7FFFFF, bits))
    tiny = bitwise_and(eq(exponent, lit(0, bits)), le(rest, lit(0x400000, bits)))
    more = bitwise_and(gt(rest, lit(0, bits)), ne(exponent, lit(0xFE, bits)))
    up = bitwise_and(more, bitwise_not(tiny))
    return where(up, add(exponent, lit(1, bits)), exponent)


def _times(a: Any, b: Any, modes: tuple, scales: tuple, dtype: Any) -> Any:
    """The product of (b, m, k) and (b, n, k), both quantized."""
    small = modes[0] == "nvfp4"
    operands = [_quantized(x, m, s) for x, m, s in zip((a, b), modes, scales, strict=True)]
    (x, x_scales), (y, y_scales) = operands
    out = _scaled_matmul(x, y, x_scales, y_scales, FLOAT32 if small else dtype)
    for scale in scales if small else ():
        out = mul(out, cast(reshape(scale, shape=()), FLOAT32)) if scale is not None else out
    return cast(out, dtype)


# -- dimensions: every product is one of (b, m, k) and (b, n, k) --


def _order(rank: int, contracted: tuple, batch: tuple) -> tuple[tuple, tuple]:
    kept = tuple([d for d in range(rank) if d not in contracted and d not in batch])
    return (*batch, *kept, *contracted), kept


def _as_matrices(x: Any, contracted: tuple, batch: tuple, turned: bool = False) -> Any:
    """(batch, free, contracted); turned: (batch, contracted, free)."""
    shape = type_of(x).shape
    _, kept = _order(len(shape), contracted, batch)
    groups = (batch, contracted, kept) if turned else (batch, kept, contracted)
    flat = transpose(x, perm=tuple([d for group in groups for d in group]))
    return reshape(flat, shape=tuple([math.prod(shape[d] for d in group) for group in groups]))


def _in_order(numbers: Any) -> Any:
    """The contracted pairs in the order of the first operand, which the blocks follow."""
    (left, right), batch = numbers
    pairs = sorted(zip(left, right, strict=True))
    return (tuple([i for i, _ in pairs]), tuple([j for _, j in pairs])), batch


def _forward(lhs: Any, rhs: Any, scales: tuple, numbers: Any, dtype: Any, modes: tuple) -> Any:
    (left, right), (left_batch, right_batch) = _in_order(numbers)
    a, b = _as_matrices(lhs, left, left_batch), _as_matrices(rhs, right, right_batch)
    out = _times(a, b, modes[:2], scales[:2], dtype)
    x, y = type_of(lhs).shape, type_of(rhs).shape
    kept = [x[d] for d in _order(len(x), left, left_batch)[1]]
    kept += [y[d] for d in _order(len(y), right, right_batch)[1]]
    return reshape(out, shape=(*[x[d] for d in left_batch], *kept))


def _cotangent(
    g: Any, x: Any, y: Any, numbers: Any, dtype: Any, modes: tuple, scales: tuple, second: bool
) -> Any:
    """Of `x`; second: it is the second operand, and `y` the first. modes: of g and of y."""
    (contracted, others), (batch, other_batch) = numbers
    t = type_of(x)
    order, kept = _order(t.ndim, contracted, batch)
    mine = math.prod(t.shape[d] for d in kept)
    matrix = _as_matrices(y, others, other_batch, turned=True)
    size, _, theirs = type_of(matrix).shape
    g = reshape(g, shape=(size, theirs, mine) if second else (size, mine, theirs))
    g = transpose(g, perm=(0, 2, 1)) if second else g
    if modes[0] == "nvfp4":
        g, matrix = promote(g, matrix)
        out = dot(g, matrix, ROWS, preferred=dtype)
    else:
        out = _times(g, matrix, modes, scales, dtype)
    out = reshape(out, shape=tuple([t.shape[d] for d in order]))
    return cast(transpose(out, perm=tuple(np.argsort(order).tolist())), t.dtype)


def _backward(numbers: Any, dtype: Any, modes: tuple, kept: Any, g: Any) -> Any:
    lhs, rhs, scales = kept
    (left, right), (left_batch, right_batch) = numbers = _in_order(numbers)
    turned = (right, left), (right_batch, left_batch)
    found = [
        _cotangent(g, x, y, how, dtype, (modes[2], modes[i]), (scales[2], scales[i]), second)
        for x, y, how, i, second in ((lhs, rhs, numbers, 1, False), (rhs, lhs, turned, 0, True))
    ]
    if modes[2] == "nvfp4":  # zero where an operand was clipped
        for i, (x, mode) in enumerate(zip((lhs, rhs), modes[:2], strict=True)):
            _, data, kind = _MODES[mode]
            top = float(finfo(check_user_dtype(data, "")).max) * float(
                finfo(check_user_dtype(kind, "")).max
            )
            size, limit = promote(abs(x), mul(reshape(scales[i], shape=()), np.float32(top)))
            found[i] = where(le(size, limit), found[i], lit(0, found[i]))
    return *found, None


_scaled_dot = custom_vjp(_forward, nondiff_argnums=(3, 4, 5))
_scaled_dot.defvjp(
    lambda lhs, rhs, scales, *how: (_forward(lhs, rhs, scales, *how), (lhs, rhs, scales)), _backward
)
