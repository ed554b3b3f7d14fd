"""Calls of scipy.stats: each distribution is a namespace."""

from benchmarks.tables.kinds import Table

_ALL = "cdf logcdf logpdf logsf pdf sf"
_CALLS = {
    "norm": {"f(x)": f"{_ALL} ppf isf"},
    "cauchy": {"f(x)": f"{_ALL} ppf isf"},
    "expon": {"f(x)": f"{_ALL} ppf"},
    "gumbel_l": {"f(x)": f"{_ALL} ppf"},
    "gumbel_r": {"f(x)": f"{_ALL} ppf"},
    "laplace": {"f(x)": "cdf logpdf pdf"},
    "logistic": {"f(x)": "cdf isf logpdf pdf ppf sf"},
    "uniform": {"f(x)": "cdf logpdf pdf ppf"},
    "gamma": {"f(x, y)": _ALL},
    "chi2": {"f(x, y)": _ALL},
    "pareto": {"f(x, y)": f"{_ALL} ppf"},
    "beta": {"f(x, y, x)": _ALL},
    "t": {"f(x, y)": "logpdf pdf"},
    "gennorm": {"f(x, y)": "cdf logpdf pdf"},
    "vonmises": {"f(x, y)": "logpdf pdf"},
    "wrapcauchy": {"f(x, y)": "logpdf pdf"},
    "truncnorm": {"f(x, x - 1, x + y)": _ALL},
    "bernoulli": {"f(i, x)": "cdf logpmf pmf", "f(y, x)": "ppf"},
    "binom": {"f(i, j, x)": "logpmf pmf"},
    "nbinom": {"f(i, j, x)": "logpmf pmf"},
    "betabinom": {"f(i, j, x, y)": "logpmf pmf"},
    "geom": {"f(i, x)": "logpmf pmf"},
    "poisson": {"f(i, x)": "cdf logpmf pmf", "f(x)": "entropy"},
    "multinomial": {"f(i, n, x)": "logpmf pmf"},
    "dirichlet": {"f(x, y)": "logpdf pdf"},
    "multivariate_normal": {"f(x, y, 2.0)": "logpdf pdf"},
}
TABLE: Table = {
    ("statistics", "scipy.stats"): {
        "f(x)": "mode rankdata sem",
        "f(few)(x) | f(few)(x)": "gaussian_kde",
    },
    **{("distributions", f"scipy.stats.{name}"): rows for name, rows in _CALLS.items()},
}
SPACES = tuple(space for _, space in TABLE)
