"""BCOO arrays against dense ones, in every layout, and against jax's."""

import inspect
import itertools

import jax
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse as theirs

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(3)


def some(*shape, dtype=np.float32, share=0.5):
    values = RNG.integers(-4, 5, shape).astype(dtype)
    return values * (RNG.random(shape) < share)


X, Y, B = some(3, 4), some(4, 5), some(2, 3, 4)
LAYOUTS = [(b, d) for b, d in itertools.product(range(4), repeat=2) if b + d <= 3]


def equal(got, want):
    want = np.asarray(want)
    if isinstance(got, sparse.JAXSparse):
        assert got.shape == want.shape
        got = got.todense()
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)
    assert got.shape == want.shape


@pytest.mark.sweep
@pytest.mark.parametrize("layout", everyday(LAYOUTS, 1))
def test_layouts(layout):
    n_batch, n_dense = layout
    m = BCOO.fromdense(B, n_batch=n_batch, n_dense=n_dense)
    other = theirs.BCOO.fromdense(B, n_batch=n_batch, n_dense=n_dense)
    assert repr(m) == repr(other)
    np.testing.assert_array_equal(m.data, other.data)
    np.testing.assert_array_equal(m.indices, other.indices)
    equal(m, B)
    one = BCOO.fromdense(B[:, :1], n_batch=n_batch, n_dense=n_dense)
    cut = dict(start_indices=(0, 1, 0), limit_indices=(2, 3, 4), strides=(1, 1, 2))
    sums = (0,), (1,), (2,), (0, 2), (0, 1, 2)

    @sw.jit
    def everything(m, one):
        new = [m.update_layout(n_batch=b, n_dense=d, on_inefficient=None) for b, d in LAYOUTS]
        assert [(x.n_batch, x.n_dense) for x in new] == LAYOUTS
        found = [BCOO.fromdense(B, nse=12, n_batch=n_batch, n_dense=n_dense)]
        found += [*new, m.sum_duplicates(nse=m.nse + 2)]
        found += [sparse.bcoo_reduce_sum(m, axes=axes) for axes in sums]
        found += [
            sparse.bcoo_slice(m, **cut),
            sparse.bcoo_dynamic_slice(m, (jnp.int32(1), 2, -1), (1, 2, 3)),
            sparse.bcoo_rev(m, (0, 2)),
            sparse.bcoo_squeeze(one, dimensions=(1,)),
            sparse.bcoo_broadcast_in_dim(m, shape=(2, 3, 4), broadcast_dimensions=(0, 1, 2)),
        ]
        return [x.todense() for x in found]

    wanted = [B] * (len(LAYOUTS) + 2) + [B.sum(axes) for axes in sums]
    wanted += [B[:, 1:3, ::2], B[1:2, 1:3, 1:4], B[::-1, :, ::-1], B[:, 0], B]
    for got, want in zip(everything(m, one), wanted, strict=True):
        equal(got, want)


@pytest.mark.parametrize("n_batch", everyday(range(3), 1))
def test_shapes_of_batches(n_batch):
    m, big = BCOO.fromdense(B, n_batch=n_batch), some(2, 2, 3, 4)
    if n_batch < 2:
        equal(
            sparse.bcoo_broadcast_in_dim(m, shape=(2, 5, 3, 4), broadcast_dimensions=(0, 2, 3)),
            np.broadcast_to(B[:, None], (2, 5, 3, 4)),
        )
    for axis in range(3):
        equal(
            sparse.bcoo_concatenate([m, m, BCOO.fromdense(-B, n_batch=n_batch)], dimension=axis),
            np.concatenate([B, B, -B], axis),
        )
    wide = BCOO.fromdense(big, n_batch=n_batch + 1)
    sizes = {0: (2, 2, 12), 1: (4, 3, 2, 2), 2: (4, 3, 2, 2)}[n_batch]
    equal(sparse.bcoo_reshape(wide, new_sizes=sizes), big.reshape(sizes))
    order = {0: (0, 3, 1, 2), 1: (1, 0, 3, 2), 2: (1, 2, 0, 3)}[n_batch]
    equal(sparse.bcoo_transpose(wide, permutation=order), big.transpose(order))


NUMBERS = {
    "matmul": (((2,), (1,)), ((0,), (0,))),
    "outer": (((), ()), ((), ())),
    "both": (((1, 2), (2, 1)), ((0,), (0,))),
    "of batches": (((0,), (0,)), ((), ())),
    "all": (((0, 1, 2), (0, 2, 1)), ((), ())),
    "rows": (((1,), (2,)), ((), ())),
}


@pytest.mark.parametrize("name", everyday(NUMBERS, 2))
@pytest.mark.parametrize("layout", everyday([(0, 0), (1, 0), (1, 1), (2, 0), (0, 2), (3, 0)], 1))
def test_products_with_dense_arrays(layout, name):
    n_batch, n_dense = layout
    numbers, y = NUMBERS[name], some(2, 4, 3)
    want = lax.dot_general(B, y, numbers)
    m = BCOO.fromdense(B, n_batch=n_batch, n_dense=n_dense)
    if numbers[1][0] and not n_batch:
        with pytest.raises(NotImplementedError, match="batch dimensions must be batch dimensions"):
            sparse.bcoo_dot_general(m, y, dimension_numbers=numbers)
        return
    equal(sparse.bcoo_dot_general(m, y, dimension_numbers=numbers), want)
    (c, d), (b, e) = numbers
    turned = (d, c), (e, b)
    equal(sparse.bcoo_dot_general(y, m, dimension_numbers=turned), lax.dot_general(y, B, turned))
    f = lambda data, y: sparse.bcoo_dot_general(m.with_data(data), y, dimension_numbers=numbers)  # noqa: E731
    g = lambda x, y: lax.dot_general(x, y, numbers)  # noqa: E731
    by_data, by_y = sw.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1))(m.data, y)
    by_x, want_y = sw.grad(lambda *a: (g(*a) ** 2).sum(), (0, 1))(B, y)
    equal(by_y, want_y)
    equal(by_data, sparse.bcoo_extract(m, by_x).data)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["matmul", "both", "rows"])
def test_products_of_two(name):
    numbers, y = NUMBERS[name], some(2, 4, 3)
    n = 1 if numbers[1][0] else 0
    m, k = BCOO.fromdense(B, n_batch=n), BCOO.fromdense(y, n_batch=n)
    got = sparse.bcoo_dot_general(m, k, dimension_numbers=numbers)
    equal(got, lax.dot_general(B, y, numbers))
    args = [theirs.BCOO.fromdense(x, n_batch=n) for x in (B, y)]
    other = theirs.bcoo_dot_general(*args, dimension_numbers=numbers)
    assert (got.nse, got.n_batch) == (other.nse, other.n_batch)


def test_operators():
    m, k, v = BCOO.fromdense(X), BCOO.fromdense(X[::-1].copy()), np.float32([1, 2, 3, 4])
    y, wanted = BCOO.fromdense(Y), []

    @sw.jit
    def everything(m, k, y):
        pairs = all_of(m, k, y, v)
        wanted.extend([want for _, want in pairs])
        return [got for got, _ in pairs]

    for got, want in zip(everything(m, k, y), wanted, strict=True):
        equal(got, want)
    for got, want in ((m @ v, X @ v), (m + k, X + X[::-1]), (m[1], X[1]), (m @ y, X @ Y)):
        equal(got, want)
    equal((m + k).sum_duplicates(), X + X[::-1])
    assert [np.asarray(r.todense()).tolist() for r in m] == X.tolist()
    assert len(m) == 3 and m.size == 12 and m.ndim == 2 and m.dtype == np.float32
    assert (m - m).sum_duplicates().nse == 0
    for f in (lambda: m + 1, lambda: m > 0, lambda: 1 / m, lambda: m**0, lambda: m == m):
        with pytest.raises(NotImplementedError):
            f()


def all_of(m, k, y, v):
    return [
        (m @ v, X @ v),
        (m @ Y, X @ Y),
        (X.T @ m, X.T @ X),
        (jnp.asarray(X.T) @ m, X.T @ X),
        (m @ y, X @ Y),
        (m * 2, X * 2),
        (2 * m, X * 2),
        (m * v, X * v),
        (m * k, X * X[::-1]),
        (m + k, X + X[::-1]),
        (m - k, X - X[::-1]),
        (m - m, 0 * X),
        (-m, -X),
        (+m, X),
        (abs(m + m), abs(2 * X)),
        (m / 2, X / 2),
        (m / v, X / v),
        (m**2, X**2),
        (m[1], X[1]),
        (m[1:, ::2], X[1:, ::2]),
        (m[:, ::-1], X[:, ::-1]),
        (m[None, :, 1], X[None, :, 1]),
        (m[jnp.array([2, 0])], X[[2, 0]]),
        (m[jnp.int32(1)], X[1]),
        (m.sum(), X.sum()),
        (m.sum(0), X.sum(0)),
        (m.reshape(2, 6), X.reshape(2, 6)),
        (m.astype(int), X.astype(int)),
        (m.T, X.T),
        ((m + k).sum_duplicates(nse=12), X + X[::-1]),
        (m.T.sort_indices(), X.T),
        ((m + k).sort_indices(), X + X[::-1]),
    ]


def test_trees_and_transforms():
    m, b, v = BCOO.fromdense(X), BCOO.fromdense(B, n_batch=1), np.float32([1, 2, 3, 4])
    equal(sw.jit(lambda m, v: m @ v)(m, v), X @ v)
    equal(sw.vmap(lambda m, v: m @ v, (0, None))(b, v), B @ v)
    equal(sw.vmap(lambda m: (m * 2).T)(b), 2 * B.transpose(0, 2, 1))
    again = sw.tree.unflatten(sw.tree.structure(m), sw.tree.leaves(m))
    equal(again, X)
    assert repr(sw.tree.map(lambda x: None, m)) == "BCOO(<invalid>)"
    assert sw.eval_shape(lambda m: m.T, m).shape == (4, 3)
    out = lax.scan(lambda c, _: (c.with_data(2 * c.data), None), m, None, 3)[0]
    equal(out, 8 * X)


@pytest.mark.sweep
def test_derivatives():
    m, v = BCOO.fromdense(X), np.float32([1, 2, 3, 4])
    loss = lambda m, v: ((m @ v) ** 2).sum()  # noqa: E731
    want = 2 * (X @ v)[:, None] * v * (X != 0)
    equal(sparse.grad(loss)(m, v), want)
    value, (by_m, by_v) = sparse.value_and_grad(loss, (0, 1))(m, v)
    equal(value, ((X @ v) ** 2).sum())
    equal(by_m, want)
    equal(by_v, 2 * X.T @ (X @ v))
    assert not isinstance(m.sum(), BCOO) and m.sum().shape == ()
    equal(sparse.grad(lambda m: (m * v).sum())(m), v * (X != 0))
    with_aux = sparse.grad(lambda m: (loss(m, v), m.nse), has_aux=True)(m)
    assert with_aux[1] == m.nse
    for transform in (sparse.jacfwd, sparse.jacrev, sparse.jacobian):
        found = transform(lambda m: m @ v)(m)
        equal(found, np.asarray(sw.jacrev(lambda x: x @ v)(X)) * (X != 0))
        assert found.n_batch == 1
    tree = sparse.grad(lambda p: loss(p["m"], p["v"]))({"m": m, "v": v})
    equal(tree["m"], want)
    square = BCOO.fromdense(X @ X.T)
    found = sw.grad(lambda d: ((square.with_data(d) @ square).todense() ** 2).sum())(square.data)
    dense = sw.grad(lambda x: ((x @ (X @ X.T)) ** 2).sum())(X @ X.T)
    equal(square.with_data(found), np.where((X @ X.T) != 0, dense, 0))


@pytest.mark.parametrize("rows", everyday([8, 7], 1))
def test_data_that_is_split(rows):
    kind = sw.sharding.AxisType.Auto if rows == 7 else sw.sharding.AxisType.Explicit
    mesh = sw.make_mesh((4,), ("x",), axis_types=(kind,))
    x, v = some(rows, 3, 4, share=0.9), np.float32([1, 2, 3, 4])
    m = BCOO.fromdense(x, n_batch=1)
    place = sw.NamedSharding(mesh, sw.P("x"))
    split = sw.device_put(m, place)
    assert len(split.data.sharding.device_set) == 4
    equal(sw.jit(lambda m: m @ v)(split), x @ v)
    equal(split @ v, x @ v)
    if rows == 8:
        equal(split.todense(), x)
        return
    equal(split.sum(0), x.sum(0))
    flat = BCOO.fromdense(x[0])
    n = 4 * (flat.nse // 4) + (rows == 7)
    some_of = BCOO((flat.data[:n], flat.indices[:n]), shape=flat.shape)
    equal(sw.device_put(some_of, place) @ v, some_of.todense() @ v)


def test_what_is_out_of_bounds_and_twice():
    m = BCOO(([1.0, 2.0, 4.0, 8.0], [[0, 1], [0, 1], [3, 0], [2, 4]]), shape=(3, 4))
    want = np.zeros((3, 4))
    want[0, 1] = 3
    equal(m, want)
    equal(m @ np.ones(4), want.sum(1))
    equal(np.ones(3) @ m, want.sum(0))
    equal(m.sum(), 3.0)
    equal(m.T, want.T)
    equal(m.reshape(12), want.reshape(12))
    equal(abs(m), want)
    equal(m * m, want * want)
    equal(m * np.full((3, 4), 2.0), want * 2)
    equal(sparse.bcoo_concatenate([m, m], dimension=0), np.concatenate([want, want]))
    equal(m[::-1], want[::-1])
    equal(m[:1], want[:1])
    assert m.sum_duplicates().nse == 1
    equal(m.sum_duplicates(), want)
    found = sparse.bcoo_extract(m, np.full((3, 4), 5.0), assume_unique=False)
    assert found.data.tolist() == [5, 0, 0, 0]
    found = sparse.bcoo_extract(m, np.full((3, 4), 5.0), assume_unique=True)
    assert found.data.tolist() == [5, 5, 0, 0]


@pytest.mark.sweep
def test_sampled_products_and_more():
    at = BCOO.fromdense(X @ Y)
    numbers = (((1,), (0,)), ((), ()))
    got = sparse.bcoo_dot_general_sampled(X, Y, at.indices, dimension_numbers=numbers)
    equal(at.with_data(got), X @ Y)
    y = some(2, 4, 5)
    batched = BCOO.fromdense(B @ y, n_batch=1)
    numbers = NUMBERS["matmul"]
    got = sparse.bcoo_dot_general_sampled(B, y, batched.indices, dimension_numbers=numbers)
    equal(batched.with_data(got), B @ y)
    equal(at.with_data(sparse.bcoo_multiply_dense(at, Y[0])), (X @ Y) * Y[0])
    v, w = some(1, 1, 6, share=1), some(1, 1, 2, share=1)
    for pads in ([(0, 0)], [(1, 2)], "SAME", "VALID"):
        options = dict(window_strides=(1,), padding=pads)
        want = jax.lax.conv_general_dilated(v, w, **options)
        for args in (
            (BCOO.fromdense(v), w),
            (v, BCOO.fromdense(w)),
            (BCOO.fromdense(v), BCOO.fromdense(w)),
        ):
            equal(sparse.bcoo_conv_general_dilated(*args, **options), want)
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    at = jnp.array([[2], [0]])
    equal(sparse.bcoo_gather(BCOO.fromdense(X), at, numbers, (1, 4)), X[[2, 0]])
    equal(sparse.bcoo_multiply_sparse(BCOO.fromdense(X[:1]), BCOO.fromdense(X)), X[:1] * X)


@pytest.mark.sweep
def test_what_is_made():
    for k, (n, m) in itertools.product((-3, -1, 0, 1, 4), ((3, 4), (4, 3))):
        equal(sparse.eye(n, m, k), np.eye(n, m, k))
    equal(sparse.eye(3, n_batch=1), np.eye(3))
    equal(sparse.empty((2, 3), float, n_batch=1, nse=2), np.zeros((2, 3)))
    key = sw.random.key(0)
    for options in ({}, {"n_batch": 1}, {"n_dense": 1}, {"sorted_indices": True}):
        m = sparse.random_bcoo(key, (5, 6, 7), nse=4, **options)
        assert m.nse == 4 and m.shape == (5, 6, 7)
        assert m.sum_duplicates().nse == 4
    assert sparse.random_bcoo(key, (10, 10)).nse == 20
    found = BCOO.from_scipy_sparse(scipy.sparse.csr_matrix(X))
    equal(found, X)
    equal(sparse.todense(found), X)
    assert sparse.todense(X) is X


@pytest.mark.sweep
def test_values_of_other_dtypes():
    for dtype in (np.int32, np.complex64, np.bool_, jnp.bfloat16):
        x = some(3, 4).astype(dtype)
        m = BCOO.fromdense(x)
        assert m.dtype == x.dtype and m.todense().dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(m.todense()), x)
        if dtype is not np.bool_:
            equal((m @ Y.astype(dtype)).astype(np.complex64), (x @ Y.astype(dtype)))
    with sw.enable_x64(True):
        assert (BCOO.fromdense(X.astype(float)) @ Y).dtype == np.float64
    empty = BCOO.fromdense(np.zeros((0, 4), np.float32))
    equal(empty @ Y, np.zeros((0, 5)))
    scalar = BCOO.fromdense(np.float32(3))
    equal(scalar, np.float32(3))


def test_sparsify():
    m = BCOO.fromdense(X)
    f = lambda lib: lambda m, v: lib.sin(2 * m.T) @ v  # noqa: E731
    equal(sparse.sparsify(f(jnp))(m, Y[:3, 0]), f(np)(X, Y[:3, 0]))
    equal(sparse.sparsify(sw.jit(f(jnp)), use_tracer=True)(m, Y[:3, 0]), f(np)(X, Y[:3, 0]))
    equal(sw.jit(sparse.sparsify(f(jnp)))(m, Y[:3, 0]), f(np)(X, Y[:3, 0]))
    equal(sparse.sparsify(lambda m: jnp.stack([m, m], 1))(m), np.stack([X, X], 1))
    equal(sparse.sparsify(lambda m: jnp.split(m, 2, 1)[1])(m), X[:, 2:])
    equal(sparse.sparsify(lambda m: sparse.todense(m) + 1)(m), X + 1)
    equal(sparse.sparsify(lambda t: t["m"].sum(0))({"m": m}), X.sum(0))
    equal(sparse.sparsify(lambda m: jnp.expm1(jnp.sqrt(abs(m))))(m), np.expm1(np.sqrt(abs(X))))
    with pytest.raises(NotImplementedError) as error:
        sparse.sparsify(jnp.cos)(m)
    assert str(error.value) == (
        "sparsify: [cos] of a sparse array is not implemented, as its result would be dense. Use "
        "`shardwise.experimental.sparse.todense` if that is intended."
    )


@pytest.mark.parametrize("layout", [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)])
def test_matrices_of_scipy_in_every_layout(layout):
    found = BCOO.from_scipy_sparse(scipy.sparse.coo_matrix(X), n_batch=layout[0], n_dense=layout[1])
    assert (found.n_batch, found.n_dense) == layout
    equal(found, X)


@pytest.mark.sweep
def test_precision_of_products():
    m, numbers = BCOO.fromdense(X), (((1,), (0,)), ((), ()))
    dot = lambda x, y, how: sparse.bcoo_dot_general(  # noqa: E731
        x, y, dimension_numbers=numbers, precision=how
    )
    for how in ("highest", ("default", "high"), lax.Precision.HIGH, "F32_F32_F32"):
        equal(dot(m, Y, how), X @ Y)
        equal(dot(X, BCOO.fromdense(Y), how), X @ Y)
        if how != "F32_F32_F32":
            equal(dot(m, BCOO.fromdense(Y), how), X @ Y)
    rows = BCOO.fromdense(X, n_dense=1)
    third = np.full((4, 5), 1 / 3, np.float32)
    rounded = third.astype("bfloat16").astype(np.float32)
    equal(dot(rows, third, "BF16_BF16_F32"), X @ rounded)
    with pytest.raises(NotImplementedError) as error:
        dot(m, BCOO.fromdense(Y), "F32_F32_F32")
    assert str(error.value) == (
        "bcoo_dot_general: the dot product of two sparse arrays does not support F32_F32_F32, as "
        "elements are multiplied one by one. Use a Precision, or make one of them dense."
    )


def test_ways_out_of_what_is_not_there():
    m = BCOO.fromdense(X)
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    at = np.array([[1]], np.int32)
    equal(sparse.bcoo_gather(m, at, numbers, (1, 4), mode="clip").todense()[0], X[1])
    with pytest.raises(NotImplementedError) as error:
        sparse.bcoo_gather(m, at, numbers, (1, 4), mode="fill")
    assert str(error.value) == (
        "bcoo_gather: mode must be None, 'promise_in_bounds' or 'clip', as fill values of "
        "out-of-bounds indices would be stored; got 'fill'. Index `todense()`, or the `data` and "
        "`indices`."
    )
    with pytest.raises(NotImplementedError) as error:
        sparse.sparsify(lambda m: 1 / m)(m)
    assert str(error.value) == (
        "true_divide: sparsify: division by a sparse array, which has zeros, is not supported. Use "
        "`shardwise.experimental.sparse.todense` if that is intended."
    )
    with pytest.raises(NotImplementedError) as error:
        sparse.sparsify(lambda x, y: x + y)(m, BCOO.fromdense(X, n_dense=1))
    assert str(error.value) == (
        "add: sparsify: arrays with n_dense 0 and 1 cannot be added. Give them the same layout "
        "with `bcoo_update_layout(n_dense=...)`."
    )


def test_mistakes():
    with pytest.raises(ValueError) as error:
        BCOO((np.ones(3), np.zeros((2, 1), int)), shape=(4,))
    assert str(error.value) == (
        "BCOO: data of shape (3,) and indices of shape (2, 1) do not fit the shape (4,): they must "
        "be (*batch, nse, *dense) and (*batch, nse, sparse) for a shape (*batch, *sparse, *dense)."
    )
    with pytest.raises(ValueError, match="indices must be integers of shape"):
        BCOO((np.ones(3), np.zeros((3, 1))), shape=(4,))
    m = BCOO.fromdense(B, n_batch=1)
    with pytest.raises(sparse.SparseEfficiencyError, match="stores many zeros"):
        m.update_layout(n_batch=2)
    with pytest.warns(sparse.SparseEfficiencyWarning, match="stores many zeros"):
        m.update_layout(n_dense=1, on_inefficient="warn")
    with pytest.raises(sw.errors.ConcretizationTypeError, match="nse, the number of stored"):
        sw.jit(lambda x: BCOO.fromdense(x).data)(X)
    for f in (lambda: m.T, lambda: m.transpose((1, 0, 2))):
        with pytest.raises(NotImplementedError, match="batch, sparse and dense dimensions"):
            f()
    with pytest.raises(TypeError, match="differ in paired dimensions"):
        sparse.bcoo_dot_general(m, X, dimension_numbers=(((2,), (0,)), ((), ())))
    with pytest.raises(ValueError, match="sparse_format must be one of bcsr, bcoo, coo, csr, csc"):
        sparse.empty((2,), sparse_format="dense")
    with pytest.raises(ValueError, match="nse must be at least 0 and less than 4; got 4"):
        sparse.random_bcoo(sw.random.key(0), (4,), nse=4)


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in dir(theirs)
        if callable(getattr(theirs, n))
        and not n.endswith("_p")
        and n[0] != "_"
        and not inspect.isclass(getattr(theirs, n))
    ],
)
def test_arguments_have_the_names_of_jaxs(name):
    ours = inspect.signature(getattr(sparse, name)).parameters
    wanted = inspect.signature(getattr(theirs, name)).parameters
    assert [(p.name, p.kind) for p in ours.values()] == [(p.name, p.kind) for p in wanted.values()]


def test_a_reshape_may_not_mix_batch_and_sparse_dimensions():
    with pytest.raises(ValueError, match="mixes batch, sparse and dense dimensions"):
        BCOO.fromdense(np.ones((2, 2, 3)), n_batch=1).reshape(3, 2, 2)
