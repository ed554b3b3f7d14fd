"""`vectorize`, `apply_along_axis` and `apply_over_axes`, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise.sharding import AxisType
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fail, fails
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of
from tests.helpers.placed import PLACES

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_of_scalars():
    calls = []

    def f(x, y):
        calls.append(x.shape)
        return snp.where(x > y, x - y, x + y)

    wanted = np.vectorize(lambda x, y: x - y if x > y else x + y)
    g = snp.vectorize(f)
    for x, y in ((X, 5.0), (X[:, :1], X[0]), (3.0, 4.0), (X[:0], X[0]), (X[:, :, :1], X[:1])):
        got = g(x, y)
        assert got.tolist() == (np.add(x, y) if not np.size(x) else wanted(x, y)).tolist()
        assert got.shape == np.broadcast_shapes(np.shape(x), np.shape(y))
    assert set(calls) == {()} and len(calls) == 5 and g.__name__ == "f"
    placed = sw.device_put(X[0].T[:3], PLACES["partly replicated"])
    assert sw.jit(g)(placed, 5.0).tolist() == wanted(X[0].T[:3], 5).tolist()
    slope = sw.grad(lambda x: g(x, 5.0).sum())(snp.asarray(X))
    assert slope.tolist() == np.ones_like(X).tolist()


def test_with_a_signature():
    dot = snp.vectorize(snp.dot, signature="(m,n), (n)->(m)")
    for a, b in ((X, X[0, 0]), (X[:, None], X[0]), (X[0], X[:, :, :][0])):
        got = dot(a, b)
        np.testing.assert_allclose(got, np.vectorize(np.dot, signature="(m,n),(n)->(m)")(a, b))
    both = snp.vectorize(lambda x: (x.sum(), x[::-1]), signature="(n)->(),(n)")(X)
    assert both[0].tolist() == X.sum(-1).tolist() and both[1].tolist() == X[..., ::-1].tolist()
    rows = snp.vectorize(lambda: snp.ones(2), signature="()->(k)")
    fails(TypeError, "vectorize: the signature '()->(k)' is for 1 argument; got 0.", rows)
    assert snp.vectorize(lambda x: snp.full(3, x))(X[0]).shape == (3, 4, 3)


def test_excluded():
    def power(x, p, scale=1.0):
        return scale * sum(x**i for i in range(p))

    g = snp.vectorize(power, excluded={1, "scale"})
    assert g(X, 3, scale=2.0).tolist() == (2 * (1 + X + X * X)).tolist()
    named = snp.vectorize(power, excluded={"p"})
    assert named(X, p=2, scale=X).tolist() == (X * (1 + X)).tolist()
    optional = snp.vectorize(lambda x, y: x if y is None else x + y)
    assert optional(X, None).tolist() == X.tolist()
    fail(
        """
        snp.vectorize(power, excluded={1.5})
            TypeError: vectorize: excluded must contain positions and names; got 1.5 of type float.
        snp.vectorize(power, excluded={-1})
            ValueError: vectorize: a position in excluded must be at least 0; got -1.
        """,
        globals() | locals(),
    )


@pytest.mark.parametrize(
    "args,signature,text",
    [
        (
            (X,),
            "(n,n)->()",
            "vectorize: dimension n of the signature '(n,n)->()' has size 3 in one "
            "place and 4 in another.",
        ),
        (
            (3.0,),
            "(n)->()",
            "vectorize: an argument of shape () lacks the dimensions (n) of the "
            "signature '(n)->()'.",
        ),
        (
            (X,),
            "(n)->(n,n)",
            "vectorize: a result of shape (4,) does not have the dimensions (n,n) of "
            "the signature '(n)->(n,n)'.",
        ),
        ((None,), "(n)->()", "vectorize: None is not an array with dimensions (n)."),
        (
            (X,),
            "n->n",
            "vectorize: 'n->n' is not a valid signature. Write dimensions as in '(m,n),(n)->(m)'.",
        ),
    ],
)
def test_signatures_that_do_not_fit(args, signature, text):
    fails(ValueError, text, lambda: snp.vectorize(lambda x: x, signature=signature)(*args))


def test_results_that_do_not_fit():
    fails(
        TypeError,
        "vectorize: the signature '(n)->(n),(n)' is for a tuple of 2 results; the "
        "function returned a traced f32[4].",
        snp.vectorize(lambda x: x, signature="(n)->(n),(n)"),
        X,
    )
    fails(
        TypeError,
        "vectorize: the signature '(n)->(n)' is for 1 result; the function returned 2.",
        snp.vectorize(lambda x: (x, x), signature="(n)->(n)"),
        X,
    )


@pytest.mark.parametrize("axis", everyday([0, 1, -1], 1))
def test_along_axis(axis):
    for f, g in (
        (snp.sum, np.sum),
        (snp.sort, np.sort),
        (snp.diag, np.diag),
        (lambda v: snp.stack([v, v]), lambda v: np.stack([v, v])),
    ):
        got, wanted = snp.apply_along_axis(f, axis, X), np.apply_along_axis(g, axis, X)
        assert got.tolist() == wanted.tolist() and got.shape == wanted.shape
    placed = sw.device_put(np.resize(X, (7, 3)), PLACES["partly replicated"])
    if axis != 1:
        got = snp.apply_along_axis(snp.cumsum, axis, placed)
        assert got.tolist() == np.cumsum(np.resize(X, (7, 3)), axis).tolist()
    got = snp.apply_along_axis(lambda v, k, *, add: k * v + add, axis, X, 2, add=1)
    assert got.tolist() == (2 * X + 1).tolist()


def test_over_axes():
    for f, g in ((snp.sum, np.sum), (snp.cumsum, np.cumsum)):
        for axes in (0, (0, 2), [-1, 1]):
            got, wanted = snp.apply_over_axes(f, X, axes), np.apply_over_axes(g, X, axes)
            assert got.tolist() == wanted.tolist() and got.shape == wanted.shape
    fails(
        ValueError,
        "apply_over_axes: the function must keep the number of dimensions, 3, or "
        "remove one; it returned f32[].",
        snp.apply_over_axes,
        lambda x, axis: x.sum(),
        X,
        0,
    )


def test_types_say_how_results_are_split():
    mesh = mesh_of(4, 2, types=AxisType.Explicit)
    with sw.set_mesh(mesh):
        x = sw.device_put(snp.ones((8, 3)), sw.NamedSharding(mesh, P("x")))
        y = snp.vectorize(snp.dot, signature="(n),(n)->()")(x, np.ones(3, np.float32))
        assert sw.typeof(y).sharding.spec == P("x") and y.sum() == 24
        assert sw.typeof(snp.apply_along_axis(snp.sum, 1, x)).sharding.spec == P("x")
