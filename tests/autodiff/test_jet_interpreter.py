"""`jet` against repeated derivatives, which use no series, and against jax."""

import jax
import numpy as np
import pytest
from jax.experimental.jet import jet as theirs

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, nn
from shardwise.experimental.jet import jet
from tests.helpers.everyday import everyday

ORDER = 4


def curve(x, terms):
    """The curve whose derivatives at 0 are `terms`."""
    factorial = np.cumprod([1.0, *range(1, len(terms) + 1)])
    return lambda s: x + sum([t * s**k / factorial[k] for k, t in enumerate(terms, 1)])


def by_jacobians(f, primals, series):
    """Derivatives of f along the curves with respect to s, in order."""
    run = lambda s: f(*[curve(x, ts)(s) for x, ts in zip(primals, series, strict=True)])  # noqa: E731
    found = []
    for _ in series[0]:
        run = sw.jacfwd(run)
        found.append(run(0.0))
    return found


def check(f, *primals, order=ORDER):
    with sw.enable_x64(True):
        rng = np.random.default_rng(1)
        primals = [np.asarray(x, np.float64) for x in primals]
        series = [[rng.normal(size=x.shape) for _ in range(order)] for x in primals]
        value, found = jet(f, primals, series)
        np.testing.assert_allclose(value, f(*primals), rtol=1e-12)
        wanted = by_jacobians(f, [jnp.asarray(x) for x in primals], series)
        assert len(found) == order
        for got, want in zip(found, wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9)


UNARY = {
    **{
        n: getattr(lax, n)
        for n in """
        sin cos tan sinh cosh tanh asinh atanh exp exp2 expm1 log log1p sqrt rsqrt cbrt square
        logistic erf erfc erf_inv lgamma digamma neg abs sign floor
    """.split()
    },
    "acosh": lambda x: lax.acosh(x + 1),
    "asin": lax.asin,
    "acos": lax.acos,
    "atan": lax.atan,
    "cube": lambda x: x**3,
    "power": lambda x: x**2.5,
    "inverse": lambda x: 1 / x,
    "negative power": lambda x: x**-2,
    "softplus": nn.softplus,
    "gelu": nn.gelu,
    "relu": nn.relu,
    "real of complex": lambda x: jnp.real(jnp.exp(lax.complex(x, x * x))),
    "maximum": lambda x: jnp.maximum(x, 0.1) * x,
    "clip": lambda x: jnp.clip(x, 0.5, 2.0) * x,
}


@pytest.mark.parametrize("name", everyday(UNARY, 1))
def test_functions_of_one_argument(name):
    check(UNARY[name], 0.3)


BINARY = {
    "mul": jnp.multiply,
    "div": jnp.divide,
    "rem": jnp.fmod,
    "power": jnp.power,
    "arctan2": jnp.arctan2,
    "maximum": jnp.maximum,
    "logaddexp": jnp.logaddexp,
    "quotients": lambda x, y: jnp.sin(x) / jnp.cos(y) / (x * y),
    "igamma": lambda x, y: lax.igamma(2.0, x * y),
    "same": lambda x, y: (x + y) / (x + y) * (x - y),
}


@pytest.mark.parametrize("name", everyday(BINARY, 1))
def test_functions_of_two_arguments(name):
    check(BINARY[name], 0.7, 1.6)


V, M = np.linspace(0.2, 1.1, 4), np.linspace(-1, 2, 12).reshape(3, 4)
ARRAYS = {
    "sums": (lambda m: jnp.sum(m * m, axis=0)[1:3], M),
    "matmul": (lambda m, v: jnp.tanh(m @ v), M, V),
    "einsum of one": (lambda m: jnp.einsum("ij,kj->ik", m, m), M),
    "sort": (lambda m: jnp.sort(jnp.sin(m), axis=1), M),
    "max": (lambda m: jnp.max(m * m, axis=1), M),
    "cumprod": (lambda v: jnp.cumprod(v), V),
    "cumsum": (lambda v: jnp.cumsum(v * v), V),
    "logsumexp": (lambda m: nn.logsumexp(m, axis=1), M),
    "softmax": (lambda m: nn.softmax(m, axis=1), M),
    "indices": (lambda v: (v * v)[jnp.array([2, 0, 0])], V),
    "updates": (lambda v: jnp.zeros(4).at[jnp.array([1, 1])].add(v[:2] ** 2) * v, V),
    "reshapes": (lambda m: jnp.pad(m.T.reshape(2, 6), 1)[:, ::-1] ** 3, M),
    "where": (lambda m: jnp.where(m > 0.5, m**2, jnp.sin(m)), M),
    "solve": (lambda m: jnp.linalg.solve(m[:, :3] @ m[:, :3].T + jnp.eye(3), m[:, 3]), M),
    "fft": (lambda v: jnp.abs(jnp.fft.fft(v * v)), V),
    "determinant": (lambda m: jnp.linalg.det(m[:, :3] @ m[:, :3].T + jnp.eye(3)), M),
}


@pytest.mark.parametrize("name", everyday(ARRAYS, 1))
def test_functions_of_arrays(name):
    f, *primals = ARRAYS[name]
    check(f, *primals, order=3)


@sw.custom_jvp
def cubed(x):
    return x**3


cubed.defjvp(lambda x, t: (cubed(x[0]), 3 * x[0] ** 2 * t[0]))

PROGRAMS = {
    "jit": sw.jit(lambda x: sw.jit(jnp.sin)(x) * x),
    "scan": lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x, x),
    "while": lambda x: lax.while_loop(lambda c: c < 3, lambda c: c * (1 + x), x),
    "cond": lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x),
    "checkpoint": sw.checkpoint(lambda x: jnp.sin(jnp.sin(x))),
    "custom_jvp": lambda x: cubed(jnp.sin(x)),
    "stop_gradient": lambda x: lax.stop_gradient(x) * x,
    "vmap within": lambda x: sw.vmap(lambda y: jnp.sin(x * y))(jnp.arange(3.0)),
    "grad within": lambda x: sw.grad(lambda y: jnp.sin(x * y))(x),
}


@pytest.mark.parametrize("name", everyday(PROGRAMS, 1))
def test_what_holds_programs(name):
    check(PROGRAMS[name], 0.6, order=3)


def test_under_other_transforms():
    third = lambda x: jet(jnp.sin, (x,), ((1.0, 0.0, 0.0),))[1][2]  # noqa: E731
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)  # noqa: E731
    close(third(x), -np.cos(x))
    close(sw.jit(third)(x), -np.cos(x))
    close(sw.vmap(third)(x), -np.cos(x))
    close(sw.vmap(sw.grad(third))(x), np.sin(x))
    twice = lambda y: jet(third, (y,), ((1.0, 0.0),))[1][1]  # noqa: E731
    close(twice(x), np.cos(x))
    mesh = sw.make_mesh((4,), ("x",))
    for size in (8, 7):
        x = np.linspace(-1, 1, size, dtype=np.float32)
        split = sw.device_put(x, sw.NamedSharding(mesh, sw.P("x")))
        close(sw.jit(third)(split), -np.cos(x))


def test_types_are_those_of_explicit_meshes():
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Explicit,))
    with sw.sharding.set_mesh(mesh):
        x = sw.device_put(np.ones((8, 2), np.float32), sw.NamedSharding(mesh, sw.P("x")))
        y, terms = jet(lambda x: jnp.exp(x) / x, (x,), ((x, x),))
    assert all(sw.typeof(t) == sw.typeof(y) for t in terms)


@pytest.mark.parametrize("scaled", [True, False])
def test_values_are_those_of_jax(scaled):
    f = lambda np: lambda x, y: {"a": np.sin(x) * y, "b": (x / y, np.ones(3))}  # noqa: E731
    x, y = np.float32([0.5, 1, 2]), np.float32([1, 2, 3])
    series = ((x, 0 * x), (y, np.ones_like(y)))
    got, want = jet(f(jnp), (x, y), series, scaled), theirs(f(jax.numpy), (x, y), series, scaled)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_long_series_take_work_by_squares():
    program = sw.make_jaxpr(lambda x: jet(lambda x: jnp.exp(x) / jnp.sin(x), (x,), ((1.0,) * 10,)))
    assert len(program(0.5).eqns) < 2000
    long = lambda x: [x := jnp.sin(x) for _ in range(300)][-1]  # noqa: E731
    assert np.isfinite(jet(long, (0.5,), ((1.0, 0.0),))[1][1])


def test_mistakes():
    for series in (((1.0,), (1.0, 2.0)), ((1.0,),)):
        with pytest.raises(ValueError, match="the same number of terms for each of 2 primals"):
            jet(jnp.add, (1.0, 2.0), series)
    with pytest.raises(ValueError) as error:
        jet(jnp.sin, ([1.0],), ((1.0,),))
    assert str(error.value) == "jet of sin: primals[0] must be an array; got list."
    with pytest.raises(TypeError) as error:
        jet(jnp.sin, (1,), ((1.0,),))
    assert str(error.value) == "jet of sin: primals[0] must be floating or complex; got ~i32[]."

    @sw.custom_vjp
    def f(x):
        return x

    f.defvjp(lambda x: (x, None), lambda _, ct: (ct,))
    with pytest.raises(TypeError, match="reached f, a custom_vjp function"):
        jet(f, (1.0,), ((1.0, 0.0),))


def test_booleans_do_not_move():
    b, x = np.array([True, False]), np.array([1.0, 2.0], np.float32)
    series = ((np.ones(2), np.ones(2)), (x, x * 2), (x * 3, x * 4))
    found = jet(jnp.where, (b, x, 2 * x), series)
    wanted = theirs(jax.numpy.where, (b, x, 2 * x), [list(s) for s in series])
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
