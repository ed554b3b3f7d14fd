"""Loops and branches of `sparsify`, against the same functions of dense arrays."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO, BCSR
from tests.helpers.errors import message

X = np.array([[0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 4, 0]], np.float32)
V = np.arange(4, dtype=np.float32)


def dense(x):
    return np.asarray(x.todense() if isinstance(x, sparse.JAXSparse) else x)


def same(f, *args):
    """`sparsify(f)` of sparse arrays returns what `f` returns for dense ones, also under jit."""
    whole = [a.todense() if isinstance(a, sparse.JAXSparse) else a for a in args]
    wanted = sw.tree.leaves(f(*whole))
    is_sparse = lambda x: isinstance(x, sparse.JAXSparse)  # noqa: E731
    for run in (sparse.sparsify(f), sw.jit(sparse.sparsify(f)), sparse.sparsify(sw.jit(f))):
        got = sw.tree.leaves(run(*args), is_leaf=is_sparse)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(dense(a), np.asarray(b), rtol=1e-6)
    return got


@pytest.mark.parametrize("kind", [BCOO, BCSR])
def test_while_loop(kind):
    def f(m, v):
        turn = lambda s: (s[0] + 1, s[1] * 2, s[2] + m @ v)  # noqa: E731
        return lax.while_loop(lambda s: s[0] < 3, turn, (0, m, jnp.zeros(3)))

    _, m, _ = same(f, kind.fromdense(X), V)
    assert isinstance(m, kind) and m.nse == 4


def test_fori_loop_of_what_the_body_closes_over():
    f = lambda m, n: lax.fori_loop(0, n, lambda i, s: s + (m @ V) * i, jnp.zeros(3))  # noqa: E731
    same(f, BCOO.fromdense(X), 4)


def test_a_loop_keeps_the_promises_that_hold():
    def f(m):
        return lax.fori_loop(0, 2, lambda i, s: s[:, ::-1], m)

    m = BCOO.fromdense(X)
    assert m.indices_sorted
    (out,) = same(f, m)
    assert not out.indices_sorted and out.unique_indices


def test_scan():
    def f(m, v):
        def step(c, x):
            c = c * x
            return c, (c @ V, x)

        return lax.scan(step, m, v)

    last, rows, _ = same(f, BCOO.fromdense(X), V[1:])
    assert isinstance(last, BCOO) and not isinstance(rows, BCOO)


def test_scan_over_batches_gives_sparse_rows():
    def f(m):
        return lax.scan(lambda c, row: (c + row @ V, row * 2), jnp.zeros(3), m, reverse=True)

    total, rows = same(f, BCOO.fromdense(np.stack([X, 2 * X]), n_batch=1))
    assert isinstance(rows, BCOO) and rows.n_batch == 1
    np.testing.assert_array_equal(total, 3 * X @ V)


def test_cond_and_switch():
    m = BCOO.fromdense(X)
    for yes in (True, False):
        (out,) = same(lambda p, m: lax.cond(p, lambda m: m * 2, lambda m: -m, m), yes, m)
        assert isinstance(out, BCOO)
    for which in range(3):
        same(
            lambda i, m, v: lax.switch(
                i, [lambda m, v: m @ v, lambda m, v: 2 * m @ v, lambda m, v: jnp.ones(3)], m, v
            ),
            which,
            m,
            V,
        )
    turned = lambda p, m: lax.cond(p, lambda m: m[::-1], lambda m: m, m)  # noqa: E731
    (out,) = same(turned, True, m)
    assert not out.indices_sorted


def test_derivatives_and_maps():
    m = BCOO.fromdense(X)

    def loss(lib_m, v):
        last, _ = lax.scan(lambda c, x: (c * x, None), lib_m, v)
        return (last @ jnp.ones(4)).sum()

    v = V[1:]
    got = sw.grad(lambda data: sparse.sparsify(loss)(m.with_data(data), v))(m.data)
    np.testing.assert_allclose(got, np.full(4, v.prod()))
    got = sw.grad(lambda v: sparse.sparsify(loss)(m, v))(v)
    np.testing.assert_allclose(got, sw.grad(loss, argnums=1)(X, v), rtol=1e-6)
    many = sw.vmap(lambda s: sparse.sparsify(lambda m: loss(m, v))(m.with_data(m.data * s)))(v)
    np.testing.assert_allclose(many, 10 * v * v.prod())


END = (
    "; they must have the same layout. Give BCOO arrays the same nse with "
    "`bcoo_sum_duplicates(nse=...)`, or make them dense with `todense`."
)


def test_layouts_must_stay():
    m = BCOO.fromdense(X)
    grown = sparse.sparsify(lambda m: lax.fori_loop(0, 2, lambda i, s: s + s[::-1], m))
    assert message(TypeError, grown, m) == (
        "sparsify: carry 1 of a scan is BCOO(float32[3, 4], nse=4), and after an iteration it is "
        f"BCOO(float32[3, 4], nse=8){END}"
    )
    mixed = sparse.sparsify(lambda m: lax.cond(True, lambda m: m, sparse.todense, m))
    assert message(TypeError, mixed, m) == (
        "sparsify: result 0 of a branch is a dense array f32[3,4], and that of branch 1 is "
        f"BCOO(float32[3, 4], nse=4){END}"
    )
    rows = sparse.sparsify(lambda m: lax.scan(lambda c, x: (c, x), 0, m))
    assert message(NotImplementedError, rows, m) == (
        "sparsify: a scan iterates over the first dimension of BCOO(float32[3, 4], nse=4), which "
        "is not a batch dimension. Make it one with `bcoo_update_layout(n_batch=1)`."
    )


def test_todense_inside_of_jit():
    f = sparse.sparsify(sw.jit(lambda m: sparse.todense(m) + 1))
    np.testing.assert_array_equal(f(BCOO.fromdense(X)), X + 1)
    np.testing.assert_array_equal(sw.jit(sparse.todense)(X), X)
