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

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import as_rows, is_float, require
from shardwise._src.kernels.library.block_choices import Options, options_of, row_block, row_params
from shardwise._src.kernels.library.block_values import inside, wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise.typing import ArrayLike


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
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
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
    return _norm("layer_norm", x, weight, bias, eps, blocks, check, params)


def rms_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-6,
    blocks: int | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
    """x / sqrt(mean(x²) + eps) * weight + bias, over the last axis; otherwise like `layer_norm`."""
    return _norm("rms_norm", x, weight, bias, eps, blocks, check, params)


def _norm(who: str, x, weight, bias, eps: float, *options):
    x = snp.asarray(x)
    require(is_float(x), who, "x is {}; expected floats. Cast it.", x, error=TypeError)
    rows, restored = as_rows(who, x, -1)
    m, n = rows.shape
    given = {"weight": weight, "bias": bias}
    affine = {name: snp.asarray(v) for name, v in given.items() if v is not None}
    for name, v in affine.items():
        text = "{} is {}; expected the shape {}, since x is {}."
        require(v.shape == (n,), who, text, name, v, [n], x)
    rows_of_block, width = row_block(m, n, is_whole=True)
    found = options_of(who, "rows", (rows_of_block,), *options)
    found = found._replace(params=row_params(found.params, width))
    how = Norm(who == "layer_norm", float(eps), found)
    if not rows.size:
        return x
    return restored(_forward(how, rows, {name: v.reshape(1, n) for name, v in affine.items()}))


# -- launches --


def _launched(how: Norm, x, affine: Mapping[str, Any], *cts):
    """The normalized rows of x, [m, n]. With a cotangent of them: the cotangents of x, and of each
    program's rows for weight and bias."""
    (m, n), rows, width = x.shape, how.options.blocks[0], power_above(x.shape[1], 128)
    block = kernels.Block((rows, width), lambda i: (i, 0))
    part = kernels.Block((None, 1, width), lambda i: (i, 0, 0))
    parts = sw.ShapeDtypeStruct((kernels.cdiv(m, rows), 1, n), wide(x.dtype))
    name, out = "layer_norm" if how.centered else "rms_norm", sw.ShapeDtypeStruct((m, n), x.dtype)
    return kernels.call(
        partial(_vjp_body, how, m, n) if cts else partial(_body, how, n),
        (out, dict.fromkeys(affine, parts)) if cts else out,
        grid=(("rows", kernels.cdiv(m, rows)),),
        in_specs=(*[block] * (1 + len(cts)), kernels.Block((1, width), lambda i: (0, 0))),
        out_specs=(block, part) if cts else block,
        parallel=["rows"],
        name=name + "_vjp" * len(cts),
        **how.options.of_call,
    )(x, *cts, affine)


def _cotangents(how: Norm, args, ct):
    of_x, sums = _launched(how, *args, ct)
    return of_x, {name: sums[name].sum(0).astype(v.dtype) for name, v in args[1].items()}


_forward = with_cotangents(_launched, _cotangents)


# -- kernels --


def _mean(values, n: int):
    return values.sum(1, keepdims=True) / n


def _normalized(how: Norm, n: int, values):
    """The normalized rows, 0 beyond their end, and their factors."""
    if how.centered:
        values = inside(values - _mean(values, n), 0, (1, 0, n))
    factor = lax.rsqrt(_mean(values * values, n) + how.eps)
    return values * factor, factor


def _body(how: Norm, n: int, x, affine, out):
    dtype = wide(x.dtype)
    z, _ = _normalized(how, n, inside(x[...].astype(dtype), 0, (1, 0, n)))
    z = z * affine["weight"][...].astype(dtype) if "weight" in affine else z
    z = z + affine["bias"][...].astype(dtype) if "bias" in affine else z
    out[...] = z.astype(out.dtype)


def _vjp_body(how: Norm, m: int, n: int, x, ct, affine, out, parts):
    dtype = wide(x.dtype)
    bounds = (0, kernels.program_id("rows"), m), (1, 0, n)  # rows beyond the end add 0 to the sums
    z, factor = _normalized(how, n, inside(x[...].astype(dtype), 0, *bounds))
    g = cts = inside(ct[...].astype(dtype), 0, *bounds)
    if "weight" in affine:
        g = cts * inside(affine["weight"][...].astype(dtype), 0, (1, 0, n))
        parts["weight"][...] = (cts * z).sum(0, keepdims=True)
    if "bias" in affine:
        parts["bias"][...] = cts.sum(0, keepdims=True)
    mean = _mean(g, n) if how.centered else 0
    out[...] = (factor * (g - mean - z * _mean(g * z, n))).astype(out.dtype)
