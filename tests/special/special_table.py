"""References, ranges and tolerances for functions of `scipy.special`.

    name: (mpmath's function, arguments, units in the last place in float32 and in float64)

Arguments are pairs of bounds for numbers that are drawn uniformly, on a logarithmic scale with
"log"; "int" draws integers, "complex" complex numbers in a square. A name may end with a number
for a second range or result. Units in the last place are those of the larger of |value| and
`FLOORS[name]`: near a zero of a function the error is an absolute one.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np


def owens_t(h, a):
    return mp.quad(
        lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [k * a / 4 for k in range(5)]
    ) / (2 * mp.pi)


def inverse(f, start):
    """For a function with logarithm, by Newton's method from SciPy's value."""
    return lambda y: mp.findroot(lambda x: mp.log(f(x)) - mp.log(y), start(float(y)))


def log_ndtr(x):
    return mp.log(mp.ncdf(x)) if x < 1 else mp.log1p(-mp.ncdf(-x))


def erfcinv_start(y):
    import scipy.special

    return float(scipy.special.erfcinv(y))


def ndtri_start(p):
    import scipy.special

    return float(scipy.special.ndtri(p))


LOW, UNIT = (1e-4, 1, "log"), (0, 1)
TABLE = {
    "gamma": (mp.gamma, [(-6, 34)], 4, 4),
    "gamma 1": (mp.gamma, [(-8, 8, "complex")], 100, 100),
    "gammaln": (lambda x: mp.log(abs(mp.gamma(x))), [(1e-4, 1e4, "log")], 9, 9),
    "loggamma": (mp.loggamma, [(-8, 8, "complex")], 30, 30),
    "digamma": (mp.digamma, [(-6, 30)], 60, 60),
    "polygamma": (lambda n, x: mp.polygamma(int(n), x), [(0, 4, "int"), (0.1, 50, "log")], 25, 25),
    "beta": (mp.beta, [(1e-4, 30, "log"), (1e-4, 30, "log")], 40, 40),
    "betaln": (lambda a, b: mp.log(mp.beta(a, b)), [(1e-4, 1e4, "log")] * 2, 12, 12),
    "comb": (mp.binomial, [(10, 50, "int"), (0, 10, "int")], 1.01, 0.5),
    "comb 1": (mp.binomial, [(100, 30000, "int"), (0, 9, "int")], 4, 4),
    "poch": (mp.rf, [(1e-4, 30, "log"), (0, 10)], 70, 70),
    "poch 1": (mp.rf, [(1e2, 6e4, "log"), (-4, 4)], 150, 150),
    "poch 2": (mp.rf, [(-300, -1), (-6, 6)], 150, 150),
    "gammainc": (
        lambda a, x: mp.gammainc(a, 0, x, regularized=True),
        [(0.1, 50, "log")] * 2,
        400,
        400,
    ),
    "gammaincc": (
        lambda a, x: mp.gammainc(a, x, regularized=True),
        [(0.1, 50, "log")] * 2,
        400,
        400,
    ),
    "betainc": (
        lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
        [(0.1, 20, "log")] * 2 + [UNIT],
        250,
        250,
    ),
    "betainc 1": (
        lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
        [(1e-10, 1e3, "log")] * 2 + [(0.05, 0.9)],
        900,
        900,
    ),
    "zeta": (mp.zeta, [(1.1, 30), (0.1, 20, "log")], 6, 6),
    "zeta 1": (mp.zeta, [(-8, 30)], 30, 30),
    "zeta 2": (mp.zeta, [(-50, 0.9)], 150, 150),
    "erf": (mp.erf, [(-4, 4)], 4, 4),
    "erfc": (mp.erfc, [(-4, 9)], 40, 60),
    "erfinv": (mp.erfinv, [(-1, 1)], 5, 5),
    "erfcinv": (inverse(mp.erfc, erfcinv_start), [(1e-30, 2, "log")], 6, 6),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), [(-8, 30)], 8, 8),
    "dawsn": (lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x), [(-20, 20)], 6, 6),
    "wofz": (lambda z: mp.exp(-z * z) * mp.erfc(-1j * z), [(-6, 6, "complex")], 150, 150),
    "fresnel 0": (mp.fresnels, [(-20, 20)], 4, 4),
    "fresnel 1": (mp.fresnelc, [(-20, 20)], 4, 4),
    "ndtr": (mp.ncdf, [(-12, 6)], 8, 8),
    "log_ndtr": (log_ndtr, [(-50, 6)], 8, 8),
    "ndtri": (inverse(mp.ncdf, ndtri_start), [(1e-30, 1, "log")], 8, 8),
    "owens_t": (owens_t, [(-6, 6), (0.01, 8, "log")], 16, 16),
    "exp1": (mp.e1, [(1e-4, 80, "log")], 12, 16),
    "expi": (mp.ei, [(1e-4, 80, "log")], 8, 16),
    "expi 1": (mp.ei, [(-80, 0)], 12, 16),
    "expi 2": (mp.ei, [(0.3725, 0.37252)], 12, 12),
    "expn": (mp.expint, [(0, 12, "int"), (1e-3, 50, "log")], 40, 40),
    "sici 0": (mp.si, [(1e-4, 200, "log")], 5, 5),
    "sici 1": (mp.ci, [(1e-4, 200, "log")], 5, 5),
    "spence": (lambda x: mp.polylog(2, 1 - x).real, [(1e-4, 1e4, "log")], 6, 6),
    "hyp1f1": (mp.hyp1f1, [(0.1, 5, "log")] * 2 + [(-30, 30)], 60, 60),
    "hyp1f1 1": (mp.hyp1f1, [(0.1, 40, "log"), (0.1, 20, "log"), (-120, 60)], 900, 900),
    "hyp1f1 2": (mp.hyp1f1, [(-30, 30, "int"), (1, 9, "int"), (-30, 30)], 900, 900),
    "hyp2f1": (mp.hyp2f1, [(0.1, 5, "log")] * 3 + [(-5, 1)], 80, 80),
    "bessel_jn 2": (lambda z: mp.besselj(2, z), [(-30, 30)], 12, 12),
    "bessel_jn 3": (lambda z: mp.besselj(2, z), [(25, 3e4, "log")], 12, 12),
    "i0": (lambda x: mp.besseli(0, x), [(-20, 20)], 5, 5),
    "i1": (lambda x: mp.besseli(1, x), [(-20, 20)], 16, 16),
    "i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), [(-20, 20)], 4, 4),
    "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), [(-20, 20)], 16, 16),
    "logit": (lambda x: mp.log(x / (1 - x)), [UNIT], 4, 4),
    "expit": (lambda x: 1 / (1 + mp.exp(-x)), [(-10, 10)], 4, 4),
    "entr": (lambda x: -x * mp.log(x), [(1e-3, 10, "log")], 3, 3),
    "rel_entr": (lambda p, q: p * mp.log(p / q), [(1e-3, 10, "log")] * 2, 4, 4),
    "kl_div": (lambda p, q: p * mp.log(p / q) - p + q, [(0.1, 10, "log")] * 2, 30, 30),
    "xlogy": (lambda x, y: x * mp.log(y), [(-3, 3), (0.1, 10, "log")], 3, 3),
    "xlog1py": (lambda x, y: x * mp.log1p(y), [(-3, 3), (0.1, 10, "log")], 5, 5),
    "boxcox": (lambda x, k: (x**k - 1) / k, [(1e-3, 10, "log"), (-3, 3)], 40, 40),
    "boxcox1p": (lambda x, k: ((1 + x) ** k - 1) / k, [(1e-3, 10, "log"), (-3, 3)], 40, 40),
}
FLOORS = {
    "gammaln": 1,
    "loggamma": 1,
    "gamma 1": 0,
    "digamma": 0.1,
    "betaln": 1,
    "sici 1": 0.1,
    "expi": 0.1,
    "bessel_jn 2": 0.1,
    "bessel_jn 3": 0.01,
    "expi 2": 1e-4,
}


def drawn(rng: np.random.Generator, bounds: tuple, count: int) -> np.ndarray:
    low, high, *how = bounds
    if how == ["log"]:
        return np.exp(rng.uniform(np.log(low), np.log(high), count))
    if how == ["int"]:
        return rng.integers(low, high, count)
    x = rng.uniform(low, high, count)
    return x + 1j * rng.uniform(low, high, count) if how == ["complex"] else x


def arguments(name: str, dtype: type, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(len(name) + 7 * count)
    found = [drawn(rng, bounds, count) for bounds in TABLE[name][1]]
    return [
        x
        if x.dtype.kind == "i"
        else x.astype(np.result_type(dtype, np.complex64) if x.dtype.kind == "c" else dtype)
        for x in found
    ]


def exact(x):
    """Converts a NumPy number to mpmath."""
    if np.iscomplexobj(x):
        return mp.mpc(complex(x))
    return mp.mpf(int(x)) if np.asarray(x).dtype.kind == "i" else mp.mpf(float(x))
