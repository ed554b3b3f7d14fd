"""`grouped_matmul` against a product for each group in float64, and against `lax.ragged_dot`."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as jnp
from shardwise.kernels.library import grouped_matmul
from shardwise.sharding import PartitionSpec as P
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(0)
SMALL = {"blocks": (16, 16, 16)}


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def wanted(x, w, sizes):
    ends = np.cumsum(sizes)
    out = np.zeros((x.shape[0], w.shape[2]))
    for matrix, start, end in zip(w, ends - sizes, ends, strict=True):
        out[start:end] = x[start:end].astype(np.float64) @ matrix.astype(np.float64)
    return out


CASES = {  # m, k, n and the sizes of groups
    "ragged": ((40, 20, 24), [5, 0, 17, 3, 0]),
    "even": ((32, 16, 16), [16, 16]),
    "last only": ((33, 16, 40), [0, 0, 33]),
    "no rows": ((7, 40, 5), [0, 0]),
    "many in one block": ((50, 16, 16), [1, 2, 3, 4, 0, 5, 6, 29]),
    "one row": ((1, 3, 2), [0, 1]),
}


@pytest.mark.parametrize("name", everyday(CASES, 2))
def test_values_and_gradients(name):
    (m, k, n), sizes = CASES[name]
    x, w, sizes = normal(m, k), normal(len(sizes), k, n), np.array(sizes)
    factors = normal(m, n)

    def moved(f):
        def run(x, w):
            out = f(x, w, sizes)
            return (out * factors).sum(), out

        return sw.jit(sw.grad(run, (0, 1), has_aux=True))(x, w)

    found, out = moved(lambda *xs: grouped_matmul(*xs, **SMALL))
    close(out, wanted(x, w, sizes).astype(np.float32), atol=1e-5)
    close(found, moved(lax.ragged_dot)[0], atol=1e-5)


@pytest.mark.sweep
def test_checks_are_silent():
    x, w, sizes = normal(33, 20), normal(3, 20, 8), np.array([5, 0, 20])
    close(grouped_matmul(x, w, sizes, **SMALL, check=True), lax.ragged_dot(x, w, sizes), atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_derivatives_have_no_faults_of_memory(name):
    (m, k, n), sizes = CASES[name]
    args, sizes = (normal(m, k), normal(len(sizes), k, n)), np.array(sizes)
    back = lambda *xs: sw.vjp(lambda *xs: grouped_matmul(*xs, sizes, **SMALL), *xs)[1](normal(m, n))  # noqa: E731
    kernels.checked(back)(*args)


@pytest.mark.sweep
def test_half_precision():
    x, w = [jnp.asarray(x, jnp.bfloat16) for x in (normal(20, 40), normal(2, 40, 8))]
    sizes = np.array([7, 9])
    out = grouped_matmul(x, w, sizes, **SMALL)
    assert out.dtype == jnp.bfloat16
    exact = wanted(np.asarray(x, np.float32), np.asarray(w, np.float32), sizes)
    np.testing.assert_allclose(np.asarray(out, np.float64), exact, 2e-2, 2e-2)


@pytest.mark.sweep
def test_second_derivatives_by_differences():
    with sw.enable_x64(True):
        args = normal(20, 5).astype(np.float64), normal(3, 5, 6).astype(np.float64)
        check_grads(lambda *xs: grouped_matmul(*xs, np.array([5, 0, 9]), **SMALL), args, 2)


def test_second_derivatives_are_kernels():
    args, sizes = (normal(20, 5), normal(3, 5, 6)), np.array([5, 0, 9])

    def along(f):
        total = lambda *xs: jnp.sin(f(*xs, sizes)).sum()  # noqa: E731
        back = sw.grad(total, (0, 1))
        return lambda: sw.grad(lambda *xs: sum((g**2).sum() for g in back(*xs)), (0, 1))(*args)

    found = along(lambda *xs: grouped_matmul(*xs, **SMALL))
    close(sw.jit(found)(), sw.jit(along(lax.ragged_dot))(), rtol=1e-4, atol=1e-4)
    names = str(sw.make_jaxpr(found)())
    assert names.count("kernel_call") >= 9 and "while" not in names


@pytest.mark.sweep
def test_maps_loops_and_branches():
    x, w, sizes = normal(3, 20, 8), normal(2, 8, 8), np.array([[3, 9], [0, 20], [20, 0]])
    exact = np.stack([wanted(a, w, s) for a, s in zip(x, sizes, strict=True)]).astype(np.float32)
    f = lambda x, s: grouped_matmul(x, w, s, **SMALL)  # noqa: E731
    close(sw.jit(sw.vmap(f))(x, sizes), exact, atol=1e-5)

    def run(product):
        def layer(x, s):
            return lax.cond(s[0] > 0, lambda: x + product(x, w, s), lambda: x), None

        return lambda: sw.grad(lambda x: lax.scan(sw.checkpoint(layer), x, sizes)[0].sum())(x[0])

    found = sw.jit(run(lambda *xs: grouped_matmul(*xs, **SMALL)))()
    close(found, sw.jit(run(lax.ragged_dot))(), rtol=1e-4, atol=1e-4)


def test_sharded_rows_and_columns():
    mesh = sw.make_mesh((4, 2), ("data", "model"))
    x, w, sizes = normal(40, 8), normal(2, 8, 6), np.array([3, 7] * 4)
    specs = P("data"), P(None, None, "model"), P("data")
    f = sw.shard_map(grouped_matmul, mesh=mesh, in_specs=specs, out_specs=P("data", "model"))
    parts = [wanted(x[i : i + 10], w, np.array([3, 7])) for i in range(0, 40, 10)]
    close(sw.jit(f)(x, w, sizes), np.concatenate(parts).astype(np.float32), atol=1e-5)
    moved = sw.jit(sw.grad(lambda w: jnp.sin(f(x, w, sizes)).sum()))(w)
    groups = np.tile([0] * 3 + [1] * 7, 4)
    plain = sw.grad(lambda w: jnp.sin(jnp.einsum("mk,mkn->mn", x, w[groups])).sum())(w)
    close(moved, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("m", "k", "n", "g"), [(0, 4, 4, 2), (4, 0, 4, 2), (4, 4, 0, 2), (4, 4, 4, 0)]
)
def test_empty_products(m, k, n, g):
    found = grouped_matmul(normal(m, k), normal(g, k, n), np.zeros(g, np.int32))
    close(found, np.zeros((m, n), np.float32))


test_mistakes = messages(
    """
    grouped_matmul(x(4, 5), x(2, 6, 7), n(2))
        ValueError: grouped_matmul: the arguments must be floats (m, k) and (g, k, n) of one dtype,
        and integers (g,); got f32[4,5], f32[2,6,7], i32[2].

    grouped_matmul(x(4, 6), x(2, 6, 7), n(2), blocks=(16, 0, 16))
        ValueError: grouped_matmul: blocks is 3 positive integers, (rows, columns, inner); got
        (16, 0, 16) of type tuple. Compilers of GPUs take powers of two; those of TPUs multiples of
        8 and 128.
    """,
    {
        "grouped_matmul": grouped_matmul,
        "x": lambda *shape: np.zeros(shape, np.float32),
        "n": lambda *shape: np.zeros(shape, np.int32),
    },
)
