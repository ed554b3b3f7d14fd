"""`scipy.stats`: distributions against SciPy, including their edges and tails; samples."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest
import scipy.stats
from jax.scipy import stats as theirs

import shardwise as sw
from shardwise.scipy import stats
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.composed import signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.placed import MESH

REAL = [-40.0, -3.0, -0.5, 0.0, 0.2, 0.7, 1.0, 1.7, 4.0, 30.0, np.inf, -np.inf, np.nan]
COUNTS = [-1.0, 0.0, 1.0, 2.0, 3.5, 7.0, 40.0, np.nan]
CHANCES = [0.0, 1e-12, 0.1, 0.4, 0.5, 0.8, 1 - 1e-9, 1.0, -0.1, 1.1, np.nan]
CIRCLE = [-3.0, -0.5, 0.0, 0.2, 1.7, 3.1, 6.2, np.nan]
# The points where each is evaluated, and shape parameters.
SHAPES = {
    **dict.fromkeys(
        "norm cauchy expon gumbel_l gumbel_r laplace logistic uniform".split(), (REAL, [()])
    ),
    "gamma": (REAL, [(0.5,), (1.0,), (7.0,), (-1.0,), (np.nan,)]),
    "chi2": (REAL, [(0.5,), (2.0,), (7.0,), (-1.0,)]),
    "beta": (REAL, [(0.5, 2.0), (1.0, 1.0), (3.0, 7.5), (-1.0, 1.0)]),
    "t": (REAL, [(0.5,), (3.0,), (1e6,), (np.inf,), (-1.0,)]),
    "pareto": (REAL, [(0.5,), (3.0,), (-1.0,)]),
    "gennorm": (REAL, [(0.5,), (3.0,), (-1.0,)]),
    "truncnorm": (
        REAL,
        [
            (-1.0, 2.0),
            (2.0, 5.0),
            (-9.0, -0.6),
            (-np.inf, 0.5),
            (0.5, np.inf),
            (-np.inf, np.inf),
            (2.0, 1.0),
        ],
    ),
    "vonmises": (CIRCLE, [(0.5,), (300.0,), (-1.0,)]),
    "wrapcauchy": (CIRCLE, [(0.3,), (0.99,), (1.5,)]),
    "bernoulli": (COUNTS, [(0.3,), (0.0,), (1.0,), (-0.5,)]),
    "binom": (COUNTS, [(9, 0.3), (50, 1.0), (0, 0.3), (-1, 0.3)]),
    "nbinom": (COUNTS, [(3, 0.3), (0.5, 0.9), (3, 1.0), (3, 1.5)]),
    "betabinom": (COUNTS, [(9, 0.5, 2.0), (50, 3.0, 1.0), (0, 1.0, 1.0), (9, -1.0, 2.0)]),
    "geom": (COUNTS, [(0.3,), (1.0,), (1.5,)]),
    "poisson": (COUNTS, [(0.3,), (30.0,), (0.0,), (-1.0,)]),
}
CASES = [
    (name, kind)
    for name in SHAPES
    for kind in dir(importlib.import_module(f"shardwise.scipy.stats.{name}"))
    if not kind.startswith("_")
]


def ours(name: str, kind: str):
    return getattr(getattr(stats, name), kind)


def places(name: str, kind: str) -> list[tuple]:
    """Values for loc and scale, if the distribution has them."""
    names = inspect.signature(ours(name, kind)).parameters
    if "scale" in names:
        return [(), (0.5, 2.0), (1.0, -1.0)]
    return [(), (2,)] if "loc" in names else [()]


@pytest.mark.parametrize(("name", "kind"), everyday(CASES, 4))
def test_values(name: str, kind: str):
    points, shapes = SHAPES[name]
    if kind == "entropy":
        pytest.skip("is tested below")
    x = np.array(CHANCES if kind in ("ppf", "isf") else points)
    for shape in shapes:
        for place in places(name, kind):
            with np.errstate(all="ignore"):
                wanted = getattr(getattr(scipy.stats, name), kind)(x, *shape, *place)
            with sw.enable_x64(True):
                found = np.asarray(ours(name, kind)(x, *shape, *place))
            if (name, kind) == ("bernoulli", "ppf"):
                # In SciPy the bounds of the support at 0 (minus 1) and 1.
                wanted = np.where((x == 0) | (shape[0] == 0), 0.0, wanted)
                wanted[~((x >= 0) & (x <= 1) & (shape[0] >= 0))] = np.nan
            keep = np.ones(x.shape, bool)
            if (name, shape) == ("t", (np.inf,)):
                keep = np.isfinite(x)
            np.testing.assert_allclose(
                found[keep], wanted[keep], 1e-9, 1e-300, err_msg=f"{shape} {place}"
            )


@pytest.mark.sweep
def test_tails():
    """Where 1 - cdf, or a logarithm of it, would be inexact."""
    with sw.enable_x64(True):
        for found, wanted in (
            (stats.norm.logcdf(-1e3), -500007.82669481218),
            (stats.norm.sf(37.0), 5.7255712225e-300),
            (stats.cauchy.cdf(-1e30), 3.1830988618e-31),
            (stats.cauchy.isf(1e-30), 3.1830988618e29),
            (stats.logistic.sf(700.0), np.exp(-700.0)),
            (stats.gumbel_r.logsf(50.0), -50.0),
            (stats.expon.logcdf(1e-20), np.log(1e-20)),
            (stats.pareto.logcdf(1e30, 1.0), -1e-30),
            (stats.truncnorm.logsf(30.0, 20.0, 40.0), -253.0),
            (stats.t.logpdf(0.0, 1e12), -0.9189385332046728),
        ):
            rough = 3e-2 if wanted == -253.0 else 1e-8
            np.testing.assert_allclose(found, wanted, rough)


def test_entropy_of_counts():
    mu = np.array([0.0, 0.01, 1.0, 20.0, 99.0, 101.0, 5000.0, -1.0])
    with sw.enable_x64(True):
        found = stats.poisson.entropy(mu, 3)
    np.testing.assert_allclose(found[:-1], scipy.stats.poisson.entropy(mu[:-1]), 3e-9, 1e-9)
    assert np.isnan(found[-1])


# -- derivatives, shardings --

SMOOTH = {
    "gamma": (2.5,),
    "chi2": (3.0,),
    "beta": (2.5, 1.5),
    "t": (3.5,),
    "pareto": (1.5,),
    "gennorm": (1.5,),
    "truncnorm": (-1.0, 4.0),
    "vonmises": (1.5,),
    "wrapcauchy": (0.4,),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    everyday(
        [
            (n, k)
            for n, k in CASES
            if isinstance(getattr(scipy.stats, n), scipy.stats.rv_continuous)
        ],
        1 / 24,
    ),
)
def test_derivatives(name: str, kind: str):
    x = 0.4 if kind in ("ppf", "isf") or name in ("beta", "uniform") else 1.3
    f, rest = ours(name, kind), SMOOTH.get(name, ())
    args = [x, *rest, *((0.05, 1.1) if "scale" in inspect.signature(f).parameters else ())]
    # The distribution function of beta is not differentiable in its parameters.
    of = [i for i in range(len(args)) if not (name == "beta" and "pdf" not in kind and i in (1, 2))]
    with sw.enable_x64(True):
        slopes = sw.jit(sw.grad(f, tuple(of)))(*args)
        for i, slope in zip(of, slopes, strict=True):
            ends = [f(*[v + d * (j == i) for j, v in enumerate(args)]) for d in (1e-6, -1e-6)]
            np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, 1e-6, 1e-8)


@pytest.mark.parametrize(("name", "kind"), everyday(CASES, 1))
def test_places_and_dtypes(name: str, kind: str):
    f, rest = ours(name, kind), SHAPES[name][1][0]
    if kind == "entropy":
        rest = ()
    x = np.array([0.2, 0.4, 0.9, 1, 0, 0.5, 0.3], np.float32)
    wanted = np.asarray(f(x, *rest))
    assert wanted.dtype == np.float32 and f(x.astype(np.float16), *rest).dtype == np.float16
    placed = sw.device_put(x, NamedSharding(MESH, P("x")))
    found = f(placed, *rest)
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)
    assert found.sharding.is_equivalent_to(placed.sharding, 1)
    np.testing.assert_allclose(sw.vmap(lambda x: f(x, *rest))(x), wanted, 1e-5, 1e-6)
    assert f(np.int32(1), *rest).dtype == np.float32 and f(x[:0, None], *rest).shape == (0, 1)


def test_arguments_by_name_and_defaults():
    x = np.array([0.2, 3.0], np.float32)
    np.testing.assert_allclose(
        stats.norm.cdf(x=x, scale=2.0), scipy.stats.norm.cdf(x, scale=2), 1e-6
    )
    np.testing.assert_allclose(
        stats.gamma.pdf(x, a=2.0, loc=-1), scipy.stats.gamma.pdf(x, 2, -1), 5e-6
    )
    assert stats.norm.pdf(x[:, None], np.zeros(3, np.float32)).shape == (2, 3)
    for call, message in (
        (lambda: stats.norm.pdf(), "missing a required argument: 'x'"),
        (lambda: stats.norm.pdf(1, 2, 3, 4), "too many positional arguments"),
        (lambda: stats.t.pdf(1.0), "missing a required argument: 'df'"),
        (lambda: stats.norm.pdf(np.complex64(1)), "norm_pdf takes real numbers; got c64[]."),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value).startswith(message)


# -- vectors --


def test_vectors():
    rng = np.random.default_rng(3)
    a = rng.standard_normal((3, 3))
    cov, mean, x = a @ a.T + np.eye(3), rng.standard_normal(3), rng.standard_normal((5, 3))
    with sw.enable_x64(True):
        f, g = stats.multivariate_normal, scipy.stats.multivariate_normal
        np.testing.assert_allclose(f.logpdf(x, mean, cov), g.logpdf(x, mean, cov), 1e-12)
        np.testing.assert_allclose(f.pdf(x[0], mean, cov), g.pdf(x[0], mean, cov), 1e-12)
        np.testing.assert_allclose(f.logpdf(x, mean, 2.0), g.logpdf(x, mean, 2.0), 1e-12)
        np.testing.assert_allclose(f.logpdf(0.3, 0.1, 2.0), g.logpdf(0.3, 0.1, 2.0), 1e-12)
        many = np.stack([cov, 2 * cov])
        found = f.logpdf(x[:, None], mean, many)
        np.testing.assert_allclose(found[:, 1], g.logpdf(x, mean, 2 * cov), 1e-12)
        counts, chances = np.array([[1, 2, 3], [4, 1, 1], [6, 0, 1]]), np.array([0.2, 0.3, 0.5])
        f, g = stats.multinomial, scipy.stats.multinomial
        found, wanted = [m.logpmf(counts, 6, chances) for m in (f, g)]
        np.testing.assert_allclose(found, wanted, 1e-12)
        np.testing.assert_allclose(f.pmf(counts, 6, chances), g.pmf(counts, 6, chances), 1e-12)
        alpha, y = np.array([0.5, 2.0, 1.0]), rng.dirichlet([1, 2, 3], 4).T
        f, g = stats.dirichlet, scipy.stats.dirichlet
        np.testing.assert_allclose(f.logpdf(y, alpha), g.logpdf(y, alpha), 1e-12)
        np.testing.assert_allclose(f.pdf(y[:2], alpha), g.pdf(y, alpha), 1e-12)
        assert f.logpdf(np.array([0.5, 0.4, 0.3]), alpha) == -np.inf


# -- samples --

SAMPLES = [
    np.array([3.0, 1, 2, 3, 1, 3, 2]),
    np.array([[2, 4, 1, 1], [3, 4, 4, 2], [1, 1, 2, 2]]),
    np.array([[1.5, np.nan, 1.5], [0, 2, np.nan]]),
    np.array([5]),
    np.array([True, False, True]),
]


@pytest.mark.sweep
@pytest.mark.parametrize("x", SAMPLES)
def test_samples(x: np.ndarray):
    for axis in (None, 0, -1):
        for method in ("average", "min", "max", "dense", "ordinal"):
            wanted = scipy.stats.rankdata(x, method, axis=axis)
            if np.isnan(x.astype(float)).any() and axis is None:
                wanted = np.full(x.size, np.nan)
            found = stats.rankdata(x, method, axis=axis)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found.ravel(), np.ravel(wanted))
        for keepdims in (False, True):
            ignored = {"axis": axis, "keepdims": keepdims}
            if x.dtype != bool:
                wanted = theirs.mode(x, **ignored)
                found = stats.mode(x, **ignored)
                np.testing.assert_array_equal(found.mode, wanted.mode)
                np.testing.assert_array_equal(found.count, wanted.count)
            with np.errstate(all="ignore"):
                for policy in ("propagate", "omit"):
                    if x.size > 1 and x.dtype != bool and (policy == "propagate" or axis is None):
                        found = stats.sem(x, axis, nan_policy=policy, keepdims=keepdims)
                        wanted = scipy.stats.sem(x, axis, nan_policy=policy, keepdims=keepdims)
                        np.testing.assert_allclose(found, np.asarray(wanted, float), 1e-6)
    assert np.isnan(stats.mode(x[:0].astype(float)).mode).all()
    assert stats.rankdata(x[:0]).shape == (0,)


@pytest.mark.sweep
def test_density_estimates():
    rng = np.random.default_rng(5)
    data, points = rng.standard_normal((2, 30)), rng.standard_normal((2, 6))
    weights = rng.uniform(0.5, 2, 30)
    with sw.enable_x64(True):
        for options in (
            {},
            {"bw_method": "silverman"},
            {"bw_method": 0.3, "weights": weights},
            {"bw_method": lambda kde: kde.neff**-0.2},
        ):
            f, g = stats.gaussian_kde(data, **options), scipy.stats.gaussian_kde(data, **options)
            assert (f.d, f.n) == (2, 30) and float(f.neff) == pytest.approx(g.neff)
            np.testing.assert_allclose(f.covariance, g.covariance, 1e-12)
            for kind in ("evaluate", "pdf", "logpdf", "__call__"):
                found, wanted = [getattr(kde, kind)(points) for kde in (f, g)]
                np.testing.assert_allclose(found, wanted, 1e-11)
            mean, cov = np.array([0.1, 0.2]), np.array([[2.0, 0.3], [0.3, 1.0]])
            np.testing.assert_allclose(
                f.integrate_gaussian(mean, cov), g.integrate_gaussian(mean, cov), 1e-11
            )
            other = data[:, :20] * 2
            np.testing.assert_allclose(
                f.integrate_kde(stats.gaussian_kde(other)),
                g.integrate_kde(scipy.stats.gaussian_kde(other)),
                1e-11,
            )
        f, g = stats.gaussian_kde(data[0]), scipy.stats.gaussian_kde(data[0])
        found, wanted = [kde.integrate_box_1d(-0.5, 1.0) for kde in (f, g)]
        np.testing.assert_allclose(found, wanted, 1e-11)
        drawn = f.resample(sw.random.key(3), shape=(5000,))
        assert drawn.shape == (1, 5000) and abs(float(drawn.mean()) - data[0].mean()) < 0.1
        np.testing.assert_allclose(sw.jit(lambda kde, x: kde(x))(f, points[:1]), f(points[:1]))


test_messages = messages(
    """
stats.rankdata(SAMPLES[0], "first")
    ValueError: rankdata: method must be one of ('average', 'min', 'max', 'dense', 'ordinal'); got
    'first'.
stats.mode(SAMPLES[0], nan_policy="omit")
    NotImplementedError: mode: nan_policy='omit' is not supported: use 'propagate'.
stats.sem(SAMPLES[0], nan_policy="raise")
    NotImplementedError: sem: nan_policy='raise' is not supported: whether there are NaNs is
    unknown at trace time.
stats.sem(SAMPLES[0], nan_policy="no")
    ValueError: sem: nan_policy must be one of ('propagate', 'omit'); got 'no'.
stats.multivariate_normal.logpdf(1.0, 0.0, 1.0, True)
    NotImplementedError: multivariate_normal.logpdf: allow_singular must be None: covariances must
    be positive definite; got True.
stats.multivariate_normal.pdf(np.ones(2), np.ones(2), np.eye(3))
    ValueError: multivariate_normal_pdf: cov must be of shape (…, 2, 2), for a mean of size 2; got
    f32[3,3].
stats.multinomial.pmf(np.ones(2), 2, np.ones(2))
    ValueError: multinomial_pmf: x must be integers; got f32[2].
stats.dirichlet.pdf(np.ones(4), np.ones(2))
    ValueError: dirichlet_pdf: x must be of shape (k, …) or (k - 1, …) and alpha of shape (k,); got
    f32[4] and f32[2].
stats.gaussian_kde(np.ones(1))
    ValueError: gaussian_kde: dataset must have several elements, in one or two dimensions; got
    f32[1].
stats.gaussian_kde(np.ones(3), "wide")
    ValueError: gaussian_kde: bw_method must be 'scott', 'silverman', a number or a function; got
    'wide'.
stats.gaussian_kde(np.ones(3), weights=np.ones(2))
    ValueError: gaussian_kde: weights must be of shape (3,), one for each point; got f32[2].
stats.gaussian_kde(np.eye(2, 5)).pdf(np.ones((3, 1)))
    ValueError: gaussian_kde: points must be of shape (2, m), as the dataset has 2 dimensions; got
    f32[3,1].
""",
    globals(),
)


@pytest.mark.parametrize("space", everyday([n for n in dir(stats) if n[0] != "_"], 7))
def test_signatures_are_those_of_jax(space: str):
    module, known = getattr(stats, space), getattr(theirs, space)
    pairs = (
        [(module, known)]
        if callable(module)
        else [(getattr(module, n), getattr(known, n)) for n in dir(known) if n[0] != "_"]
    )
    assert callable(module) or len(pairs) == len([n for n in dir(module) if n[0] != "_"])
    for f, g in pairs:
        assert signature(f) == signature(g)
