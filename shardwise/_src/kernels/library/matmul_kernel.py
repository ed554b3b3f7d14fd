"""A product of matrices in blocks, with an epilogue while a block of the result is in fast memory.

    activation(x_scale * (x @ y) * y_scale + bias) + residual

The grid is (rows, columns, inner): each block of the result is the sum of products along `inner`,
which scratch memory accumulates, and is written once, after the last of them. All steps are
explained in docs/kernels-library.md.

The derivative is made of products by the same kernel, so that it has derivatives of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.autodiff.grad import vjp
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import (
    F32,
    Options,
    as_numbers,
    elements,
    sizes_of,
    wide,
)
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.program_frames import cdiv, num_programs, program_id, when
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.lax.contraction import dot
from shardwise._src.numpy.creation import asarray, zeros
from shardwise._src.numpy.shapes import reshape
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, PrecisionLike
from shardwise._src.types.dtypes import canonicalize, check_user_dtype, is_float, is_integer
from shardwise._src.types.promotion import promote_types
from shardwise._src.values.convert import broadcast_to

BF16 = canonicalize("bfloat16")


class Product(NamedTuple):
    """How to multiply. The dtypes are those of the factors of products, of their sum, of the
    epilogue, and of the result."""

    factor: Any
    total: Any
    inside: Any
    out: Any
    activation: Callable[[Any], Any] | None
    precision: Any
    options: Options


def matmul(
    x: ArrayLike,
    y: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    activation: Callable[[Any], Any] | None = None,
    residual: ArrayLike | None = None,
    x_scale: ArrayLike | None = None,
    y_scale: ArrayLike | None = None,
    out_dtype: DTypeLike | None = None,
    precision: PrecisionLike = None,
    blocks: tuple[int, int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """activation(x_scale * (x @ y) * y_scale + bias) + residual, by one kernel.

    Args:
      x, y: [m, k] and [k, n], floats or integers. Products of floats are accumulated in float32 or
        float64, those of integers in int32 or a larger dtype of the factors.
      bias: [n]. residual: [m, n].
      activation: a function that computes each element of an array from that element.
      x_scale, y_scale: a scalar, or [m] and [n]: of quantized rows of x and columns of y.
      out_dtype: of the result. By default the common dtype of x and y; of float8, float32; of
        integers, that of the sum, or float32 if the epilogue has floats.
      precision: as that of `lax.dot`.
      blocks: the (rows, columns, inner) sizes of blocks; by default 128 each, 64 rows of 4 bytes
        and more, and fewer rows if m is smaller.
      check, params: as those of `kernels.call`.

    Returns:
      [m, n]

    Raises:
      TypeError: if x or y is neither of floats nor of integers.
      ValueError: if shapes do not fit, or blocks is wrong.
    """
    left, right = as_numbers("matmul", "x", x), as_numbers("matmul", "y", y)
    m, n = _sizes(type_of(left), type_of(right))
    given = {"x_scale": x_scale, "y_scale": y_scale, "bias": bias, "residual": residual}
    extras = {
        name: _as_matrix(name, asarray(v), m, n) for name, v in given.items() if v is not None
    }
    dtypes = _dtypes(left.dtype, right.dtype, extras, activation, out_dtype)
    is_large = dtypes[0].itemsize >= 4  # so that two stages of a pipeline fit the memory of GPUs
    usual = min(64 if is_large else 128, power_above(m, 32)), 128, 128
    sizes = sizes_of("matmul", ("rows", "columns", "inner"), blocks, usual)
    params = CompilerParams(num_stages=2) if params is None and is_large else params
    how = Product(*dtypes, activation, precision, Options(sizes, check, params))
    return _product(how, left, right, extras)


# -- arguments --


def _sizes(x: Any, y: Any) -> tuple[int, int]:
    for name, t in (("x", x), ("y", y)):
        if t.ndim != 2:
            raise ValueError(
                f"matmul: {name} is {t.str_short(True)}; expected a matrix. Use `vmap` for more "
                "dimensions."
            )
    if x.shape[1] != y.shape[0]:
        raise ValueError(
            f"matmul: x, {x.str_short(True)}, has {x.shape[1]} columns, and y, "
            f"{y.str_short(True)}, has {y.shape[0]} rows; they must be equal."
        )
    return x.shape[0], y.shape[1]


def _as_matrix(name: str, value: Any, m: int, n: int) -> Any:
    """An operand of the epilogue as a matrix: a column, a row, or of the shape of the result."""
    forms = {"x_scale": ((m,), (m, 1)), "residual": ((m, n), (m, n))}
    vector, matrix = forms.get(name, ((n,), (1, n)))
    t = type_of(value)
    if not t.shape and name.endswith("scale"):
        return broadcast_to(value, matrix)
    if t.shape not in (vector, matrix):
        raise ValueError(
            f"matmul: {name} is {t.str_short(True)}; expected the shape {list(vector)} for a "
            f"result of shape {[m, n]}."
        )
    return reshape(value, matrix)


def _dtypes(
    x: Any, y: Any, extras: Mapping[str, Any], activation: Any, out: Any
) -> tuple[Any, Any, Any, Any]:
    """The dtypes of a `Product`."""
    small = [is_float(t) and t.itemsize == 1 for t in (x, y)]
    # Of different dtypes, float8 is converted to bfloat16, which has all its numbers.
    factor = x
    if x != y:
        factor = promote_types(BF16 if small[0] else x, BF16 if small[1] else y)
    if is_float(factor):
        total = inside = wide(factor)
        usual = total if all(small) else factor
    else:
        total = factor if factor.itemsize >= 4 else np.dtype("int32")
        is_exact = activation is None and all(is_integer(v.dtype) for v in extras.values())
        usual = inside = total if is_exact else F32
    return factor, total, inside, usual if out is None else check_user_dtype(out, "matmul")


# -- the kernel --


def epilogue(how: Product, total: Any, extras: Mapping[str, Any]) -> Any:
    """The result from the sum of products: of a block in the kernel, or of a whole array."""
    value = total.astype(how.inside)
    more = {name: v.astype(how.inside) for name, v in extras.items()}
    for name in ("x_scale", "y_scale"):
        value = value * more[name] if name in more else value
    value = value + more["bias"] if "bias" in more else value
    value = value if how.activation is None else how.activation(value)
    value = value + more["residual"] if "residual" in more else value
    return value.astype(how.out)


def _body(how: Product, k: int, x: Any, y: Any, extras: Any, out: Any, total: Any) -> None:
    step = program_id("inner")

    @when(step == 0)
    def _() -> None:
        total[...] = 0

    left = elements(x, how.factor, 0, (1, step, k))
    right = elements(y, how.factor, 0, (0, step, k))
    total[...] += dot(left, right, how.precision, total.dtype)

    @when(step == num_programs("inner") - 1)
    def _() -> None:
        out[...] = epilogue(how, total[...], {name: ref[...] for name, ref in extras.items()})


def forward(how: Product, x: Any, y: Any, extras: Mapping[str, Any]) -> Any:
    (m, k), n, (rows, columns, inner) = x.shape, y.shape[1], how.options.blocks
    if not m * n * k:
        return epilogue(how, zeros((m, n), how.total), extras)
    column = Block((rows, 1), lambda i, j, k: (i, 0))
    row = Block((1, columns), lambda i, j, k: (0, j))
    tile = Block((rows, columns), lambda i, j, k: (i, j))
    of_extras = {"x_scale": column, "y_scale": row, "bias": row, "residual": tile}
    steps = {"rows": cdiv(m, rows), "columns": cdiv(n, columns), "inner": cdiv(k, inner)}
    return call(
        partial(_body, how, k),
        ShapeDtypeStruct((m, n), how.out),
        grid=tuple(steps.items()),
        in_specs=(
            Block((rows, inner), lambda i, j, k: (i, k)),
            Block((inner, columns), lambda i, j, k: (k, j)),
            {name: of_extras[name] for name in extras},
        ),
        out_specs=tile,
        scratch=[VMEM((rows, columns), how.total)],
        parallel=["rows", "columns"],
        name="matmul",
        **how.options.of_call,
    )(x, y, extras)


# -- its derivative --


def backward(how: Product, given: Any, ct: Any) -> tuple[Any, Any, Any]:
    x, y, extras = given
    plain = how._replace(activation=None, inside=how.total, out=how.total)
    if how.activation is not None or "x_scale" in extras or "y_scale" in extras:
        total = _product(plain, x, y, {})
    else:  # the derivative does not depend on it
        total = zeros(ct.shape, how.total)
    if not is_float(how.total):
        return None, None, *vjp(partial(epilogue, how, total), extras)[1](ct)
    ct, of_extras = vjp(partial(epilogue, how), total, extras)[1](ct)
    ct = ct.astype(F32 if how.factor.itemsize == 1 else how.factor)
    rows, columns, inner = how.options.blocks
    of_x = _product_like(x, plain, ct, y.T, (rows, inner, columns))
    return of_x, _product_like(y, plain, x.T, ct, (inner, columns, max(rows, 128))), of_extras


def _product_like(like: Any, plain: Product, a: Any, b: Any, blocks: tuple[int, int, int]) -> Any:
    """A product of the dtype of another array; None if that has integers."""
    if not is_float(like.dtype):
        return None
    dtypes = _dtypes(a.dtype, b.dtype, {}, None, like.dtype)
    options = Options(blocks, params=plain.options.params)
    return _product(Product(*dtypes, None, plain.precision, options), a, b, {})


_product = with_cotangents(forward, backward)
