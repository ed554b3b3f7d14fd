"""Matrices with diagonals and triangles: eye, tri, tril, diag, vander, and their indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.creation import INT, as_operand, dtype_of, shape_of
from shardwise._src.numpy.ranges import count_up
from shardwise._src.numpy.rearrange import diagonal
from shardwise._src.ops import create
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.families import lit
from shardwise._src.ops.logical import clamp
from shardwise._src.ops.shape import pad
from shardwise._src.types.annotations import Array, ArrayLike, DeviceLike, DTypeLike
from shardwise._src.types.dtypes import canonicalize, is_bool, is_inexact, is_integer
from shardwise._src.values import binary
from shardwise._src.values.convert import cast, constant, promote, strip_weak_type


@fused(arrays=0)
def _band(op: Any, rows: int, columns: int, k: int, dtype: Any) -> Any:
    """`op(column, row + k)` for each element of a matrix."""
    return cast(_offset_test(op, (rows, columns), k), dtype)


@fused(arrays=1)
def _band_at(k: Any, op: Any, rows: int, columns: int, dtype: Any) -> Any:
    return cast(_offset_test(op, (rows, columns), _near(k, rows, columns)), dtype)


def _near(k: Any, rows: int, columns: int) -> Any:
    """A traced diagonal as int32; all those outside of the matrix give the same one."""
    t = type_of(k)
    if t.shape or not is_integer(t.dtype):
        raise ValueError(f"k must be an integer scalar; got {t.str_short(True)}.")
    far = clamp(lit(-rows - 1, k), strip_weak_type(k), lit(columns + 1, k))
    return cast(far, np.dtype("int32"))


def _diagonal(k: Any, who: str, rows: int, columns: int) -> int:
    """The number of a diagonal; of those outside of the matrix, one next to it."""
    host = np.asarray(k)
    if host.ndim or not np.issubdtype(host.dtype, np.integer):
        raise ValueError(f"{who}: k must be an integer; got {short_repr(k)}.")
    return max(-rows - 1, min(host.item(), columns + 1))


def _offset_test(op: Any, shape: tuple, k: Any) -> Any:
    """`op(column, row + k)` for each element of the last two dimensions."""
    d, int32 = len(shape), np.dtype("int32")
    row = create.iota(dtype=int32, shape=shape, dimension=d - 2)
    column = create.iota(dtype=int32, shape=shape, dimension=d - 1)
    offset = k if is_array(k) else constant(k, row)
    return op(column, ew.add(row, offset))


def _diagonals(who: str, op: Any, rows: int, columns: int, k: Any, dtype: Any) -> Array:
    kind = dtype_of(dtype, who)
    if is_array(k):
        return _band_at(k, op, rows, columns, kind)
    return _band(op, rows, columns, _diagonal(k, who, rows, columns), kind)


def eye(
    N: int,
    M: int | None = None,
    k: int | ArrayLike = 0,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
) -> Array:
    """A matrix with ones on the k-th diagonal, which may be traced, and zeros elsewhere."""
    (rows,), (columns,) = shape_of(N), shape_of(N if M is None else M)
    made = _diagonals("eye", ew.eq, rows, columns, k, dtype)
    return made if device is None else eval_trace().place(made, device)


def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """The identity matrix."""
    return eye(n, dtype=dtype)


def tri(
    N: int, M: int | None = None, k: int | ArrayLike = 0, dtype: DTypeLike | None = None
) -> Array:
    """A matrix with ones on and below the k-th diagonal, which may be traced."""
    (rows,), (columns,) = shape_of(N), shape_of(N if M is None else M)
    return _diagonals("tri", ew.le, rows, columns, k, dtype)


@fused(arrays=1)
def _triangle(m: Any, k: int, upper: bool) -> Any:
    t = type_of(m)
    if t.ndim < 2:
        raise ValueError(f"{'triu' if upper else 'tril'} takes matrices; got {t.str_short(True)}.")
    inside = _offset_test(ew.ge if upper else ew.le, t.shape, k)
    return ew.where(inside, m, constant(0, m))


@eager_jit
def tril(m: ArrayLike, k: int = 0) -> Array:
    """The matrices in the last two dimensions, with zeros above the k-th diagonal."""
    return _triangle(as_operand(m), int(k), False)


@eager_jit
def triu(m: ArrayLike, k: int = 0) -> Array:
    """The matrices in the last two dimensions, with zeros below the k-th diagonal."""
    return _triangle(as_operand(m), int(k), True)


def _index_arrays(found: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    dtype: Any = canonicalize(INT)
    return tuple(eval_trace().new_array(i.astype(dtype)) for i in found)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Row and column indices of the lower triangle of an n by m matrix."""
    return _index_arrays(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Row and column indices of the upper triangle of an n by m matrix."""
    return _index_arrays(np.triu_indices(n, k, m))


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """`tril_indices` for the shape of a matrix."""
    return tril_indices(*_matrix_shape(arr, "tril_indices_from", k))


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """`triu_indices` for the shape of a matrix."""
    return triu_indices(*_matrix_shape(arr, "triu_indices_from", k))


def _matrix_shape(arr: Any, fun_name: str, k: int) -> tuple[int, int, int]:
    shape = np.shape(as_operand(arr))
    if len(shape) != 2:
        raise ValueError(f"{fun_name} takes a matrix; got shape {shape}.")
    return shape[0], k, shape[1]


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Indices of the main diagonal of an array with `ndim` dimensions of size n."""
    if n < 0 or ndim < 0:
        raise ValueError(f"diag_indices takes sizes of at least 0; got n={n}, ndim={ndim}.")
    (size,) = shape_of(n)
    return (count_up(size, canonicalize(INT)),) * ndim


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """`diag_indices` for an array with equal sizes in all dimensions."""
    shape = type_of(as_operand(arr)).shape
    if len(shape) < 2 or len(set(shape)) > 1:
        raise ValueError(f"diag_indices_from takes a square array; got shape {shape}.")
    return diag_indices(shape[0], len(shape))


@fused(arrays=1)
def _diag(v: Any, k: int) -> Any:
    t = type_of(v)
    if t.ndim == 1:
        return _on_diagonal(v, k)
    if t.ndim != 2:
        raise ValueError(f"diag takes a vector or a matrix; got {t.str_short(True)}.")
    return diagonal(v, k)


def _on_diagonal(v: Any, k: int) -> Any:
    """A square matrix with the vector as its k-th diagonal."""
    t = type_of(v)
    n = t.shape[0] + abs(k)
    first = max(0, k)
    row = pad(v, constant(0, v), padding_config=((first, n - first - t.shape[0], 0),))
    picked = broadcast_in_dim(row, shape=(n, n), dims=(1,))
    return ew.where(_offset_test(ew.eq, (n, n), k), picked, constant(0, v))


@eager_jit
def diag(v: ArrayLike, k: int = 0) -> Array:
    """The k-th diagonal of a matrix, or the matrix with a vector as its k-th diagonal."""
    return _diag(as_operand(v), int(k))


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """The matrix whose k-th diagonal contains the elements of `v` in row-major order."""
    return _diagflat(as_operand(v), int(k))


@fused(arrays=1)
def _diagflat(v: Any, k: int) -> Any:
    return strip_weak_type(_on_diagonal(reshape(v, shape=(type_of(v).size,)), k))


@eager_jit
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """The Vandermonde matrix: one column per power of a vector, the highest first."""
    return _vander(as_operand(x), N, bool(increasing))


@fused(arrays=1)
def _vander(x: Any, N: int | None, increasing: bool) -> Any:
    t = type_of(x)
    if t.ndim != 1:
        raise ValueError(f"vander takes a vector; got {t.str_short(True)}.")
    (x,) = promote(x)
    columns = t.shape[0] if N is None else N
    shape = (t.shape[0], columns)
    power = create.iota(dtype=canonicalize(INT), shape=shape, dimension=1)
    if not increasing:
        power = ew.sub(constant(columns - 1, power), power)
    base = broadcast_in_dim(x, shape=shape, dims=(0,))
    if is_inexact(t.dtype):
        return ew.pow(base, power)
    return cast(binary.power(base, power), canonicalize(INT) if is_bool(t.dtype) else t.dtype)
