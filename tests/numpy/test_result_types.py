"""Shape, dtype and weak type of every function's results, for every dtype, are equal to jax's.

A case is an expression whose types both libraries infer: nothing is compiled.
`x` f[2,3], `v` and `sv` f[6], `s` f[] and `c3` f[2,3,4] are of one dtype, `y` `u` `t` of another.
Calls that jax rejects may have a result here.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from tests.helpers.everyday import everyday
from tests.helpers.oracle import cases

DTYPES = """
bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64 ~int32 ~float32
~complex64
""".split()
PAIRS = list(itertools.product(DTYPES, DTYPES))
FIRST = {"x": (2, 3), "v": (6,), "s": (), "sv": (6,), "c3": (2, 3, 4)}
SECOND = {"y": (2, 3), "u": (6,), "t": ()}
FIXED = {
    "b": ((2, 3), "bool"),
    "b6": ((6,), "bool"),
    "i": ((4,), "int32"),
    "i1": ((2, 2), "int32"),
    "i2": ((2, 3), "int32"),
    "i6": ((6,), "int32"),
    "f2": ((2,), "float32"),
}

ONE = """
m.abs(x); m.absolute(x); m.acos(x); m.acosh(x); m.all(x); m.all(x,0); m.allclose(x,x); m.amax(x)
m.amin(x,0); m.angle(x); m.any(x); m.append(v,v); m.arange(6); m.arccos(x); m.arccosh(x)
m.arcsin(x); m.arcsinh(x); m.arctan(x); m.arctanh(x); m.argmax(x); m.argmax(x,1); m.argmin(x)
m.argmin(x,0,keepdims=True); m.argpartition(v,2); m.argsort(v); m.argsort(x,0)
m.argsort(v,descending=True); m.argwhere(x,size=4); m.around(x); m.around(x,1); m.around(x,-1)
m.array(x); m.array(x,copy=True); m.array_equal(x,x); m.array_equiv(x,x); m.array_split(v,4)
m.asarray(x); m.asin(x); m.asinh(x); m.atan(x); m.atanh(x); m.atleast_1d(s); m.atleast_2d(v)
m.atleast_3d(v); m.average(x); m.average(x,1); m.average(x,returned=True)
m.average(x,1,keepdims=True); m.bitwise_count(x); m.bitwise_invert(x); m.bitwise_not(x); m.cbrt(x)
m.ceil(x); m.clip(x,0,1); m.clip(x,1); m.clip(x,max=2); m.clip(x,s,s); m.column_stack([v,v])
m.compress(b6,v); m.concat([x,x]); m.concatenate([x,x]); m.concatenate([v,v],axis=None); m.conj(x)
m.conjugate(x); m.convolve(v,v); m.convolve(v,v,'same'); m.copy(x); m.corrcoef(x)
m.correlate(v,v); m.correlate(v,v,'full'); m.cos(x); m.cosh(x); m.count_nonzero(x); m.cov(x)
m.cov(v); m.cross(x,x); m.cumprod(v); m.cumprod(x,1); m.cumsum(v); m.cumsum(x,0)
m.cumulative_prod(v); m.cumulative_sum(v); m.cumulative_sum(v,include_initial=True); m.deg2rad(x)
m.degrees(x); m.delete(v,2); m.delete(v,i); m.diag(v); m.diag(x); m.diag(x,1); m.diagflat(v)
m.diagonal(x); m.diff(x); m.diff(v,n=2); m.digitize(v,sv); m.dsplit(c3,2); m.dstack([x,x])
m.ediff1d(v); m.einsum('ij->j',x); m.einsum('ij,ij->i',x,x); m.einsum('ij,kj',x,x)
m.empty_like(x); m.exp(x); m.exp2(x); m.expand_dims(x,0); m.expm1(x); m.extract(b,x,size=3)
m.fabs(x); m.fill_diagonal(x,1,inplace=False); m.flatnonzero(x,size=2); m.flip(x); m.flip(x,0)
m.fliplr(x); m.flipud(x); m.floor(x); m.frexp(x); m.full_like(x,1); m.full_like(x,1.5)
m.full((2,),s); m.geomspace(s,s,3); m.gradient(v); m.gradient(x); m.gradient(v,2.0)
m.heaviside(x,x); m.histogram(v,3); m.histogram(v,3,density=True); m.histogram(v,3,weights=v)
m.histogram_bin_edges(v,3); m.histogram2d(v,v,2); m.histogramdd(x,2); m.hsplit(x,3)
m.hstack([x,x]); m.i0(x); m.imag(x); m.inner(x,x); m.insert(v,2,1); m.insert(v,2,1.5)
m.insert(v,i,v[:4]); m.interp(v,sv,v); m.intersect1d(v,v,size=4); m.invert(x); m.iscomplex(x)
m.isfinite(x); m.isin(x,v); m.isinf(x); m.isnan(x); m.isneginf(x); m.isposinf(x); m.isreal(x)
m.kron(x,x); m.lexsort((v,v)); m.linspace(s,s,3); m.linspace(0,s,3); m.log(x); m.log10(x)
m.log1p(x); m.log2(x); m.logical_not(x); m.logspace(s,s,3); m.matrix_transpose(x); m.max(x)
m.max(x,0); m.max(x,initial=1); m.max(x,initial=1,where=b); m.mean(x); m.mean(x,0)
m.mean(x,where=b); m.median(x); m.median(x,1); m.median(x,1,keepdims=True)
m.median(x,keepdims=True); m.meshgrid(v,v); m.min(x); m.min(x,1); m.modf(x); m.moveaxis(x,0,1)
m.nan_to_num(x); m.nan_to_num(x,nan=3); m.nanargmax(x); m.nanargmin(x,0); m.nancumprod(x,1)
m.nancumsum(x,1); m.nancumsum(x); m.nanmax(x); m.nanmax(x,0); m.nanmean(x); m.nanmean(x,1)
m.nanmedian(x); m.nanmedian(x,1); m.nanmedian(x,1,keepdims=True); m.nanmedian(x,keepdims=True)
m.nanmin(x); m.nanpercentile(x,30.); m.nanpercentile(x,30)
m.nanpercentile(x,30,axis=0,keepdims=True); m.nanprod(x); m.nanquantile(x,.3)
m.nanquantile(x,.3,axis=1); m.nanquantile(x,.3,axis=1,keepdims=True)
m.nanquantile(x,f2,axis=1,keepdims=True); m.nanquantile(x,.5,method='lower')
m.nanquantile(x,.5,method='midpoint'); m.nanquantile(x,.5,method='nearest')
m.nanquantile(x,.5,method='higher'); m.nanstd(x); m.nansum(x); m.nansum(x,0); m.nanvar(x)
m.nanvar(x,1,keepdims=True); m.ndim(x); m.negative(x); m.nonzero(x,size=3); m.ones_like(x)
m.outer(v,v); m.pad(v,1); m.pad(v,1,constant_values=2); m.pad(v,1,constant_values=2.5)
m.pad(v,1,mode='edge'); m.pad(v,1,mode='wrap'); m.pad(v,2,mode='reflect')
m.pad(v,2,mode='linear_ramp'); m.pad(v,2,mode='mean'); m.pad(v,2,mode='maximum')
m.pad(v,2,mode='linear_ramp',end_values=3); m.partition(v,2); m.percentile(x,30)
m.percentile(x,30.); m.percentile(x,f2); m.percentile(x,30,axis=0,keepdims=True)
m.permute_dims(x,(1,0)); m.piecewise(v,[b6],[1,2]); m.piecewise(v,[b6],[lambda a:a*2,0])
m.place(x,b,v[:2],inplace=False); m.poly(v); m.polyadd(v,v); m.polyder(v); m.polyint(v)
m.polyint(v,k=1); m.polymul(v,v); m.polymul(v,v,trim_leading_zeros=False); m.polysub(v,v)
m.polyval(v,x); m.positive(x); m.prod(x); m.prod(x,0); m.prod(x,promote_integers=False); m.ptp(x)
m.put(v,i,v[:4],inplace=False); m.put_along_axis(x,i1,1,1,inplace=False)
m.put_along_axis(x,i1,x[:,:2],1,inplace=False); m.quantile(x,.3); m.quantile(x,0); m.quantile(x,1)
m.quantile(x,f2); m.quantile(x,.3,axis=0,keepdims=True); m.quantile(x,.5,method='lower')
m.quantile(x,.5,method='higher'); m.quantile(x,.5,method='midpoint')
m.quantile(x,.5,method='nearest'); m.quantile(x,.5,method='inverted_cdf'); m.rad2deg(x)
m.radians(x); m.ravel(x); m.real(x); m.reciprocal(x); m.repeat(v,2)
m.repeat(v,i6,total_repeat_length=8); m.reshape(x,(3,2)); m.resize(v,(3,3)); m.rint(x)
m.roll(x,1); m.roll(v,i[0]); m.rollaxis(x,1); m.rot90(x); m.round(x); m.round(x,1)
m.searchsorted(sv,v); m.select([b],[x]); m.select([b,b],[x,x],2); m.select([b],[x],1.5)
m.setdiff1d(v,v[:2],size=4); m.setxor1d(v,v[:2],size=4); m.shape(x); m.sign(x); m.signbit(x)
m.sin(x); m.sinc(x); m.sinh(x); m.size(x); m.sort(x); m.sort(v,descending=True); m.sort_complex(v)
m.spacing(x); m.split(v,2); m.sqrt(x); m.square(x); m.squeeze(x[None]); m.stack([x,x]); m.std(x)
m.std(x,0); m.std(x,ddof=1); m.sum(x); m.sum(x,0); m.sum(x,promote_integers=False)
m.sum(x,initial=1); m.sum(x,initial=1.5); m.sum(x,where=b); m.swapaxes(x,0,1); m.take(x,i)
m.take(x,i,axis=1,mode='clip'); m.take(v,i,mode='wrap'); m.take(v,i,mode='fill')
m.take(v,i,mode='fill',fill_value=7); m.take_along_axis(x,i1,1); m.tan(x); m.tanh(x)
m.tensordot(x,x,([0,1],[0,1])); m.tile(x,2); m.trace(x); m.trapezoid(x); m.trapezoid(x,dx=2)
m.tril(x); m.triu(x); m.trim_zeros(v); m.trunc(x); m.union1d(v,v,size=8); m.unique(v,size=8)
m.unique(v,size=8,return_counts=True); m.unique(v,size=8,return_index=True,return_inverse=True)
m.unique_all(v,size=8); m.unique_counts(v,size=8); m.unique_inverse(v,size=8)
m.unique_values(v,size=8); m.unstack(x); m.unwrap(v); m.vander(v); m.vander(v,3)
m.vander(v,3,True); m.var(x); m.var(x,0); m.var(x,ddof=1); m.var(x,where=b); m.vdot(v,v)
m.vecdot(x,x); m.vsplit(x,2); m.vstack([x,x]); m.where(b,x,0); m.where(b,x,1.5); m.where(x,1,0)
m.where(b,x,x); m.zeros_like(x); m.isclose(x,x); m.matvec(x,v[:3]); m.vecmat(v[:2],x)
m.nanstd(x,1,ddof=1); m.logical_and(x,True); m.bincount(v,length=4); m.bincount(i,v[:4],length=4)
m.choose(i2,[x,x],mode='clip'); m.ravel_multi_index((v,v),(3,3),mode='clip')
m.unravel_index(v,(2,3)); m.diag_indices_from(c3[:2,:2,0]); m.tril_indices_from(x)
m.astype(x,'float32'); m.astype(x,'int32'); m.astype(x,'uint8'); m.astype(x,bool)
m.astype(x,'complex64'); -x; +x; ~x; abs(x); x.T; x.mean(); x.sum(); x.prod(); x.max(); x.min()
x.std(); x.var(); x.argmax(); x.cumsum(); x.real; x.imag; x.conj(); x.round(); x.round(1)
x.clip(1, 2); x.dot(x.T); x @ x.T; x ** 2; x ** -1; x ** 0.5; x ** 3; 2 ** x; 2. ** x; x * 2
x * 2.5; x * True; x + 1j; x / 2; x // 2; x % 2; divmod(x, 2); 1 / x; 1 // x; x & 1; x | True
x ^ 1; x << 1; x >> 1; x == 1; x < 1; x != x; x[0]; x.at[0].set(1); x.at[0].set(1.5)
x.at[0].add(1); x.at[0].mul(2); x.at[0].min(1); x.at[0].max(1); x.at[0].power(2)
x.at[0].divide(2); x.at[0].apply(m.sin); x.at[0].get(); x.at[i].get(mode='fill')
x.at[i].get(mode='fill', fill_value=1); x.at[i].set(2, mode='drop'); x.ptp(); x.trace(); x.take(i)
x.sort(); x.argsort(); x.ravel(); x.repeat(2); x.squeeze(); x.swapaxes(0, 1); x.nonzero(size=2)
x.diagonal(); x.all(); x.any(); x.astype('float16'); x.flatten(); x.copy(); m.linalg.norm(x)
m.linalg.norm(v); m.linalg.norm(v, 1); m.linalg.norm(v, m.inf); m.linalg.norm(v, 3)
m.linalg.norm(v, 0); m.linalg.norm(x, axis=1); m.linalg.vector_norm(x)
m.linalg.vector_norm(x, ord=1); m.linalg.vector_norm(x, ord=0); m.linalg.matrix_norm(x)
m.linalg.matrix_power(x[:, :2], 2); m.linalg.multi_dot([x, x.T, x]); m.linalg.trace(x)
m.linalg.outer(v, v); m.linalg.cross(x, x); m.linalg.vecdot(x, x); m.linalg.tensordot(x, x, 2)
lax.abs(x); lax.acos(x); lax.acosh(x); lax.argmax(x,0,'int32'); lax.argmin(x,1,'uint8')
lax.asin(x); lax.asinh(x); lax.atan(x); lax.atanh(x); lax.batch_matmul(x[None],x.T[None])
lax.bessel_i0e(x); lax.bessel_i1e(x); lax.bitwise_not(x); lax.broadcast(x,(2,)); lax.cbrt(x)
lax.ceil(x); lax.clamp(s,x,s); lax.clz(x); lax.collapse(x,0,2); lax.concatenate([x,x],0)
lax.conj(x); lax.convert_element_type(x,'float32'); lax.convert_element_type(x,'int8'); lax.cos(x)
lax.cosh(x); lax.cumlogsumexp(x); lax.cummax(x,1); lax.cummin(x); lax.cumprod(x)
lax.cumsum(x,1,reverse=True); lax.digamma(x); lax.dot(x,x.T); lax.dynamic_slice(v,(i[0],),(2,))
lax.dynamic_update_slice(v,v[:2],(i[0],)); lax.erf(x); lax.erf_inv(x); lax.erfc(x); lax.exp(x)
lax.exp2(x); lax.expm1(x); lax.floor(x); lax.full_like(x,1); lax.imag(x); lax.integer_pow(x,3)
lax.integer_pow(x,-2); lax.integer_pow(x,0); lax.is_finite(x); lax.lgamma(x); lax.log(x)
lax.log1p(x); lax.logistic(x); lax.neg(x); lax.pad(v,s,[(1,1,0)]); lax.population_count(x)
lax.real(x); lax.reciprocal(x); lax.reduce_and(x,(0,)); lax.reduce_max(x,(0,))
lax.reduce_min(x,(1,)); lax.reduce_or(x,(0,)); lax.reduce_prod(x,(0,1)); lax.reduce_sum(x,(0,))
lax.reduce_xor(x,(0,)); lax.reduce_precision(x,5,3); lax.rev(x,(0,)); lax.round(x)
lax.round(x,lax.RoundingMethod.TO_NEAREST_EVEN); lax.rsqrt(x); lax.select(b,x,x)
lax.select_n(b,x,x); lax.sign(x); lax.sin(x); lax.sinh(x); lax.sort(x); lax.sort_key_val(v,v)
lax.split(v,(2,4)); lax.sqrt(x); lax.square(x); lax.squeeze(x[None],(0,)); lax.stop_gradient(x)
lax.tan(x); lax.tanh(x); lax.top_k(v,3); lax.transpose(x,(1,0)); lax.tile(x,(2,1)); lax.zeta(x,x)
lax.polygamma(x,x); lax.igamma(x,x); lax.igammac(x,x); lax.betainc(x,x,x); lax.nextafter(x,x)
lax.associative_scan(jnp.add,v); lax.complex(x,x); lax.sort((v,v),num_keys=2)
lax.bitcast_convert_type(x,'uint8'); lax.reduce(x,s,lax.add,(0,))
lax.reduce(x,s,lambda a,b:lax.max(a,b),(0,)); lax.igamma_grad_a(x,x); nn.celu(x); nn.elu(x)
nn.gelu(x); nn.gelu(x,approximate=False); nn.glu(v); nn.hard_sigmoid(x); nn.hard_silu(x)
nn.hard_swish(x); nn.hard_tanh(x); nn.identity(x); nn.leaky_relu(x); nn.log1mexp(x)
nn.log_sigmoid(x); nn.log_softmax(x); nn.log_softmax(x,where=b); nn.logmeanexp(x); nn.logsumexp(x)
nn.logsumexp(x,0,keepdims=True); nn.logsumexp(x,b=x); nn.logsumexp(x,return_sign=True)
nn.logsumexp(x,where=b); nn.mish(x); nn.one_hot(v,4); nn.relu(x); nn.relu6(x); nn.selu(x)
nn.sigmoid(x); nn.silu(x); nn.soft_sign(x); nn.softmax(x); nn.softmax(x,0,where=b); nn.softplus(x)
nn.sparse_plus(x); nn.sparse_sigmoid(x); nn.squareplus(x); nn.standardize(x); nn.swish(x)
nn.tanh(x)
"""

TWO = """
m.add(x,y); m.allclose(x,y); m.append(x,y); m.arctan2(x,y); m.array_equal(x,y)
m.average(x,weights=y); m.average(x,weights=y,returned=True); m.average(x,1,weights=y[0])
m.bitwise_and(x,y); m.bitwise_left_shift(x,y); m.bitwise_or(x,y); m.bitwise_right_shift(x,y)
m.bitwise_xor(x,y); m.clip(x,y); m.clip(x,y,y); m.concatenate([x,y]); m.convolve(v,u)
m.copysign(x,y); m.correlate(v,u); m.cov(v,u); m.cross(x,y); m.digitize(v,m.sort(u))
m.divide(x,y); m.divmod(x,y); m.dot(x,y.T); m.einsum('ij,ij',x,y); m.einsum('ij,kj->ik',x,y)
m.equal(x,y); m.float_power(x,y); m.floor_divide(x,y); m.fmax(x,y); m.fmin(x,y); m.fmod(x,y)
m.gcd(x,y); m.geomspace(s,t,3); m.gradient(v,u); m.greater(x,y); m.heaviside(x,y); m.hypot(x,y)
m.inner(x,y); m.insert(v,1,t); m.interp(v,m.sort(u),v); m.interp(v,sv,u); m.isclose(x,y)
m.isin(x,y); m.kron(x,y); m.lcm(x,y); m.ldexp(x,y); m.left_shift(x,y); m.less_equal(x,y)
m.linspace(s,t,3); m.logaddexp(x,y); m.logaddexp2(x,y); m.logical_and(x,y); m.logical_xor(x,y)
m.logspace(s,t,3); m.matmul(x,y.T); m.maximum(x,y); m.minimum(x,y); m.mod(x,y); m.multiply(x,y)
m.nextafter(x,y); m.not_equal(x,y); m.outer(v,u); m.percentile(x,y[0]); m.polyadd(v,u)
m.polymul(v,u); m.polysub(v,u); m.polyval(v,y); m.pow(x,y); m.power(x,y); m.quantile(x,y[0])
m.nanquantile(x,t); m.remainder(x,y); m.right_shift(x,y); m.searchsorted(sv,u)
m.select([b,b],[x,y]); m.select([b],[x],t); m.stack([x,y]); m.subtract(x,y); m.tensordot(x,y,2)
m.trapezoid(x,y); m.true_divide(x,y); m.unwrap(v,period=t); m.vdot(v,u); m.vecdot(x,y)
m.where(b,x,y); m.matvec(x,y[0]); m.vecmat(x[:,0],y); m.block([x,y]); m.hstack([x,y])
m.meshgrid(v,u); m.put(v,i,u[:4],inplace=False); m.put_along_axis(x,i1,y[:,:2],1,inplace=False)
m.place(x,b,u,inplace=False); m.pad(v,1,constant_values=t); m.full_like(x,t); m.polyint(v,k=t)
m.nan_to_num(x,nan=t); m.piecewise(v,[b6],[t,s]); m.diff(v,prepend=t); m.ediff1d(v,to_end=t)
m.max(x,initial=t); m.sum(x,initial=t); m.setdiff1d(v,u,size=4); m.union1d(v,u,size=12)
m.intersect1d(v,u,size=3); m.choose(i2,[x,y],mode='clip'); m.bincount(i,u[:4],length=4)
m.histogram(v,3,weights=u); m.histogram(v,m.sort(u)); m.histogram2d(v,u,2)
m.fill_diagonal(x,t,inplace=False); m.column_stack([v,u]); m.var(x,mean=y)
m.nan_to_num(x,posinf=t); m.take(v,i,fill_value=1,mode='fill'); m.round(s+t); m.cov(v,aweights=u)
m.lexsort((v,u)); m.isin(v,u); m.vander(v); m.unique(v,size=3,fill_value=t); m.insert(v,i,u[:4])
m.delete(v,1); x + y; x - y; x * y; x / y; x // y; x % y; x ** y; x & y; x | y; x << y; x >> y
x @ y.T; x < y; x == y; divmod(x, y); x.at[0].set(y[0]); x.at[0].add(y[0]); x.at[0].mul(y[0])
x.at[0].min(y[0]); x.at[0].power(y[0]); x.at[0].divide(y[0]); x.dot(y.T); x.clip(y); x + t; x * t
x ** t; x[0] + y
"""


# Where weak scalars and weak arrays differ in jax, as it broadcasts constants for arrays.
OF_RANK_IN_JAX = {
    "angle",
    "sinc",
    "deg2rad",
    "rad2deg",
    "degrees",
    "radians",
    "around",
    "round",
    "x.round",
    "heaviside",
    "hypot",
    "logaddexp2",
    "gcd",
    "lcm",
}


def differs(expression: str, dtypes: tuple[str, ...]) -> bool:
    """Where the difference is intended."""
    weak, kinds = any(d[0] == "~" for d in dtypes), {d.strip("~") for d in dtypes}
    name = expression.split("(")[0].removeprefix("m.").removeprefix("lax.").removeprefix("nn.")
    if name in OF_RANK_IN_JAX:
        return weak
    if expression.startswith("nn."):
        return "complex64" in kinds  # complex numbers have no order
    if name in ("argpartition", "top_k", "associative_scan"):
        return weak  # indices are never weak here; a scan preserves its function's weak types
    if name.startswith("un") and "complex64" in kinds:  # values of `unique` remain weakly typed
        return weak or name == "unravel_index"
    if name in ("clamp", "cummax", "cummin", "cumlogsumexp"):
        return "float32" not in kinds
    if name == "unravel_index":
        return bool(kinds & {"bool", "float16", "bfloat16", "float32"})
    if name.startswith("x.at[0].apply"):
        return "float32" not in kinds  # the function's dtype is not that of the array
    if name == "unwrap" and kinds == {"bool"}:  # as in NumPy, which does not subtract them
        return True
    return name in ("histogram", "histogram2d", "cov", "digitize") and "complex64" in kinds


def struct(lib: Any, shape: tuple, name: str) -> Any:
    plain = name.strip("~")
    dtype = np.dtype(ml_dtypes.bfloat16 if plain == "bfloat16" else plain)
    return lib.ShapeDtypeStruct(shape, dtype, weak_type=name != plain)


def types(lib: Any, m: Any, expression: str, dtypes: tuple[str, ...]) -> Any:
    """(shape, dtype, weak) of each result, or None where the library rejects the call."""
    shapes = [
        (n, s, d)
        for names, d in zip((FIRST, SECOND), dtypes, strict=False)
        for n, s in names.items()
    ]
    shapes += [(n, s, d) for n, (s, d) in FIXED.items()]
    known = {"m": m, "jnp": m, "lax": lib.lax, "nn": lib.nn}
    code = compile(expression, expression, "eval")
    try:
        found = lib.eval_shape(
            lambda given: eval(code, known | given), {n: struct(lib, s, d) for n, s, d in shapes}
        )
    except Exception:
        return None
    leaves = [x for x in lib.tree.leaves(found) if hasattr(x, "dtype")]
    return [(x.shape, x.dtype, x.weak_type and x.dtype != bool) for x in leaves]


def compare(expression: str, every: list[tuple[str, ...]]) -> None:
    faults = []
    for dtypes in every:
        wanted = types(jax, jnp, expression, dtypes)
        came = types(sw, snp, expression, dtypes)
        if wanted is not None and came != wanted and not differs(expression, dtypes):
            faults.append(f"{expression} of {' and '.join(dtypes)}: {came}, jax: {wanted}")
    assert not faults, "\n".join(faults)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", everyday(cases(ONE), 14))
def test_of_one_dtype(expression: str) -> None:
    compare(expression, [(d,) for d in DTYPES])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", everyday(cases(TWO), 3))
def test_of_two_dtypes(expression: str) -> None:
    compare(expression, everyday(PAIRS, 12, expression))


def test_more_elements_than_numpy_could_address():
    a, b = [sw.ShapeDtypeStruct(s, np.float32) for s in ((1 << 32, 1), (1, 1 << 32))]
    for f in (snp.add, lambda x, y: snp.where(x > y, x, y), lambda x, y: x - y):
        assert sw.eval_shape(f, a, b).shape == (1 << 32, 1 << 32)
    with pytest.raises(ValueError, match="do not broadcast together"):
        sw.eval_shape(snp.add, a, sw.ShapeDtypeStruct((3, 1 << 32), np.float32))
