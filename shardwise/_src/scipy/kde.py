"""`gaussian_kde`: a density estimated from data by a normal kernel around each point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.decompositions import cholesky
from shardwise._src.linalg.linear_systems import diagonal, inv
from shardwise._src.nn.normalize import logsumexp
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.numpy.shapes import atleast_1d, atleast_2d, expand_dims
from shardwise._src.numpy.statistics.averages import cov as covariance_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import full
from shardwise._src.random.discrete import choice
from shardwise._src.random.keys import split
from shardwise._src.random.matrix_samplers import multivariate_normal
from shardwise._src.scipy.counts import multivariate_normal_pdf
from shardwise._src.special.error_functions import ndtr_of
from shardwise._src.tree.registration import register_pytree_node_class
from shardwise._src.types.annotations import Array, ArrayLike, ShapeLike
from shardwise._src.types.dtypes import is_complex
from shardwise._src.values.convert import cast, promote_inexact

_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


@fused(arrays=2)
def _prepared(dataset: Any, weights: Any) -> tuple[Any, ...]:
    """Data as (d, n), weights with sum 1, their effective number, the covariance of the data."""
    data, w = promote_inexact(atleast_2d(dataset), weights)
    w = w / w.sum()
    return data, w, 1.0 / (w * w).sum(), atleast_2d(covariance_of(data, aweights=w))


@fused(arrays=4)
def _evaluated(dataset: Any, weights: Any, inv_cov: Any, points: Any, log: bool) -> Any:
    """The sum of the kernels at points (d, m), computed with whitened data and points."""
    dataset, weights, inv_cov, points = promote_inexact(dataset, weights, inv_cov, points)
    d, factor = type_of(dataset).shape[0], cholesky(inv_cov)
    data, at = [matmul(factor.mT, v) for v in (dataset, points)]
    squares = [(expand_dims(at[i], 1) - data[i]) ** 2 for i in range(d)]
    scale = ew.log(diagonal(factor)).sum() - 0.5 * d * math.log(2 * math.pi)
    kernels = scale - 0.5 * sum(squares[1:], squares[0])
    if log:
        return logsumexp(kernels + ew.log(weights), axis=1)
    return (ew.exp(kernels) * weights).sum(1)


@fused(arrays=5)
def _between(dataset: Any, weights: Any, covariance: Any, low: Any, high: Any) -> Any:
    sigma = ew.sqrt(covariance[0, 0])
    low, high = [(v - dataset[0]) / sigma for v in promote_inexact(low, high)]
    return (weights * (ndtr_of(high) - ndtr_of(low))).sum()


@register_pytree_node_class
class gaussian_kde:
    """A kernel density estimate: normal kernels with the scaled covariance of the data.

    Args:
      dataset: (n,) or (d, n): n points of d dimensions.
      bw_method: the scale of the kernel: "scott" (the default), "silverman", a number, or a
        function of this object.
      weights: (n,), of the points.

    A pytree of its arrays: `neff`, `dataset` (d, n), `weights`, `covariance`, `inv_cov`. Call it
    at points of shape (d, m) for the density, (m,).
    """

    neff: Array
    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array

    def __init__(
        self,
        dataset: ArrayLike,
        bw_method: str | ArrayLike | Callable[[gaussian_kde], ArrayLike] | None = None,
        weights: ArrayLike | None = None,
    ):
        t = type_of(atleast_2d(dataset))
        if is_complex(t.dtype):
            raise NotImplementedError("gaussian_kde: dataset must be real; got complex numbers.")
        if t.size <= 1 or t.ndim > 2:
            raise ValueError(
                "gaussian_kde: dataset must have several elements, in one or two "
                f"dimensions; got {type_of(dataset).str_short(True)}."
            )
        n = t.shape[1]
        w = (
            full(1.0, (n,), type_of(promote_inexact(dataset)[0]).dtype)
            if weights is None
            else (atleast_1d(asarray(weights)))
        )
        if type_of(w).shape != (n,):
            raise ValueError(
                f"gaussian_kde: weights must be of shape ({n},), one for each point; "
                f"got {type_of(w).str_short(True)}."
            )
        self.dataset, self.weights, self.neff, data_covariance = _prepared(dataset, w)
        factor = self._factor("scott" if bw_method is None else bw_method)
        self.covariance = data_covariance * factor**2
        self.inv_cov = inv(data_covariance) / factor**2

    def _factor(self, method: Any) -> Any:
        if isinstance(method, str):
            if method not in ("scott", "silverman"):
                raise ValueError(
                    "gaussian_kde: bw_method must be 'scott', 'silverman', a number "
                    f"or a function; got {method!r}."
                )
            size = self.neff if method == "scott" else self.neff * ((self.d + 2) / 4)
            return size ** (-1 / (self.d + 4))
        factor = method(self) if callable(method) and not hasattr(method, "aval") else method
        return cast(asarray(factor), type_of(self.dataset).dtype)

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return tuple(getattr(self, name) for name in _FIELDS), None

    @classmethod
    def tree_unflatten(cls, static: None, xs: tuple[Any, ...]) -> gaussian_kde:
        made = object.__new__(cls)
        for name, x in zip(_FIELDS, xs, strict=True):
            setattr(made, name, x)
        return made

    @property
    def d(self) -> int:
        """The dimension of a point."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of points."""
        return self.dataset.shape[1]

    def _points(self, points: Any) -> Any:
        at = atleast_2d(asarray(points))
        if is_complex(type_of(at).dtype):
            raise NotImplementedError("gaussian_kde: points must be real; got complex numbers.")
        shape = type_of(at).shape
        if shape == (1, self.d):
            return at.reshape(self.d, 1)
        if shape[0] != self.d or len(shape) != 2:
            raise ValueError(
                f"gaussian_kde: points must be of shape ({self.d}, m), as the dataset "
                f"has {self.d} dimensions; got {type_of(points).str_short(True)}."
            )
        return at

    def evaluate(self, points: ArrayLike) -> Array:
        """The density at points (d, m)."""
        return _evaluated(self.dataset, self.weights, self.inv_cov, self._points(points), False)

    __call__ = pdf = evaluate

    def logpdf(self, x: ArrayLike) -> Array:
        """The log density at points (d, m)."""
        return _evaluated(self.dataset, self.weights, self.inv_cov, self._points(x), True)

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of this density times a normal density of mean (d,), covariance (d, d)."""
        at, spread = atleast_1d(asarray(mean).squeeze()), atleast_2d(asarray(cov))
        if at.shape != (self.d,) or spread.shape != (self.d, self.d):
            raise ValueError(
                f"gaussian_kde: mean must be of size {self.d} and cov of shape "
                f"({self.d}, {self.d}); got {type_of(mean).str_short(True)} and "
                f"{type_of(cov).str_short(True)}."
            )
        return (
            multivariate_normal_pdf(self.dataset.T, at, self.covariance + spread) * self.weights
        ).sum()

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The probability of an interval, if d is 1."""
        if self.d != 1 or type_of(low).ndim or type_of(high).ndim:
            raise ValueError(
                "gaussian_kde: integrate_box_1d takes two numbers and data of one "
                f"dimension; got {type_of(low).str_short(True)} and "
                f"{type_of(high).str_short(True)}, and data of {self.d} dimensions."
            )
        return _between(self.dataset, self.weights, self.covariance, low, high)

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two densities."""
        if other.d != self.d:
            raise ValueError(
                "gaussian_kde: integrate_kde takes an estimate with the same number of dimensions; "
                f"got {other.d} and {self.d}."
            )
        means = expand_dims(other.dataset.T, 1)
        values = multivariate_normal_pdf(
            self.dataset.T - means, means[0, 0] * 0, self.covariance + other.covariance
        )
        return matmul(matmul(other.weights, values), self.weights)

    def integrate_box(
        self, low_bounds: ArrayLike, high_bounds: ArrayLike, maxpts: int | None = None
    ) -> Array:
        """Not implemented: boxes of several dimensions."""
        raise NotImplementedError(
            "gaussian_kde: integrate_box is not implemented; use integrate_box_1d for one "
            "dimension."
        )

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not supported: make another estimate."""
        raise NotImplementedError(
            "gaussian_kde: arrays are immutable; create another gaussian_kde."
        )

    def resample(self, key: ArrayLike, shape: ShapeLike = ()) -> Array:
        """Samples from the density, (d, *shape)."""
        of_index, of_noise = split(key)
        chosen = choice(of_index, self.n, shape=shape, p=self.weights)
        zero = full(0, (self.d,), type_of(self.dataset).dtype)
        noise = multivariate_normal(
            of_noise, zero, self.covariance, shape=shape, dtype=type_of(self.dataset).dtype
        )
        return self.dataset[:, chosen] + noise.T
