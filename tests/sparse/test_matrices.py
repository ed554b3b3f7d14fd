"""BCSR arrays, and the simple matrices, against dense ones."""

import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse as theirs

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO, BCSR
from tests.helpers.everyday import everyday
from tests.sparse.test_bcoo import B, X, Y, equal, some


@pytest.mark.sweep
@pytest.mark.parametrize("layout", everyday([(0, 0), (1, 0), (0, 1)], 1))
def test_rows(layout):
    n_batch, n_dense = layout
    x = X if layout == (0, 0) else B
    m = BCSR.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    other = theirs.BCSR.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    assert repr(m) == repr(other)
    for field in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(m, field), getattr(other, field))
    equal(m, x)
    equal(sw.jit(lambda m: m.todense())(m), x)
    equal(m.to_bcoo(), x)
    equal(BCSR.from_bcoo(m.to_bcoo()), x)
    equal(m.sum_duplicates(nse=m.nse), x)
    equal(sparse.bcsr_concatenate([m, m], dimension=n_batch), np.concatenate([x, x], n_batch))
    data = sparse.bcsr_extract(m.indices, m.indptr, x)
    np.testing.assert_array_equal(data, m.data)
    places = tuple(range(1, x.ndim + 1))
    wide = sparse.bcsr_broadcast_in_dim(m, shape=(2, *x.shape), broadcast_dimensions=places)
    equal(wide, np.broadcast_to(x, (2, *x.shape)))


@pytest.mark.sweep
def test_products_and_derivatives_of_rows():
    m, v = BCSR.fromdense(X), np.float32([1, 2, 3, 4])
    equal(m @ v, X @ v)
    equal(m @ Y, X @ Y)
    equal(X.T @ m, X.T @ X)
    equal(m.T, X.T)
    equal(m[1:], X[1:])
    equal(sparse.bcsr_dot_general(m, Y, dimension_numbers=(((1,), (0,)), ((), ()))), X @ Y)
    equal(sparse.grad(lambda m: ((m @ v) ** 2).sum())(m), 2 * (X @ v)[:, None] * v * (X != 0))
    b = BCSR.fromdense(B, n_batch=1)
    equal(sw.vmap(lambda m: m @ v)(b), B @ v)
    equal(sparse.sparsify(lambda m: jnp.concatenate([m, -m]))(m), np.concatenate([X, -X]))
    equal(BCSR.from_scipy_sparse(scipy.sparse.csr_matrix(X)), X)
    padded = BCSR.fromdense(X, nse=12)
    equal(padded, X)
    equal(padded @ v, X @ v)
    with pytest.raises(ValueError, match="do not fit the shape"):
        BCSR((np.ones(2), np.zeros(2, int), np.zeros(2, int)), shape=(3, 4))


@pytest.mark.parametrize("name", everyday(["COO", "CSR", "CSC"], 1))
def test_simple_matrices(name):
    cls, v = getattr(sparse, name), np.float32([1, 2, 3, 4])
    m = cls.fromdense(X)
    assert repr(m) == repr(getattr(theirs, name).fromdense(X))
    equal(m, X)
    equal(cls.fromdense(X, nse=12), X)
    equal(m @ v, X @ v)
    equal(m @ Y, X @ Y)
    equal(m.T, X.T)
    equal(m.T @ X, X.T @ X)
    equal(sw.jit(lambda m: m @ v)(m), X @ v)
    equal(sparse.grad(lambda m: ((m @ v) ** 2).sum())(m), 2 * (X @ v)[:, None] * v * (X != 0))
    for k in (-1, 0, 2):
        equal(sparse.eye(3, 4, k, sparse_format=name.lower()), np.eye(3, 4, k))
    equal(sparse.empty((3, 4), sparse_format=name.lower()), np.zeros((3, 4)))
    with pytest.raises(TypeError, match=f"{name}: the right operand must be a vector"):
        m @ np.ones(3)
    with pytest.raises(NotImplementedError, match=f"{name}.sum is not implemented. BCOO"):
        m.sum()


def test_functions_of_simple_matrices():
    x, v = some(3, 3), np.float32([1, 2, 3])
    for kind in ("coo", "csr"):
        m = getattr(sparse, f"{kind}_fromdense")(x)
        equal(getattr(sparse, f"{kind}_todense")(m), x)
        for turned, want in ((False, x), (True, x.T)):
            equal(getattr(sparse, f"{kind}_matvec")(m, v, turned), want @ v)
            equal(getattr(sparse, f"{kind}_matmat")(m, x, transpose=turned), want @ x)
    equal(sparse.COO.fromdense(x).T._sort_indices(), x.T)
    assert isinstance(sparse.COO.fromdense(x), sparse.JAXSparse)
    assert not isinstance(BCOO.fromdense(x), BCSR)


@pytest.mark.parametrize("make", [BCOO.fromdense, BCSR.fromdense, sparse.COO.fromdense])
def test_numpy_takes_no_sparse_array(make):
    """Its elements would be read one by one."""
    m = make(np.eye(3, dtype=np.float32))
    with pytest.raises(TypeError) as caught:
        np.asarray(m)
    assert str(caught.value) == (
        f"{m!r} is not converted to a NumPy array implicitly, as that would store all elements. "
        "Use `x.todense()` if that is intended."
    )
    np.testing.assert_array_equal(m @ np.ones(3, np.float32), np.ones(3))


@pytest.mark.parametrize("kind", [sparse.COO, sparse.CSR, sparse.CSC])
def test_dimensions_of_matrices_change_places(kind):
    m = kind.fromdense(X)
    for axes in (None, (1, 0), (-1, -2)):
        np.testing.assert_array_equal(m.transpose(axes).todense(), X.T)
    np.testing.assert_array_equal(m.transpose((0, 1)).todense(), X)
    with pytest.raises(ValueError) as error:
        m.transpose((0, 0))
    assert str(error.value) == (
        f"{kind.__name__}.transpose: axes must be (1, 0), (0, 1) or None; got (0, 0)."
    )
    with pytest.raises(NotImplementedError) as error:
        m @ m
    assert str(error.value) == (
        f"{kind.__name__}: the product of two sparse matrices is supported for BCOO arrays only. "
        "Convert them with `shardwise.experimental.sparse.BCOO.fromdense(m.todense())`."
    )
    with pytest.raises(ValueError) as error:
        BCSR.from_scipy_sparse(scipy.sparse.csr_matrix(X), n_batch=1)
    assert str(error.value) == (
        "BCSR.from_scipy_sparse: both dimensions of a matrix are sparse in a BCSR, so n_dense and "
        "n_batch must be 0; got 0 and 1. `shardwise.experimental.sparse.BCOO.from_scipy_sparse` "
        "supports other layouts."
    )


@pytest.mark.parametrize("kind", ["COO", "CSR", "CSC", "BCSR"])
def test_operators_of_bcoo_arrays_only(kind):
    x = getattr(sparse, kind).fromdense(np.eye(2, dtype=np.float32))
    for name, call in {"__neg__": lambda: -x, "__rmul__": lambda: 2 * x}.items():
        with pytest.raises(NotImplementedError) as caught:
            call()
        assert str(caught.value) == (
            f"{kind}.{name} is not implemented. BCOO arrays have it; `todense` returns the dense "
            "array."
        )
