"""Calls of random."""

from benchmarks.tables.kinds import Table

TABLE: Table = {
    ("random", "random"): {
        "f(key, (n,))": """bits cauchy exponential gumbel laplace logistic maxwell normal
            rademacher uniform""",
        "f(key, 3, shape=(n // 4,))": "ball",
        "f(key, 0.3, (n,))": "bernoulli geometric",
        "f(key, 2.0, 3.0, (n,))": "beta f",
        "f(key, 10, 0.3, (n,))": "binomial",
        "f(key, matrix)": "categorical",
        "f(key, x, (n // 2,))": "choice",
        "f(key, 3.0, (n,))": "chisquare gamma loggamma pareto poisson t generalized_normal wald",
        "f(key, few, (n // 8,))": "dirichlet",
        "f(key, 100, lib.np.broadcast_to(few / few.sum(), (n // 8, 8)))": "multinomial",
        "f(key, matrices[0, 0], positive[0], (n // 8,))": "multivariate_normal",
        "f(key, 8, (n // 64,))": "orthogonal",
        "f(key, x)": "permutation",
        "f(key, (n,), 0, 10)": "randint",
        "f(key, 1.0, 2.0, (n,))": "double_sided_maxwell weibull_min",
        "f(key, 2.0, (n,))": "lognormal rayleigh",
        "f(key, 0.0, 0.5, 1.0, (n,))": "triangular",
        "f(key, -2.0, 2.0, (n,))": "truncated_normal",
        "f(key, n)": "split",
        "f(key, 5)": "fold_in",
        "f(key)": "clone key_data",
        "f(key) | -": "key_impl",
        "f() | -": "key_dtype",
        "f(5)": "PRNGKey key",
        "f(lib.random.key_data(key))": "wrap_key_data",
    }
}
