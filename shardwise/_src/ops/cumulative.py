"""Running sums, products, extrema: `out[i]` reduces all elements up to `i` along `axis`.

    cumsum(x, axis=0)
    cummax(x, axis=1, reverse=True)      # from `i` to the end

They lower to one `reduce_window`, which XLA turns into a tree of short windows on every platform
(measured on CPU at n = 10⁵ and 10⁶: as fast as an associative scan, with a third less compile
time).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import batch_dimension
from shardwise._src.ops.families import FLOATING, NUMERIC, ORDERED, Domain, add, check_domain, lit
from shardwise._src.ops.pooling import Window
from shardwise._src.ops.reduce import body_of
from shardwise._src.ops.shape import along, concatenate, pad, rev, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import max_value, min_value

Pair = tuple[Any, Any]  # a value and its tangent


def _dims(op: Op, x: ArrayType, *, axis: int, reverse: bool = False) -> Dims:
    names = along(x, (axis,))
    return Dims((names,), (names,))


def _transpose(op: Op, ct: Any, x: Any, *, axis: int, reverse: bool = False) -> list[Any]:
    return [op(ct, axis=axis, reverse=not reverse)]


def cumulative(
    name: str, domain: Domain, body: Callable, identity: Callable, combine: Callable | None
) -> Op:
    """An op that reduces prefixes.

    body:     writes the reduction of two scalars (see `reduce.body_of`).
    combine:  `(earlier, later) → pair`, on values with tangents; None for a linear op.
    """

    def type_rule(op: Op, x: ArrayType, *, axis: int, reverse: bool = False) -> ArrayType:
        check_domain(name, domain, (x,))
        if not 0 <= axis < x.ndim:
            raise ValueError(
                f"[{name}] axis must be one of the {x.ndim} dimensions of {x.str_short(True)}; "
                f"got {axis}."
            )
        return array_type(x.shape, x.dtype, x.weak_type)

    def lower(
        op: Op, e: Any, ins: Any, outs: Any, x: str, *, axis: int, reverse: bool = False
    ) -> str:
        """A window that extends to the start (or the end) from every position."""
        (t,) = ins
        if t.size == 0:
            return x
        n = t.shape[axis]
        reach = (0, n - 1) if reverse else (n - 1, 0)
        ones = (1,) * t.ndim
        sizes = tuple([n if d == axis else 1 for d in range(t.ndim)])
        padding = tuple([reach if d == axis else (0, 0) for d in range(t.ndim)])
        window = Window(sizes, ones, padding, ones, ones)
        return e.reduce_window(body, [x], ins, [identity(t.dtype)], window)[0]

    def jvp(op: Op, primals: Any, tangents: Any, *, axis: int, reverse: bool = False) -> Pair:
        out = op(primals[0], axis=axis, reverse=reverse)
        if combine is None:
            return out, op(tangents[0], axis=axis, reverse=reverse)
        pair = (primals[0], tangents[0])
        return out, _scanned(combine, pair, axis, reverse)[1]

    return Op(
        name,
        is_expensive=True,
        type_rule=type_rule,
        dims=_dims,
        lower=lower,
        jvp=jvp,
        transpose=_transpose if combine is None else None,
        batch=batch_dimension("axis"),
    )


# -- tangents of nonlinear ops: a scan over pairs of value and tangent --


def _scanned(combine: Callable, pair: Pair, axis: int, reverse: bool) -> Pair:
    """Reductions of the prefixes of values with tangents."""
    if not reverse:
        return _scan(combine, pair, axis)
    x, t = pair
    turned = rev(x, dimensions=(axis,)), rev(t, dimensions=(axis,))
    x, t = _scan(combine, turned, axis)
    return rev(x, dimensions=(axis,)), rev(t, dimensions=(axis,))


def _scan(combine: Callable, pair: Pair, axis: int) -> Pair:
    """Combines neighbors, scans them recursively, then computes the elements in between."""
    n = type_of(pair[0]).shape[axis]
    if n < 2:
        return pair

    def every_other(x: Any, start: int, stop: int) -> Any:
        return slice_in_dim(x, start, stop, axis, 2)

    folded = combine(
        tuple(every_other(x, 0, n - 1) for x in pair), tuple(every_other(x, 1, n) for x in pair)
    )
    odd = _scan(combine, folded, axis)
    first = [slice_in_dim(x, 0, 1, axis) for x in pair]
    if n == 2:
        even = first
    else:
        before = tuple(slice_in_dim(x, 0, (n - 1) // 2, axis) for x in odd)
        later = combine(before, tuple(every_other(x, 2, n) for x in pair))
        even = [concatenate(a, b, dimension=axis) for a, b in zip(first, later, strict=True)]
    x, t = (_interleaved(a, b, n, axis) for a, b in zip(even, odd, strict=True))
    return x, t


def _interleaved(even: Any, odd: Any, n: int, axis: int) -> Any:
    rank = type_of(even).ndim

    def at(lo: int, hi: int) -> tuple:
        return tuple((lo, hi, 1) if i == axis else (0, 0, 0) for i in range(rank))

    zero = lit(0, even)
    first = pad(even, zero, padding_config=at(0, 1 - n % 2))
    return add(first, pad(odd, zero, padding_config=at(1, n % 2)))


def _combined_by(op: Op) -> Callable:
    def combine(earlier: Pair, later: Pair) -> Pair:
        if op.jvp is None:
            raise op.missing("jvp", "forward-mode differentiation")
        (x, tx), (y, ty) = earlier, later
        return op.jvp(op, (x, y), (tx, ty))

    return combine


# -- log(exp(x) + exp(y)), without overflow --


def _log_add_exp_body(e: Any, types: Any, x: str, y: str) -> list[str]:
    (t,) = types
    difference = e.apply("subtract", t, x, y)
    away = e.apply("exponential", t, e.apply("negate", t, e.apply("abs", t, difference)))
    most = e.apply("maximum", t, x, y)
    out = e.apply("add", t, most, e.apply("log_plus_one", t, away))
    # Equal infinities have no difference; the answer is their sum, as for a NaN.
    unordered = e.compare("NE", difference, difference, t)
    return [e.select(unordered, e.apply("add", t, x, y), out, t)]


def _log_add_exp(earlier: Pair, later: Pair) -> Pair:
    (x, tx), (y, ty) = earlier, later
    difference = ew.sub(x, y)
    out = add(ew.max(x, y), ew.log1p(ew.exp(ew.neg(ew.abs(difference)))))
    out = ew.where(ew.ne(difference, difference), add(x, y), out)
    level = ew.where(ew.is_finite(out), out, lit(0, out))
    return out, add(ew.mul(tx, ew.exp(ew.sub(x, level))), ew.mul(ty, ew.exp(ew.sub(y, level))))


cumsum = cumulative("cumsum", NUMERIC, body_of(add), lambda d: 0, None)
cumprod = cumulative("cumprod", NUMERIC, body_of(ew.mul), lambda d: 1, _combined_by(ew.mul))
cummax = cumulative("cummax", ORDERED, body_of(ew.max), min_value, _combined_by(ew.max))
cummin = cumulative("cummin", ORDERED, body_of(ew.min), max_value, _combined_by(ew.min))
cumlogsumexp = cumulative("cumlogsumexp", FLOATING, _log_add_exp_body, min_value, _log_add_exp)
