"""Functions of matrices without rows, columns or both, by the rules of every library.

A result may have elements where the operand has none: permutations, square unitary factors. No
rule calls its library then, so all of them run on XLA's CPU backend.
"""

import numpy as np
import pytest
import scipy.linalg

import shardwise as sw
import shardwise.numpy as jnp
import shardwise.scipy.linalg as jsp
from shardwise.lax import linalg
from tests.helpers.bare import bare_devices

LIBRARIES = {
    "lapack": None,  # the devices that all tests have
    "cusolver": ("cusolver", "xla"),
    "libtpu": ("libtpu", "xla"),
    "xla": ("xla",),
}
SHAPES = ((3, 0), (0, 3), (0, 0), (0, 3, 2), (2, 3, 0), (2, 0, 3))


def _lu(x):
    *batch, m, n = x.shape
    order = np.broadcast_to(np.arange(m, dtype=np.int32), (*batch, m))
    return x, np.zeros((*batch, min(m, n)), np.int32), order


def _eyes(x, n):
    return np.broadcast_to(np.eye(n, dtype=x.dtype), (*x.shape[:-2], n, n))


def _svd(x):
    m, n = x.shape[-2:]
    s = np.zeros((*x.shape[:-2], min(m, n)), np.float32)
    return _eyes(x, m) if 0 in (m, n) else np.empty((*x.shape[:-2], m, m), x.dtype), s, _eyes(x, n)


def _pivoted(x):
    *batch, _, n = x.shape
    order = np.broadcast_to(np.arange(n, dtype=np.int32), (*batch, n))
    return np.linalg.qr(x, mode="complete")[1], order  # all rows, as in SciPy


def _thin_svd(x):
    *batch, m, n = x.shape
    k = min(m, n)
    return np.empty((*batch, m, k)), np.empty((*batch, k)), np.empty((*batch, k, n))


# name: the function, and what it must return
FUNCTIONS = {
    "lu": (linalg.lu, _lu),
    "permutation matrix": (lambda x: jsp.lu(x, permute_l=False)[0], lambda x: _eyes(x, x.shape[-2])),
    "qr": (jnp.linalg.qr, np.linalg.qr),
    "full qr": (
        lambda x: jnp.linalg.qr(x, mode="complete"), lambda x: np.linalg.qr(x, mode="complete"),
    ),
    "pivoted qr": (lambda x: jsp.qr(x, mode="r", pivoting=True), _pivoted),
    "svd": (lambda x: jnp.linalg.svd(x, full_matrices=False), _thin_svd),
    "full svd": (jnp.linalg.svd, _svd),
    "singular values": (
        lambda x: jnp.linalg.svd(x, compute_uv=False), lambda x: _thin_svd(x)[1],
    ),
    "pinv": (jnp.linalg.pinv, np.linalg.pinv),
}  # fmt: skip


def _on(libraries, function, *args):
    if libraries is not None:
        place = bare_devices(linalg=libraries)[0]
        args = [sw.device_put(x, place) for x in args]
    return sw.tree.leaves(sw.jit(function)(*args))


def _same(found, wanted):
    wanted = sw.tree.leaves(wanted)
    assert len(found) == len(wanted)
    for y, right in zip(found, wanted, strict=True):
        assert np.shape(y) == np.shape(right)
        np.testing.assert_array_equal(np.asarray(y), right)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_matrices(name, library):
    function, reference = FUNCTIONS[name]

    def each(*matrices):
        return [function(x) for x in matrices]

    given = [np.zeros(shape, np.float32) for shape in SHAPES]
    _same(_on(LIBRARIES[library], each, *given), [reference(x) for x in given])


@pytest.mark.parametrize("library", LIBRARIES)
def test_products_of_no_reflections(library):
    """The identity, and the other operand."""
    a, taus = np.zeros((2, 3, 0), np.float32), np.zeros((2, 0), np.float32)
    wide, c = np.ones((2, 3, 2), np.float32), np.ones((2, 3, 4), np.float32)

    def products(a, taus, wide, c):
        return [
            linalg.householder_product(a, taus),
            linalg.householder_product(wide, taus),
            linalg.ormqr(a, taus, c),
        ]

    wanted = [a, np.broadcast_to(np.eye(3, 2, dtype=np.float32), wide.shape), c]
    _same(_on(LIBRARIES[library], products, a, taus, wide, c), wanted)


@pytest.mark.parametrize("library", LIBRARIES)
def test_square_matrices_of_no_rows(library):
    def functions(x, b):
        sign, size = jnp.linalg.slogdet(x)
        empty = [
            *linalg.eigh(x), jnp.linalg.inv(x), jnp.linalg.cholesky(x), linalg.hessenberg(x)[0],
        ]  # fmt: skip
        line = jnp.zeros((x.shape[0], 0))
        none = linalg.tridiagonal_solve(line, line, line, b)
        return [jnp.linalg.det(x), sign, size, jnp.linalg.solve(x, b), none, *empty]

    x, b = np.zeros((2, 0, 0), np.float32), np.zeros((2, 0, 3), np.float32)
    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    wanted = [one, one, zero, b, b, x, np.zeros((2, 0)), x, x, x]
    found = _on(LIBRARIES[library], functions, x, b)
    found[5:7] = sorted(found[5:7], key=np.ndim, reverse=True)
    _same(found, wanted)


def test_the_references_are_those_of_scipy():
    x = np.zeros((3, 0), np.float32)
    _same(_svd(x), scipy.linalg.svd(x))
    _same([*scipy.linalg.qr(x, mode="r", pivoting=True)], _pivoted(x))
