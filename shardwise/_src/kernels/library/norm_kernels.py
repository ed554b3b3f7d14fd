"""Normalization of rows: layer_norm and rms_norm, and their derivative.

    layer_norm:  (x - mean(x)) / sqrt(mean((x - mean(x))²) + eps) * weight + bias
    rms_norm:    x / sqrt(mean(x²) + eps) * weight + bias

A program has some rows, so that it reads and writes each element once. With r the factor of a row,
z = r * (x - mean(x)) and g = ct * weight, the derivative with respect to x is

    r * (g - mean(g) - z * mean(g * z))           # rms_norm: without mean(g)

Those with respect to weight and bias are sums over all rows, of which each program writes its part.
The kernel of the derivative is differentiable like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import (
    Options,
    as_rows,
    elements,
    inside,
    row_block,
    sizes_of,
    wide,
)
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.program_frames import cdiv, program_id
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.lax.elementwise_operators import rsqrt
from shardwise._src.numpy.creation import asarray, zeros_like
from shardwise._src.numpy.shapes import reshape
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_float


class Norm(NamedTuple):
    """centered: whether the mean is subtracted."""

    centered: bool
    eps: float
    options: Options


def layer_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    blocks: int | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis.

    Args:
      x: floats, [..., n]. The kernel computes in float32 or float64.
      weight, bias: [n]; ones and zeros by default.
      blocks: the rows of a block; by default 8, or more that have about 16,384 elements.
      check, params: as those of `kernels.call`.

    Returns:
      An array like `x`, of its dtype.

    Raises:
      TypeError: if x is not of floats.
      ValueError: if x has no dimension, weight or bias another shape, or blocks is wrong.
    """
    options = check, params
    return _norm("layer_norm", x, {"weight": weight, "bias": bias}, eps, blocks, *options)


def rms_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-6,
    blocks: int | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """x / sqrt(mean(x²) + eps) * weight + bias, over the last axis; otherwise like `layer_norm`."""
    options = check, params
    return _norm("rms_norm", x, {"weight": weight, "bias": bias}, eps, blocks, *options)


def _norm(who: str, x: Any, given: Any, eps: float, blocks: Any, *options: Any) -> Any:
    x = asarray(x)
    if not is_float(type_of(x).dtype):
        raise TypeError(f"{who}: x is {type_of(x).str_short(True)}; expected floats. Cast it.")
    rows, restored = as_rows(who, x, -1)
    m, n = type_of(rows).shape
    affine = {name: asarray(v) for name, v in given.items() if v is not None}
    for name, v in affine.items():
        if type_of(v).shape != (n,):
            raise ValueError(
                f"{who}: {name} is {type_of(v).str_short(True)}; expected the shape {[n]}, since x "
                f"is {type_of(x).str_short(True)}."
            )
    sizes = sizes_of(who, ("rows",), blocks, row_block(m, n, power_above(n, 128))[:1])
    how = Norm(who == "layer_norm", float(eps), Options(sizes, *options))
    return restored(_normalization(how, rows, affine))


# -- launches --


def forward(how: Norm, x: Any, affine: Mapping[str, Any]) -> Any:
    """The normalized rows of x, [m, n]."""
    m, n = x.shape
    if not m * n:
        return x
    whole, row, _ = _blocks(how, n)
    out = ShapeDtypeStruct((m, n), x.dtype)
    launch = _launch(
        how, "", partial(_body, how, n), out, m, in_specs=(whole, row), out_specs=whole
    )
    return launch(x, _as_rows(affine))


def backward(how: Norm, given: Any, ct: Any) -> tuple[Any, dict[str, Any]]:
    """The cotangents of x, and of weight and bias."""
    x, affine = given
    m, n = x.shape
    if not m * n:
        return ct, {name: zeros_like(v) for name, v in affine.items()}
    whole, row, part = _blocks(how, n)
    parts = ShapeDtypeStruct((cdiv(m, how.options.blocks[0]), 1, n), wide(x.dtype))
    out = ShapeDtypeStruct((m, n), x.dtype), dict.fromkeys(affine, parts)
    specs = {"in_specs": (whole, whole, row), "out_specs": (whole, part)}
    launch = _launch(how, "_vjp", partial(_vjp_body, how, m, n), out, m, **specs)
    of_x, sums = launch(x, ct, _as_rows(affine))
    return of_x, {name: sums[name].sum((0, 1)).astype(v.dtype) for name, v in affine.items()}


def _launch(how: Norm, suffix: str, body: Any, out: Any, m: int, **specs: Any) -> Any:
    name = ("layer_norm" if how.centered else "rms_norm") + suffix
    grid = (("rows", cdiv(m, how.options.blocks[0])),)
    return call(body, out, grid=grid, parallel=["rows"], name=name, **specs, **how.options.of_call)


def _blocks(how: Norm, n: int) -> tuple[Block, Block, Block]:
    """Of some rows, of an array [1, n], and of the part of such an array of each program."""
    rows, width = how.options.blocks[0], power_above(n, 128)
    return (
        Block((rows, width), lambda i: (i, 0)),
        Block((1, width), lambda i: (0, 0)),
        Block((None, 1, width), lambda i: (i, 0, 0)),
    )


def _as_rows(affine: Mapping[str, Any]) -> dict[str, Any]:
    return {name: reshape(v, (1, -1)) for name, v in affine.items()}


_normalization = with_cotangents(forward, backward)


# -- bodies --


def _mean(values: Any, n: int) -> Any:
    return values.sum(1, keepdims=True) / n


def _normalized(how: Norm, n: int, values: Any) -> tuple[Any, Any]:
    """The normalized rows, 0 beyond their end, and their factors."""
    if how.centered:
        values = inside(values - _mean(values, n), 0, (1, 0, n))
    factor = rsqrt(_mean(values * values, n) + how.eps)
    return values * factor, factor


def _body(how: Norm, n: int, x: Any, affine: Any, out: Any) -> None:
    dtype = wide(x.dtype)
    z, _ = _normalized(how, n, elements(x, dtype, 0, (1, 0, n)))
    z = z * affine["weight"][...].astype(dtype) if "weight" in affine else z
    z = z + affine["bias"][...].astype(dtype) if "bias" in affine else z
    out[...] = z.astype(out.dtype)


def _vjp_body(
    how: Norm, m: int, n: int, x: Any, ct: Any, affine: Any, out: Any, parts: Any
) -> None:
    dtype = wide(x.dtype)
    bounds = (0, program_id("rows"), m), (1, 0, n)  # rows beyond the end add 0 to the sums
    z, factor = _normalized(how, n, elements(x, dtype, 0, *bounds))
    g = cts = elements(ct, dtype, 0, *bounds)
    if "weight" in affine:
        g = cts * elements(affine["weight"], dtype, 0, (1, 0, n))
        parts["weight"][...] = (cts * z).sum(0, keepdims=True)
    if "bias" in affine:
        parts["bias"][...] = cts.sum(0, keepdims=True)
    mean = _mean(g, n) if how.centered else 0
    out[...] = (factor * (g - mean - z * _mean(g * z, n))).astype(out.dtype)
