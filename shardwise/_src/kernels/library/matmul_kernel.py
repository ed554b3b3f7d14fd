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

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import as_numbers, is_float, is_integer, require
from shardwise._src.kernels.library.block_choices import Options, options_of
from shardwise._src.kernels.library.block_values import inside, wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.size_arithmetic import power_above
from shardwise._src.types.dtypes import check_user_dtype
from shardwise.lax import PrecisionLike
from shardwise.typing import ArrayLike, DTypeLike


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
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
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
    x, y = as_numbers("matmul", "x", x), as_numbers("matmul", "y", y)
    for name, v in (("x", x), ("y", y)):
        text = "{} is {}; expected a matrix. Use `vmap` for more dimensions."
        require(v.ndim == 2, "matmul", text, name, v)
    (m, k), (rows, n) = x.shape, y.shape
    text = "x, {}, has {} columns, and y, {}, has {} rows; they must be equal."
    require(k == rows, "matmul", text, x, str(k), y, str(rows))
    given = {"x_scale": x_scale, "y_scale": y_scale, "bias": bias, "residual": residual}
    extras = {
        name: _as_matrix(name, snp.asarray(v), m, n) for name, v in given.items() if v is not None
    }
    dtypes = _dtypes(x, y, extras, activation, out_dtype)
    size = dtypes[0].itemsize  # GPUs have room for few stages of a pipeline of large elements
    usual = min({4: 256, 8: 64}.get(size, 128), power_above(m, 32)), 128, 128
    if params is None and size >= 4:
        is_tall = usual[0] > 64
        params = kernels.CompilerParams(
            num_warps=8 if is_tall else 4, num_stages=1 if is_tall else 2
        )
    options = options_of("matmul", "rows, columns, inner", usual, blocks, check, params)
    how = Product(*dtypes, activation, precision, options)
    if not m * n * k:
        return epilogue(how, snp.zeros((m, n), how.total), extras)
    return _product(how, x, y, extras)


# -- arguments --


def _as_matrix(name: str, value, m: int, n: int):
    """An operand of the epilogue as a matrix: a column, a row, or of the shape of the result."""
    forms = {"x_scale": ((m,), (m, 1)), "residual": ((m, n), (m, n))}
    vector, matrix = forms.get(name, ((n,), (1, n)))
    if not value.ndim and name.endswith("scale"):
        return snp.broadcast_to(value, matrix)
    text = "{} is {}; expected the shape {} for a result of shape {}."
    require(value.shape in (vector, matrix), "matmul", text, name, value, [*vector], [m, n])
    return value.reshape(matrix)


def _dtypes(x, y, extras: Mapping[str, Any], activation, out):
    """The dtypes of a `Product`."""
    small = [is_float(v) and v.dtype.itemsize == 1 for v in (x, y)]
    factor = x.dtype
    if factor != y.dtype:  # float8 is converted to bfloat16, which has all its numbers
        pair = zip((x, y), small, strict=True)
        factor = snp.promote_types(*[snp.bfloat16 if is_small else v.dtype for v, is_small in pair])
    if snp.issubdtype(factor, snp.floating):
        total = inside = wide(factor)
        usual = total if all(small) else factor
    else:
        total = factor if factor.itemsize >= 4 else np.dtype("int32")
        is_exact = activation is None and all(map(is_integer, extras.values()))
        usual = inside = total if is_exact else np.dtype("float32")
    return factor, total, inside, usual if out is None else check_user_dtype(out, "matmul")


# -- the kernel --


def epilogue(how: Product, total, extras: Mapping[str, Any]):
    """The result from the sum of products: of a block in the kernel, or of a whole array."""
    value = total.astype(how.inside)
    more = {name: v.astype(how.inside) for name, v in extras.items()}
    for name in ("x_scale", "y_scale"):
        value = value * more[name] if name in more else value
    value = value + more["bias"] if "bias" in more else value
    value = value if how.activation is None else how.activation(value)
    value = value + more["residual"] if "residual" in more else value
    return value.astype(how.out)


def _body(how: Product, k: int, x, y, extras, out, total):
    step = kernels.program_id("inner")

    @kernels.when(step == 0)
    def _():
        total[...] = 0

    left = inside(x[...].astype(how.factor), 0, (1, step, k))
    right = inside(y[...].astype(how.factor), 0, (0, step, k))
    total[...] += lax.dot(left, right, how.precision, total.dtype)

    @kernels.when(step == kernels.num_programs("inner") - 1)
    def _():
        out[...] = epilogue(how, total[...], {name: ref[...] for name, ref in extras.items()})


def _launched(how: Product, x, y, extras: Mapping[str, Any]):
    (m, k), n, (rows, columns, inner) = x.shape, y.shape[1], how.options.blocks
    column = kernels.Block((rows, 1), lambda i, j, k: (i, 0))
    row = kernels.Block((1, columns), lambda i, j, k: (0, j))
    tile = kernels.Block((rows, columns), lambda i, j, k: (i, j))
    of_extras = {"x_scale": column, "y_scale": row, "bias": row, "residual": tile}
    return kernels.call(
        partial(_body, how, k),
        sw.ShapeDtypeStruct((m, n), how.out),
        grid=(
            ("rows", kernels.cdiv(m, rows)),
            ("columns", kernels.cdiv(n, columns)),
            ("inner", kernels.cdiv(k, inner)),
        ),
        in_specs=(
            kernels.Block((rows, inner), lambda i, j, k: (i, k)),
            kernels.Block((inner, columns), lambda i, j, k: (k, j)),
            {name: of_extras[name] for name in extras},
        ),
        out_specs=tile,
        scratch=[kernels.VMEM((rows, columns), how.total)],
        parallel=["rows", "columns"],
        name="matmul",
        **how.options.of_call,
    )(x, y, extras)


# -- its derivative --


def _cotangents(how: Product, args, ct):
    x, y, extras = args
    plain = how._replace(activation=None, inside=how.total, out=how.total)
    if how.activation is not None or "x_scale" in extras or "y_scale" in extras:
        total = _product(plain, x, y, {})
    else:  # the derivative does not depend on it
        total = snp.zeros(ct.shape, how.total)
    if is_integer(total):
        return None, None, *sw.vjp(partial(epilogue, how, total), extras)[1](ct)
    ct, of_extras = sw.vjp(partial(epilogue, how), total, extras)[1](ct)
    ct = ct.astype(np.dtype("float32") if how.factor.itemsize == 1 else how.factor)
    rows, columns, inner = how.options.blocks

    def product(like, a, b, *blocks: int):
        """A product of the dtype of an argument; None if that has integers."""
        if is_integer(like):
            return None
        options = how.options._replace(blocks=blocks, check=False)
        dtypes = _dtypes(a, b, {}, None, like.dtype)
        return _product(Product(*dtypes, None, how.precision, options), a, b, {})

    of_x = product(x, ct, y.T, rows, inner, columns)
    return of_x, product(y, x.T, ct, inner, columns, 128), of_extras


_product = with_cotangents(_launched, _cotangents)
