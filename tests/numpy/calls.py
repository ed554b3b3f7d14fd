"""Calls of numpy, by subject: here they return the same as in jax. `test_calls` runs them.

A case is an expression of `m`, a library's numpy, and of the arrays of its group: lower-case names
are arrays of the library, upper-case ones of NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

RNG = np.random.default_rng(3)
NAN = np.nan


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


@dataclass(frozen=True)
class Group:
    """tolerance: relative and absolute, of numbers of 32 bits. count: of the everyday cases.

    by: the array by which calls are differentiated.
    """

    text: str
    values: dict[str, Any]
    count: int
    tolerance: float = 0.0
    by: str = ""


TABLES = {
    "x": normal(2, 3),
    "y": normal(2, 3),
    "cube": normal(2, 3, 4),
    "v": normal(7),
    "w": np.array([1, 2, 0, 3], np.float32),
    "i": np.array([3, 1, 2, 3, 0, 1], np.int32),
    "i8": np.array([[100, 100, 3], [-100, 2, 7]], np.int8),
    "u8": np.array([200, 100, 3], np.uint8),
    "b": np.array([[True, False, True], [False, False, True]]),
    "h": (RNG.normal(size=3000) * 30).astype(np.float16),
    "c": (RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3))).astype(np.complex64),
    "n": np.array([[1, NAN, 3], [NAN, NAN, NAN], [2, 0, NAN]], np.float32),
    "e": np.zeros((0, 3), np.float32),
    "r": np.array([0, 1, 3, 4], np.float32),
    "weak": lambda m: m.broadcast_to(2.0, (2, 2)),
}
TABLES["bf"] = TABLES["h"].astype(ml_dtypes.bfloat16)
FACTORS = {
    "s": np.float32(2),
    "v": normal(3),
    "u": normal(4),
    "a": normal(2, 3),
    "b": normal(3, 4),
    "sq": normal(3, 3),
    "t": normal(5, 2, 3),
    "q": normal(5, 3, 4),
    "o": normal(1, 3, 4),
    "r": normal(5, 1, 2, 3),
    "i": RNG.integers(-5, 5, (3, 3)).astype(np.int8),
    "z": (normal(2, 3) + 1j * normal(2, 3)).astype(np.complex64),
    "h": normal(2, 3, dtype=np.float16),
    "p": normal(2, 2),
    "k": np.arange(3) > 0,
    "weak": lambda m: m.broadcast_to(2.0, (3, 2)),
}
FACTORS["bf"] = FACTORS["b"].astype(ml_dtypes.bfloat16)
SETS = {
    "a": np.array([3, 1, 2, 3, 7, 1], np.int32),
    "b": np.array([2, 9, 3, 3, 8], np.int32),
    "x": np.array([0.5, 2, 1, -3, 4, 2.5], np.float32),
    "q": np.arange(12, dtype=np.float32).reshape(3, 4) ** 2,
}
PARTS = {
    "A": np.arange(6, dtype=np.float32).reshape(2, 3),
    "B": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "X": np.array([3, 1, 2], np.float32),
    "I": np.array([2, 0, 1], np.int32),
    "M": np.array([True, False, True]),
    "E0": np.zeros((0, 3), np.float32),
    "ALONG": np.array([[2, -1], [0, 5]]),
}

REDUCTIONS = """
m.sum(x); m.sum(x, 0); m.sum(x, axis=-1, keepdims=True); m.sum(cube, axis=(0, -1))
m.sum(x, axis=()); m.sum(cube, axis=[0, 1]); m.sum(x, dtype=int); m.sum(x, dtype="float16")
m.sum(x, 1, bool); m.sum(i8); m.sum(i8, promote_integers=False); m.sum(u8); m.sum(b)
m.sum(b, axis=()); m.sum(c, 1); m.sum(h); m.sum(bf); m.sum(bf, dtype=np.float32); m.sum(e)
m.sum(e, 0); m.sum(weak); m.sum(3); m.sum(2.5); m.sum(True); m.sum(x, where=x > 0)
m.sum(x, initial=2); m.sum(i8, initial=2.5); m.sum(x, 0, where=b, initial=1, keepdims=True)
m.sum(x, where=b[0]); m.sum(np.arange(3)); m.prod(x); m.prod(i8, 0); m.prod(b); m.prod(h[:5])
m.prod(e, 0); m.prod(x, where=b, initial=3); m.prod(c, keepdims=True)
m.prod(u8, dtype=np.float32); m.max(x); m.max(x, 0); m.max(n); m.max(b, 0); m.max(c); m.max(weak)
m.max(i8, keepdims=True); m.max(e, 1); m.max(x, initial=0.5)
m.max(x, where=b, initial=-9, axis=1); m.max(e, 0, initial=2); m.min(x); m.min(u8); m.min(n, 0)
m.min(bf); m.min(c, 1); m.amin(x, 1); m.amax(x, 1); m.max(5); m.ptp(x); m.ptp(i8, 0)
m.ptp(x, -1, keepdims=True); m.any(x > 5); m.any(b, 0); m.any(c, 1); m.any(e); m.all(b, 1)
m.all(e); m.all(x, keepdims=True); m.any(b, where=~b); m.all(b, where=b, axis=0); m.any(n, 0)
m.all(1.0); m.count_nonzero(b); m.count_nonzero(i8, 0, keepdims=True); m.count_nonzero(n)
m.argmax(x); m.argmax(x, 0); m.argmax(n, 1); m.argmin(n); m.argmin(x, -1, keepdims=True)
m.argmax(b, 0); m.argmax(x, keepdims=True); m.argmax(4.0); m.argmin(i8, axis=0); m.argmax(bf)
"""

STATISTICS = """
m.mean(x); m.mean(x, 0); m.mean(i8); m.mean(b); m.mean(c, 1); m.mean(h); m.mean(bf); m.mean(weak)
m.mean(x, axis=(), keepdims=True); m.mean(x, where=b); m.mean(i8, dtype=np.float16); m.mean(e, 0)
m.mean(x, where=b, axis=0, keepdims=True); m.mean(x, dtype=int); m.mean(2); m.var(x); m.var(x, 0)
m.var(x, ddof=1); m.var(x, correction=0.5); m.var(i8, 1); m.var(c); m.var(h); m.var(x, ddof=6)
m.var(x, ddof=9); m.var(x, where=b); m.var(x, where=b, ddof=9); m.var(x, mean=0.5)
m.var(x, axis=(0, 1), keepdims=True); m.std(x); m.std(x, 1); m.std(i8); m.std(bf); m.std(c, 0)
m.std(x, 0, where=b); m.var(x, 1, mean=m.mean(x, 1, keepdims=True), where=b); m.var(weak)
m.average(x); m.average(x, 0); m.average(i8, returned=True); m.average(x, weights=y)
m.average(x, 1, weights=y[0], returned=True); m.average(i, weights=i); m.average(x, weights=b)
m.average(x, 0, weights=y[:, 0], keepdims=True); m.average(c, weights=x)
m.average(cube, (2, 0), weights=m.ones((4, 2)) + w[:, None]); m.nansum(n); m.nansum(n, 1)
m.nansum(i8, 0); m.nansum(b); m.nanprod(n, 0); m.nanprod(n, where=n > 1); m.nanmax(n)
m.nanmax(n, 1); m.nanmax(n, 0, keepdims=True); m.nanmin(n, 1); m.nanmin(i8)
m.nanmax(n, initial=9.0); m.nanmin(n, 1, initial=9, where=n > 1); m.nanmax(b); m.nanmean(n)
m.nanmean(n, 1); m.nanmean(i8, 1); m.nanmean(n, 0, where=n > 0); m.nanvar(n); m.nanvar(n, 1)
m.nanvar(n, 1, ddof=1); m.nanstd(n, 0, keepdims=True); m.nanstd(i8); m.nanvar(x)
m.nanargmax(n, 1); m.nanargmin(n, 0); m.nanargmax(n); m.nanargmin(i8, 0, keepdims=True); m.cov(x)
m.cov(x, y); m.cov(v); m.cov(x, rowvar=False); m.cov(x, bias=True); m.cov(x, ddof=2)
m.cov(x, fweights=i[:3]); m.cov(x, aweights=w[:3]); m.cov(c); m.cov(i8); m.cov(v, v * v)
m.cov(x, fweights=i[:3], aweights=w[1:] + 1, ddof=1); m.corrcoef(x); m.corrcoef(c); m.corrcoef(v)
m.corrcoef(x.T, rowvar=False); m.corrcoef(v, v * v); m.median(x); m.median(x, 0); m.median(i8, 1)
m.median(n, 0); m.median(h); m.nanmedian(n, 1); m.median(cube, (0, 2), keepdims=True)
m.nanmedian(n); m.nanmedian(i8); m.quantile(x, 0.3); m.quantile(x, m.array([0.1, 0.9]), axis=1)
m.quantile(i8, 0.25, 0); m.quantile(v, 0.77, method="lower"); m.quantile(v, 0.77, method="higher")
m.quantile(b, 0.5); m.quantile(v, 0.77, method="nearest"); m.quantile(v, 0.77, method="midpoint")
m.quantile(n, 0.5, 1); m.quantile(cube, m.array([0.0, 1.0]), axis=(0, 2), keepdims=True)
m.percentile(x, 30.0); m.percentile(x, m.array([5.0, 50.0]), 0); m.nanquantile(n, 0.6)
m.nanquantile(n, 0.6, 1); m.nanpercentile(n, m.array([10.0, 60.0]), 0, keepdims=True)
m.quantile(h, 0.5)
"""

SCANS = """
m.cumsum(x); m.cumsum(x, 1); m.cumsum(i8, 0); m.cumsum(b, 1); m.cumsum(h[:9]); m.cumsum(e, 0)
m.cumsum(x, 0, dtype=int); m.cumsum(c, -1); m.cumsum(2.0); m.cumprod(x); m.cumprod(b, 0)
m.cumprod(i8, 1); m.cumprod(u8, dtype=np.float32); m.nancumsum(n); m.nancumsum(n, 1)
m.nancumprod(n, 0); m.nancumsum(i8, 0); m.cumulative_sum(v); m.cumulative_sum(x, axis=1)
m.cumulative_sum(i8, axis=0, include_initial=True); m.cumulative_prod(u8, include_initial=True)
m.cumulative_sum(b, axis=1); m.cumulative_prod(x, axis=-1); m.cumsum(weak, 1); m.diff(x)
m.diff(x, axis=0); m.diff(x, n=2); m.diff(x, n=0); m.diff(b); m.diff(i8, 5); m.diff(x, prepend=1)
m.diff(x, append=y, axis=0); m.diff(i8, prepend=0.5, append=1); m.diff(c); m.ediff1d(x)
m.ediff1d(i, to_end=7); m.ediff1d(i, m.array([1, 2]), 5); m.ediff1d(v, to_begin=0); m.trapezoid(x)
m.trapezoid(i8, axis=0); m.trapezoid(m.ones((2, 3)), m.arange(2.0)); m.trapezoid(x, dx=0.5); m.trapezoid(x, y, axis=1)
m.trapezoid(cube, r[:3], axis=1); m.trapezoid(c, dx=2); m.interp(v, r, w); m.interp(0.5, r, w)
m.interp(v, r, w, left=-1, right=9); m.interp(v, r, c.ravel()[:4]); m.interp(x, r, w, period=5)
m.interp(v * 9, r, w, left="extrapolate"); m.interp(i, r, w); m.convolve(v, w)
m.convolve(v, w, "same"); m.convolve(w, v, "valid"); m.convolve(i, i[:2])
m.convolve(c[0], w, "same"); m.correlate(v, w); m.correlate(v, w, "same")
m.correlate(w, v, "full"); m.correlate(c[0], c[1], "full"); m.correlate(w, v, "same")
m.correlate(w[:3], v, "same"); m.correlate(w[:3], v); m.convolve(v, w[:3], "same")
m.correlate(v, w[:3], "same"); m.convolve(w[:3], v, "same")
"""

SORTING = """
m.sort(x); m.sort(x, 0); m.sort(x, None); m.sort(n, 1); m.sort(i8, descending=True); m.sort(c)
m.sort(n, 0, descending=True); m.sort(b); m.sort(bf[:20]); m.sort(x, stable=False); m.sort(weak)
m.argsort(x); m.argsort(i); m.argsort(i, descending=True); m.argsort(n, 1); m.argsort(x, None)
m.argsort(x, 0, descending=True); m.argsort(i, dtype=np.uint8); m.argsort(n, 0, descending=True)
m.lexsort((i, i[::-1])); m.lexsort(x); m.lexsort((x, y), axis=0); m.sort_complex(i)
m.sort_complex(c); m.searchsorted(r, v); m.searchsorted(r, r, side="right")
m.searchsorted(r, x, "right"); m.searchsorted(r, 2); m.searchsorted(i[:1], i)
m.searchsorted(r[:0], v); m.searchsorted(r, n); m.searchsorted(r, v, method="compare_all")
m.searchsorted(r, n, "right", method="compare_all"); m.searchsorted(w, v, sorter=m.argsort(w))
m.searchsorted(m.sort(n[0]), n, "right"); m.digitize(x, r); m.digitize(x, r, right=True)
m.digitize(x, r[::-1]); m.digitize(i, r[::-1], True); m.digitize(x, r[:0]); m.digitize(2, r)
m.bincount(i); m.bincount(i, length=3); m.bincount(i, minlength=9); m.bincount(i, v[:6])
m.bincount(i - 2); m.bincount(i[:0]); m.bincount(u8); m.bincount(i, i); m.histogram(v)
m.histogram(i, 3); m.histogram(v, r); m.histogram(v, 4, (-1, 1)); m.histogram(x, 5)
m.histogram(v, 4, density=True); m.histogram(v, r, weights=v * v); m.histogram(i, 3, weights=i)
m.histogram(v, r, density=True); m.histogram(w[:1], 2); m.histogram_bin_edges(v, 3)
m.histogram2d(v, v * v, 3); m.histogram2d(v, v * v, [r, 2], density=True); m.unique(i)
m.unique(i, True, True, True); m.unique(n); m.unique(n, equal_nan=False); m.unique(x)
m.unique(i, size=2, return_counts=True); m.unique(i, True, True, True, size=6)
m.unique(i, True, True, True, size=9); m.unique(i, size=7, fill_value=9)
m.unique(b, axis=0, return_inverse=True); m.unique(i[:0])
m.unique(i.reshape(3, 2) % 2, axis=0, return_index=True, return_counts=True)
m.unique(i.reshape(3, 2) % 2, axis=1, size=4, fill_value=5)
m.unique(i.reshape(2, 3), return_inverse=True); m.unique_all(i); m.unique_counts(n)
m.unique_inverse(i); m.unique_values(b); m.unique(x, size=0)
"""

PRODUCTS = """
m.matmul(a, b); m.matmul(v, b); m.matmul(a, v); m.matmul(v, v); m.matmul(t, b); m.matmul(a, q)
m.matmul(t, q); m.matmul(t, o); m.matmul(r, q); m.matmul(v, q); m.matmul(t, v); m.matmul(r, b)
m.matmul(i, i); m.matmul(z, b); m.matmul(h, b); m.matmul(h, bf); m.matmul(a, weak); m.matmul(k, b)
m.matmul(weak, a); m.matmul(weak, weak.T); m.matmul(a, bf, preferred_element_type=np.float32)
m.matmul(h, h.T, preferred_element_type=np.float32)
m.matmul(i, i, preferred_element_type=np.int32); m.matmul(a, b, precision="highest")
m.matmul(a[:, :0], b[:0]); m.matmul(a[:0], b); m.dot(a, b); m.dot(s, a); m.dot(a, 2); m.dot(v, v)
m.dot(t, q); m.dot(v, q); m.dot(i, i); m.dot(t, v); m.dot(h, b); m.dot(2, 3.0)
m.dot(a, b, precision=("high", "default")); m.vdot(z, a); m.vdot(a, z); m.vdot(v, v); m.vdot(z, z)
m.vdot(i, sq); m.inner(a, sq); m.inner(v, v); m.inner(t, a); m.inner(a, 3.0); m.outer(v, u)
m.outer(a, i); m.outer(z, 2); m.vecdot(a, a); m.vecdot(z, a); m.vecdot(t, a)
m.vecdot(a, sq[:2], axis=0); m.vecdot(r, t); m.matvec(a, v); m.matvec(t, v); m.matvec(t, t[:, 0])
m.vecmat(v, b); m.vecmat(z, b); m.vecmat(a, b); m.tensordot(a, b, 1); m.tensordot(a, a)
m.tensordot(t, q, ((0, 2), (0, 1))); m.tensordot(a, b, (1, 0)); m.tensordot(a, u, 0)
m.tensordot(t, a, [[-1, 1], [1, 0]]); m.tensordot(i, b, 1); m.kron(a, b); m.kron(v, a)
m.kron(i, a); m.kron(t, a); m.kron(2, v); m.cross(v, v[::-1]); m.cross(a, sq[:2])
m.cross(p, p[::-1]); m.cross(p, a); m.cross(a, p); m.cross(sq, sq.T, axis=0)
m.cross(a.T, sq[:2], axisa=0, axisc=0); m.cross(v, sq); m.cross(i, sq); m.trace(sq); m.trace(i)
m.trace(a, 1); m.trace(a, -1); m.trace(t, axis1=2, axis2=0); m.trace(z); m.trace(h); m.trace(a, 9)
m.trace(sq, dtype=int); m.trace(k[:, None] & k); m.linalg.norm(a); m.linalg.norm(v)
m.linalg.norm(v, 1); m.linalg.norm(v, np.inf); m.linalg.norm(v, -np.inf); m.linalg.norm(v, 0)
m.linalg.norm(v, 3); m.linalg.norm(v, -1.5); m.linalg.norm(a, 1); m.linalg.norm(a, -1)
m.linalg.norm(a, np.inf); m.linalg.norm(a, -np.inf); m.linalg.norm(a, "fro")
m.linalg.norm(t, axis=(0, 2)); m.linalg.norm(t, 1, (2, 0), True); m.linalg.norm(a, axis=0)
m.linalg.norm(z); m.linalg.norm(z, 1); m.linalg.norm(i); m.linalg.norm(t, keepdims=True)
m.linalg.norm(a, 1, 1, True); m.linalg.norm(h); m.linalg.vector_norm(t)
m.linalg.vector_norm(t, axis=(0, 1)); m.linalg.vector_norm(a, axis=0, ord=1)
m.linalg.matrix_norm(t); m.linalg.matrix_norm(t, ord=1, keepdims=True)
m.linalg.matrix_power(sq, 5); m.linalg.matrix_power(sq, 0); m.linalg.matrix_power(t[:, :, :2], 3)
m.linalg.multi_dot([a, b, b.T, v]); m.linalg.multi_dot([v, b]); m.linalg.multi_dot([a, b, b.T])
m.linalg.outer(v, u); m.linalg.trace(t); m.linalg.cross(v, v[::-1])
m.linalg.tensordot(a, b, axes=1); m.linalg.vecdot(a, a, axis=0); m.linalg.matmul(a, b)
m.linalg.matrix_transpose(t)
"""

EINSUMS = """
m.einsum("ij,jk->ik", a, b); m.einsum("ij,jk->ki", a, b); m.einsum("ij,jk", a, b)
m.einsum("ii", sq); m.einsum("ii->i", sq); m.einsum("ij->ji", a); m.einsum("ij->", a)
m.einsum("ij->j", a); m.einsum("ji", a); m.einsum("i,j->ij", v, u); m.einsum("i,i->i", v, v)
m.einsum("i,i", v, v); m.einsum("...i->...", t); m.einsum("bij,bjk->bik", t, q)
m.einsum("bij,bjk->kib", t, q); m.einsum("...ij,...jk->...ik", r, q); m.einsum("i...,i...", a, a)
m.einsum("bij,ojk->bik", t, o); m.einsum("ii,ij->ij", sq, b); m.einsum("ij,kl->", a, b)
m.einsum(",ij->ij", s, a); m.einsum("ijk,jk->i", t, a); m.einsum("ij,j", i, v)
m.einsum("ij,jk,kl->il", a, b, b.T); m.einsum("ij,jk,kl,l->i", a, b, b.T, v, optimize="greedy")
m.einsum("ij,jk,kl->il", a, b, b.T, optimize=False)
m.einsum("ij,jk,kl->li", a, b, b.T, optimize="optimal")
m.einsum("ij,jk,kl->il", a, b, b.T, optimize=[(1, 2), (0, 1)]); m.einsum("a,b,c->abc", v, u, v)
m.einsum("ij,ij,ij->i", a, a, a); m.einsum(a, [0, 1], b, [1, 2])
m.einsum(a, [0, 1], b, [1, 2], [2, 0]); m.einsum(t, [..., 1], v, [1], [...])
m.einsum("ij,jk->ik", h, h.T, preferred_element_type=np.float32); m.einsum("ij,jk->ik", h, b)
m.einsum("ij,jk->ik", i, i); m.einsum("ij,ij->ij", z, a); m.einsum("i j , j k -> i k", a, b)
m.einsum("ij,jk->ik", weak, a); m.einsum("ij->i", bf)
m.einsum("ij,kj->ik", a, sq, precision="high"); m.einsum("bij->b", t); m.einsum("bij,bij->", t, t)
m.einsum("ij,jj->i", a, sq)
"""

CREATION = """
m.zeros(3); m.zeros((2, 3), int); m.zeros((), bool); m.zeros([2, 1], "bfloat16"); m.ones((2, 0))
m.ones(2, complex); m.empty(2); m.full((2,), 1.0); m.full((2,), 1, dtype=float)
m.full((2, 2), np.arange(2)); m.full(2, True); m.full((), np.int8(3)); m.zeros_like(1.0)
m.zeros_like(np.ones(2, np.int8)); m.zeros_like(m.asarray(1.0))
m.zeros_like(m.asarray(1.0), dtype=float); m.zeros_like(np.ones(2), shape=(3,))
m.ones_like(jax.ShapeDtypeStruct((2,), np.int8)); m.full_like(np.ones(2), 3)
m.full_like(np.ones(2, int), 3.7); m.array(1.0); m.array(True); m.array(np.float16(2))
m.array([1, 2]); m.array([1, 2.5]); m.array([True, 2]); m.array([1j, 2])
m.array([[1, 2], [3, 4]]); m.array(((1, 2), (3, 4))); m.array([]); m.array([[], []])
m.array([np.float16(1), 2.0]); m.array([np.ones(2, np.float16), [1.0, 2]])
m.array([np.float32(1), np.int8(2)]); m.array([m.asarray(1.0), 2])
m.array([m.ones(2), m.zeros(2)]); m.array([[m.asarray(1), 2], [3, 4]]); m.array([1, 2], ndmin=3)
m.array([1.5], dtype=int); m.array(np.array([300]), dtype=np.uint8); m.array(range(3))
m.array(memoryview(b"abc")); m.array(m.asarray(1.0)); m.asarray(3, dtype=float)
m.asarray(np.arange(3.0)); m.arange(5); m.arange(5.0); m.arange(1, 5, 2); m.arange(5, 0, -1)
m.arange(5, 1); m.arange(-3); m.arange(0, 1, 0.3); m.arange(5, dtype="bfloat16")
m.arange(3, dtype=complex); m.arange(np.int8(5)); m.arange(2.5, dtype=int); m.arange(m.asarray(5))
m.arange(1, 4, dtype=np.uint8); m.linspace(0, 1, 5); m.linspace(0, 10, 4, dtype=int)
m.linspace(0, 1, 0); m.linspace(0, 1, 1); m.linspace(1, 2, 3, endpoint=False, retstep=True)
m.linspace(0, 1, 1, retstep=True); m.linspace(np.array([0, 1]), np.array([1, 2]), 3, axis=1)
m.linspace(1j, 2, 3); m.linspace(np.float16(0), np.float16(1), 4); m.logspace(0, 2, 3)
m.logspace(0, 2, 3, base=2); m.geomspace(1, 1000, 4); m.geomspace(-1, -1000, 4)
m.geomspace(1j, 1000j, 4); m.geomspace(1, 16, 4, endpoint=False); m.eye(2, 3, 1)
m.eye(3, k=-1, dtype=int); m.eye(2, dtype=bool); m.identity(2, int); m.tri(3, k=-1); m.tri(2, 3)
m.tril(np.ones((2, 3), int)); m.tril(np.ones((2, 3, 3)), -1); m.triu(np.ones((3, 3), bool), 1)
m.tril_indices(3, -1); m.triu_indices(3, 1, 4); m.tril_indices_from(np.ones((2, 3)))
m.diag_indices(3); m.diag_indices_from(np.ones((2, 2))); m.diag(np.arange(2), 1)
m.diag(np.arange(3.0), -1); m.diag(np.arange(6).reshape(2, 3), 1)
m.diag(np.array([], np.float32)); m.diagflat(np.ones((2, 2)), 1); m.vander(np.arange(3), 3)
m.vander(np.arange(3.0), 4, increasing=True); m.indices((2, 3)); m.indices((2, 3), sparse=True)
m.meshgrid(np.arange(2), np.arange(3.0))
m.meshgrid(np.arange(2), np.arange(3), indexing="ij", sparse=True)
m.fromfunction(lambda i, j: i + j, (2, 2)); m.fromfunction(lambda i, j: i + j, (2, 2), dtype=int)
m.frombuffer(b"abcdefgh", dtype=np.uint8, count=3, offset=1); m.astype(np.ones(2), int)
m.copy(np.ones(2))
"""

SHAPES = """
m.reshape(A, (3, 2)); m.reshape(A, (3, 2), order="F"); m.reshape(A, -1)
m.reshape(A, -1, order="F"); m.reshape(A, (-1, 2)); m.reshape(A, (-1, 2), order="F")
m.reshape(A, (1, 6, 1)); m.reshape(A, (1, 6, 1), order="F"); m.reshape(np.float32(2), (1, 1))
m.ravel(A); m.ravel(A, order="F"); m.transpose(A); m.atleast_1d(A); m.atleast_2d(A)
m.atleast_3d(A); m.squeeze(A); m.flip(A); m.ravel(B); m.ravel(B, order="F"); m.transpose(B)
m.atleast_1d(B); m.atleast_2d(B); m.atleast_3d(B); m.squeeze(B); m.flip(B); m.ravel(np.float32(1))
m.ravel(np.float32(1), order="F"); m.transpose(np.float32(1)); m.atleast_1d(np.float32(1))
m.atleast_2d(np.float32(1)); m.atleast_3d(np.float32(1)); m.squeeze(np.float32(1))
m.flip(np.float32(1)); m.ravel(E0); m.ravel(E0, order="F"); m.transpose(E0); m.atleast_1d(E0)
m.atleast_2d(E0); m.atleast_3d(E0); m.squeeze(E0); m.flip(E0); m.atleast_2d(X, np.float32(1))
m.atleast_3d(X); m.transpose(B, (1, -1, 0)); m.permute_dims(B, (2, 0, 1)); m.matrix_transpose(B)
m.swapaxes(B, 0, -1); m.moveaxis(B, 0, -1); m.moveaxis(B, (0, 1), (-1, 0)); m.rollaxis(B, 2)
m.rollaxis(B, 0, 3); m.expand_dims(A, 1); m.expand_dims(A, (0, -1)); m.squeeze(A[None], 0)
m.squeeze(A[None, :, None], (0, -2)); m.broadcast_to(X, (2, 3))
m.broadcast_to(np.float32(1), (2,)); m.broadcast_arrays(A, X, 1); m.rot90(A); m.flip(B, 1)
m.flip(B, (0, -1)); m.fliplr(A); m.flipud(A); m.rot90(B, -1); m.rot90(B, -1, axes=(2, 0))
m.rot90(B, 0); m.rot90(B, 0, axes=(2, 0)); m.rot90(B, 1); m.rot90(B, 1, axes=(2, 0))
m.rot90(B, 2); m.rot90(B, 2, axes=(2, 0)); m.rot90(B, 3); m.rot90(B, 3, axes=(2, 0))
m.rot90(B, 4); m.rot90(B, 4, axes=(2, 0)); m.concatenate([A, A + 1, I * A], 0)
m.concatenate([A, A + 1, I * A], 1); m.concatenate([A, A + 1, I * A], -1)
m.concatenate([A, A + 1, I * A], None); m.concatenate([X, I]); m.concatenate([I, M])
m.concatenate(A); m.concatenate([X, I], dtype="int32"); m.concatenate([A, 2], None)
m.stack([A, A], 0); m.stack([A, A], 1); m.stack([A, A], -1); m.stack([1, 2.0]); m.stack(B)
m.unstack(B, axis=1); m.vstack([A, A]); m.vstack([X, I]); m.hstack([A, A]); m.hstack([X, I])
m.dstack([A, A]); m.dstack([X, I]); m.column_stack([A, A]); m.column_stack([X, I])
m.hstack([1, 2]); m.append(A, X); m.append(A, A, axis=1); m.block([[A, A], [A[:1], 2 * A[1:]]])
m.block([1, 2.0]); m.block(A); m.block([[X, X], [np.zeros(6, np.float32)]]); m.split(B, 2)
m.split(B, [1, 2], axis=2); m.array_split(X, 2); m.array_split(np.arange(7), 3); m.hsplit(X, 3)
m.hsplit(A, 3); m.vsplit(A, 2); m.dsplit(B, [1]); m.roll(A, 1, axis=1); m.roll(A, -2, axis=1)
m.roll(A, 5, axis=1); m.roll(A, np.array([1, -1]), axis=(0, 1)); m.roll(A, 2)
m.roll(A, (1, 2), 1); m.roll(E0, 1, 0); m.repeat(A, 2); m.repeat(A, 2, axis=1); m.repeat(X, I)
m.repeat(A, 0, 0); m.repeat(X, I, total_repeat_length=5); m.repeat(X, I, total_repeat_length=2)
m.repeat(A, np.array([0, 3]), axis=0); m.repeat(X, 2, total_repeat_length=7); m.tile(A, 2)
m.tile(A, (2, 1, 2)); m.tile(X, ()); m.tile(A, (0, 1)); m.resize(A, (2, 4)); m.resize(A, 3)
m.resize(E0, (2,)); m.delete(X, 1); m.delete(X, -1); m.delete(X, slice(0, 2)); m.delete(X, I[:2])
m.delete(X, M); m.delete(A, 1, axis=1); m.delete(A, 2); m.insert(X, 1, 9); m.insert(X, -1, 9)
m.insert(X, 1, X); m.insert(X, I, X); m.insert(X, slice(0, 2), 5); m.insert(X, np.array([1]), X)
m.insert(A, 1, X[:2], axis=1); m.insert(A, 1, 9, axis=0); m.insert(A, 4, 2)
m.insert(A, np.array([0, 2]), X[:2], axis=1); m.trim_zeros(np.array([0, 1, 0, 2, 0]))
m.trim_zeros(np.array([0, 1, 0]), "f"); m.diagonal(A, -1); m.diagonal(B, -1, 2, 0)
m.diagonal(A, 0); m.diagonal(B, 0, 2, 0); m.diagonal(A, 2); m.diagonal(B, 2, 2, 0)
m.diagonal(A, 5); m.diagonal(B, 5, 2, 0); m.fill_diagonal(A, 9, inplace=False)
m.fill_diagonal(A, X[:2], inplace=False); m.fill_diagonal(np.ones((2, 2, 2)), 5, inplace=False)
m.take(X, np.array([0, -1, 3, -7]), mode="fill")
m.take(B, np.array([[0, 2], [5, -1]]), axis=1, mode="fill")
m.take(I, np.array([7, -9]), mode="fill"); m.take(X, np.array([0, -1, 3, -7]), mode="clip")
m.take(B, np.array([[0, 2], [5, -1]]), axis=1, mode="clip")
m.take(I, np.array([7, -9]), mode="clip"); m.take(X, np.array([0, -1, 3, -7]), mode="wrap")
m.take(B, np.array([[0, 2], [5, -1]]), axis=1, mode="wrap")
m.take(I, np.array([7, -9]), mode="wrap"); m.take(A, 1, axis=1); m.take(X, 7, fill_value=5)
m.take(X, np.zeros(0, int)); m.take_along_axis(A, ALONG, axis=1)
m.take_along_axis(A, ALONG[:1], axis=1); m.take_along_axis(A, ALONG, axis=1, mode="clip")
m.take_along_axis(A, I[:2], axis=None); m.take_along_axis(A, ALONG[:, :1], axis=0)
m.put_along_axis(A, np.array([[0], [2]]), 9, axis=1, inplace=False)
m.put_along_axis(A, np.array([[0], [5]]), X[:1], axis=1, inplace=False)
m.put_along_axis(A, I, X, axis=None, inplace=False)
m.put(A, np.array([0, 7, -1]), np.array([8, 9]), mode=None, inplace=False)
m.put(A, np.array([0, 7, -1]), np.array([8, 9]), mode="wrap", inplace=False)
m.place(A, A > 2, np.array([8, 9]), inplace=False); m.compress(M, X); m.compress(M[:2], A, axis=1)
m.compress(M, X, size=3); m.extract(A > 2, A); m.extract(A > 2, A, size=5, fill_value=-1)
m.ix_(I, I[:2]); m.nonzero(A); m.argwhere(A); m.flatnonzero(A); m.nonzero(A, size=4)
m.argwhere(A, size=4, fill_value=-1); m.nonzero(A - 2); m.argwhere(A - 2); m.flatnonzero(A - 2)
m.nonzero(A - 2, size=4); m.argwhere(A - 2, size=4, fill_value=-1); m.nonzero(M); m.argwhere(M)
m.flatnonzero(M); m.nonzero(M, size=4); m.argwhere(M, size=4, fill_value=-1); m.nonzero(E0)
m.argwhere(E0); m.flatnonzero(E0); m.nonzero(E0, size=4); m.nonzero(B > 11); m.argwhere(B > 11)
m.flatnonzero(B > 11); m.nonzero(B > 11, size=4); m.argwhere(B > 11, size=4, fill_value=-1)
m.nonzero(A, size=7, fill_value=(7, 8)); m.where(A > 2); m.where(M, X, 0); m.where(X, 1, 2)
m.where(A > 2, I, X[:, None][:2]); m.where(True, 1, 2.0); m.choose(I[:2] % 2, [I[:2], X[:2]])
m.choose(I, [X, 5, A[:, :]], mode="wrap"); m.choose(I * 2, [X, A], mode="clip")
m.select([X > 2, X > 1], [X, X * 10], default=-1); m.select([M, X > 1], [A, 2])
m.piecewise(X, [X < 2, X > 2], [-1, 7]); m.piecewise(X, [X < 2], [5, 9.5])
m.unravel_index(np.array([5, 7, -1, -9]), (2, 3)); m.unravel_index(4, (2, 3))
m.unravel_index(I, m.asarray([2, 3], np.int16)); m.unravel_index(np.uint8([5, 9]), [2, np.int32(3)])
m.asarray(A, np.float16).view(bool); m.asarray(A.T, bool).view(np.int16)
m.asarray(A.T).view(np.complex64)
m.asarray(A, np.complex64).view(np.int8)
m.ravel_multi_index((I[:2] % 2, I[:2]), (2, 3))
m.ravel_multi_index((I, I - 3), (2, 3), mode="clip")
m.ravel_multi_index((I, I - 3), (2, 3), mode="wrap", order="F"); m.isin(A, np.array([1, 2.0]))
m.isin(A, I, invert=True)
"""

OTHERS = """
m.mgrid[0:3, 0:2]; m.mgrid[0:4]; m.mgrid[0:1:5j, 0:2]; m.ogrid[0:3, 0:2][1]; m.ogrid[0:1:3j]
m.r_[0:3, 7, x]; m.r_[a, 1, b]; m.r_["0,2", a, a]; m.r_["1,2,0", a, b[:3].repeat(2)]
m.r_["-1", q, q]; m.c_[a, a]; m.c_[q, q]; m.gradient(x); m.gradient(a); m.gradient(x, 2)
m.gradient(x, np.array([0, 1, 3, 4, 7, 9.0], np.float32)); m.gradient(q); m.gradient(q, 2.0, 3.0)
m.gradient(q, axis=1); m.gradient(q, axis=(0, -1)); m.unwrap(x * 3); m.unwrap(q, axis=0)
m.unwrap(x, discont=4.0); m.unwrap(a, period=4); m.union1d(a, b)
m.union1d(a, b, size=8, fill_value=-1); m.union1d(q, a); m.intersect1d(a, b)
m.intersect1d(a, b, return_indices=True); m.intersect1d(a, b, size=4)
m.intersect1d(a, b, size=4, fill_value=-1); m.intersect1d(a, b, size=1)
m.intersect1d(m.asarray([1, 2]), m.asarray([3, 4]), size=2); m.setdiff1d(a, b)
m.setdiff1d(a, b, size=4); m.setdiff1d(a, b, size=4, fill_value=-1)
m.setdiff1d(a, b, assume_unique=True); m.setdiff1d(m.asarray(np.float32([np.nan, 1, np.nan])), b)
m.setdiff1d(m.asarray(np.float32([np.nan, 1, np.nan])), b, size=3); m.setxor1d(a, b)
m.setxor1d(a, b, size=7, fill_value=-1); m.setxor1d(a, b, size=7); m.setxor1d(a, a, size=3)
m.setxor1d(a, b, size=1); m.setxor1d(a, b[:0])
m.setxor1d(m.asarray(np.float32([0.0, -0.0, 1, 1])), m.asarray(np.float32([3, 2, 3, 2])))
m.setxor1d(m.asarray(np.float32([np.nan, 1, np.nan])), m.asarray(np.float32([np.nan, 2])))
m.setxor1d(m.asarray(np.float32([2, np.nan, 3, np.nan])), x)
m.setxor1d(x, m.asarray(np.float32([2, np.nan, 3, np.nan]))); m.bartlett(5); m.blackman(6)
m.hamming(1); m.hanning(7); m.kaiser(5, 2.5); m.kaiser(1, 2.5); m.polyval(x, 2.0); m.polyval(a, b)
m.polyval(x, q); m.polyval(q, 2.0); m.polyval(q, q[:, :1]); m.polyval(q[:0], q)
m.polyadd(a, x[:3]); m.polysub(a[:2], a); m.polymul(x, a)
m.polymul(np.array([0, 1.0, 2]), x, trim_leading_zeros=True); m.polyder(x); m.polyder(x, 2)
m.polyder(x, 0); m.polyint(x); m.polyint(a, 2); m.polyint(x, 2, np.array([1, 2.0], np.float32))
m.polyint(x, 2, 3); m.poly(x); m.mask_indices(3, m.triu); m.mask_indices(3, m.tril, -1)
m.int_(3.5); m.uint(3); m.float_(1); m.complex_(1); m.bool(2); m.zeros(2, m.float_)
m.zeros(2, m.int_); m.zeros(2, m.bool)
"""

SLOPES = """
m.sum(x, 0, where=b); m.prod(x); m.max(x, 1); m.mean(x); m.var(x); m.std(x, 0)
m.average(x, weights=y); m.cov(x); m.corrcoef(x); m.median(x, 1); m.quantile(x, 0.3)
m.cumsum(x, 1); m.cumprod(x, 0); m.diff(x, n=2); m.trapezoid(x, y); m.interp(x, r, w)
m.convolve(x[0], x[1]); m.sort(x, 0); m.sort(x, descending=True); m.partition(x, 1); m.ptp(x, 0)
m.histogram(v, r, weights=x.ravel()[:7])[0]; m.nanmean(m.where(b, x, np.nan))
m.nanvar(m.where(b, x, np.nan)); m.nanmax(m.where(b, x, np.nan), 1); m.var(x, where=b)
m.bincount(i, x.ravel())
"""

PRODUCT_SLOPES = """
m.matmul(a, b); m.matmul(a, q); m.matmul(r, b); m.einsum("ij,jk,kl->il", a, b, b.T)
m.einsum("ij->j", a); m.einsum("ii->i", a[:, :2]); m.tensordot(a, a); m.kron(a, p)
m.cross(a, a[::-1]); m.trace(a); m.vdot(a, a); m.linalg.norm(a); m.linalg.norm(a, 1)
m.linalg.matrix_power(a[:, :2], 3); m.linalg.multi_dot([a, b, b.T]); m.outer(a, v); m.inner(a, sq)
m.vecdot(a, a); m.matvec(a, v)
"""

GROUPS = {
    "reductions": Group(REDUCTIONS, TABLES, 6, 2e-6),
    "statistics": Group(STATISTICS, TABLES, 9, 2e-5),
    "scans": Group(SCANS, TABLES, 10, 1e-5),
    "sorting": Group(SORTING, TABLES, 8, 2e-6),
    "products": Group(PRODUCTS, FACTORS, 13, 2e-5),
    "einsum": Group(EINSUMS, FACTORS, 5, 2e-5),
    "creation": Group(CREATION, {}, 25, 2e-6),
    "shapes": Group(SHAPES, PARTS, 110),
    "others": Group(OTHERS, SETS, 24, 1e-5),
}
DERIVED = {
    "statistics": Group(SLOPES, TABLES | {"v": TABLES["v"][:6]}, 1, by="x"),
    "products": Group(PRODUCT_SLOPES, FACTORS, 2, by="a"),
}
