"""The flag numpy_rank_promotion concerns operands that users pass, not what functions compute."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
import shardwise.scipy as scipy

X, V = np.arange(15.0, dtype=np.float32).reshape(5, 3), np.arange(3, dtype=np.float32)
OPERANDS = {
    "an operator": lambda: jnp.asarray(X) + V,
    "a function": lambda: jnp.add(X, V),
    "a jitted function": lambda: sw.jit(jnp.add)(X, V),
    "mapped": lambda: sw.vmap(jnp.add, (None, 0))(X, jnp.stack([V, V])),
    "in a pytree": lambda: sw.tree.map(jnp.add, [X], [V]),
    "in a branch": lambda: sw.lax.cond(True, jnp.add, jnp.subtract, X, V),
    "in a trace": lambda: sw.make_jaxpr(lambda x, v: x * v)(X, V),
    "a method": lambda: jnp.asarray(X).clip(V),
    "of three operands": lambda: scipy.stats.norm.logpdf(X, V, 1 + V),
    "a vectorized function": lambda: jnp.vectorize(lambda x, v: x * v)(X, V),
    "a signature": lambda: jnp.vectorize(jnp.dot, signature="(n),(n)->()")(X, V),
}
COMPUTED = {
    "where": lambda: jnp.where(V > 0, X, 0),
    "sum": lambda: jnp.sum(X, where=V > 0),
    "cov": lambda: jnp.cov(X.T, fweights=np.arange(5)),
    "jit of cov": lambda: sw.jit(jnp.cov)(X),
    "vmap of inv": lambda: sw.vmap(jnp.linalg.inv)(jnp.stack([jnp.eye(3)] * 2)),
    "dctn": lambda: scipy.fft.dctn(X),
    "polyfit": lambda: jnp.polyfit(np.arange(5.0), X, 2, w=np.ones(5)),
    "gmres": lambda: scipy.sparse.linalg.gmres(jnp.eye(3), V)[0],
    "multivariate_normal": lambda: sw.random.multivariate_normal(sw.random.key(0), V, jnp.eye(3)),
    "sparse": lambda: sw.experimental.sparse.BCOO.fromdense(X).sum_duplicates().todense(),
    "detrend": lambda: scipy.signal.detrend(X),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_of_different_ranks(name: str):
    with sw.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="different ranks"):
        OPERANDS[name]()


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_values_may_have_different_ranks(name: str):
    with sw.numpy_rank_promotion("raise"):
        found = COMPUTED[name]()
    np.testing.assert_allclose(found, COMPUTED[name](), 1e-6)


def test_a_program_for_computed_values_is_not_that_of_operands():
    with sw.numpy_rank_promotion("raise"):
        matrix = sw.experimental.sparse.BCOO.fromdense(X)
        matrix.reshape(3, 5)  # compares its indices with its shape
        with pytest.raises(ValueError, match="different ranks"):
            _ = matrix.indices < jnp.asarray(matrix.shape, matrix.indices.dtype)
