"""Eigenvalues and eigenvectors of a symmetric tridiagonal matrix, by divide and conquer.

Each of p devices solves a part with LAPACK; parts are then merged in pairs. Two halves with vectors
V and values d form a matrix V (diag(d) + rho z zᵀ) Vᵀ, whose eigenvalues are the roots of
1 + rho sum(z² / (d - x)), one after each element of d. A device computes some of them with their
vectors, so it holds n² / p elements.

There is no deflation, because its sizes would be known only at run time. Instead, equal poles d are
separated by steps far below rounding, which are stored separately; elements of z are bounded from
below by a number far below rounding; roots are found by bisection on the logarithm of their
distance from the nearest pole; and vectors are computed from the z for which these roots are exact,
so that they are orthogonal however close the roots are.

Sources: Cuppen, "A divide and conquer method for the symmetric tridiagonal eigenproblem" (1981);
Gu, Eisenstat, "A stable and efficient algorithm for the rank-one modification of the symmetric
eigenproblem" (1994).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.distributed_linalg.columns import Columns, below, parts_of
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, dynamic_update_slice
from shardwise._src.ops.linalg.lapack_kernels import as_dtype
from shardwise._src.ops.linalg.lu import inverse
from shardwise._src.ops.linalg.spectral import eigh
from shardwise._src.ops.linalg.triangular import INT32, product
from shardwise._src.ops.reduce import reduce_prod
from shardwise._src.ops.sort import sort
from shardwise._src.types.dtypes import finfo

HOLE = 16.0  # marks a missing value; values are less than 8
STEPS = {"float32": 1e-12, "float64": 1e-25}  # between equal poles
LEAST = {"float32": 1e-10, "float64": 1e-40}  # lower bound of z; both for values of about 1


def scale_of(largest: Any) -> Any:
    return where(largest > 0, largest, largest * 0 + 1)


def eigenpairs(d: Any, e: Any, a: Columns) -> tuple[Any, Any]:
    """Ascending values, and the vectors for which the device has columns.

    d, e: the diagonal and the off-diagonal, which ends with a zero.
    """
    n, p = a.shape[0], a.devices
    part = parts_of(n, p)
    levels = (p - 1).bit_length()
    largest = ew.max(abs(d).max(), abs(e).max())
    size = scale_of(largest)
    d, e = [_longer(x / size, part * 2**levels, fill) for x, fill in ((d, HOLE), (e, 0))]
    place = iota(dtype=INT32, shape=type_of(d).shape, dimension=0)
    cut = where(place % part == part - 1, abs(e), e * 0)  # halves are joined by rho z zᵀ
    d = (
        d
        - cut
        - dynamic_slice(_longer(cut, 1, 0, before=True), np.int32(0), slice_sizes=type_of(d).shape)
    )
    own = a.own() * np.int32(part)
    d, own_e = [dynamic_slice(x, own, slice_sizes=(part,)) for x in (d, e)]
    v, values = eigh(_matrix(d, own_e), lower=True, vectors=True)
    for level in range(levels):
        values, v = _Joint(a, part, 2**level, e).solved(values, v, level == levels - 1)
    return sort(values[:n], dimension=0)[0] * largest, v[:n]


def _longer(x: Any, size: int, fill: float, before: bool = False) -> Any:
    """Extended at the end to a size, or at the front by one element."""
    t = type_of(x)
    count = size if before else size - t.shape[0]
    if not count:
        return x
    more = full(fill, (count,), t.dtype)
    return below(more, x) if before else below(x, more)


def _matrix(d: Any, e: Any) -> Any:
    n = type_of(d).shape[0]
    row, column = [iota(dtype=INT32, shape=(n, n), dimension=i) for i in (0, 1)]
    zero = full(0, (n, n), type_of(d).dtype)
    off = where(
        row == column + 1, e[None, :] + zero, where(column == row + 1, e[:, None] + zero, zero)
    )
    return where(row == column, d[None, :] + zero, off)


class _Joint:
    """Pairs of groups of devices, whose matrices are merged; the last groups may be smaller.

    Vectors and values are numbered across a pair. A position without a matrix element has the
    value HOLE, and sorts after all others.
    """

    def __init__(self, a: Columns, part: int, half: int, e: Any):
        self.a, self.part, self.half, self.devices = a, part, half, 2 * half
        self.size = part * self.devices
        self.dtype = type_of(e).dtype
        own = a.own()
        self.pos = own % np.int32(self.devices)
        self.base = own - self.pos
        self.start = self.base * np.int32(part)
        self.left = np.int32(a.shape[0]) - self.start  # elements in this pair and after it
        self.beta = dynamic_slice(e, self.start + np.int32(self.size // 2 - 1), slice_sizes=(1,))[0]
        self.place = iota(dtype=INT32, shape=(self.size,), dimension=0)
        self.step = self._number(STEPS[self.dtype.name])

    def _number(self, x: float) -> Any:
        return np.asarray(x).astype(self.dtype)[()]

    def solved(self, values: Any, v: Any, last: bool) -> tuple[Any, Any]:
        """values: of the device, or in the last step, of all; v: the upper or lower rows of its
        vectors on input, and all rows on output.
        """
        upper = self.pos < np.int32(self.half)
        z = where(upper, v[-1], where(self.beta < 0, -v[0], v[0]))
        d, z = self._of_pair(values, z)
        inner = self.place % (self.size // 2)
        real = inner < self.left - (self.place - inner)
        least = self._number(LEAST[self.dtype.name])
        self.d = where(real, d, d * 0 + HOLE)
        self.z = where(real, where(abs(z) < least, z * 0 + least, z), z * 0)
        poles, order = sort(self.d, self.place, dimension=0, num_keys=1)
        self.rank = inverse(order)
        roots = self._roots(_longer(poles, self.size + 1, HOLE))
        z = where(real, self._exact(roots, poles), z * 0)
        every = self._of_pair(*roots)
        if last:
            first, count, roots = self.a.own_start(), self.a.width, every
        else:
            first, count = self._first(), self.part
        pole, number, offset = roots
        u = self._vectors(z, every, first, count)
        return pole + (number * self.step + offset), self._joined(v, u)

    def _of_pair(self, *own: Any) -> tuple[Any, ...]:
        """The values of all devices of the pair, concatenated."""
        total = 2 ** (self.a.devices - 1).bit_length() * self.part
        rows = below(*[x[None, :] for x in own])
        every = full(0, (len(own), total), self.dtype)
        every = dynamic_update_slice(every, rows, np.int32(0), self.start + self._first())
        pair = dynamic_slice(
            self.a.total(every), np.int32(0), self.start, slice_sizes=(len(own), self.size)
        )
        return tuple([pair[i] for i in range(len(own))])

    def _first(self) -> Any:
        """The first root of the device."""
        return self.pos * np.int32(self.part)

    def _from(self, pole: Any, number: Any, offset: Any) -> Any:
        """All poles minus numbers close to poles: f64[numbers, poles], each accurate to rounding.

        Steps are subtracted as integers: the rounding of products depends on fusion in XLA.
        """
        steps = as_dtype(self.rank, self.dtype)[None, :] - number[:, None]
        return (self.d[None, :] - pole[:, None]) + steps * self.step - offset[:, None]

    def _numbers(self, first: Any, count: int) -> tuple[Any, Any]:
        """Numbers of roots, and which of them belong to matrix elements."""
        found = iota(dtype=INT32, shape=(count,), dimension=0) + first
        return found, found < self.left

    def _roots(self, poles: Any) -> tuple[Any, Any, Any]:
        """For the device's roots: the nearest poles, their numbers, and the distances from them."""
        limits = finfo(self.dtype)
        eps, tiny = [self._number(float(x)) for x in (limits.eps, limits.tiny)]
        weight = self.z * self.z * ew.max(abs(self.beta), self.beta * 0 + eps * eps)
        number, there = self._numbers(self._first(), self.part)
        end = number == ew.min(self.left, np.int32(self.size)) - 1
        own, behind = [
            dynamic_slice(poles, self._first() + np.int32(i), slice_sizes=(self.part,))
            for i in (0, 1)
        ]
        gap = where(end, weight.sum() * (1 + 8 * eps) + tiny + own * 0, behind - own + self.step)

        def value(pole: Any, place: Any, offset: Any) -> Any:
            return (weight[None, :] / self._from(pole, place, offset)).sum(1) + 1

        right = (value(own, as_dtype(number, self.dtype), gap * 0.5) < 0) & there & ~end
        pole = where(right, behind, own)
        place = as_dtype(number + as_dtype(right, INT32), self.dtype)

        def halved(_: Any, bounds: tuple) -> tuple:
            low, high = bounds
            middle = ew.sqrt(low) * ew.sqrt(high)
            found = value(pole, place, where(right, -middle, middle))
            more = where(right, found > 0, found < 0)
            return where(more, middle, low), where(more, high, middle)

        turns = limits.nmant + 14  # the interval of logarithms is shorter than 2¹⁰
        high = where(end, gap, gap * 0.5)
        _, offset = fori_loop(0, turns, halved, (high * 0 + tiny, high), unroll=1)
        return pole, place, where(right, -offset, offset)

    def _exact(self, roots: tuple, poles: Any) -> Any:
        """The z that has exactly these roots: each device multiplies its own factors."""
        number, there = self._numbers(self._first(), self.part)
        own = dynamic_slice(poles, self._first(), slice_sizes=(self.part,))
        between = self._from(own, as_dtype(number, self.dtype), own * 0)
        itself = self.rank[None, :] == number[:, None]
        factors = self._from(*roots) / where(itself, between * 0 + 1, between)
        factors = where(there[:, None], factors, factors * 0 + 1)
        count = 2 ** (self.a.devices - 1).bit_length()
        every = dynamic_update_slice(
            full(0, (self.a.devices, self.size), self.dtype),
            reduce_prod(factors, axes=(0,))[None, :],
            self.a.own(),
            np.int32(0),
        )
        every = self.a.total(every)
        if count > self.a.devices:
            every = below(every, full(1, (count - self.a.devices, self.size), self.dtype))
        every = dynamic_slice(every, self.base, np.int32(0), slice_sizes=(self.devices, self.size))
        least = self._number(LEAST[self.dtype.name]) ** 2
        z = ew.max(ew.sqrt(abs(reduce_prod(every, axes=(0,)))), self.z * 0 + least)
        return where(self.z < 0, -z, z)

    def _vectors(self, z: Any, every: tuple, first: Any, count: int) -> Any:
        """The vectors of `count` roots, as columns of length 1; zeros for missing ones."""
        _, there = self._numbers(first, count)
        own = [
            dynamic_slice(_longer(x, self.size + count, 0), first, slice_sizes=(count,))
            for x in every
        ]
        u = z[None, :] / self._from(*own)
        u = where(there[:, None], u, u * 0)
        u = where(there[:, None], u / abs(u).max(1)[:, None], u * 0)
        return where(there[:, None], u / ew.sqrt((u * u).sum(1))[:, None], u * 0).T

    def _joined(self, v: Any, u: Any) -> Any:
        """The vectors v of all devices of the pair times u: v is sent from each to the next."""
        p, rows, (_, count) = self.a.devices, self.size // 2, type_of(u).shape
        groups = [range(i, min(i + self.devices, p)) for i in range(0, p, self.devices)]
        round_ = [(i, group[(k + 1) % len(group)]) for group in groups for k, i in enumerate(group)]
        there = ew.min(np.int32(self.devices), np.int32(p) - self.base)
        zero = full(0, (rows, count), self.dtype)

        def turn(i: Any, state: tuple) -> tuple:
            v, *halves = state
            i = as_dtype(i, INT32)
            source = self.pos - i
            source = where(source < 0, source + there, source)
            own = dynamic_slice(
                u, source * np.int32(self.part), np.int32(0), slice_sizes=(self.part, count)
            )
            found = product(v, own)
            upper = source < np.int32(self.half)
            for k, mine in enumerate((upper, ~upper)):
                halves[k] = halves[k] + where(mine & (i < there), found, found * 0)
            return self.a.moved(v, round_), *halves

        _, *halves = fori_loop(0, self.devices, turn, (v, zero, zero), unroll=1)
        return below(*halves)
