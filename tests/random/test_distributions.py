"""Samplers: values against jax for the same key, distributions against SciPy, messages.

All listed samplers match jax's values to one unit in the last place, or two if they use a root or
a power; most match bit for bit.
"""

import itertools
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import random as oracle

from shardwise import random
from shardwise._src.autodiff.grad import grad
from shardwise._src.base.config import enable_x64, legacy_prng_key, threefry_partitionable
from shardwise._src.jit.jit import jit
from shardwise._src.maps.vmap import vmap
from shardwise._src.placement.device_put import device_put
from shardwise._src.runtime.backend import devices
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

F32 = np.float32
N = (300,)
LOGITS = np.random.default_rng(0).normal(size=(5, 7)).astype(F32)
WEIGHTS = np.arange(10, dtype=F32) / 45


def both(name, *args, seed=11, **params):
    """The samples of shardwise and of jax."""
    theirs = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
    got = np.asarray(getattr(random, name)(random.PRNGKey(seed), *args, **params))
    wanted = np.asarray(getattr(oracle, name)(oracle.PRNGKey(seed), *theirs, **params))
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    return got, wanted


def equal(name, *args, **params):
    got, wanted = both(name, *args, **params)
    np.testing.assert_array_equal(got, wanted)


def close(name, *args, ulps=1, **params):
    got, wanted = both(name, *args, **params)
    eps = float(jnp.finfo(wanted.dtype).eps)
    if wanted.dtype.kind != "c":
        got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=ulps * eps, atol=0)


# -- values --


SAMPLERS = ["uniform", "normal", "exponential", "gumbel", "laplace", "logistic", "cauchy"]
DTYPES = ["float32", "float16", "bfloat16"]
CLOSE = [  # in each run
    *[("normal", s) for s in ((), (0, 3), (2, 3), 4)],
    ("normal", (3, 4), "complex64"),
    ("uniform", (64,), "float8_e4m3fn"),
    ("uniform", (64,), "float8_e5m2"),
    ("uniform", N, "float32", -2, 7.5),
    ("uniform", (3, 5), "float32", np.arange(5, dtype=F32), 10),
    ("truncated_normal", -1.0, 2.0, N),
    ("truncated_normal", -1.0, 2.0, (40,), "bfloat16"),
    ("truncated_normal", np.linspace(-2, 0, 40, dtype=F32), 2.0),
    *[("gumbel", N, "float32", mode) for mode in ("low", "high", "highest")],
]
EQUAL = [
    ("bernoulli", 0.3, N),
    ("bernoulli", np.linspace(0, 1, 30, dtype=F32)),
    ("rademacher", N),
    ("rademacher", N, "float32"),
    ("bernoulli", 0.3, N, "high"),
    ("randint", (2, 3), np.arange(3), 10),
    ("choice", 1000, (500,), True, np.random.default_rng(1).uniform(size=1000).astype(F32)),
]
CHOSEN = {  # a table of arguments, and how many of them the everyday run takes
    "randint": (
        [
            ((40,), 0, 10, None),
            ((40,), -5, 7, None),
            ((40,), 3, 3, None),
            ((40,), -(2**31), 2**31 - 1, None),
            ((40,), 0, 1000, "uint32"),
            ((40,), 0, 256, "uint8"),
            ((40,), -128, 128, "int8"),
            ((40,), -300, 300, "int8"),
            ((40,), 3, 70, "uint16"),
        ],
        2,
    ),
    "categorical": (
        [
            (LOGITS, -1),
            (LOGITS, 0),
            (LOGITS, 1),
            (LOGITS, -1, (20, 5)),
            (LOGITS, -1, (3, 5), False),
            (LOGITS, 0, (4, 7), False),
            (LOGITS, -1, None, True, "high"),
        ],
        3,
    ),
    "choice": (
        [
            (10,),
            (10, (5,)),
            (10, (5,), False),
            (10, (2, 3), True, WEIGHTS),
            (10, (2, 3), False, WEIGHTS),
            (LOGITS, (3, 2)),
            (LOGITS, (3,), False, None, 1),
            (LOGITS, (3, 2), True, np.full(7, 1 / 7, F32), 1),
        ],
        8,
    ),
    "permutation": (
        [(10,), (3000,), (np.arange(20, dtype=F32),), (LOGITS,), (LOGITS, 1), (LOGITS, 1, True)],
        6,
    ),
}


@pytest.mark.parametrize(("name", "dtype"), everyday(itertools.product(SAMPLERS, DTYPES), 3))
def test_samplers_without_parameters(name, dtype):
    close(name, (50,), dtype)


@pytest.mark.parametrize("call", CLOSE, ids=itemgetter(0))
def test_values(call):
    close(*call)


@pytest.mark.parametrize(
    "call",
    [
        *EQUAL,
        *[
            (name, *args)
            for name, (table, n) in CHOSEN.items()
            for args in everyday(table, n, name)
        ],
    ],
    ids=itemgetter(0),
)
def test_equal_values(call):
    equal(*call)


def test_choice_of_nothing():
    assert random.choice(random.key(0), LOGITS, (0,)).shape == (0, 7)


@pytest.mark.sweep
def test_x64():
    with enable_x64(True), jax.enable_x64(True):
        for name in ["uniform", "normal", "exponential"]:
            close(name, (20,), ulps=2)
        equal("randint", (20,), 0, 1 << 40)
        equal("permutation", 10)
        equal("categorical", LOGITS)


@pytest.mark.sweep
def test_the_older_form():
    with threefry_partitionable(False), jax.threefry_partitionable(False):
        close("normal", (7,))
        equal("randint", (7,), 0, 10)
        close("gamma", 2.5, (7,), ulps=2)


def test_categorical_of_special_values():
    """A NaN is the largest, as for argmax; among equal ones the first is chosen."""
    logits = np.zeros((4, 5), F32)
    logits[0, 2], logits[1, 3:], logits[2] = np.nan, np.inf, -np.inf
    got = np.asarray(random.categorical(random.key(0), logits))
    np.testing.assert_array_equal(got, jax.random.categorical(oracle.key(0), logits))
    assert got[:3].tolist() == [2, 3, 0]
    assert message(ValueError, lambda: random.categorical(random.key(0), logits[:, :0])) == (
        "categorical: takes one axis of nonzero size; got axes (1,) of f32[4,0]."
    )


def test_permutation_of_keys():
    keys = random.split(random.key(0), 5)
    got = random.permutation(random.key(1), keys)
    order = np.asarray(random.permutation(random.key(1), 5))
    np.testing.assert_array_equal(random.key_data(got), np.asarray(random.key_data(keys))[order])


def test_double_sided_maxwell():
    close("double_sided_maxwell", np.ones(2, F32), 2.0, (5,), ulps=4)


@pytest.mark.sweep
def test_dirichlet():
    close("dirichlet", np.array([1, 2, 3], F32), (20,), ulps=4)


@pytest.mark.sweep
def test_gamma_of_an_array():
    close("loggamma", np.linspace(0.01, 3, 100, dtype=F32), ulps=4)


COUNTED = {
    "poisson": ((np.linspace(0, 30, 300, dtype=F32),), {}),
    "binomial": ((np.linspace(0, 300, 300, dtype=F32), F32(0.7)), {}),
    "multinomial": ((10.0, np.full((4, 3), [0.2, 0.3, 0.5], F32)), {"unroll": 2}),
}


@pytest.mark.parametrize("name", everyday(COUNTED, 1))
def test_counts(name):
    args, options = COUNTED[name]
    equal(name, *args, **options)


@pytest.mark.sweep
def test_shape_of_multinomial_is_without_the_outcomes():
    key, p = random.key(1), np.array([0.2, 0.3, 0.5], F32)
    got = np.asarray(random.multinomial(key, np.array([[5.0], [9.0]], F32), p, shape=(2, 4)))
    assert got.shape == (2, 4, 3) and (got.sum(-1) == [[5], [9]]).all()
    again = random.multinomial(key, np.array([[5.0], [9.0]], F32), np.broadcast_to(p, (2, 4, 3)))
    np.testing.assert_array_equal(got, again)
    assert random.multinomial(key, 5.0, p, shape=()).shape == (3,)
    assert message(ValueError, lambda: random.multinomial(key, 5.0, F32(1))) == (
        "multinomial: p must have at least one dimension; got f32[]."
    )


def test_invalid_counts_are_nan():
    got = np.asarray(random.binomial(random.key(0), np.array([-1, 5, np.nan], F32), 0.5))
    assert np.isnan(got[[0, 2]]).all() and not np.isnan(got[1])
    assert np.isnan(random.binomial(random.key(0), 5.0, 1.5)).all()


# -- distributions --

NAMED = itemgetter(0, 1)

FITS = [
    ("uniform", (), scipy.stats.uniform()),
    ("normal", (), scipy.stats.norm()),
    ("exponential", (), scipy.stats.expon()),
    ("gumbel", (), scipy.stats.gumbel_r()),
    ("laplace", (), scipy.stats.laplace()),
    ("logistic", (), scipy.stats.logistic()),
    ("cauchy", (), scipy.stats.cauchy()),
    ("maxwell", (), scipy.stats.maxwell()),
    ("truncated_normal", (-1.0, 2.0), scipy.stats.truncnorm(-1, 2)),
    ("pareto", (3.0,), scipy.stats.pareto(3)),
    ("rayleigh", (F32(2),), scipy.stats.rayleigh(scale=2)),
    ("wald", (F32(2),), scipy.stats.invgauss(2)),
    ("weibull_min", (2.0, 3.0), scipy.stats.weibull_min(3, scale=2)),
    ("triangular", (0.0, 1.0, 3.0), scipy.stats.triang(1 / 3, scale=3)),
    ("lognormal", (1.5,), scipy.stats.lognorm(1.5)),
    ("gamma", (2.5,), scipy.stats.gamma(2.5)),
    ("loggamma", (0.3,), scipy.stats.loggamma(0.3)),
    ("beta", (2.0, 3.0), scipy.stats.beta(2, 3)),
    ("chisquare", (3.0,), scipy.stats.chi2(3)),
    ("t", (4.0,), scipy.stats.t(4)),
    ("f", (3.0, 5.0), scipy.stats.f(3, 5)),
    ("generalized_normal", (1.5,), scipy.stats.gennorm(1.5)),
]


@pytest.mark.parametrize(("name", "params", "wanted"), everyday(FITS, 3, by=NAMED))
def test_values_and_distribution(name, params, wanted):
    got, theirs = both(name, *params, shape=(5000,), seed=3)
    np.testing.assert_allclose(got, theirs, rtol=8 * np.finfo(F32).eps)
    assert scipy.stats.kstest(got.astype(np.float64), wanted.cdf).pvalue > 0.01


# -- without loops --

APPROXIMATE = [  # from jax 0.12; older ones lack it
    (
        "gamma",
        (F32([0.1, 1, 3, 50, 1e4]),),
        None,
        [
            0.3773120045661926,
            0.26290351152420044,
            2.5986058712005615,
            41.77281188964844,
            10020.220703125,
        ],
    ),
    (
        "loggamma",
        (F32([1e-4, 0.5, 2]),),
        None,
        [-265.0395202636719, -1.6334116458892822, 0.10797274112701416],
    ),
    ("beta", (2.0, 3.0), (3,), [0.6277937293052673, 0.29586732387542725, 0.7436784505844116]),
    ("chisquare", (2.5,), (3,), [1.269019603729248, 1.4905734062194824, 1.2238714694976807]),
    ("poisson", (F32([0, 0.5, 3, 6.9, 7, 20, 1e3, 1e6]),), None, [0, 2, 4, 13, 5, 21, 961, 999698]),
    ("poisson", (5.0,), (6,), [2, 9, 6, 10, 4, 5]),
]


@pytest.mark.parametrize(("name", "params", "shape", "wanted"), everyday(APPROXIMATE, 4, by=NAMED))
def test_approximate_numbers(name, params, shape, wanted):
    got = getattr(random, name)(random.key(3), *params, shape, method="approximate")
    np.testing.assert_allclose(got, np.asarray(wanted, got.dtype), rtol=3e-6)


def test_approximate_distributions():
    for a in (0.2, 2.5, 60.0):
        drawn = random.gamma(random.key(1), a, (20000,), method="approximate")
        assert scipy.stats.kstest(np.asarray(drawn, float), scipy.stats.gamma(a).cdf).pvalue > 0.01
    for mean in (0.7, 6.5, 7.5, 300.0):
        drawn = np.asarray(random.poisson(random.key(2), mean, (20000,), method="approximate"))
        values, seen = np.unique(drawn, return_counts=True)
        expected = scipy.stats.poisson(mean).pmf(values) * 20000
        often = expected > 20
        chi2 = ((seen[often] - expected[often]) ** 2 / expected[often]).sum()
        assert scipy.stats.chi2(often.sum()).sf(chi2) > 0.01


def test_approximate_numbers_in_other_forms():
    key = random.key(3)
    half = random.gamma(key, 2.0, (3,), "float16", method="approximate")
    assert np.asarray(half).tolist() == [0.95556640625, 1.2607421875, 1.1142578125]
    slope = grad(lambda a: random.gamma(key, a, method="approximate"))(2.0)
    assert slope == pytest.approx(0.43461379408836365, rel=1e-5)
    with enable_x64(True):
        large = random.poisson(key, 1e12, (3,), method="approximate")
        assert large.dtype == np.int64 and (abs(np.asarray(large) - 1e12) < 1e7).all()
    for name, params in (
        ("gamma", (2.0,)),
        ("loggamma", (2.0,)),
        ("beta", (2.0, 3.0)),
        ("chisquare", (2.0,)),
        ("poisson", (2.0,)),
    ):
        assert message(ValueError, getattr(random, name), key, *params, method="fast") == (
            f"{name}: method must be 'exact' or 'approximate'; got 'fast'."
        )


COUNTS = [
    ("poisson", (3.0,), scipy.stats.poisson(3)),
    ("poisson", (40.0,), scipy.stats.poisson(40)),
    ("geometric", (0.2,), scipy.stats.geom(0.2)),
    ("binomial", (12.0, 0.3), scipy.stats.binom(12, 0.3)),
    ("binomial", (200.0, 0.7), scipy.stats.binom(200, 0.7)),
    ("randint", (3, 9), scipy.stats.randint(3, 9)),
]


@pytest.mark.parametrize(("name", "params", "wanted"), everyday(COUNTS, 1, by=NAMED))
def test_discrete_distribution(name, params, wanted):
    size = 20000
    args = (size, *params) if name == "randint" else (*params, (size,))
    drawn = getattr(random, name)(random.key(5), *args)
    values, seen = np.unique(np.asarray(drawn).astype(int), return_counts=True)
    often = wanted.pmf(values) * size > 20
    expected = wanted.pmf(values[often]) * size
    chi2 = ((seen[often] - expected) ** 2 / expected).sum()
    assert scipy.stats.chi2(often.sum()).sf(chi2) > 0.01


def test_ball_is_inside():
    points = np.asarray(random.ball(random.key(0), 3, shape=(2000,)), np.float64)
    radius = np.linalg.norm(points, axis=-1)
    assert radius.max() <= 1 and scipy.stats.kstest(radius**3, "uniform").pvalue > 0.01


# -- transforms and shardings --


@pytest.mark.sweep
def test_samplers_under_jit_and_vmap():
    keys = random.split(random.key(0), 3)
    draws = [
        lambda k: random.randint(k, (4,), 0, 9),
        lambda k: random.gamma(k, 0.7, (4,)),
        lambda k: random.permutation(k, 6),
        lambda k: random.poisson(k, np.array([2, 30], F32)),
        lambda k: random.binomial(k, np.array([5, 50], F32), 0.4),
        lambda k: random.categorical(k, LOGITS),
    ]
    for draw in everyday(draws, 2):
        got = np.asarray(jit(vmap(draw))(keys))
        np.testing.assert_allclose(got, [np.asarray(draw(k)) for k in keys], rtol=2e-6)


def test_derivatives_in_the_parameters():
    key, theirs = random.key(2), oracle.key(2)
    for name, a in everyday(itertools.product(("gamma", "loggamma"), (0.4, 3.0)), 1):
        got = grad(lambda v, name=name: getattr(random, name)(key, v))(F32(a))
        wanted = jax.grad(lambda v, name=name: getattr(oracle, name)(theirs, v))(F32(a))
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4)
    for name, point in [("pareto", 2.0), ("lognormal", 0.5), ("rayleigh", 1.5)]:
        got = grad(lambda v, name=name: getattr(random, name)(key, v))(F32(point))
        wanted = jax.grad(lambda v, name=name: getattr(oracle, name)(theirs, v))(F32(point))
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5)


@pytest.mark.sweep
def test_values_do_not_depend_on_the_sharding():
    mesh = Mesh(np.array(devices()[:8]), ("x",))
    whole = NamedSharding(mesh, P())
    split = NamedSharding(mesh, P("x"))
    key = device_put(random.key(4), whole)
    for draw in [
        lambda k: random.normal(k, (16, 3)),
        lambda k: random.randint(k, (16,), 0, 100),
        lambda k: random.gamma(k, 0.5, (16,)),
        lambda k: random.permutation(k, 16),
    ]:
        got = jit(draw, out_shardings=split)(key)
        assert got.sharding == split
        np.testing.assert_allclose(np.asarray(got), np.asarray(draw(random.key(4))), rtol=2e-6)


# -- messages --


def test_messages_about_shapes():
    key = random.key(0)
    assert message(ValueError, lambda: random.normal(key, (-1,))) == (
        "normal: sizes must not be negative; got shape (-1,)."
    )
    assert message(TypeError, lambda: random.normal(key, 2.5)) == (
        "normal: shape must be integers; got 2.5."
    )
    assert message(ValueError, lambda: random.uniform(key, (3,), minval=np.zeros(2))) == (
        "uniform: parameters of shapes (2,), () do not broadcast to shape (3,)."
    )
    assert message(ValueError, lambda: random.beta(key, np.ones(2), np.ones(3))) == (
        "beta: parameters of shapes (2,), (3,) do not broadcast together."
    )
    assert message(ValueError, lambda: random.categorical(key, LOGITS, shape=(3,))) == (
        "categorical: shape must end with that of the logits without axis 1, (5,); got (3,)."
    )


def test_messages_about_dtypes():
    key = random.key(0)
    assert message(ValueError, lambda: random.normal(key, (2,), "int32")) == (
        "normal: dtype must be a floating-point or complex type; got int32."
    )
    assert message(ValueError, lambda: random.gumbel(key, (2,), "complex64")) == (
        "gumbel: dtype must be a floating-point type; got complex64."
    )
    assert message(TypeError, lambda: random.randint(key, (2,), 0, 3, "float32")) == (
        "randint: dtype must be an integer type; got float32."
    )
    assert message(ValueError, lambda: random.bits(key, (2,), "int32")) == (
        "bits: dtype must be uint8, uint16, uint32 or uint64; got int32."
    )
    assert message(TypeError, lambda: random.bernoulli(key, 1)) == (
        "bernoulli: p must be floating-point; got ~i32[]."
    )
    assert message(TypeError, lambda: random.gamma(key, 1j)) == (
        "gamma: parameters must be real; got ~c64[]."
    )


def test_messages_about_choices():
    key = random.key(0)
    assert message(ValueError, lambda: random.choice(key, 3, (4,), False)) == (
        "choice: cannot draw 4 distinct elements from 3 (replace=False)."
    )
    assert message(ValueError, lambda: random.choice(key, 0, (2,))) == (
        "choice: cannot draw from an empty `a`."
    )
    assert message(ValueError, lambda: random.choice(key, 3, (2,), p=np.ones(2, F32))) == (
        "choice: p must have one probability for each of the 3 elements; got f32[2]."
    )
    assert message(ValueError, lambda: random.categorical(key, LOGITS, -1, (9, 5), False)) == (
        "categorical: cannot draw 9 distinct categories from 7 (replace=False)."
    )
    assert message(ValueError, lambda: random.gumbel(key, mode="lowest")) == (
        "gumbel: mode must be 'low', 'high' or 'highest'; got 'lowest'."
    )
    assert message(TypeError, lambda: random.permutation(key, 2.5)) == (
        "permutation: x must be an array or an integer; got ~f32[]."
    )
    assert message(ValueError, lambda: random.dirichlet(key, 1.0)) == (
        "dirichlet: alpha must have at least one dimension; got ~f32[]."
    )


def test_bounds_of_integers():
    key = random.key(1)
    found = random.randint(key, (5, 2), np.array([0, 1]), np.array([3, 7]))
    wanted = oracle.randint(oracle.key(1), (5, 2), np.array([0, 1]), np.array([3, 7]))
    np.testing.assert_array_equal(found, wanted)
    for dtype, low, high in (
        ("int8", 0, 1 << 40),
        ("int32", -(1 << 40), 5),
        ("uint32", 0, 1 << 32),
    ):
        with pytest.raises(OverflowError, match="fits neither the dtype of the result nor"):
            random.randint(key, (2,), low, high, dtype)
    high = np.asarray(random.randint(key, (99,), 0, (1 << 32) - 1, "uint32"))
    assert high.max() > 1 << 31


def test_f_has_shapes_dtypes_and_jax_values():
    found = random.f(random.key(2), 2.0, 3.0, (4,), "float16")
    assert found.dtype == np.float16
    wanted = oracle.f(oracle.key(2), 2.0, 3.0, (4,))
    np.testing.assert_allclose(random.f(random.key(2), 2.0, 3.0, (4,)), wanted, 1e-5)


def test_invalid_keys_are_type_errors_whatever_legacy_keys_are():
    for mode in ("warn", "error"):
        with legacy_prng_key(mode), pytest.raises(TypeError, match="takes a key as its first"):
            random.uniform(np.zeros(1, np.float32))
    with legacy_prng_key("error"), pytest.raises(ValueError, match="got a raw key"):
        random.uniform(np.zeros(2, np.uint32))


def test_choice_takes_a_sequence_as_shape():
    assert message(TypeError, lambda: random.choice(random.key(0), 5, 2)) == (
        "choice: shape must be a sequence of integers; got 2."
    )
