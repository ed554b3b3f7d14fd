"""`scipy.special`: errors in ulps, edge cases of SciPy, derivatives, shardings."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import scipy.special
from jax.scipy import special as theirs

import shardwise as sw
from shardwise.scipy import special
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.composed import signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.placed import MESH
from tests.special.special_table import FLOORS, TABLE, arguments, exact

POINTS = 24


def named(name: str):
    """The function of a name in the table; some have several results."""
    plain, _, number = name.partition(" ")
    if plain == "bessel_jn":
        return lambda z: special.bessel_jn(z, v=3)[2]
    fun = getattr(special, plain)
    return (lambda *a: fun(*a)[int(number)]) if plain in ("fresnel", "sici") else fun


@pytest.mark.parametrize("name", everyday(TABLE, 4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors(name: str, dtype: type):
    f, _, *bounds = TABLE[name]
    args = arguments(name, dtype, POINTS)
    with sw.enable_x64(dtype is np.float64), mp.workdps(40):
        found = np.asarray(named(name)(*args))
        assert found.real.dtype == dtype
        for y, *x in zip(found, *args, strict=True):
            wanted = f(*map(exact, x))
            size = max(float(abs(wanted)), FLOORS.get(name, 0))
            unit = float(np.spacing(dtype(max(size, np.finfo(dtype).tiny))))
            error = float(abs(exact(y) - wanted)) / unit
            assert error <= bounds[dtype is np.float64], (x, y, wanted)


# -- edges, against SciPy --

EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, -2.0, -1.5, 1.0, 2.0, 0.5]
ONE = """dawsn digamma entr erf erfc erfcinv erfcx erfinv exp1 expi expit factorial gamma gammaln
gammasgn i0e i1e log_ndtr loggamma logit ndtr ndtri spence zeta""".split()
TWO = "boxcox boxcox1p gammainc gammaincc owens_t rel_entr xlog1py xlogy".split()


def edges(name: str, *args: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        wanted = np.asarray(getattr(scipy.special, name)(*args))
    with sw.enable_x64(True):
        found = np.asarray(getattr(special, name)(*args))
    np.testing.assert_allclose(found, wanted, 1e-12, 2e-15 if "gam" in name else 1e-300)
    if name in ("erf", "dawsn", "gamma", "digamma", "gammasgn"):
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(wanted)[known])


@pytest.mark.parametrize("name", everyday(ONE, 1 / 6))
def test_edges_of_one_argument(name: str):
    x = np.array(EDGES)
    # Here SciPy has -inf for gammaln(-inf).
    edges(name, x[x > -np.inf] if name == "gammaln" else x)


@pytest.mark.parametrize("name", everyday(TWO, 6))
def test_edges_of_two_arguments(name: str):
    x, y = np.meshgrid(np.array(EDGES), np.array(EDGES))
    keep = np.ones(x.shape, bool)
    if name.startswith("boxcox"):
        keep = ~np.isinf(y) & ~np.isinf(x)
    edges(name, x[keep], y[keep])


def test_edges_of_pairs():
    x = np.array(EDGES)
    with sw.enable_x64(True):
        for f, g in ((special.sici, scipy.special.sici), (special.fresnel, scipy.special.fresnel)):
            for found, wanted in zip(f(x), g(x), strict=True):
                np.testing.assert_allclose(found, wanted, 1e-14)
        for n in (-1, 0, 1, 2, 3):
            np.testing.assert_allclose(special.expn(n, x), scipy.special.expn(n, x), 1e-14)


LARGE = [(a, a * r) for a in (25.0, 3e2, 1e4) for r in (0.69, 0.71, 0.99, 1.0, 1.02, 1.31)]


@pytest.mark.parametrize("dtype", everyday([np.float32, np.float64], 1))
def test_incomplete_gamma_of_large_parameters(dtype: type):
    a, x = np.array(LARGE, dtype).T
    with sw.enable_x64(dtype is np.float64), mp.workdps(30):
        for name, bounds in (("gammainc", (0, "x")), ("gammaincc", ("x", mp.inf))):
            found = np.asarray(getattr(special, name)(a, x))
            wanted = [
                float(
                    mp.gammainc(
                        float(p), *[float(q) if b == "x" else b for b in bounds], regularized=True
                    )
                )
                for p, q in zip(a, x, strict=True)
            ]
            tiny = 1e-18 if dtype is np.float32 else 1e-150
            np.testing.assert_allclose(found, wanted, 3e3 * np.finfo(dtype).eps, tiny)
        # By mpmath; SciPy's error here is 2e-10.
        far = special.gammainc(dtype(1e6), dtype(0.99e6))
        np.testing.assert_allclose(far, 5.4466446930108087e-24, 3e3 * np.finfo(dtype).eps)


def test_incomplete_gamma_where_products_overflow():
    a = np.float32([1, 0.5, 30, 1e10, 1e10, 1e20, 1e20, 1e30, 1e15])
    x = np.float32([1e18, 3e38, 1e37, 1e30, 1e10, 1e20, 2e20, 1e20, 3e15])
    found = special.gammainc(a, x)
    np.testing.assert_allclose(found, scipy.special.gammainc(a.astype(float), x), 1e-6)
    np.testing.assert_allclose(special.gammaincc(a, x), 1 - found, 1e-6)
    slope = sw.vmap(sw.grad(special.gammainc, 1))(a[:3], x[:3])
    np.testing.assert_array_equal(slope, 0)


def test_incomplete_beta_at_the_ends_of_parameters():
    ends = [0, 0.5, 1, np.inf, np.nan, -1]
    a, b, x = map(np.ravel, np.meshgrid(ends, ends, [0, 0.25, 1, np.nan, 2, -0.5]))
    with np.errstate(all="ignore"):
        wanted = scipy.special.betainc(a, b, x)
    np.testing.assert_allclose(special.betainc(a, b, x), wanted, 1e-5)


def test_beta_beyond_its_domain():
    a = np.array([2.5, -1.5, -2.5, 0.0, -1.0, np.inf, np.nan, 2.0])
    b = np.array([-0.5, 0.25, -0.25, 1.0, 0.5, 2.0, 1.0, np.inf])
    with sw.enable_x64(True):
        np.testing.assert_allclose(special.beta(a, b), scipy.special.beta(a, b), 1e-13)
        np.testing.assert_allclose(special.betaln(a, b), scipy.special.betaln(a, b), 1e-13)
        # Where magnitudes differ by much, and between large numbers.
        for x, y in ((1e-3, 1e8), (1e10, 3.0), (500.0, 1e5), (1e8, 1e8)):
            wanted = float(mp.log(mp.beta(mp.mpf(x), mp.mpf(y))))
            np.testing.assert_allclose(special.betaln(x, y), wanted, 1e-14)


@pytest.mark.sweep
def test_rising_factorials_and_choices():
    z = np.array([-3.0, -3.0, -3.5, 0.0, -1.5, 4.0, 0.5, 7.0, np.nan])
    m = np.array([2.0, 5.0, 2.0, 3.0, 4.0, 0.0, -2.0, 1.0, 1.0])
    n, k = np.array([5.0, 5, 5, -1, 60, 3, 44, 1000]), np.array([2.0, 6, -1, 2, 30, 3, 6, 3])
    with sw.enable_x64(True):
        np.testing.assert_allclose(special.poch(z, m), scipy.special.poch(z, m), 1e-13)
        for repetition in (False, True):
            found, wanted = [
                f(n, k, repetition=repetition) for f in (special.comb, scipy.special.comb)
            ]
            np.testing.assert_allclose(found, wanted, 1e-13)
    assert special.comb(44, 6) == 7059052 and special.factorial(13) == np.float32(6227020800)


def test_numbers_of_bernoulli():
    with sw.enable_x64(True):
        np.testing.assert_allclose(special.bernoulli(60), scipy.special.bernoulli(60), 1e-10)
        large = np.asarray(special.bernoulli(270))
    assert np.isfinite(large[258]) and list(large[[260, 262, 263]]) == [-np.inf, np.inf, 0]
    assert special.bernoulli(0).shape == (1,) and special.bernoulli(1)[1] == -0.5


def test_multivariate_gamma():
    a = np.array([2.5, 3.0, 40.0])
    with sw.enable_x64(True):
        np.testing.assert_allclose(
            special.multigammaln(a, 4), scipy.special.multigammaln(a, 4), 1e-13
        )


@pytest.mark.parametrize(
    "case",
    everyday(
        [
            (0.5, 1.0, 1.7, 1.0),
            (0.5, 1.0, 1.7, 1.5),
            (-2.0, 1.0, 1.7, 3.0),
            (1.0, 1.0, -1.0, 0.5),
            (-1.0, 1.0, -1.0, 0.5),
            (1.0, 1.0, 1.0, 1.0),
            (0.5, 0.7, 2.2, 0.9999),
            (1.0, 2.0, 3.0, 0.99),
            (3.0, 2.0, 1.5, 0.95),
            (0.3, -0.4, 1.1, -50.0),
            (1.0, 1.0, 2.0, -1e4),
            (2.5, 1.5, 1.0, -0.5),
        ],
        4,
    ),
)
def test_gauss_beyond_the_plain_series(case):
    with sw.enable_x64(True):
        found = special.hyp2f1(*case)
    # At a = c, a negative integer, SciPy has the limit of equal parameters.
    known = {(-1.0, 1.0, -1.0, 0.5): 2, (0.5, 1.0, 1.7, 1.5): np.inf, (1.0, 1.0, 1.0, 1.0): np.inf}
    wanted = known[case] if case in known else float(mp.hyp2f1(*case))
    np.testing.assert_allclose(found, wanted, 1e-11)


@pytest.mark.parametrize(
    "case",
    everyday(
        [
            (1.0, 0.0, 1.0),
            (-1.0, -2.0, 2.0),
            (1.0, 2.0, np.inf),
            (1.0, 2.0, -np.inf),
            (0.0, 0.5, 3.0),
            (1.5, 1.5, 2.0),
            (0.7, 2.3, 300.0),
            (0.7, 2.3, -300.0),
            (-4.0, 1.5, -20.0),
            (-4.0, 1.5, 9.0),
            (2.0, 3.0, -900.0),
            (30.0, 2.0, 3.0),
            (30.0, 2.5, -30.0),
            (30.5, 0.3, -90.0),
        ],
        3,
    ),
)
def test_confluent_beyond_the_plain_series(case):
    with sw.enable_x64(True):
        found = special.hyp1f1(*case)
    np.testing.assert_allclose(found, scipy.special.hyp1f1(*case), 1e-11)


@pytest.mark.sweep
def test_spherical_harmonics():
    n, m = np.array([[n, m] for n in range(8) for m in range(-n, n + 1)]).T
    theta, phi = np.linspace(0.1, 3, n.size), np.linspace(0, 6, n.size)
    with sw.enable_x64(True):
        wanted = scipy.special.sph_harm_y(n, m, theta, phi)
        np.testing.assert_allclose(special.sph_harm_y(n, m, theta, phi), wanted, 1e-11, 1e-14)
        found = sw.jit(lambda n: special.sph_harm_y(n, m, theta, phi, n_max=7))(n)
        np.testing.assert_allclose(found, wanted, 1e-11, 1e-14)
        wanted = scipy.special.sph_harm_y(n, m, -theta * 2, phi)  # beyond a pole
        np.testing.assert_allclose(special.sph_harm_y(n, m, -theta * 2, phi), wanted, 1e-10, 1e-13)
        slope = sw.grad(lambda t: special.sph_harm_y(5, 2, t, 0.3).real)(0.7)
        step = [special.sph_harm_y(5, 2, 0.7 + d, 0.3).real for d in (1e-6, -1e-6)]
        np.testing.assert_allclose(slope, (step[0] - step[1]) / 2e-6, 1e-7)
        assert special.sph_harm_y(1, 2, 0.3, 0.3) == 0 and special.sph_harm_y(3, -2, 0.3, 0.3) == (
            sw.numpy.conj(special.sph_harm_y(3, 2, 0.3, 0.3))
        )
    assert special.sph_harm_y(2, 1, 0.3, 0.3).dtype == np.complex64


# -- derivatives --

FIXED = {
    "polygamma": (0,),
    "betainc": (0, 1),
    "expn": (0,),
    "comb": (0, 1),
    "betainc 1": (0, 1),
    "hyp1f1 2": (0, 1),
}


@pytest.mark.parametrize("name", everyday([n for n in TABLE if "comb" not in n], 3))
def test_derivatives(name: str):
    f, bounds, *_ = TABLE[name]
    args = arguments(name, np.float64, 3)
    with sw.enable_x64(True), mp.workdps(30):
        for i in range(len(args)):
            if i in FIXED.get(name, ()):
                continue
            complexes = "complex" in bounds[i]
            take = sw.vmap(sw.grad(named(name), i, holomorphic=complexes))
            for found, *x in zip(take(*args), *args, strict=True):
                at = [*map(exact, x)]
                orders = tuple(int(j == i) for j in range(len(args)))
                wanted = mp.diff(f, tuple(at), orders) if len(at) > 1 else mp.diff(f, at[0])
                np.testing.assert_allclose(complex(found), complex(wanted), 1e-9, 1e-12)


SMOOTH = [n for n in TABLE if len(TABLE[n][1]) == 1 and "complex" not in TABLE[n][1][0]]


@pytest.mark.parametrize("name", everyday(SMOOTH, 2))
def test_second_derivatives(name: str):
    f = named(name)
    (x,) = arguments(name, np.float64, 3)
    x = np.where(np.abs(x) < 1e-2, 0.3, x)
    with sw.enable_x64(True):
        slope, step = sw.vmap(sw.grad(f)), 1e-5 * x
        wanted = (slope(x + step) - slope(x - step)) / (2 * step)
        for second in (sw.grad(sw.grad(f)), sw.jacfwd(sw.grad(f))):
            np.testing.assert_allclose(sw.vmap(second)(x), wanted, 1e-4, 1e-7)


def test_derivatives_at_edges():
    def grad(f, i=0):
        return lambda *args: float(sw.grad(f, i)(*args))

    assert grad(special.xlogy)(0.0, 2.0) == np.float32(np.log(2))
    assert grad(special.i1)(0.0) == pytest.approx(0.5)
    assert grad(special.boxcox, 1)(np.e, 0.0) == pytest.approx(0.5)
    assert grad(special.spence)(1.0) == -1
    assert grad(special.log_ndtr)(-50.0) == pytest.approx(50.02, 1e-4)
    assert grad(special.erfcx)(1e4) == pytest.approx(-5.6419e-9, 1e-4)
    assert grad(special.dawsn)(1e3) == pytest.approx(-5e-7, 1e-4)
    assert grad(lambda x: special.sici(x)[0])(0.0) == 1
    third = grad(sw.grad(sw.grad(special.expn, 1), 1), 1)(1, 2.0)
    assert third == pytest.approx(-np.exp(-2) * (1 / 2 + 2 / 4 + 2 / 8), 1e-5)


# -- dtypes, shardings, maps --


@pytest.mark.parametrize("name", everyday(TABLE, 2))
def test_narrow_floats_and_integers(name: str):
    f = named(name)
    args = arguments(name, np.float32, 8)
    half = [x.astype(np.float16) if x.dtype.kind == "f" else x for x in args]
    if half[-1].dtype == np.float16:
        found = np.asarray(f(*half))
        wanted = np.asarray(f(*[x.astype(np.float32) if x.dtype.kind == "f" else x for x in half]))
        assert found.dtype == np.float16
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, wanted.astype(np.float16))
        assert f(*[1 if x.dtype.kind == "i" else 0.5 for x in args]).weak_type
    ones = [np.int32(1)] * len(args)
    assert f(*ones).dtype == np.float32 or name == "wofz"


@pytest.mark.parametrize("name", everyday(TABLE, 1))
def test_places_and_maps(name: str):
    f = named(name)
    args = arguments(name, np.float32, 7)
    wanted = np.asarray(f(*args))
    for spec in (P("x"), P(("x", "y"))):
        placed = [sw.device_put(x, NamedSharding(MESH, spec)) for x in args]
        found = f(*placed)
        # XLA does not shard the function that implements this one.
        assert name == "zeta" or found.sharding.is_equivalent_to(placed[0].sharding, 1)
        np.testing.assert_allclose(found, wanted, 2e-5, 1e-6)
    np.testing.assert_allclose(sw.vmap(f)(*args), wanted, 2e-5, 1e-6)
    empty = f(*[x[:0] for x in args])
    assert empty.shape == (0,) and f(*[x[:, None] for x in args]).shape == (7, 1)


def test_softmax_and_its_kin():
    x = np.array([[1.0, 2, -3], [0, 5, 700]], np.float32)
    for f, g in (
        (special.softmax, scipy.special.softmax),
        (special.log_softmax, scipy.special.log_softmax),
    ):
        for axis in (None, 0, -1, (0, 1)):
            np.testing.assert_allclose(f(x, axis=axis), g(x, axis=axis), 1e-5)
    assert special.logsumexp is sw.nn.logsumexp


def test_complex_poles_and_strict_promotion():
    poles = np.array([0, -1, -5], np.complex64)
    with sw.numpy_dtype_promotion("strict"):
        for found in (special.gamma(poles), special.loggamma(poles)):
            assert np.isnan(found.real).all() and np.isnan(found.imag).all()
        z = np.complex64(0.3 - 0.2j)
        for f, g in ((special.wofz, scipy.special.wofz), (special.erfcx, scipy.special.erfcx)):
            np.testing.assert_allclose(f(z), g(z), 1e-6)


def test_complex_numbers():
    z = np.array([1 + 2j, -3.2 + 1e-3j, -0.5 - 4j, 20j, 300 + 1j])
    with sw.enable_x64(True):
        np.testing.assert_allclose(special.expit(z), 1 / (1 + np.exp(-z)), 1e-12)
        for name in ("loggamma", "wofz", "erfcx"):
            found = getattr(special, name)(z)
            np.testing.assert_allclose(found, getattr(scipy.special, name)(z), 1e-12)
        for z in (-1.5 + 0j, complex(-1.5, -0.0)):
            np.testing.assert_allclose(special.loggamma(z), scipy.special.loggamma(z), 1e-13)
        for name in ("xlogy", "xlog1py"):
            f, g = getattr(special, name), getattr(scipy.special, name)
            np.testing.assert_allclose(f(1j, 2 + 1j), g(1j, 2 + 1j), 1e-14)


# -- messages and signatures --

test_messages = messages(
    """
special.ndtr(np.complex64(1j))
    DtypeError: ndtr takes real numbers; got c64[].
special.bessel_jn(np.complex64(1j), v=1)
    DtypeError: bessel_jn takes real numbers; got c64[].
special.polygamma(np.float32(1), 2.0)
    ValueError: polygamma: n must be of an integer dtype; got f32[].
special.factorial(3, exact=True)
    NotImplementedError: factorial: exact=True needs integers of arbitrary size; leave it out.
special.bernoulli(-1)
    ValueError: bernoulli: n must be at least 0; got -1.
special.bessel_jn(1.0, v=50)
    ValueError: bessel_jn: v must be at least 0 and below n_iter; got v=50, n_iter=50.
special.log_ndtr(1.0, 31)
    ValueError: log_ndtr: series_order must be an integer from 0 to 30; got 31.
special.sph_harm_y(1, 1, 0.1, 0.1, diff_n=1)
    NotImplementedError: sph_harm_y: diff_n must be None; got 1. Use jvp or grad for derivatives.
special.sph_harm_y(np.float32(1.5), 1, 0.1, 0.1)
    TypeError: sph_harm_y: n must be integers; got f32[].
sw.grad(special.expn)(1.0, 2.0)
    NotImplementedError: expn has no derivative with respect to n. Use stop_gradient on it if it is
    a constant.
""",
    globals(),
)


@pytest.mark.parametrize("name", [n for n in dir(special) if n[0] != "_" and n in vars(theirs)])
def test_signatures_are_those_of_jax(name: str):
    assert signature(getattr(special, name)) == signature(getattr(theirs, name))
